//! SQL of the table: one row for each key, in the partition of the day of its claim.

use jiff::Timestamp;
use postgres_kit::Connection;
use sqlx::types::Uuid;

use crate::claim_request::ClaimRequest;
use crate::scope::ScopeId;
use crate::stored_response::StoredResponse;
use crate::{IdempotencyError, IdempotencyOptions};

/// Layout of the rows written by this release. Version 1 had no token and no partitions; its hash is the same, so its rows
/// can be read.
pub(crate) const SCHEMA_VERSION: i16 = 2;

/// The columns of a live row that a claim needs.
#[derive(Debug)]
pub(crate) struct KeyRow {
    pub(crate) request_hash: Vec<u8>,
    pub(crate) token: Uuid,
    /// The stored response; `None` while the request is in progress.
    pub(crate) response: Option<StoredResponse>,
    pub(crate) is_lease_expired: bool,
    pub(crate) schema_version: i16,
}

/// Result of locking and looking up one idempotency key.
#[derive(Debug)]
pub(crate) struct KeyLookup {
    /// Whether the lock was granted. Otherwise only the row of a completed request is read.
    pub(crate) is_lock_granted: bool,
    /// Whether today's partition exists.
    pub(crate) has_partition: bool,
    /// When the claim reached the database, by its clock.
    pub(crate) claimed_at: Timestamp,
    /// The live row; `None` if the key is unused.
    pub(crate) row: Option<KeyRow>,
}

/// Locks the keys and reads their live rows; one result for each request, in their order.
pub(crate) async fn lock_and_look_up(
    tx: &mut Connection,
    requests: &[&ClaimRequest],
    options: &IdempotencyOptions,
) -> Result<Vec<KeyLookup>, IdempotencyError> {
    let ids: Vec<Uuid> = requests.iter().map(|request| request.id.0).collect();
    let numbers: Vec<i64> = requests.iter().map(|request| request.id.lock_number()).collect();
    let rows = sqlx::query!(
        r#"SELECT is_granted AS "is_granted!", has_partition AS "has_partition!", claimed_at AS "claimed_at!", request_hash,
                  claim_token, response_status, response_body, is_lease_expired, schema_version
           FROM idempotency.claim($1, $2, $3)"#,
        &ids,
        &numbers,
        options.lease().as_millis().to_string(),
    )
    .fetch_all(&mut *tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let response = match (
                row.response_status.and_then(|status| u16::try_from(status).ok()),
                row.response_body,
            ) {
                (Some(status), Some(body)) => Some(StoredResponse { status, body }),
                _ => None,
            };
            let key_row = match (row.request_hash, row.claim_token, row.schema_version) {
                (Some(request_hash), Some(token), Some(schema_version)) => Some(KeyRow {
                    request_hash,
                    token,
                    response,
                    is_lease_expired: row.is_lease_expired.unwrap_or(false),
                    schema_version,
                }),
                _ => None,
            };
            KeyLookup {
                is_lock_granted: row.is_granted,
                has_partition: row.has_partition,
                claimed_at: row.claimed_at.to_jiff(),
                row: key_row,
            }
        })
        .collect())
}

/// Inserts the responses of new requests; returns the number of rows written.
pub(crate) async fn insert_completed(
    tx: &mut Connection,
    completed: &[(&ClaimRequest, &StoredResponse)],
    options: &IdempotencyOptions,
) -> Result<u64, IdempotencyError> {
    let column = |field: fn(&ClaimRequest) -> &str| -> Vec<&str> {
        completed.iter().map(|(request, _)| field(request)).collect()
    };
    let ids: Vec<Uuid> = completed.iter().map(|(request, _)| request.id.0).collect();
    let hashes: Vec<&[u8]> =
        completed.iter().map(|(request, _)| request.fingerprint.as_bytes().as_slice()).collect();
    let tokens: Vec<Uuid> = completed.iter().map(|(request, _)| request.token).collect();
    let statuses: Vec<i16> =
        completed.iter().map(|(_, response)| i16::try_from(response.status).unwrap_or(i16::MAX)).collect();
    let bodies: Vec<&[u8]> = completed.iter().map(|(_, response)| response.body.as_slice()).collect();
    let written = sqlx::query!(
        "INSERT INTO idempotency.keys
             (scope_id, tenant, client, key, request_hash, claim_token, response_status, response_body, completed_at,
              expires_at, schema_version)
         SELECT new.*, clock_timestamp(), now() + $9 * interval '1 second', $10
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::uuid[], $7::smallint[], $8::bytea[])
              AS new
         ON CONFLICT DO NOTHING",
        &ids,
        &column(|request| &request.tenant) as &[&str],
        &column(|request| &request.client) as &[&str],
        &column(|request| &request.key) as &[&str],
        &hashes as &[&[u8]],
        &tokens,
        &statuses,
        &bodies as &[&[u8]],
        options.retention().as_secs() as f64,
        SCHEMA_VERSION,
    )
    .execute(&mut *tx)
    .await?;
    Ok(written.rows_affected())
}

/// Inserts `request` as in progress until its lease expires.
pub(crate) async fn insert_in_progress(
    tx: &mut Connection,
    request: &ClaimRequest,
    options: &IdempotencyOptions,
) -> Result<(), IdempotencyError> {
    sqlx::query!(
        "INSERT INTO idempotency.keys
             (scope_id, tenant, client, key, request_hash, claim_token, lease_until, expires_at, schema_version)
         VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7 * interval '1 millisecond',
                 now() + $8 * interval '1 second', $9)",
        request.id.0,
        request.tenant,
        request.client,
        request.key,
        request.fingerprint.as_bytes(),
        request.token,
        options.lease().as_millis() as f64,
        options.retention().as_secs() as f64,
        SCHEMA_VERSION,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Stores the response of the request in progress with `token`; false if another request has taken the key over.
pub(crate) async fn complete_in_progress(
    tx: &mut Connection,
    id: ScopeId,
    token: Uuid,
    response: &StoredResponse,
) -> Result<bool, IdempotencyError> {
    let written = sqlx::query!(
        "UPDATE idempotency.keys
         SET response_status = $3, response_body = $4, completed_at = clock_timestamp(), lease_until = NULL
         WHERE scope_id = $1 AND claim_token = $2 AND lease_until IS NOT NULL",
        id.0,
        token,
        i16::try_from(response.status).unwrap_or(i16::MAX),
        response.body,
    )
    .execute(&mut *tx)
    .await?;
    Ok(written.rows_affected() == 1)
}

/// Deletes the request in progress with `token`, so that its key is unused again; false if another request has taken the key
/// over.
pub(crate) async fn delete_in_progress(
    tx: &mut Connection,
    id: ScopeId,
    token: Uuid,
) -> Result<bool, IdempotencyError> {
    let removed = sqlx::query!(
        "DELETE FROM idempotency.keys WHERE scope_id = $1 AND claim_token = $2 AND lease_until IS NOT NULL",
        id.0,
        token,
    )
    .execute(&mut *tx)
    .await?;
    Ok(removed.rows_affected() == 1)
}

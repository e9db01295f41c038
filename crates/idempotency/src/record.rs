//! The rows: one for each key, in the partition of the day of its claim.

use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::types::Uuid;

use crate::answer::Answer;
use crate::claims::Keyed;
use crate::scope::ScopeId;
use crate::{IdempotencyError, Terms};

/// Layout of the rows written here. 1 had no token and no day; its hash means the same, so its rows are read as they
/// are.
pub(crate) const SCHEMA_VERSION: i16 = 2;

/// A live row, as much of it as a claim must know.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) request_hash: Vec<u8>,
    pub(crate) token: Uuid,
    /// None: in progress.
    pub(crate) answer: Option<Answer>,
    pub(crate) lease_passed: bool,
    pub(crate) schema_version: i16,
}

/// What a claim finds under one key.
#[derive(Debug)]
pub(crate) struct Found {
    /// Whether the lock was granted; only then is `record` known.
    pub(crate) is_granted: bool,
    /// Whether there is a partition for today.
    pub(crate) has_partition: bool,
    /// When the claim reached the database, by its clock.
    pub(crate) claimed_at: Timestamp,
    /// The live row, if there is one.
    pub(crate) record: Option<Record>,
}

/// Takes the locks of the keys and looks for their live rows; one result for each, in their order.
pub(crate) async fn claim(
    tx: &mut PgConnection,
    requests: &[&Keyed],
    terms: &Terms,
) -> Result<Vec<Found>, IdempotencyError> {
    let ids: Vec<Uuid> = requests.iter().map(|request| request.id.0).collect();
    let numbers: Vec<i64> = requests.iter().map(|request| request.id.lock_number()).collect();
    let rows = sqlx::query!(
        r#"SELECT is_granted AS "is_granted!", has_partition AS "has_partition!", claimed_at AS "claimed_at!", request_hash,
                  claim_token, response_status, response_body, is_lease_expired, schema_version
           FROM idempotency_claim($1, $2, $3)"#,
        &ids,
        &numbers,
        terms.lease().as_millis().to_string(),
    )
    .fetch_all(&mut *tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let answer = match (
                row.response_status.and_then(|status| u16::try_from(status).ok()),
                row.response_body,
            ) {
                (Some(status), Some(body)) => Some(Answer { status, body }),
                _ => None,
            };
            let record = match (row.request_hash, row.claim_token, row.schema_version) {
                (Some(request_hash), Some(token), Some(schema_version)) => Some(Record {
                    request_hash,
                    token,
                    answer,
                    lease_passed: row.is_lease_expired.unwrap_or(false),
                    schema_version,
                }),
                _ => None,
            };
            Found {
                is_granted: row.is_granted,
                has_partition: row.has_partition,
                claimed_at: row.claimed_at.to_jiff(),
                record,
            }
        })
        .collect())
}

/// Writes the answers of new requests; how many rows were written.
pub(crate) async fn store(
    tx: &mut PgConnection,
    answered: &[(&Keyed, &Answer)],
    terms: &Terms,
) -> Result<u64, IdempotencyError> {
    let column =
        |of: fn(&Keyed) -> &str| -> Vec<&str> { answered.iter().map(|(request, _)| of(request)).collect() };
    let ids: Vec<Uuid> = answered.iter().map(|(request, _)| request.id.0).collect();
    let hashes: Vec<&[u8]> =
        answered.iter().map(|(request, _)| request.fingerprint.as_bytes().as_slice()).collect();
    let tokens: Vec<Uuid> = answered.iter().map(|(request, _)| request.token).collect();
    let statuses: Vec<i16> =
        answered.iter().map(|(_, answer)| i16::try_from(answer.status).unwrap_or(i16::MAX)).collect();
    let bodies: Vec<&[u8]> = answered.iter().map(|(_, answer)| answer.body.as_slice()).collect();
    let written = sqlx::query!(
        "INSERT INTO idempotency_keys
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
        terms.ttl().as_secs() as f64,
        SCHEMA_VERSION,
    )
    .execute(&mut *tx)
    .await?;
    Ok(written.rows_affected())
}

/// Writes that `request` is in progress until its lease has passed.
pub(crate) async fn hold(
    tx: &mut PgConnection,
    request: &Keyed,
    terms: &Terms,
) -> Result<(), IdempotencyError> {
    sqlx::query!(
        "INSERT INTO idempotency_keys
             (scope_id, tenant, client, key, request_hash, claim_token, lease_until, expires_at, schema_version)
         VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7 * interval '1 millisecond',
                 now() + $8 * interval '1 second', $9)",
        request.id.0,
        request.tenant,
        request.client,
        request.key,
        request.fingerprint.as_bytes(),
        request.token,
        terms.lease().as_millis() as f64,
        terms.ttl().as_secs() as f64,
        SCHEMA_VERSION,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Answers the request in progress of `token`; false where another has taken it over.
pub(crate) async fn answer(
    tx: &mut PgConnection,
    id: ScopeId,
    token: Uuid,
    answer: &Answer,
) -> Result<bool, IdempotencyError> {
    let written = sqlx::query!(
        "UPDATE idempotency_keys
         SET response_status = $3, response_body = $4, completed_at = clock_timestamp(), lease_until = NULL
         WHERE scope_id = $1 AND claim_token = $2 AND lease_until IS NOT NULL",
        id.0,
        token,
        i16::try_from(answer.status).unwrap_or(i16::MAX),
        answer.body,
    )
    .execute(&mut *tx)
    .await?;
    Ok(written.rows_affected() == 1)
}

/// Removes the request in progress of `token`: its key is unused again. False where another has taken it over.
pub(crate) async fn remove(
    tx: &mut PgConnection,
    id: ScopeId,
    token: Uuid,
) -> Result<bool, IdempotencyError> {
    let removed = sqlx::query!(
        "DELETE FROM idempotency_keys WHERE scope_id = $1 AND claim_token = $2 AND lease_until IS NOT NULL",
        id.0,
        token,
    )
    .execute(&mut *tx)
    .await?;
    Ok(removed.rows_affected() == 1)
}

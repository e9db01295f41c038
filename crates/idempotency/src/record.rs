//! The rows: one for each key, in the partition of the day of its claim.

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

/// The live row of each request, in their order. Looks through every day on which a live row can have been written; the
/// sub-select keeps the planner at one index look-up per key and day, whatever it believes of a new partition's size.
pub(crate) async fn find(
    tx: &mut PgConnection,
    requests: &[&Keyed],
) -> Result<Vec<Option<Record>>, IdempotencyError> {
    let ids: Vec<Uuid> = requests.iter().map(|request| request.id.0).collect();
    let rows = sqlx::query!(
        r#"SELECT wanted.place AS "place!", kept.request_hash, kept.claim_token, kept.response_status, kept.response_body,
                  coalesce(kept.lease_until <= clock_timestamp(), false) AS "lease_passed!", kept.schema_version
           FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (scope_id, place)
           CROSS JOIN LATERAL (
               SELECT * FROM idempotency_keys
               WHERE idempotency_keys.scope_id = wanted.scope_id AND expires_at > now()
                 AND created_on >= (now() AT TIME ZONE 'UTC')::date - 3
                 AND created_on <= (now() AT TIME ZONE 'UTC')::date + 1
               LIMIT 1) AS kept"#,
        &ids,
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut found: Vec<Option<Record>> = requests.iter().map(|_| None).collect();
    for row in rows {
        let answer =
            match (row.response_status.and_then(|status| u16::try_from(status).ok()), row.response_body) {
                (Some(status), Some(body)) => Some(Answer { status, body }),
                _ => None,
            };
        let place = usize::try_from(row.place).unwrap_or(0).saturating_sub(1);
        if let Some(slot) = found.get_mut(place) {
            *slot = Some(Record {
                request_hash: row.request_hash,
                token: row.claim_token,
                answer,
                lease_passed: row.lease_passed,
                schema_version: row.schema_version,
            });
        }
    }
    Ok(found)
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

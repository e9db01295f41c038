//! Who carries a request out: one of all that come under its key.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::PgTransaction;

use crate::{Fingerprint, IdempotencyError, Scope, Terms};

/// Layout of the rows written here.
const SCHEMA_VERSION: i16 = 1;

/// What a request may do.
#[derive(Debug)]
#[must_use]
pub enum Claim {
    /// Carry it out, and [`Lease::complete`] it in the same transaction.
    New(Lease),
    /// It was carried out: this is the answer.
    Replay {
        /// HTTP status of the first answer.
        status: u16,
        /// Body of the first answer, byte for byte.
        body: Vec<u8>,
    },
    /// Another request holds the key now: come back later.
    InProgress,
    /// The key was used for another request.
    Mismatch,
}

/// A key that this transaction holds, until it ends.
///
/// Only a completed lease leaves a row. Without it, or when the transaction is rolled back, the key is
/// as unused as before: a request that is refused burns no key.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    tenant: String,
    client: String,
    key: String,
    fingerprint: Fingerprint,
    ttl: Duration,
    claimed_at: Timestamp,
}

/// Claims a key for the length of `tx`, which must be READ COMMITTED (the default of PostgreSQL).
///
/// Two statements, since one would look the key up as it stood before the lock was granted. The lock is
/// tried, not waited for: a twin that waits would hold a connection. It is re-entrant within a session,
/// so twins in one shared transaction must be told apart by the caller. From here on the database ends
/// the connection when it stands still for longer than [`Terms::lease`] inside or between statements.
/// End the transaction on every path: one that is only dropped holds the lock a moment longer, and a
/// repeat that comes meanwhile is told [`Claim::InProgress`].
///
/// # Errors
/// [`IdempotencyError::Database`] or [`IdempotencyError::LaterVersion`].
pub async fn claim(
    tx: &mut PgTransaction<'_>,
    scope: &Scope<'_>,
    fingerprint: &Fingerprint,
    terms: &Terms,
) -> Result<Claim, IdempotencyError> {
    let lease_ms = terms.lease().as_millis().to_string();
    let lock = sqlx::query!(
        r#"SELECT set_config('statement_timeout', $1, true) AS statement_ms,
                  set_config('idle_in_transaction_session_timeout', $1, true) AS idle_ms,
                  pg_try_advisory_xact_lock($2) AS "granted!",
                  now() AS "claimed_at!""#,
        lease_ms,
        scope.lock_number(),
    )
    .fetch_one(&mut **tx)
    .await?;
    if !lock.granted {
        return Ok(Claim::InProgress);
    }
    let row = sqlx::query!(
        "SELECT request_hash, response_status, response_body, schema_version FROM idempotency_keys
         WHERE tenant = $1 AND client = $2 AND key = $3 AND expires_at > now()",
        scope.tenant,
        scope.client,
        scope.key.as_str(),
    )
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = row else {
        return Ok(Claim::New(Lease {
            tenant: scope.tenant.to_owned(),
            client: scope.client.to_owned(),
            key: scope.key.as_str().to_owned(),
            fingerprint: *fingerprint,
            ttl: terms.ttl(),
            claimed_at: lock.claimed_at.to_jiff(),
        }));
    };
    if row.schema_version > SCHEMA_VERSION {
        return Err(IdempotencyError::LaterVersion { version: row.schema_version, known: SCHEMA_VERSION });
    }
    if row.request_hash != fingerprint.as_bytes() {
        return Ok(Claim::Mismatch);
    }
    match (row.response_status.and_then(|status| u16::try_from(status).ok()), row.response_body) {
        (Some(status), Some(body)) => Ok(Claim::Replay { status, body }),
        _ => Ok(Claim::InProgress),
    }
}

impl Lease {
    /// When the key was claimed, by the database's clock: the start of the transaction.
    #[must_use]
    pub fn claimed_at(&self) -> Timestamp {
        self.claimed_at
    }

    /// Stores the answer in the transaction that holds the lease. It is true once that commits.
    ///
    /// # Errors
    /// [`IdempotencyError::NotStorable`] for a status outside 200 to 499,
    /// [`IdempotencyError::Overtaken`], or [`IdempotencyError::Database`].
    pub async fn complete(
        self,
        tx: &mut PgTransaction<'_>,
        status: u16,
        body: &[u8],
    ) -> Result<(), IdempotencyError> {
        if !(200..500).contains(&status) {
            return Err(IdempotencyError::NotStorable { status });
        }
        // An expired row that nobody removed yet is written over, a live one never.
        let written = sqlx::query!(
            "INSERT INTO idempotency_keys AS kept
                 (tenant, client, key, request_hash, response_status, response_body, completed_at, expires_at,
                  schema_version)
             VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), now() + $7 * interval '1 second', $8)
             ON CONFLICT (tenant, client, key) DO UPDATE
             SET request_hash = excluded.request_hash, response_status = excluded.response_status,
                 response_body = excluded.response_body, created_at = excluded.created_at,
                 completed_at = excluded.completed_at, expires_at = excluded.expires_at,
                 schema_version = excluded.schema_version
             WHERE kept.expires_at <= now()",
            self.tenant,
            self.client,
            self.key,
            self.fingerprint.as_bytes(),
            i32::from(status),
            body,
            self.ttl.as_secs() as f64,
            SCHEMA_VERSION,
        )
        .execute(&mut **tx)
        .await?;
        if written.rows_affected() == 0 {
            return Err(IdempotencyError::Overtaken);
        }
        Ok(())
    }
}

//! Database roles of the services: the migrations grant each role the rights that its process uses, and the process's login is granted
//! the role. This module grants what the ledger's migrations cannot: tables of another crate.

use sqlx::{Executor as _, PgConnection};

use crate::LedgerError;

/// The roles; each has the name of its process.
pub const SERVICE_ROLES: [&str; 4] = ["payments_api", "payment_worker", "background_worker", "notifier"];

/// Makes the role `idempotency_keys` the owner of the schema `idempotency` and its tables, since partition maintenance creates and drops
/// them. payments_api, which claims keys, and background_worker, which maintains the partitions, are granted the role. Call it as the
/// schema's owner, after the migrations; a repeat changes nothing.
///
/// # Errors
/// [`LedgerError`].
pub async fn hand_over_idempotency_schema(connection: &mut PgConnection) -> Result<(), LedgerError> {
    connection
        .execute(
            "ALTER SCHEMA idempotency OWNER TO idempotency_keys;
             DO $$
             DECLARE partition regclass;
             BEGIN
                 FOR partition IN
                     SELECT oid FROM pg_class
                     WHERE relkind IN ('r', 'p') AND relnamespace = 'idempotency'::regnamespace
                       AND relowner <> 'idempotency_keys'::regrole
                 LOOP
                     EXECUTE format('ALTER TABLE %s OWNER TO idempotency_keys', partition);
                 END LOOP;
             END $$",
        )
        .await?;
    Ok(())
}

//! Database rights of the services: the migrations grant the role [`SERVICE_ROLE`] its rights, and the services' login is
//! granted the role. This module grants what the ledger's migrations cannot: tables of another crate.

use sqlx::{Executor as _, PgConnection};

use crate::LedgerError;

/// The role granted to the services' login.
pub const SERVICE_ROLE: &str = "payments_service";

/// Makes [`SERVICE_ROLE`] the owner of the idempotency tables, since partition maintenance creates and drops them. Call it
/// as their owner, after the migrations; a repeat changes nothing.
///
/// # Errors
/// [`LedgerError`].
pub async fn hand_over_idempotency_tables(connection: &mut PgConnection) -> Result<(), LedgerError> {
    connection
        .execute(
            "GRANT CREATE ON SCHEMA public TO payments_service;
             DO $$
             DECLARE idempotency_table regclass;
             BEGIN
                 FOR idempotency_table IN
                     SELECT oid FROM pg_class
                     WHERE relname ~ '^idempotency_keys(_[0-9]+)?$' AND relkind IN ('r', 'p')
                       AND relnamespace = 'public'::regnamespace AND relowner <> 'payments_service'::regrole
                 LOOP
                     EXECUTE format('ALTER TABLE %s OWNER TO payments_service', idempotency_table);
                 END LOOP;
             END $$",
        )
        .await?;
    Ok(())
}

//! Database roles of the services: the migrations grant each role the rights that its process uses, and the process's login is granted
//! the role. This module grants what the ledger's migrations cannot: tables of another crate.

use sqlx::{Executor as _, PgConnection};

use crate::LedgerError;

/// The roles; each has the name of its process. That of `payctl` reads only; `payctl_reconcile` is for `payctl reconcile` and
/// `payctl restore-check`.
pub const SERVICE_ROLES: [&str; 7] = [
    "payments_api",
    "payment_worker",
    "background_worker",
    "notifier",
    "operator_api",
    "payctl",
    "payctl_reconcile",
];

/// Makes the role `idempotency_keys` the owner of the schema `idempotency`, and gives payments_api the rights to the rows of its table.
/// background_worker, which detaches and drops partitions, is granted the role. Call it as the schema's owner, after the migrations; a
/// repeat changes nothing.
///
/// # Errors
/// [`LedgerError`].
pub async fn hand_over_idempotency_schema(connection: &mut PgConnection) -> Result<(), LedgerError> {
    connection
        .execute(
            "ALTER SCHEMA idempotency OWNER TO idempotency_keys;
             DO $$
             DECLARE owned regclass;
             BEGIN
                 FOR owned IN
                     SELECT oid FROM pg_class
                     WHERE relkind IN ('r', 'p') AND relnamespace = 'idempotency'::regnamespace
                       AND relname ~ '^keys(_[0-9]{8})?$' AND relowner = current_user::regrole
                 LOOP
                     EXECUTE format('ALTER TABLE %s OWNER TO idempotency_keys', owned);
                 END LOOP;
             END $$;
             ALTER FUNCTION idempotency.create_partitions() OWNER TO idempotency_keys;
             GRANT USAGE ON SCHEMA idempotency TO payments_api;
             GRANT SELECT, INSERT, DELETE ON idempotency.keys TO payments_api;
             GRANT UPDATE (response_status, response_body, completed_at, lease_until) ON idempotency.keys TO payments_api",
        )
        .await?;
    Ok(())
}

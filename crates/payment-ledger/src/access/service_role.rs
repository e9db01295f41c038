//! What the services may do in the database: their login is granted the role [`SERVICE_ROLE`], whose rights the migrations
//! give. Here is the one thing that migrations cannot: tables of another crate that the services make and drop themselves.

use sqlx::{Executor as _, PgConnection};

use crate::LedgerError;

/// The role that the login of the services is granted.
pub const SERVICE_ROLE: &str = "payments_service";

/// Makes the tables of idempotency keys the services' own, who make and drop their days. As the owner, after the
/// migrations; again changes nothing.
///
/// # Errors
/// [`LedgerError`].
pub async fn hand_over_keys(connection: &mut PgConnection) -> Result<(), LedgerError> {
    connection
        .execute(
            "GRANT CREATE ON SCHEMA public TO payments_service;
             DO $$
             DECLARE kept regclass;
             BEGIN
                 FOR kept IN
                     SELECT oid FROM pg_class
                     WHERE relname ~ '^idempotency_keys(_[0-9]+)?$' AND relkind IN ('r', 'p')
                       AND relnamespace = 'public'::regnamespace AND relowner <> 'payments_service'::regrole
                 LOOP
                     EXECUTE format('ALTER TABLE %s OWNER TO payments_service', kept);
                 END LOOP;
             END $$",
        )
        .await?;
    Ok(())
}

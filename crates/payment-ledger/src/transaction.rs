//! A transaction that opens exceptions and logs them after its COMMIT: a log line never reports what was rolled back.

use std::ops::{Deref, DerefMut};

use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::PaymentId;
use postgres_kit::text::replace_nul;
use postgres_kit::{Connection, Pool, Transaction};

use crate::LedgerError;

/// A transaction of the ledger. It is rolled back unless [`LedgerTransaction::commit`] succeeds.
pub(crate) struct LedgerTransaction {
    inner: Transaction,
    opened: Vec<OpenedException>,
}

/// An exception that this transaction inserted.
struct OpenedException {
    payment_id: Option<PaymentId>,
    kind: ExceptionKind,
    detail: String,
}

impl LedgerTransaction {
    pub(crate) async fn begin(pool: &Pool) -> Result<Self, LedgerError> {
        Ok(Self { inner: pool.begin().await?, opened: Vec::new() })
    }

    /// Commits, then logs the exceptions that were opened. A COMMIT whose answer is lost leaves no line: the exception itself is the
    /// record.
    pub(crate) async fn commit(self) -> Result<(), LedgerError> {
        self.inner.commit().await?;
        for exception in self.opened {
            tracing::error!(
                payment.id = exception.payment_id.as_ref().map(PaymentId::as_str),
                exception.kind = exception.kind.as_str(),
                detail = exception.detail,
                "the ledger opened an exception; an operator must decide it (payctl exceptions)"
            );
        }
        Ok(())
    }

    /// Rolls back, and waits until the locks are given back: a dropped transaction keeps them for another moment.
    pub(crate) async fn rollback(self) -> Result<(), LedgerError> {
        self.inner.rollback().await?;
        Ok(())
    }

    /// Opens an exception unless one of the same kind and origin is open.
    pub(crate) async fn open_exception(
        &mut self,
        payment_id: Option<&PaymentId>,
        kind: ExceptionKind,
        origin: &str,
        detail: &str,
    ) -> Result<(), LedgerError> {
        let inserted = sqlx::query!(
            "INSERT INTO exceptions (payment_id, kind, origin, detail) VALUES ($1, $2, $3, $4)
             ON CONFLICT (kind, origin) WHERE closed_at IS NULL DO NOTHING",
            payment_id.map(PaymentId::as_str),
            kind.as_str(),
            &*replace_nul(origin),
            &*replace_nul(detail),
        )
        .execute(&mut *self.inner)
        .await?;
        if inserted.rows_affected() > 0 {
            let (payment_id, detail) = (payment_id.cloned(), detail.to_owned());
            self.opened.push(OpenedException { payment_id, kind, detail });
        }
        Ok(())
    }
}

impl Deref for LedgerTransaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.inner
    }
}

impl DerefMut for LedgerTransaction {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.inner
    }
}

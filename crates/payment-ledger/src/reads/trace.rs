//! The trace of a payment. Read only by processes that export spans, and never for longer than a moment: a trace must not hold up a
//! payment.

use std::time::Duration;

use payment_protocol::ids::{PaymentId, SwitchName};

use crate::{Ledger, LedgerError};

/// Time for a read, waiting for a connection included. Without an answer the span is not recorded.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

impl Ledger {
    /// Position of the payment's request in its distributed trace, a W3C `traceparent`; `None` if the payment was accepted without
    /// one, or does not exist.
    ///
    /// # Errors
    /// [`LedgerError`]; also if the ledger does not answer within 500 ms.
    pub async fn trace_parent(&self, payment_id: &PaymentId) -> Result<Option<String>, LedgerError> {
        let query = sqlx::query_scalar!(
            "SELECT trace_parent FROM payments WHERE payment_id = $1",
            payment_id.as_str(),
        );
        Ok(within_moment(query.fetch_optional(&self.pool)).await?.flatten())
    }

    /// As [`Ledger::trace_parent`], by the name that a switch gives the transfer.
    ///
    /// # Errors
    /// [`LedgerError`]; also if the ledger does not answer within 500 ms.
    pub async fn trace_parent_of_transfer(
        &self,
        switch: &SwitchName,
        name: &str,
    ) -> Result<Option<String>, LedgerError> {
        let read = async {
            let Some(tx_id) = self.named_transaction(switch, name).await? else { return Ok(None) };
            let query =
                sqlx::query_scalar!("SELECT trace_parent FROM payments WHERE tx_id = $1", tx_id.as_str());
            Ok::<_, LedgerError>(query.fetch_optional(&self.pool).await?.flatten())
        };
        within_moment(read).await
    }
}

async fn within_moment<T, E>(read: impl Future<Output = Result<T, E>>) -> Result<T, LedgerError>
where
    LedgerError: From<E>,
{
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(postgres_kit::unanswered().into()),
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgPoolOptions;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_trace_is_not_waited_for_while_the_database_hangs() {
        // It accepts connections and says nothing. The pool itself would wait for a minute.
        let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://nobody@{}/none", hung.local_addr().unwrap());
        let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(60)).connect_lazy(&url).unwrap();
        let id = PaymentId::new("pay_1").unwrap();
        let read = tokio::time::timeout(Duration::from_secs(30), Ledger::new(pool).trace_parent(&id)).await;
        assert!(read.unwrap().is_err());
    }
}

//! Recalls that go on after the end of their payment: sends those that are due, and records the switch's answers. It needs the ledger's
//! database and the switch, and no Temporal: the receiving bank may take weeks, and no workflow waits for it.

#![expect(clippy::disallowed_methods, reason = "the pause between rounds is outside workflow code")]

use std::sync::Arc;
use std::time::Duration;

use payment_ledger::{Ledger, LedgerError};
use payment_protocol::ids::{PaymentId, SwitchName, TxId};
use payment_protocol::keys;
use switch_client::SwitchClient;
use tokio_util::sync::CancellationToken;

use crate::adapters::session::SwitchSession;

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// Recalls of one round, sent one after the other.
const ROUND: i64 = 32;

/// Sends the recalls of one switch until `stop`. Several processes may: each attempt is recorded before it is sent.
pub(crate) async fn run(
    ledger: Ledger,
    switch: SwitchName,
    client: Arc<dyn SwitchClient>,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        if let Err(error) = round(&ledger, &switch, &*client, &stop).await {
            tracing::warn!(
                switch = %switch,
                error = &error as &dyn std::error::Error,
                "the payment-worker could not read or record a recall; it tries again"
            );
        }
        let pause = client.retry_after().unwrap_or(PAUSE).max(PAUSE);
        let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}

async fn round(
    ledger: &Ledger,
    switch: &SwitchName,
    client: &dyn SwitchClient,
    stop: &CancellationToken,
) -> Result<(), LedgerError> {
    for payment_id in ledger.due_recalls(switch, ROUND).await? {
        if stop.is_cancelled() || client.retry_after().is_some() {
            break;
        }
        send(ledger, client, &payment_id).await?;
    }
    Ok(())
}

async fn send(ledger: &Ledger, client: &dyn SwitchClient, payment_id: &PaymentId) -> Result<(), LedgerError> {
    let Some(payment) = ledger.begin_recall_after_end(payment_id).await? else { return Ok(()) };
    let session = SwitchSession { ledger, client: Some(client), payment: &payment };
    let reply = session.recall(&keys::recall(&TxId::derive(payment_id))).await?;
    ledger.record_recall_answer(payment_id, &reply.answer).await
}

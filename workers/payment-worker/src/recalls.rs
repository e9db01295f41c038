//! Recalls that go on after the end of their payment: sends those that are due, and records the switch's answers. It needs the ledger's
//! database and the switch, and no Temporal: the receiving bank may take weeks, and no workflow waits for it.

#![expect(clippy::disallowed_methods, reason = "the pause between rounds is outside workflow code")]

use std::sync::Arc;
use std::time::Duration;

use crash_point::crash_point;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::ids::{PaymentId, SwitchName, TxId};
use payment_protocol::keys;
use payment_protocol::recall::RecallAnswer;
use switch_client::SwitchClient;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::adapters::session::SwitchSession;

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// Tries to record an attempt or its answer while the database does not answer. Each may wait for it for seconds.
const TRIES: u32 = 5;
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
                "the payment-worker could not read which recalls are due; it tries again"
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
        // A rail that takes one recall is not sent it while its circuit is open.
        if stop.is_cancelled() || !client.permits_submit() {
            break;
        }
        if let Err(error) = send(ledger, client, &payment_id, stop).await {
            tracing::warn!(
                payment.id = payment_id.as_str(),
                error = &error as &dyn std::error::Error,
                "a recall could not be begun or recorded; the payment-worker goes on with the others"
            );
        }
    }
    Ok(())
}

/// Repeats what the database did not answer, at `stop` at once and not again.
async fn repeat<T, F: Future<Output = Result<T, LedgerError>>>(
    record: impl Fn() -> F,
    stop: &CancellationToken,
) -> Result<T, LedgerError> {
    let mut left = TRIES;
    loop {
        left -= 1;
        match record().await {
            Err(LedgerError::Unavailable(_)) if left > 0 && !stop.is_cancelled() => {
                let _ = stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
            }
            recorded => return recorded,
        }
    }
}

async fn send(
    ledger: &Ledger,
    client: &dyn SwitchClient,
    payment_id: &PaymentId,
    stop: &CancellationToken,
) -> Result<(), LedgerError> {
    // Without an answer it may be recorded, and a rail that takes one recall would not be sent it any more: the same token finds it.
    let token = Uuid::new_v4();
    let payment = match repeat(|| ledger.begin_recall_after_end(payment_id, token), stop).await {
        Ok(Some(payment)) => payment,
        Ok(None) => return Ok(()),
        Err(error) => {
            // Without the database's answer, the next round repeats all of them.
            if !matches!(error, LedgerError::Unavailable(_)) {
                ledger.postpone_recall(payment_id).await?;
            }
            return Err(error);
        }
    };
    crash_point("before sending a recall after the end");
    let session = SwitchSession { ledger, client: Some(client), payment: &payment };
    let answer = match session.recall(&keys::recall(&TxId::derive(payment_id))).await {
        Ok(reply) => reply.answer,
        // The ledger did not say how the switch calls the transfer.
        Err(error) => RecallAnswer::NotReceived { detail: error.to_string() },
    };
    crash_point("after the answer to a recall after the end");
    // A rail that takes one recall would not answer it again.
    repeat(|| ledger.record_recall_answer(payment_id, &answer), stop).await
}

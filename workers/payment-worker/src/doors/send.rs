//! One attempt at submit.

use std::sync::OnceLock;

use payment_ledger::LedgerError;
use payment_ledger::verdict::Source;
use payment_protocol::ids::RunId;
use payment_protocol::keys::Reference;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{AttemptRuling, NotSent, VerdictRuling};
use payment_protocol::submit::{Logged, QueryAnswer, SendAnswer, SubmitDoor};
use switch_client::TransferOrder;

use super::line::Line;

/// An attempt that got nowhere: nothing is known, it may be repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DoorError {
    /// The ledger gave no outcome.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Submits in a row had no answer. Nothing was recorded or sent.
    #[error("the switch is left in peace for a moment: submits in a row had no answer")]
    LeftInPeace,
    /// Submit's deadline counts on the switch's clock, which cannot be known now.
    #[error("the switch's clock is not known: {0}")]
    SwitchClock(String),
    /// What would be sent could not be read back. Nothing was recorded or sent.
    #[error("the switch's list of transfers cannot be read: {0}")]
    NothingToReadBack(String),
}

/// Door of one attempt at submit.
pub(crate) struct SendDoor<'a> {
    pub(crate) line: Line<'a>,
    pub(crate) run: RunId,
    /// What the ledger let out, and as which attempt.
    order: OnceLock<(u32, TransferOrder)>,
    /// What the switch calls the transfer.
    transfer_id: OnceLock<String>,
}

impl<'a> SendDoor<'a> {
    pub(crate) fn new(line: Line<'a>, run: RunId) -> Self {
        Self { line, run, order: OnceLock::new(), transfer_id: OnceLock::new() }
    }

    /// Where the switch's list stands, now that the attempt is on record and the account is this
    /// payment's alone. Only what comes after it can be this transfer.
    async fn mark(&self, n: u32, order: &TransferOrder) -> Result<(), String> {
        let marker = self.line.client.marker(&order.creditor_account).await?;
        let noted = self.line.ledger.note_marker(&self.line.payment.payment_id, n, &marker).await;
        noted.map_err(|error| error.to_string())
    }
}

impl SubmitDoor for SendDoor<'_> {
    type Error = DoorError;

    async fn logged(&self) -> Result<Option<Logged>, DoorError> {
        Ok(self.line.ledger.logged(&self.line.payment.payment_id).await?)
    }

    async fn query(&self, reference: &Reference) -> QueryAnswer {
        match self.line.query(reference).await {
            Ok(said) => said.answer,
            Err(error) => QueryAnswer::NoAnswer { detail: error.to_string() },
        }
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, DoorError> {
        let Line { ledger, client, payment } = self.line;
        if !client.takes_submits() {
            return Err(DoorError::LeftInPeace);
        }
        let switch_now = client.switch_now().await.map_err(DoorError::SwitchClock)?;
        let mut marker = None;
        if self.line.reads_back() {
            // The one attempt is not used up on a switch that cannot be read now.
            let account = self.line.sought(&payment.reference()).await?.creditor_account;
            client.marker(&account).await.map_err(DoorError::NothingToReadBack)?;
        } else if self.line.reads_statement() {
            marker = client.statement_position().await;
        }
        let (ruling, transfer) =
            ledger.record_attempt(&payment.payment_id, &self.run, switch_now, marker.as_deref()).await?;
        if let (AttemptRuling::Send(n), Some(transfer)) = (ruling, transfer) {
            let order = TransferOrder {
                reference: transfer.reference,
                money: transfer.money,
                creditor_account: transfer.destination_account,
                end_to_end_id: transfer.end_to_end_id,
                // By the payment's own profile: what the ledger believes of the deadline went over the wire.
                deadline: payment.profile.honours_deadline.then_some(transfer.deadline),
            };
            // Set once: a door is one attempt.
            let _ = self.order.set((n, order));
        }
        Ok(ruling)
    }

    async fn send(&self, _reference: &Reference) -> SendAnswer {
        // The order carries the reference, as the ledger let it out.
        let Some((n, order)) = self.order.get() else {
            return SendAnswer::Unknown { detail: "no attempt was let out".into() };
        };
        if self.line.reads_back()
            && let Err(detail) = self.mark(*n, order).await
        {
            return SendAnswer::Unknown { detail: format!("not sent, it could not be read back: {detail}") };
        }
        let said = self.line.client.send(order).await;
        if let Some(id) = said.transfer_id {
            let _ = self.transfer_id.set(id);
        }
        said.answer
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), DoorError> {
        let transfer_id = self.transfer_id.get().map(String::as_str);
        let id = &self.line.payment.payment_id;
        Ok(self.line.ledger.record_answer(id, n, answer, transfer_id).await?)
    }

    async fn record_found(&self) -> Result<Option<NotSent>, DoorError> {
        Ok(self.line.ledger.record_found(&self.line.payment.payment_id).await?)
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<VerdictRuling, DoorError> {
        let id = &self.line.payment.payment_id;
        Ok(self.line.ledger.record_settled(id, report, Source::Query).await?)
    }
}

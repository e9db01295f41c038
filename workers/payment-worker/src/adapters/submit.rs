//! One attempt at submit.

use std::sync::OnceLock;

use payment_ledger::LedgerError;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::ids::RunId;
use payment_protocol::keys::Reference;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{AttemptRuling, FinalStatusRuling, NotSent};
use payment_protocol::submit::{LoggedSubmission, QueryAnswer, SendAnswer, SubmitPort};
use switch_client::TransferOrder;

use super::session::SwitchSession;

/// An attempt that got nowhere: nothing is known, it may be repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubmitAdapterError {
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
pub(crate) struct SubmitAdapter<'a> {
    pub(crate) session: SwitchSession<'a>,
    pub(crate) run: RunId,
    /// What the ledger let out, and as which attempt.
    order: OnceLock<(u32, TransferOrder)>,
    /// What the switch calls the transfer.
    transfer_id: OnceLock<String>,
}

impl<'a> SubmitAdapter<'a> {
    pub(crate) fn new(session: SwitchSession<'a>, run: RunId) -> Self {
        Self { session, run, order: OnceLock::new(), transfer_id: OnceLock::new() }
    }

    /// Where the switch's list stands, now that the attempt is on record and the account is this
    /// payment's alone. Only what comes after it can be this transfer.
    async fn mark(&self, n: u32, order: &TransferOrder) -> Result<(), String> {
        let marker = self.session.client.marker(&order.creditor_account).await?;
        let noted = self.session.ledger.record_marker(&self.session.payment.payment_id, n, &marker).await;
        noted.map_err(|error| error.to_string())
    }
}

impl SubmitPort for SubmitAdapter<'_> {
    type Error = SubmitAdapterError;

    async fn logged(&self) -> Result<Option<LoggedSubmission>, SubmitAdapterError> {
        Ok(self.session.ledger.last_submission(&self.session.payment.payment_id).await?)
    }

    async fn query(&self, reference: &Reference) -> QueryAnswer {
        match self.session.query(reference).await {
            Ok(said) => said.answer,
            Err(error) => QueryAnswer::NoAnswer { detail: error.to_string() },
        }
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, SubmitAdapterError> {
        let SwitchSession { ledger, client, payment } = self.session;
        if !client.takes_submits() {
            return Err(SubmitAdapterError::LeftInPeace);
        }
        let switch_now = client.switch_now().await.map_err(SubmitAdapterError::SwitchClock)?;
        let mut marker = None;
        if self.session.reads_back() {
            // The one attempt is not used up on a switch that cannot be read now.
            let account = self.session.lookup_key(&payment.reference()).await?.creditor_account;
            client.marker(&account).await.map_err(SubmitAdapterError::NothingToReadBack)?;
        } else if self.session.reads_statement() {
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
            // Set once: a adapter is one attempt.
            let _ = self.order.set((n, order));
        }
        Ok(ruling)
    }

    async fn send(&self, _reference: &Reference) -> SendAnswer {
        // The order carries the reference, as the ledger let it out.
        let Some((n, order)) = self.order.get() else {
            return SendAnswer::Unknown { detail: "no attempt was let out".into() };
        };
        if self.session.reads_back()
            && let Err(detail) = self.mark(*n, order).await
        {
            return SendAnswer::Unknown { detail: format!("not sent, it could not be read back: {detail}") };
        }
        let said = self.session.client.send(order).await;
        if let Some(id) = said.transfer_id {
            let _ = self.transfer_id.set(id);
        }
        said.answer
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), SubmitAdapterError> {
        let transfer_id = self.transfer_id.get().map(String::as_str);
        let id = &self.session.payment.payment_id;
        Ok(self.session.ledger.record_answer(id, n, answer, transfer_id).await?)
    }

    async fn record_found(&self) -> Result<Option<NotSent>, SubmitAdapterError> {
        Ok(self.session.ledger.record_transfer_found(&self.session.payment.payment_id).await?)
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, SubmitAdapterError> {
        let id = &self.session.payment.payment_id;
        Ok(self.session.ledger.record_settled(id, report, FinalStatusSource::Query).await?)
    }
}

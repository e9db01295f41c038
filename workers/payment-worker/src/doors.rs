//! The protocol's doors, opened by our ledger and the switch's client.

use std::sync::OnceLock;

use payment_ledger::verdict::Source;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::cancel::{Begun, CancelAnswer, CancelDoor, Death, Heard};
use payment_protocol::cause::Cause;
use payment_protocol::facts::RecallRecord;
use payment_protocol::ids::RunId;
use payment_protocol::recall::{RecallAnswer, RecallDoor};
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{AttemptRuling, NotSent, VerdictRuling};
use payment_protocol::submit::{QueryAnswer, SendAnswer, SubmitDoor};
use payment_protocol::{Payment, keys};
use switch_client::{Answered, SwitchClient, TransferOrder};

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
}

/// Door of one attempt at submit.
pub(crate) struct SendDoor<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) client: &'a SwitchClient,
    pub(crate) payment: &'a Payment,
    pub(crate) run: RunId,
    /// What the ledger let out.
    pub(crate) order: OnceLock<TransferOrder>,
}

impl SubmitDoor for SendDoor<'_> {
    type Error = DoorError;

    async fn query(&self) -> QueryAnswer {
        self.client.query(&self.payment.reference()).await.answer
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, DoorError> {
        if !self.client.takes_submits() {
            return Err(DoorError::LeftInPeace);
        }
        let switch_now = match self.client.switch_now().await {
            Ok(now) => now,
            Err(detail) => return Err(DoorError::SwitchClock(detail)),
        };
        let (ruling, transfer) =
            self.ledger.record_attempt(&self.payment.payment_id, &self.run, switch_now).await?;
        if let Some(transfer) = transfer {
            // Set once: a door is one attempt.
            let _ = self.order.set(TransferOrder {
                reference: transfer.reference,
                money: transfer.money,
                creditor_account: transfer.destination_account,
                end_to_end_id: transfer.end_to_end_id,
                // By the payment's own profile: what the ledger believes of the deadline went over the wire.
                deadline: self.payment.profile.honours_deadline.then_some(transfer.deadline),
            });
        }
        Ok(ruling)
    }

    async fn send(&self) -> SendAnswer {
        match self.order.get() {
            Some(order) => self.client.send(order).await,
            None => SendAnswer::Unknown { detail: "no attempt was let out".into() },
        }
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), DoorError> {
        Ok(self.ledger.record_answer(&self.payment.payment_id, n, answer).await?)
    }

    async fn record_found(&self) -> Result<Option<NotSent>, DoorError> {
        Ok(self.ledger.record_found(&self.payment.payment_id).await?)
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<VerdictRuling, DoorError> {
        Ok(self.ledger.record_settled(&self.payment.payment_id, report, Source::Query).await?)
    }
}

/// Door of one asking to cancel.
pub(crate) struct AskDoor<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) client: &'a SwitchClient,
    pub(crate) payment: &'a Payment,
    /// Why it was turned round.
    pub(crate) cause: &'a Cause,
}

impl AskDoor<'_> {
    /// Adds the clocks that an answer is judged by. The first attempt's age is read after the answer
    /// arrived, so that an answer that took long is judged by the later moment.
    async fn heard<A>(&self, answered: Answered<A>) -> Result<Heard<A>, LedgerError> {
        Ok(Heard {
            answer: answered.answer,
            switch_now_ms: answered.switch_now.map(|now| now.as_millisecond()),
            first_attempt_age_ms: self.ledger.first_attempt_age_ms(&self.payment.payment_id).await?,
        })
    }
}

impl CancelDoor for AskDoor<'_> {
    type Error = LedgerError;

    async fn begin(&self) -> Result<Begun, LedgerError> {
        self.ledger.begin_cancel(&self.payment.payment_id, self.cause).await
    }

    async fn cancel(&self) -> Result<Heard<CancelAnswer>, LedgerError> {
        let key = keys::undo_submit(&self.payment.tx_id);
        self.heard(self.client.cancel(&self.payment.reference(), &key).await).await
    }

    async fn query(&self) -> Result<Heard<QueryAnswer>, LedgerError> {
        self.heard(self.client.query(&self.payment.reference()).await).await
    }

    async fn record_dead(&self, death: Death) -> Result<VerdictRuling, LedgerError> {
        self.ledger.record_dead(&self.payment.payment_id, death).await
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<VerdictRuling, LedgerError> {
        self.ledger.record_settled(&self.payment.payment_id, report, Source::Cancel).await
    }
}

/// Door of one asking for the money back.
pub(crate) struct BackDoor<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) client: &'a SwitchClient,
    pub(crate) payment: &'a Payment,
}

impl RecallDoor for BackDoor<'_> {
    type Error = LedgerError;

    async fn recorded(&self) -> Result<Option<RecallRecord>, LedgerError> {
        self.ledger.recall_record(&self.payment.payment_id).await
    }

    async fn recall(&self) -> RecallAnswer {
        let key = keys::recall(&self.payment.tx_id);
        self.client.recall(&self.payment.reference(), &key).await
    }

    async fn record(&self, record: RecallRecord, reason: &str) -> Result<RecallRecord, LedgerError> {
        self.ledger.record_recall(&self.payment.payment_id, record, reason).await
    }
}

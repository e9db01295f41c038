//! One payment's line to its switch: by our reference, or, at a switch without references, by what our
//! ledger has on record of the transfer. What the switch calls the transfer is noted before anything is
//! concluded from the answer.

use payment_ledger::{Ledger, LedgerError};
use payment_protocol::Payment;
use payment_protocol::cancel::{CancelAnswer, Heard};
use payment_protocol::keys::{Reference, StepKey, UndoKey};
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::QueryAnswer;
use switch_client::{About, Answered, Sought, SwitchClient};

/// See above.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) client: &'a SwitchClient,
    pub(crate) payment: &'a Payment,
}

impl Line<'_> {
    /// Whether the switch knows no references.
    pub(crate) fn reads_back(&self) -> bool {
        self.payment.profile.needs_account_lock()
    }

    /// Whether the transfer is looked for in the switch's statement.
    pub(crate) fn reads_statement(&self) -> bool {
        self.payment.profile.has_statement && !self.payment.profile.has_query
    }

    /// What is on record of the transfer.
    pub(crate) async fn sought(&self, reference: &Reference) -> Result<Sought, LedgerError> {
        let sought = self.ledger.sought(&self.payment.payment_id).await?;
        Ok(Sought {
            reference: reference.clone(),
            marker: sought.marker,
            transfer_id: sought.transfer_id,
            creditor_account: sought.destination_account,
            money: sought.money,
        })
    }

    pub(crate) async fn query(&self, reference: &Reference) -> Result<Answered<QueryAnswer>, LedgerError> {
        if !self.reads_back() {
            return Ok(self.client.query(About::Reference(reference)).await);
        }
        let sought = self.sought(reference).await?;
        self.noted(&sought, self.client.query(About::Sought(&sought)).await).await
    }

    pub(crate) async fn statement(
        &self,
        reference: &Reference,
    ) -> Result<Answered<QueryAnswer>, LedgerError> {
        let sought = self.sought(reference).await?;
        Ok(self.client.statement(&sought).await)
    }

    pub(crate) async fn cancel(
        &self,
        reference: &Reference,
        key: &UndoKey,
    ) -> Result<Answered<CancelAnswer>, LedgerError> {
        if !self.reads_back() {
            return Ok(self.client.cancel(About::Reference(reference), key).await);
        }
        let sought = self.sought(reference).await?;
        self.noted(&sought, self.client.cancel(About::Sought(&sought), key).await).await
    }

    pub(crate) async fn recall(
        &self,
        reference: &Reference,
        key: &StepKey,
    ) -> Result<Answered<RecallAnswer>, LedgerError> {
        if !self.reads_back() {
            return Ok(self.client.recall(About::Reference(reference), key).await);
        }
        let sought = self.sought(reference).await?;
        self.noted(&sought, self.client.recall(About::Sought(&sought), key).await).await
    }

    /// The answer with the two clocks it is judged by. The age is read after the answer has
    /// arrived, so that an answer that took long is judged by the later moment.
    pub(crate) async fn heard<A>(&self, answered: Answered<A>) -> Result<Heard<A>, LedgerError> {
        Ok(Heard {
            answer: answered.answer,
            switch_now_ms: answered.switch_now.map(|now| now.as_millisecond()),
            first_attempt_age_ms: self.ledger.first_attempt_age_ms(&self.payment.payment_id).await?,
        })
    }

    async fn noted<A>(&self, sought: &Sought, said: Answered<A>) -> Result<Answered<A>, LedgerError> {
        if let (None, Some(id)) = (&sought.transfer_id, &said.transfer_id) {
            self.ledger.note_transfer_id(&self.payment.payment_id, id).await?;
        }
        Ok(said)
    }
}

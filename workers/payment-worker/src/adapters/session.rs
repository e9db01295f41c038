//! One payment's session to its switch: by our reference, or, at a switch without references, by what our
//! ledger has on record of the transfer. What the switch calls the transfer is noted before anything is
//! concluded from the answer.

use payment_ledger::{Ledger, LedgerError};
use payment_protocol::Payment;
use payment_protocol::cancel::{CancelAnswer, SwitchResponse};
use payment_protocol::keys::{CompensationKey, Reference, StepKey};
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::QueryAnswer;
use switch_client::{LookupKey, SwitchClient, SwitchReply, TransferRef};

/// See above.
#[derive(Clone, Copy)]
pub(crate) struct SwitchSession<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) client: &'a SwitchClient,
    pub(crate) payment: &'a Payment,
}

impl SwitchSession<'_> {
    /// Whether the switch knows no references.
    pub(crate) fn reads_back(&self) -> bool {
        self.payment.profile.needs_account_lock()
    }

    /// Whether the transfer is looked for in the switch's statement.
    pub(crate) fn reads_statement(&self) -> bool {
        self.payment.profile.has_statement && !self.payment.profile.has_query
    }

    /// What is on record of the transfer.
    pub(crate) async fn lookup_key(&self, reference: &Reference) -> Result<LookupKey, LedgerError> {
        let lookup_key = self.ledger.lookup_key(&self.payment.payment_id).await?;
        Ok(LookupKey {
            reference: reference.clone(),
            marker: lookup_key.marker,
            transfer_id: lookup_key.transfer_id,
            creditor_account: lookup_key.destination_account,
            money: lookup_key.money,
        })
    }

    pub(crate) async fn query(&self, reference: &Reference) -> Result<SwitchReply<QueryAnswer>, LedgerError> {
        if !self.reads_back() {
            return Ok(self.client.query(TransferRef::Reference(reference)).await);
        }
        let lookup_key = self.lookup_key(reference).await?;
        self.noted(&lookup_key, self.client.query(TransferRef::LookupKey(&lookup_key)).await).await
    }

    pub(crate) async fn statement(
        &self,
        reference: &Reference,
    ) -> Result<SwitchReply<QueryAnswer>, LedgerError> {
        let lookup_key = self.lookup_key(reference).await?;
        Ok(self.client.statement(&lookup_key).await)
    }

    pub(crate) async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchReply<CancelAnswer>, LedgerError> {
        if !self.reads_back() {
            return Ok(self.client.cancel(TransferRef::Reference(reference), key).await);
        }
        let lookup_key = self.lookup_key(reference).await?;
        self.noted(&lookup_key, self.client.cancel(TransferRef::LookupKey(&lookup_key), key).await).await
    }

    pub(crate) async fn recall(
        &self,
        reference: &Reference,
        key: &StepKey,
    ) -> Result<SwitchReply<RecallAnswer>, LedgerError> {
        if !self.reads_back() {
            return Ok(self.client.recall(TransferRef::Reference(reference), key).await);
        }
        let lookup_key = self.lookup_key(reference).await?;
        self.noted(&lookup_key, self.client.recall(TransferRef::LookupKey(&lookup_key), key).await).await
    }

    /// The answer with the two clocks it is judged by. The age is read after the answer has
    /// arrived, so that an answer that took long is judged by the later moment.
    pub(crate) async fn response<A>(
        &self,
        answered: SwitchReply<A>,
    ) -> Result<SwitchResponse<A>, LedgerError> {
        Ok(SwitchResponse {
            answer: answered.answer,
            switch_now_ms: answered.switch_now.map(|now| now.as_millisecond()),
            first_attempt_age_ms: self.ledger.first_attempt_age_ms(&self.payment.payment_id).await?,
        })
    }

    async fn noted<A>(
        &self,
        lookup_key: &LookupKey,
        said: SwitchReply<A>,
    ) -> Result<SwitchReply<A>, LedgerError> {
        if let (None, Some(id)) = (&lookup_key.transfer_id, &said.transfer_id) {
            self.ledger.record_transfer_id(&self.payment.payment_id, id).await?;
        }
        Ok(said)
    }
}

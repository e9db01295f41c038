//! Calls to the switch about one payment's transfer: by our reference or, at a switch without references, by the
//! lookup key that our ledger recorded. The session records the switch's own transfer id before any conclusion is
//! drawn from the answer.

use std::time::Duration;

use payment_ledger::{Ledger, LedgerError};
use payment_protocol::Payment;
use payment_protocol::cancel::{CancelAnswer, SwitchResponse};
use payment_protocol::keys::{CompensationKey, Reference, StepKey};
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::QueryAnswer;
use switch_client::{LookupKey, SwitchClient, SwitchReply, TransferRef};

/// The payment, its switch and the ledger; see the module.
#[derive(Clone, Copy)]
pub(crate) struct SwitchSession<'a> {
    pub(crate) ledger: &'a Ledger,
    /// `None` if the switch is not configured: it gives no answer.
    pub(crate) client: Option<&'a SwitchClient>,
    pub(crate) payment: &'a Payment,
}

impl<'a> SwitchSession<'a> {
    /// The client of the payment's switch; an error says why no client exists.
    pub(crate) fn client(&self) -> Result<&'a SwitchClient, String> {
        self.client.ok_or_else(|| {
            let name = &self.payment.profile.switch;
            format!("switch {name} is not configured at the payment-worker; add the configuration section [switches.{name}]")
        })
    }

    /// How long the switch asked us to wait; `None` if it did not.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.client.and_then(SwitchClient::retry_after)
    }

    /// Whether transfers are looked up in the switch's listing, because the switch has no references.
    pub(crate) fn reads_back(&self) -> bool {
        self.payment.profile.needs_account_lock()
    }

    /// Whether transfers are looked up in the switch's statement.
    pub(crate) fn reads_statement(&self) -> bool {
        self.payment.profile.has_statement && !self.payment.profile.has_query
    }

    /// The lookup key that the ledger recorded.
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
        let no_answer = |detail| QueryAnswer::NoAnswer { detail };
        self.call(reference, no_answer, async |client, transfer| client.query(transfer).await).await
    }

    pub(crate) async fn statement(
        &self,
        reference: &Reference,
    ) -> Result<SwitchReply<QueryAnswer>, LedgerError> {
        let client = match self.client() {
            Ok(client) => client,
            Err(detail) => return Ok(SwitchReply::new(QueryAnswer::NoAnswer { detail }, None)),
        };
        let lookup_key = self.lookup_key(reference).await?;
        Ok(client.statement(&lookup_key).await)
    }

    pub(crate) async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchReply<CancelAnswer>, LedgerError> {
        let no_answer = |detail| CancelAnswer::NoAnswer { detail };
        self.call(reference, no_answer, async |client, transfer| client.cancel(transfer, key).await).await
    }

    pub(crate) async fn recall(
        &self,
        reference: &Reference,
        key: &StepKey,
    ) -> Result<SwitchReply<RecallAnswer>, LedgerError> {
        let unknown = |detail| RecallAnswer::Unknown { detail };
        self.call(reference, unknown, async |client, transfer| client.recall(transfer, key).await).await
    }

    /// Calls the switch about the transfer: by our reference, or by the recorded lookup key. `no_answer` is the answer of a switch
    /// that is not configured.
    async fn call<A>(
        &self,
        reference: &Reference,
        no_answer: impl FnOnce(String) -> A,
        call: impl AsyncFnOnce(&SwitchClient, TransferRef<'_>) -> SwitchReply<A>,
    ) -> Result<SwitchReply<A>, LedgerError> {
        let client = match self.client() {
            Ok(client) => client,
            Err(detail) => return Ok(SwitchReply::new(no_answer(detail), None)),
        };
        if !self.reads_back() {
            return Ok(call(client, TransferRef::Reference(reference)).await);
        }
        let lookup_key = self.lookup_key(reference).await?;
        let reply = call(client, TransferRef::LookupKey(&lookup_key)).await;
        self.record_transfer_id(&lookup_key, reply).await
    }

    /// The answer with the switch's time and the age of the first attempt. The age is read after the answer arrived,
    /// so that a slow answer is judged by the later time.
    pub(crate) async fn response<A>(&self, reply: SwitchReply<A>) -> Result<SwitchResponse<A>, LedgerError> {
        let first = self.ledger.first_attempt(&self.payment.payment_id).await?;
        let distance_ms = self.payment.profile.submit_deadline_ms;
        Ok(SwitchResponse {
            answer: reply.answer,
            switch_now_ms: reply.switch_now.map(|now| now.as_millisecond()),
            first_attempt_age_ms: first.older_age_ms(reply.switch_now, distance_ms),
        })
    }

    /// Records the switch's transfer id if the reply is the first to name it.
    async fn record_transfer_id<A>(
        &self,
        lookup_key: &LookupKey,
        reply: SwitchReply<A>,
    ) -> Result<SwitchReply<A>, LedgerError> {
        if let (None, Some(id)) = (&lookup_key.transfer_id, &reply.transfer_id) {
            self.ledger.record_transfer_id(&self.payment.payment_id, id).await?;
        }
        Ok(reply)
    }
}

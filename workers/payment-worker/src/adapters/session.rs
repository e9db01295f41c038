//! Calls to the switch about one payment's transfer: by our reference, by the id of its rail or, at a switch without references, by the
//! lookup key that our ledger recorded. The session records the switch's own transfer id before any conclusion is
//! drawn from the answer.

use std::time::Duration;

use payment_ledger::steps::submit::OutgoingTransfer;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::Payment;
use payment_protocol::cancel::{CancelAnswer, SwitchResponse};
use payment_protocol::keys::{CompensationKey, StepKey};
use payment_protocol::rail_id::TransferName;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::rules::AskRuling;
use payment_protocol::submit::QueryAnswer;
use switch_client::{LookupKey, SwitchClient, SwitchReply, TransferOrder, TransferRef};

/// The payment, its switch and the ledger; see the module.
#[derive(Clone, Copy)]
pub(crate) struct SwitchSession<'a> {
    pub(crate) ledger: &'a Ledger,
    /// `None` if the switch is not configured: it gives no answer.
    pub(crate) client: Option<&'a dyn SwitchClient>,
    pub(crate) payment: &'a Payment,
}

impl<'a> SwitchSession<'a> {
    /// The client of the payment's switch; an error says why no client exists.
    pub(crate) fn client(&self) -> Result<&'a dyn SwitchClient, String> {
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

    /// Whether the statement is the only place where transfers are looked up, so that a lookup needs a position from before the submit.
    pub(crate) fn reads_statement_only(&self) -> bool {
        self.payment.profile.has_statement && !self.payment.profile.has_query
    }

    /// The lookup key that the ledger recorded.
    pub(crate) async fn lookup_key(&self) -> Result<LookupKey, LedgerError> {
        let name = self.name().await?;
        let lookup_key = self.ledger.lookup_key(&self.payment.payment_id, name.on_wire()).await?;
        Ok(LookupKey {
            name,
            marker: lookup_key.marker,
            transfer_id: lookup_key.transfer_id,
            creditor_account: lookup_key.destination_account,
            money: lookup_key.money,
        })
    }

    /// A recorded transfer as the switch receives it, the same on every attempt. The payment's own profile decides whether it
    /// carries the deadline, so that the recorded deadline is the one that was sent.
    pub(crate) fn order(&self, transfer: OutgoingTransfer) -> TransferOrder {
        TransferOrder {
            name: transfer.name,
            money: transfer.money,
            creditor_account: transfer.destination_account,
            end_to_end_id: transfer.end_to_end_id,
            deadline: self.payment.profile.honours_deadline.then_some(transfer.deadline),
        }
    }

    /// How the payment's transfer is called. Its rail knows an id of its own, which the protocol does not.
    async fn name(&self) -> Result<TransferName, LedgerError> {
        self.ledger.transfer_name(self.payment).await
    }

    /// Counts a query of the transfer, if one is allowed.
    pub(crate) async fn begin_query(&self) -> Result<AskRuling, LedgerError> {
        // A repeat that the switch receives after its retention is executed again, so its own clock is read as well.
        let switch_now = match self.client {
            Some(client) if self.payment.profile.query_is_repeat => client.switch_now().await.ok(),
            _ => None,
        };
        self.ledger.begin_query(&self.payment.payment_id, switch_now).await
    }

    pub(crate) async fn query(&self) -> Result<SwitchReply<QueryAnswer>, LedgerError> {
        let client = match self.client() {
            Ok(client) => client,
            Err(detail) => return Ok(SwitchReply::new(QueryAnswer::NoAnswer { detail }, None)),
        };
        if self.payment.profile.query_is_repeat {
            return Ok(match self.ledger.recorded_transfer(&self.payment.payment_id).await? {
                Some(transfer) => client.repeat(&self.order(transfer)).await,
                None => {
                    let detail = "no submit is recorded that could be repeated".into();
                    SwitchReply::new(QueryAnswer::NoAnswer { detail }, None)
                }
            });
        }
        if !self.reads_back() {
            return Ok(client.query(TransferRef::Name(&self.name().await?)).await);
        }
        let lookup_key = self.lookup_key().await?;
        self.query_by_lookup_key(client, &lookup_key).await
    }

    pub(crate) async fn statement(&self) -> Result<SwitchReply<QueryAnswer>, LedgerError> {
        let client = match self.client() {
            Ok(client) => client,
            Err(detail) => return Ok(SwitchReply::new(QueryAnswer::NoAnswer { detail }, None)),
        };
        let lookup_key = self.lookup_key().await?;
        Ok(client.statement(&lookup_key).await)
    }

    pub(crate) async fn cancel(
        &self,
        key: &CompensationKey,
    ) -> Result<SwitchReply<CancelAnswer>, LedgerError> {
        let client = match self.client() {
            Ok(client) => client,
            Err(detail) => return Ok(SwitchReply::new(CancelAnswer::NoAnswer { detail }, None)),
        };
        if !self.reads_back() {
            return Ok(client.cancel(TransferRef::Name(&self.name().await?), key).await);
        }
        Ok(match self.identify(client).await? {
            Ok(lookup_key) => client.cancel(TransferRef::LookupKey(&lookup_key), key).await,
            Err(reply) => reply.into_cancel_answer(),
        })
    }

    pub(crate) async fn recall(&self, key: &StepKey) -> Result<SwitchReply<RecallAnswer>, LedgerError> {
        let client = match self.client() {
            Ok(client) => client,
            Err(detail) => return Ok(SwitchReply::new(RecallAnswer::Unknown { detail }, None)),
        };
        if !self.reads_back() {
            return Ok(client.recall(TransferRef::Name(&self.name().await?), key).await);
        }
        Ok(match self.identify(client).await? {
            Ok(lookup_key) => client.recall(TransferRef::LookupKey(&lookup_key), key).await,
            Err(reply) => reply.into_recall_answer(),
        })
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

    /// The lookup key with the switch's own id, before a call that changes the transfer; `Err` is the answer of a lookup that
    /// identified none. An attempt that was paused meets the transfers of later payments, and must not change them.
    async fn identify(
        &self,
        client: &dyn SwitchClient,
    ) -> Result<Result<LookupKey, SwitchReply<QueryAnswer>>, LedgerError> {
        let mut lookup_key = self.lookup_key().await?;
        if lookup_key.transfer_id.is_none() {
            let reply = self.query_by_lookup_key(client, &lookup_key).await?;
            if reply.transfer_id.is_none() {
                return Ok(Err(reply));
            }
            lookup_key.transfer_id = reply.transfer_id;
        }
        Ok(Ok(lookup_key))
    }

    /// Queries the transfer. The answer counts only if its transfer is the recorded one, or is recorded now, while the payment is
    /// open and no other payment can have sent to the account.
    async fn query_by_lookup_key(
        &self,
        client: &dyn SwitchClient,
        lookup_key: &LookupKey,
    ) -> Result<SwitchReply<QueryAnswer>, LedgerError> {
        let reply = client.query(TransferRef::LookupKey(lookup_key)).await;
        if let (None, Some(id)) = (&lookup_key.transfer_id, &reply.transfer_id) {
            let recorded = self.ledger.record_transfer_id(&self.payment.payment_id, id).await?;
            if recorded.as_ref() != Some(id) {
                let detail = "the payment has ended, or another transfer is recorded as its own: the listed transfer may be another payment's";
                return Ok(SwitchReply::new(
                    QueryAnswer::NoAnswer { detail: detail.into() },
                    reply.switch_now,
                ));
            }
        }
        Ok(reply)
    }
}

//! Stages of a payment, and how a test advances a payment to each.

use payment_ledger::switch::callbacks::Callback;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::facts::RecallRecord;
use payment_protocol::port::{DebitOutcome, ReserveOutcome, SubmitProgress};

use super::samples::{AMOUNT_MINOR, event, success};
use super::{Bank, Sample};

/// The stage of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The API has accepted the payment.
    Accepted,
    /// A recovery run has fenced the reserve.
    Fenced,
    /// The amount is held.
    Reserved,
    /// One attempt at the switch is recorded.
    Sent,
    /// Cancelling at the switch, because the SLA has expired.
    Cancelling,
    /// A SUCCESS with another amount is stored.
    Differing,
    /// A matching SUCCESS is stored.
    Confirmed,
    /// The transfer is void, the hold still open.
    Void,
    /// Confirmed, and the debit was refused; the account is active again.
    DebitRefused,
    /// The debit was refused, and the switch returned the money.
    Recalled,
    /// The debit was refused, and the switch refused the recall.
    RecallRefused,
    /// Ended: debited.
    Settled,
    /// Ended: void and released.
    Released,
    /// Ended: released before it was reserved.
    ReleasedUnreserved,
    /// Ended: the reserve was refused.
    Rejected,
}

impl Bank {
    /// Advances a newly accepted payment to `stage`.
    pub(crate) async fn advance(&self, p: &Sample, stage: Stage) {
        match stage {
            Stage::Accepted => {}
            Stage::Fenced => {
                self.ledger.fence_reserve(&self.payment(p).await).await.unwrap();
            }
            Stage::Rejected => {
                self.freeze(p).await;
                assert_eq!(self.reserve(p).await, ReserveOutcome::Refused(ReserveRefusal::FrozenAccount));
                self.unfreeze(p).await;
            }
            Stage::ReleasedUnreserved => {
                self.ledger.release(&p.id, &Cause::ReserveUnknown).await.unwrap();
            }
            Stage::Reserved => assert_eq!(self.reserve(p).await, ReserveOutcome::Held),
            Stage::Sent => {
                Box::pin(self.advance(p, Stage::Reserved)).await;
                self.attempt(p).await;
            }
            Stage::Cancelling => {
                Box::pin(self.advance(p, Stage::Sent)).await;
                self.ledger
                    .begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::NotScheduled)
                    .await
                    .unwrap();
            }
            Stage::Differing => {
                Box::pin(self.advance(p, Stage::Sent)).await;
                let differing =
                    Callback { amount_minor: AMOUNT_MINOR + 1, ..success(p, &event(p, "differs")) };
                self.ledger.store_callback(&differing).await.unwrap();
            }
            Stage::Confirmed => {
                Box::pin(self.advance(p, Stage::Sent)).await;
                self.ledger.store_callback(&success(p, &event(p, "confirms"))).await.unwrap();
            }
            Stage::Void => {
                Box::pin(self.advance(p, Stage::Cancelling)).await;
                self.ledger.record_void(&p.id, VoidReason::Cancelled).await.unwrap();
            }
            Stage::DebitRefused => {
                Box::pin(self.advance(p, Stage::Confirmed)).await;
                self.freeze(p).await;
                assert!(matches!(self.debit(p).await, DebitOutcome::Refused { .. }));
                self.unfreeze(p).await;
            }
            Stage::Recalled | Stage::RecallRefused => {
                Box::pin(self.advance(p, Stage::DebitRefused)).await;
                let answer = match stage {
                    Stage::Recalled => RecallRecord::Recalled,
                    _ => RecallRecord::Refused,
                };
                self.ledger.record_recall(&p.id, answer, "the payee keeps it").await.unwrap();
            }
            Stage::Settled => {
                Box::pin(self.advance(p, Stage::Confirmed)).await;
                assert_eq!(self.debit(p).await, DebitOutcome::Done);
            }
            Stage::Released => {
                Box::pin(self.advance(p, Stage::Void)).await;
                self.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap();
            }
        }
    }
}

//! Operator decisions, for payments that no answer of the switch can decide.
//!
//! A decision that moves money first queries or cancels at the switch, and is refused if the switch contradicts
//! it. The approved evidence counts only if the switch has no answer. The ledger records the operators, their
//! reason and their evidence under the decision's id; the workflow receives the id and the action only.

use serde::{Deserialize, Serialize};

pub use crate::action::Action;
use crate::cancel::{self, CancelAttemptOutcome, CancelPort, VoidReason, is_void_by_statement};
use crate::cause::{Cause, OperatorReason};
use crate::facts::{FinalStatus, RecallRecord};
use crate::ids::DecisionId;
use crate::look::look;
use crate::payment::Payment;
use crate::rules::{DebitByDecisionRuling, FinalStatusRuling, ReleaseByDecisionRuling, retention_expired};
use crate::state::FinalState;
use crate::submit::QueryAnswer;

/// A decision, as the workflow receives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decision {
    /// The decision's id; the last part of its keys.
    pub decision_id: DecisionId,
    /// The decided action.
    pub action: Action,
}

/// Outcome of applying an operator decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DecisionOutcome {
    /// Debited; the payment has ended.
    Settled,
    /// Released; the payment has ended for the cause recorded first.
    Released(Cause),
    /// The workflow cancels at the switch again.
    RetryCancel,
    /// The switch gave a definite answer that agrees with the decision; recorded and followed.
    FinalStatus(FinalStatus),
    /// The decision was refused.
    Refused {
        /// Why, for the operators.
        detail: String,
    },
    /// The payment had already ended.
    Ended(FinalState),
}

/// The actions of applying a decision, besides cancelling and querying at the switch.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait DecisionPort: CancelPort {
    /// The recorded outcome of this decision; `None` if it has not been applied.
    async fn recorded(&self) -> Result<Option<DecisionOutcome>, Self::Error>;
    /// Records how the recall was answered, unless that is recorded.
    async fn record_recall(&self, answer: RecallRecord) -> Result<(), Self::Error>;
    /// Debits under the decision's own key, writes the final status, and closes the decision, in one transaction.
    async fn debit_by_decision(&self) -> Result<DebitByDecisionRuling, Self::Error>;
    /// Releases under the decision's own key, writes the final status, and closes the decision, in one
    /// transaction. Returns the cause that names the final state.
    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), Self::Error>;
    /// Closes the decision with its outcome and an explanation for the operators.
    async fn close(&self, outcome: &DecisionOutcome, detail: &str) -> Result<(), Self::Error>;
}

/// Applies a decision; called once per attempt. If the switch does not answer, the decision is refused instead
/// of repeated, because the operators wait for its outcome.
///
/// # Errors
/// The port's own error: the caller repeats the attempt.
pub async fn apply_decision<P: DecisionPort>(
    port: &P,
    payment: &Payment,
    decision: &Decision,
    reason: OperatorReason,
) -> Result<DecisionOutcome, P::Error> {
    if let Some(outcome) = port.recorded().await? {
        return Ok(outcome);
    }
    if !reason.allowed().contains(&decision.action) {
        let detail = format!(
            "the action {} is not allowed for a payment that needs an operator because of {reason}",
            decision.action
        );
        return refuse(port, detail).await;
    }
    match decision.action {
        Action::RetryCancel => {
            close(port, DecisionOutcome::RetryCancel, "the workflow cancels at the switch again").await
        }
        Action::Debit => debit(port, payment, reason).await,
        Action::Release => release(port, payment).await,
    }
}

/// Debits by decision, after a query of the transfer. It never cancels, which would void a transfer that may still
/// settle.
async fn debit<P: DecisionPort>(
    port: &P,
    payment: &Payment,
    reason: OperatorReason,
) -> Result<DecisionOutcome, P::Error> {
    // The switch is asked first, always: the money may have come back since.
    let look = look(port, payment).await?;
    if let Some(listed) = &look.listed
        && is_void_by_statement(port, &payment.profile, None, listed).await?
    {
        let detail = "the statement is complete and does not list the transfer";
        if let Some(outcome) = void(port, reason, VoidReason::NotInClosedStatement, detail).await? {
            return Ok(outcome);
        }
    }
    let response = look.answer();
    // Within its retention, a switch that honours deadlines reports a void transfer as not found: cancel again.
    let conclusive = payment.profile.has_query && payment.profile.honours_deadline;
    // Without an attempt on record, the age of the transfer is unknown.
    let remembers = response.as_ref().is_some_and(|response| {
        response.first_attempt_age_ms.is_some()
            && !retention_expired(response.first_attempt_age_ms, &payment.profile)
    });
    match response.map(|response| response.answer) {
        // A recorded settlement stays, even if the switch forgets it; and a cancel may have found already that this answer proves nothing.
        Some(QueryAnswer::NotFound)
            if conclusive
                && remembers
                && reason.follows_switch()
                && !matches!(
                    reason,
                    OperatorReason::AcceptedThenUnknown | OperatorReason::NotFoundIsInconclusive
                ) =>
        {
            return refuse(port, "the switch does not know the transfer; decide retry_cancel instead".into())
                .await;
        }
        Some(QueryAnswer::Settled(report)) => match port.record_settled(&report).await? {
            // The workflow has tried to debit this settlement: the decision says how to book it.
            FinalStatusRuling::Same if !reason.follows_switch() => {}
            FinalStatusRuling::First | FinalStatusRuling::Same => {
                let outcome = DecisionOutcome::FinalStatus(FinalStatus::Settled);
                return close(port, outcome, "the switch reported settled; the workflow debits").await;
            }
            FinalStatusRuling::Contradicts => {
                return refuse(
                    port,
                    "the switch had reported that the transfer is void, so it cannot be debited".into(),
                )
                .await;
            }
            // The transfer settled, but differs from the payment: the decision says how to book it.
            FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt => {}
        },
        Some(QueryAnswer::Returned(report)) => match port.record_returned(&report).await? {
            FinalStatusRuling::First | FinalStatusRuling::Same | FinalStatusRuling::Contradicts => {
                let outcome = DecisionOutcome::FinalStatus(FinalStatus::Returned);
                let detail = "the switch reported that the money came back; the workflow releases";
                return close(port, outcome, detail).await;
            }
            FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt
                if reason.allowed().contains(&Action::Release) =>
            {
                let detail = "the switch reports that the money came back; decide release instead";
                return refuse(port, detail.into()).await;
            }
            // Only a debit is allowed: what was sent is booked, and what came back by a correction.
            FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt => {}
        },
        Some(QueryAnswer::Void { reject }) => {
            let detail = format!("the switch reports that the transfer is void: {reject}");
            if let Some(outcome) = void(port, reason, VoidReason::Rejected, &detail).await? {
                return Ok(outcome);
            }
        }
        Some(QueryAnswer::Pending) if remembers => {
            return refuse(
                port,
                "the switch has not decided about the transfer yet; propose the decision again later".into(),
            )
            .await;
        }
        Some(QueryAnswer::OurFault { detail } | QueryAnswer::NoAnswer { detail }) if remembers => {
            let detail = format!(
                "there is no definite answer of the switch: {detail}; propose the decision again later"
            );
            return refuse(port, detail).await;
        }
        // The switch has no answer, or is silent or undecided beyond its retention: the evidence counts.
        Some(
            QueryAnswer::Pending
            | QueryAnswer::NotFound
            | QueryAnswer::NotListed { .. }
            | QueryAnswer::Ambiguous { .. }
            | QueryAnswer::OurFault { .. }
            | QueryAnswer::NoAnswer { .. },
        )
        | None => {}
    }
    // The workflow recalled, and was answered. If the database lost the record, it would take the recall for one under way.
    if let Some(answer) = answered_recall(reason) {
        port.record_recall(answer).await?;
    }
    Ok(match port.debit_by_decision().await? {
        DebitByDecisionRuling::Charge => DecisionOutcome::Settled,
        DebitByDecisionRuling::Ended(end) => DecisionOutcome::Ended(end),
        DebitByDecisionRuling::Refused(refusal) => return refuse(port, refusal.to_string()).await,
    })
}

/// How the recall was answered, if the payment needs an operator because of the answer.
fn answered_recall(reason: OperatorReason) -> Option<RecallRecord> {
    match reason {
        OperatorReason::RecallRefused => Some(RecallRecord::Refused),
        OperatorReason::RecallUnsupported => Some(RecallRecord::RecallUnsupported),
        _ => None,
    }
}

/// The switch says that the transfer is void: the debit is refused, and a cancel follows the answer. Where the switch's SUCCESS is on
/// record and no cancel can be decided, the answer is recorded. `None` if the SUCCESS contradicts it there: it was the first answer and
/// remains valid, the contradiction is an exception, and the evidence counts.
async fn void<P: DecisionPort>(
    port: &P,
    operator_reason: OperatorReason,
    void_reason: VoidReason,
    detail: &str,
) -> Result<Option<DecisionOutcome>, P::Error> {
    if operator_reason.allowed().contains(&Action::Release) {
        return refuse(port, format!("{detail}; decide release instead")).await.map(Some);
    }
    match port.record_void(void_reason).await? {
        FinalStatusRuling::First | FinalStatusRuling::Same => {
            let outcome = DecisionOutcome::FinalStatus(FinalStatus::Void);
            close(port, outcome, &format!("{detail}; the workflow releases")).await.map(Some)
        }
        FinalStatusRuling::Contradicts | FinalStatusRuling::NoAttempt | FinalStatusRuling::Differs(_) => {
            Ok(None)
        }
    }
}

/// Releases by decision, after a cancel, which leaves a tombstone if the switch supports tombstones.
async fn release<P: DecisionPort>(port: &P, payment: &Payment) -> Result<DecisionOutcome, P::Error> {
    match cancel::attempt(port, payment).await? {
        CancelAttemptOutcome::Void => {
            let outcome = DecisionOutcome::FinalStatus(FinalStatus::Void);
            return close(port, outcome, "the switch reported void; the workflow releases").await;
        }
        CancelAttemptOutcome::Settled => {
            return refuse(port, "the switch reports that the transfer settled".into()).await;
        }
        CancelAttemptOutcome::Differs => {
            let detail = "the switch reports that a transfer settled that differs from the payment";
            return refuse(port, detail.into()).await;
        }
        CancelAttemptOutcome::Undecidable(OperatorReason::SettledWithoutAttempt) => {
            let detail = "the switch reports that the transfer settled, after a report that found no attempt of it; if the money left, \
                          decide debit, and if it came back since, credit it by return-credit afterwards";
            return refuse(port, detail.into()).await;
        }
        CancelAttemptOutcome::Ended(end) => return Ok(DecisionOutcome::Ended(end)),
        CancelAttemptOutcome::Retry { detail, .. } => {
            return refuse(port, format!("the transfer may still settle: {detail}")).await;
        }
        // The switch has no answer: the evidence counts.
        CancelAttemptOutcome::Undecidable(_) => {}
    }
    let (ruling, cause) = port.release_by_decision().await?;
    Ok(match ruling {
        ReleaseByDecisionRuling::Release => DecisionOutcome::Released(cause),
        ReleaseByDecisionRuling::Ended(end) => DecisionOutcome::Ended(end),
        ReleaseByDecisionRuling::Refused(refusal) => return refuse(port, refusal.to_string()).await,
    })
}

async fn refuse<P: DecisionPort>(port: &P, detail: String) -> Result<DecisionOutcome, P::Error> {
    close(port, DecisionOutcome::Refused { detail: detail.clone() }, &detail).await
}

async fn close<P: DecisionPort>(
    port: &P,
    outcome: DecisionOutcome,
    detail: &str,
) -> Result<DecisionOutcome, P::Error> {
    port.close(&outcome, detail).await?;
    Ok(outcome)
}

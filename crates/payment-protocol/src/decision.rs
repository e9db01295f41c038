//! Decisions by people, where no answer of the switch can decide.
//!
//! A decision that moves money asks the switch first and is refused where the switch says otherwise; only
//! where the switch has nothing to say does the evidence of two people count. Who they are, their reason and
//! their evidence are on record in the ledger under the decision's id, which is all the workflow is given.

use serde::{Deserialize, Serialize};

use crate::cancel::{self, CancelAttemptOutcome, CancelPort, look};
use crate::cause::{Cause, OperatorReason};
use crate::facts::FinalStatus;
use crate::ids::DecisionId;
use crate::payment::Payment;
use crate::rules::{DebitByDecisionRuling, FinalStatusRuling, ReleaseByDecisionRuling, retention_expired};
use crate::state::{FinalState, text_enum};
use crate::submit::QueryAnswer;

text_enum!(
    /// What people may decide about a payment that stands before them.
    Action {
        /// Ask the switch again, and obey.
        RetryCancel = "retry_cancel",
        /// Debit: the money left.
        Debit = "debit",
        /// Give back what is held: the money did not leave and never will.
        Release = "release",
    }
);

impl Action {
    /// Whether it moves money, and so needs a second person.
    #[must_use]
    pub fn moves_money(self) -> bool {
        match self {
            Self::RetryCancel => false,
            Self::Debit | Self::Release => true,
        }
    }
}

/// A decision, as the workflow is given it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decision {
    /// Its id; its keys end with it.
    pub decision_id: DecisionId,
    /// What was decided.
    pub action: Action,
}

/// What came of carrying a decision out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DecisionOutcome {
    /// Debited; the payment has ended.
    Settled,
    /// Released; the payment has ended for the cause recorded first.
    Released(Cause),
    /// The switch is to be asked again.
    RetryCancel,
    /// Asked first, the switch gave a definite answer that says the same: it is on record and is followed.
    Verdict(FinalStatus),
    /// Refused, and why.
    Refused {
        /// Why, for the people who decided.
        detail: String,
    },
    /// The payment had ended.
    Ended(FinalState),
}

/// What carrying a decision out can do, beyond asking the switch.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait DecisionPort: CancelPort {
    /// What came of this decision before, if this is a repeat.
    async fn recorded(&self) -> Result<Option<DecisionOutcome>, Self::Error>;
    /// Debits under the decision's own key, writes the final_status, and closes the decision, in one transaction.
    async fn debit_by_decision(&self) -> Result<DebitByDecisionRuling, Self::Error>;
    /// Releases under the decision's own key, writes the final_status, and closes the decision, in one transaction. Gives the cause
    /// that names the end.
    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), Self::Error>;
    /// Closes the decision with what came of it, in words for people.
    async fn close(&self, came: &DecisionOutcome, detail: &str) -> Result<(), Self::Error>;
}

/// Carries a decision out, once per attempt. An error is the port's own and the attempt is repeated; a switch
/// that gives no answer refuses the decision, since the people who took it wait for what became of it.
///
/// # Errors
/// The port's own.
pub async fn apply_decision<D: DecisionPort>(
    port: &D,
    payment: &Payment,
    decision: &Decision,
    reason: OperatorReason,
) -> Result<DecisionOutcome, D::Error> {
    if let Some(before) = port.recorded().await? {
        return Ok(before);
    }
    if !reason.allowed().contains(&decision.action) {
        return refuse(port, format!("{} is not allowed while it stands for {reason}", decision.action))
            .await;
    }
    match decision.action {
        Action::RetryCancel => close(port, DecisionOutcome::RetryCancel, "the switch is asked again").await,
        Action::Debit => debit(port, payment, reason).await,
        Action::Release => release(port, payment).await,
    }
}

/// Settling asks by query or in the statement, never by a cancel, which would kill what still may settle.
async fn debit<D: DecisionPort>(
    port: &D,
    payment: &Payment,
    reason: OperatorReason,
) -> Result<DecisionOutcome, D::Error> {
    // Where the switch's last word is on record it is not asked for again.
    let heard = if reason.follows_switch() { look(port, payment).await? } else { None };
    // What it knows nothing of while it would remember, past a deadline it honours, is dead: ask again.
    let would_know = payment.profile.has_query && payment.profile.honours_deadline;
    let remembers =
        heard.as_ref().is_some_and(|heard| !retention_expired(heard.first_attempt_age_ms, &payment.profile));
    match heard.map(|heard| heard.answer) {
        Some(QueryAnswer::NotFound) if would_know && remembers => {
            return refuse(port, "the switch knows nothing of it: let it be asked again".into()).await;
        }
        Some(QueryAnswer::Settled(report)) => match port.record_settled(&report).await? {
            FinalStatusRuling::First | FinalStatusRuling::Same => {
                let came = DecisionOutcome::Verdict(FinalStatus::Settled);
                return close(port, came, "the switch confirmed it; settled as usual").await;
            }
            FinalStatusRuling::Contradicts => {
                return refuse(port, "the switch had said it is dead".into()).await;
            }
            // It settled, though not as it was sent: what people decide is how to book that.
            FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt => {}
        },
        Some(QueryAnswer::Void { reason }) => {
            return refuse(port, format!("the switch says it is dead: {reason}")).await;
        }
        Some(QueryAnswer::Pending) => {
            return refuse(port, "the switch has not decided yet".into()).await;
        }
        Some(QueryAnswer::OurFault { detail } | QueryAnswer::NoAnswer { detail }) => {
            return refuse(port, format!("the switch could not be asked: {detail}")).await;
        }
        // It has nothing to say: the evidence counts.
        Some(QueryAnswer::NotFound) | None => {}
    }
    Ok(match port.debit_by_decision().await? {
        DebitByDecisionRuling::Charge => DecisionOutcome::Settled,
        DebitByDecisionRuling::Ended(end) => DecisionOutcome::Ended(end),
        DebitByDecisionRuling::Refused(refusal) => return refuse(port, refusal.to_string()).await,
    })
}

/// Releasing sends the cancel first, which leaves a tombstone where the switch has any.
async fn release<D: DecisionPort>(port: &D, payment: &Payment) -> Result<DecisionOutcome, D::Error> {
    match cancel::ask(port, payment).await? {
        CancelAttemptOutcome::Void => {
            let came = DecisionOutcome::Verdict(FinalStatus::Void);
            return close(port, came, "the switch says it is dead; released as usual").await;
        }
        CancelAttemptOutcome::Settled => return refuse(port, "the switch says it settled".into()).await,
        CancelAttemptOutcome::Differs
        | CancelAttemptOutcome::Undecidable(OperatorReason::SettledWithoutAttempt) => {
            return refuse(port, "the switch says it settled, though not as it was sent".into()).await;
        }
        CancelAttemptOutcome::Ended(end) => return Ok(DecisionOutcome::Ended(end)),
        CancelAttemptOutcome::Again { detail, .. } => {
            return refuse(port, format!("it may still settle: {detail}")).await;
        }
        // The switch has nothing to say: the evidence counts.
        CancelAttemptOutcome::Undecidable(_) => {}
    }
    let (ruling, cause) = port.release_by_decision().await?;
    Ok(match ruling {
        ReleaseByDecisionRuling::Release => DecisionOutcome::Released(cause),
        ReleaseByDecisionRuling::Ended(end) => DecisionOutcome::Ended(end),
        ReleaseByDecisionRuling::Refused(refusal) => return refuse(port, refusal.to_string()).await,
    })
}

async fn refuse<D: DecisionPort>(port: &D, detail: String) -> Result<DecisionOutcome, D::Error> {
    close(port, DecisionOutcome::Refused { detail: detail.clone() }, &detail).await
}

async fn close<D: DecisionPort>(
    port: &D,
    came: DecisionOutcome,
    detail: &str,
) -> Result<DecisionOutcome, D::Error> {
    port.close(&came, detail).await?;
    Ok(came)
}

//! Decisions by people, where no answer of the switch can decide.
//!
//! A decision that moves money asks the switch first and is refused where the switch says otherwise; only
//! where the switch has nothing to say does the evidence of two people count. Who they are, their reason and
//! their evidence are on record in the ledger under the decision's id, which is all the workflow is given.

use serde::{Deserialize, Serialize};

use crate::cancel::{self, Asking, CancelDoor, look};
use crate::cause::{Cause, OperatorReason};
use crate::facts::Verdict;
use crate::ids::DecisionId;
use crate::payment::Payment;
use crate::rules::{ReleaseByDecisionRuling, SettleByDecisionRuling, VerdictRuling, forgotten};
use crate::state::{End, text_enum};
use crate::submit::QueryAnswer;

text_enum!(
    /// What people may decide about a payment that stands before them.
    Action {
        /// Ask the switch again, and obey.
        AskAgain = "ask_again",
        /// Debit: the money left.
        Settle = "settle",
        /// Give back what is held: the money did not leave and never will.
        Release = "release",
    }
);

impl Action {
    /// Whether it moves money, and so needs a second person.
    #[must_use]
    pub fn moves_money(self) -> bool {
        match self {
            Self::AskAgain => false,
            Self::Settle | Self::Release => true,
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
pub enum CarriedOut {
    /// Debited; the payment has ended.
    Settled,
    /// Released; the payment has ended for the cause recorded first.
    Released(Cause),
    /// The switch is to be asked again.
    AskAgain,
    /// Asked first, the switch gave a definite answer that says the same: it is on record and is followed.
    Verdict(Verdict),
    /// Refused, and why.
    Refused {
        /// Why, for the people who decided.
        detail: String,
    },
    /// The payment had ended.
    Ended(End),
}

/// What carrying a decision out can do, beyond asking the switch.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait DecisionDoor: CancelDoor {
    /// What came of this decision before, if this is a repeat.
    async fn recorded(&self) -> Result<Option<CarriedOut>, Self::Error>;
    /// Debits under the decision's own key, writes the verdict, and closes the decision, in one transaction.
    async fn settle_by_decision(&self) -> Result<SettleByDecisionRuling, Self::Error>;
    /// Releases under the decision's own key, writes the verdict, and closes the decision, in one transaction. Gives the cause
    /// that names the end.
    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), Self::Error>;
    /// Closes the decision with what came of it, in words for people.
    async fn close(&self, came: &CarriedOut, detail: &str) -> Result<(), Self::Error>;
}

/// Carries a decision out, once per attempt. An error is the door's own and the attempt is repeated; a switch
/// that gives no answer refuses the decision, since the people who took it wait for what became of it.
///
/// # Errors
/// The door's own.
pub async fn carry_out<D: DecisionDoor>(
    door: &D,
    payment: &Payment,
    decision: &Decision,
    reason: OperatorReason,
) -> Result<CarriedOut, D::Error> {
    if let Some(before) = door.recorded().await? {
        return Ok(before);
    }
    if !reason.allowed().contains(&decision.action) {
        return refuse(door, format!("{} is not allowed while it stands for {reason}", decision.action))
            .await;
    }
    match decision.action {
        Action::AskAgain => close(door, CarriedOut::AskAgain, "the switch is asked again").await,
        Action::Settle => settle(door, payment, reason).await,
        Action::Release => release(door, payment).await,
    }
}

/// Settling asks by query or in the statement, never by a cancel, which would kill what still may settle.
async fn settle<D: DecisionDoor>(
    door: &D,
    payment: &Payment,
    reason: OperatorReason,
) -> Result<CarriedOut, D::Error> {
    // Where the switch's last word is on record it is not asked for again.
    let heard = if reason.listens() { look(door, payment).await? } else { None };
    // What it knows nothing of while it would remember, past a deadline it honours, is dead: ask again.
    let would_know = payment.profile.has_query && payment.profile.honours_deadline;
    let remembers =
        heard.as_ref().is_some_and(|heard| !forgotten(heard.first_attempt_age_ms, &payment.profile));
    match heard.map(|heard| heard.answer) {
        Some(QueryAnswer::NotFound) if would_know && remembers => {
            return refuse(door, "the switch knows nothing of it: let it be asked again".into()).await;
        }
        Some(QueryAnswer::Settled(report)) => match door.record_settled(&report).await? {
            VerdictRuling::First | VerdictRuling::Same => {
                let came = CarriedOut::Verdict(Verdict::Settled);
                return close(door, came, "the switch confirmed it; settled as usual").await;
            }
            VerdictRuling::Contradicts => return refuse(door, "the switch had said it is dead".into()).await,
            // It settled, though not as it was sent: what people decide is how to book that.
            VerdictRuling::Differs(_) | VerdictRuling::NoAttempt => {}
        },
        Some(QueryAnswer::Dead { reason }) => {
            return refuse(door, format!("the switch says it is dead: {reason}")).await;
        }
        Some(QueryAnswer::Pending) => {
            return refuse(door, "the switch has not decided yet".into()).await;
        }
        Some(QueryAnswer::OurFault { detail } | QueryAnswer::NoAnswer { detail }) => {
            return refuse(door, format!("the switch could not be asked: {detail}")).await;
        }
        // It has nothing to say: the evidence counts.
        Some(QueryAnswer::NotFound) | None => {}
    }
    Ok(match door.settle_by_decision().await? {
        SettleByDecisionRuling::Charge => CarriedOut::Settled,
        SettleByDecisionRuling::Ended(end) => CarriedOut::Ended(end),
        SettleByDecisionRuling::Refused(refusal) => return refuse(door, refusal.to_string()).await,
    })
}

/// Releasing sends the cancel first, which leaves a tombstone where the switch has any.
async fn release<D: DecisionDoor>(door: &D, payment: &Payment) -> Result<CarriedOut, D::Error> {
    match cancel::ask(door, payment).await? {
        Asking::Dead => {
            let came = CarriedOut::Verdict(Verdict::Dead);
            return close(door, came, "the switch says it is dead; released as usual").await;
        }
        Asking::Settled => return refuse(door, "the switch says it settled".into()).await,
        Asking::Differs | Asking::Undecidable(OperatorReason::SettledNotSent) => {
            return refuse(door, "the switch says it settled, though not as it was sent".into()).await;
        }
        Asking::Ended(end) => return Ok(CarriedOut::Ended(end)),
        Asking::Again { detail, .. } => {
            return refuse(door, format!("it may still settle: {detail}")).await;
        }
        // The switch has nothing to say: the evidence counts.
        Asking::Undecidable(_) => {}
    }
    let (ruling, cause) = door.release_by_decision().await?;
    Ok(match ruling {
        ReleaseByDecisionRuling::Release => CarriedOut::Released(cause),
        ReleaseByDecisionRuling::Ended(end) => CarriedOut::Ended(end),
        ReleaseByDecisionRuling::Refused(refusal) => return refuse(door, refusal.to_string()).await,
    })
}

async fn refuse<D: DecisionDoor>(door: &D, detail: String) -> Result<CarriedOut, D::Error> {
    close(door, CarriedOut::Refused { detail: detail.clone() }, &detail).await
}

async fn close<D: DecisionDoor>(door: &D, came: CarriedOut, detail: &str) -> Result<CarriedOut, D::Error> {
    door.close(&came, detail).await?;
    Ok(came)
}

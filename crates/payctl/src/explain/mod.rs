//! One payment as three parties tell it: our ledger, the workflow engine, the switch. Only the ledger has
//! to answer; each of the others says what could not be read.
//!
//! | file | question |
//! |---|---|
//! | `workflow` | what does Temporal say? |
//! | `switch` | what does the switch say? |
//! | `invariants` | does what was read agree? |

mod invariants;
mod switch;
mod workflow;

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::operator::decisions::Correction;
use payment_ledger::reads::explain::PaymentExplanation;
use payment_protocol::ids::PaymentId;
use payment_protocol::submit::QueryAnswer;

use crate::bank::Bank;

pub(crate) use invariants::{Holds, Invariant};
pub(crate) use switch::SwitchSays;
pub(crate) use workflow::WorkflowSays;

/// Lines of the timeline that are shown at most.
const TIMELINE_MAX: i64 = 1_000;

/// Everything that could be read.
#[derive(Debug)]
pub(crate) struct Picture {
    /// Our own books, in one snapshot.
    pub(crate) ledger: PaymentExplanation,
    /// The workflow, or why it could not be read.
    pub(crate) workflow: Result<WorkflowSays, String>,
    /// The switch, or why it could not be asked.
    pub(crate) switch: Result<SwitchSays, String>,
    /// What that means, in order of the numbers.
    pub(crate) invariants: Vec<Invariant>,
    /// When it was read.
    pub(crate) read_at: Timestamp,
}

impl Picture {
    /// The invariants that do not hold.
    pub(crate) fn violated(&self) -> impl Iterator<Item = &Invariant> {
        self.invariants.iter().filter(|invariant| invariant.holds == Holds::No)
    }
}

/// Asks the switch before a correction moves money.
///
/// # Errors
/// What the switch says otherwise, or may still say; or why it could not be asked.
pub(crate) async fn must_not_contradict(
    bank: &Bank,
    ledger: &Ledger,
    id: &PaymentId,
    correction: Correction,
) -> anyhow::Result<()> {
    let payment =
        ledger.explain(id, TIMELINE_MAX).await?.with_context(|| format!("there is no payment {id}"))?;
    let profile = &payment.payment.profile;
    if !(profile.has_query || profile.has_statement) {
        // Nobody can be asked: the evidence of two people counts.
        return Ok(());
    }
    match (correction, switch::ask(bank, ledger, &payment).await) {
        (Correction::LateDebit, Ok(SwitchSays { answer: QueryAnswer::Settled(_), .. }))
        | (Correction::ReturnCredit, Ok(SwitchSays { answer: QueryAnswer::Void { .. }, .. }))
        // It may have forgotten.
        | (_, Ok(SwitchSays { answer: QueryAnswer::NotFound, .. })) => Ok(()),
        (_, Ok(says)) => anyhow::bail!("nothing was decided: the switch says it is {}", says.words()),
        (_, Err(why)) => anyhow::bail!("nothing was decided: the switch must be asked first, and {why}"),
    }
}

/// Reads everything.
///
/// # Errors
/// When the ledger does not answer, or has no such payment.
pub(crate) async fn picture(bank: &Bank, ledger: &Ledger, id: &PaymentId) -> anyhow::Result<Picture> {
    let read = async || {
        let read = ledger.explain(id, TIMELINE_MAX).await?;
        read.with_context(|| format!("there is no payment {id}"))
    };
    let first = read().await?;
    let (workflow, switch) =
        tokio::join!(workflow::ask(bank, &first.payment.view.workflow_id), switch::ask(bank, ledger, &first));
    // A payment that moved meanwhile must not be measured by what the switch said afterwards.
    let ledger = read().await?;
    let switch = match ledger.payment.view.updated_at == first.payment.view.updated_at {
        true => switch,
        false => Err("the payment moved while the switch was asked; look again".into()),
    };
    let invariants = invariants::check(&ledger, switch.as_ref().ok());
    Ok(Picture { ledger, workflow, switch, invariants, read_at: Timestamp::now() })
}

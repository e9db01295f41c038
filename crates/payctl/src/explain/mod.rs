//! One payment as the ledger, Temporal and the switch see it, with the invariants checked on that evidence.
//! Only the ledger has to answer; Temporal and the switch may be unavailable.
//!
//! | module | source |
//! |---|---|
//! | `workflow` | Temporal: description and query of the workflow |
//! | `switch` | the switch: query or statement |
//! | `invariants` | which invariants hold, on the evidence of all three |

mod invariants;
mod switch;
mod workflow;

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::reads::explain::PaymentExplanation as LedgerExplanation;
use payment_protocol::action::Correction;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::PaymentId;
use payment_protocol::rules::retention_expired;
use payment_protocol::submit::QueryAnswer;

use crate::config::Config;

pub(crate) use invariants::{InvariantCheck, InvariantStatus};
pub(crate) use switch::SwitchView;
pub(crate) use workflow::WorkflowView;

/// Upper bound of timeline lines that are read.
const TIMELINE_MAX: i64 = 1_000;

/// One payment in all three systems.
#[derive(Debug)]
pub(crate) struct PaymentExplanation {
    /// The ledger's records, in one snapshot.
    pub(crate) ledger: LedgerExplanation,
    /// The workflow, or why Temporal could not be read.
    pub(crate) workflow: Result<WorkflowView, String>,
    /// The transfer at the switch, or why the switch could not be queried.
    pub(crate) switch: Result<SwitchView, String>,
    /// The invariants, in order of their numbers.
    pub(crate) invariants: Vec<InvariantCheck>,
    /// When the records were read.
    pub(crate) read_at: Timestamp,
}

impl PaymentExplanation {
    /// The violated invariants.
    pub(crate) fn violated(&self) -> impl Iterator<Item = &InvariantCheck> {
        self.invariants.iter().filter(|invariant| invariant.status == InvariantStatus::Violated)
    }
}

/// Queries the switch before the correction of an exception moves money. Where it cannot be queried, the evidence of two operators counts:
/// at once if payctl may not query it, and after its retention if it gives no answer or never decides, for example because it is gone.
///
/// # Errors
/// The switch contradicts the correction or has not decided, or it gave no answer.
pub(crate) async fn verify_correction(
    config: &Config,
    ledger: &Ledger,
    id: &PaymentId,
    correction: Correction,
    exception_id: Option<i64>,
) -> anyhow::Result<()> {
    let payment = read_ledger(ledger, id).await?;
    let profile = &payment.payment.profile;
    if !switch::may_query(profile) && !profile.has_statement {
        return Ok(());
    }
    let corrected = payment.exceptions.iter().find(|exception| Some(exception.exception_id) == exception_id);
    let exception = corrected.map_or("", |exception| exception.kind.as_str());
    let error = match switch::query(config, ledger, &payment).await {
        Ok(SwitchView { answer: QueryAnswer::Ambiguous { detail }, .. }) => detail,
        // A switch that never decides contradicts nothing; it is asked again within its retention.
        Ok(SwitchView { answer: QueryAnswer::Pending, .. }) => "the switch has not decided".into(),
        Ok(view) if agrees(correction, exception, &view.answer) => return Ok(()),
        Ok(view) => anyhow::bail!(
            "nothing was decided: {correction} of payment {id} contradicts the switch, which reports {}; payctl decide withdraw ends the proposal",
            view.describe()
        ),
        Err(error) => error,
    };
    let first = ledger.first_attempt(id).await?;
    if retention_expired(first.age_ms, profile) {
        return Ok(());
    }
    anyhow::bail!(
        "nothing was decided: {correction} of payment {id} needs the switch's answer first; repeat it later, the evidence counts without an answer {} s after the first attempt: {error}",
        profile.retention_s
    )
}

/// Whether the switch's answer allows a correction of an exception of this kind.
fn agrees(correction: Correction, exception: &str, answer: &QueryAnswer) -> bool {
    match (correction, answer) {
        // The switch may have forgotten the transfer.
        (_, QueryAnswer::NotFound | QueryAnswer::NotListed { .. })
        | (Correction::LateDebit, QueryAnswer::Settled(_))
        | (Correction::ReturnCredit, QueryAnswer::Void { .. } | QueryAnswer::Returned(_)) => true,
        // The transfer is settled, and its money came back in another way, or by a message of its own.
        (Correction::ReturnCredit, QueryAnswer::Settled(_)) => {
            [ExceptionKind::DebitedToClaims, ExceptionKind::ReturnedAfterDebit]
                .iter()
                .any(|kind| kind.as_str() == exception)
        }
        _ => false,
    }
}

/// Reads the payment in all three systems and checks its invariants.
///
/// # Errors
/// The ledger does not answer, or has no such payment.
pub(crate) async fn explain_payment(
    config: &Config,
    ledger: &Ledger,
    id: &PaymentId,
) -> anyhow::Result<PaymentExplanation> {
    let before = read_ledger(ledger, id).await?;
    let (workflow, switch) = tokio::join!(
        workflow::describe(config, &before.payment.view.workflow_id),
        switch::query(config, ledger, &before)
    );
    // The switch's answer is evidence only for a payment that did not change meanwhile.
    let ledger = read_ledger(ledger, id).await?;
    let switch = match ledger.payment.view.updated_at == before.payment.view.updated_at {
        true => switch,
        false => Err("the payment changed during the query; run payctl show again".into()),
    };
    let invariants = invariants::check(&ledger, switch.as_ref().ok());
    Ok(PaymentExplanation { ledger, workflow, switch, invariants, read_at: Timestamp::now() })
}

/// The payment-worker that began the last workflow task; `None` before the first one.
///
/// # Errors
/// Temporal does not answer, or has no such workflow.
pub(crate) async fn carrying_worker(config: &Config, workflow_id: &str) -> anyhow::Result<Option<String>> {
    workflow::worker(config, workflow_id).await.map_err(anyhow::Error::msg)
}

/// The ledger's records of the payment.
///
/// # Errors
/// The ledger does not answer, or has no such payment.
pub(crate) async fn read_ledger(ledger: &Ledger, id: &PaymentId) -> anyhow::Result<LedgerExplanation> {
    let payment = ledger.explain(id, TIMELINE_MAX).await?;
    payment.with_context(|| format!("the ledger has no payment {id}; see: payctl list"))
}

#[cfg(test)]
mod tests {
    use payment_protocol::ids::SwitchName;
    use payment_protocol::reject::Reject;
    use payment_protocol::report::SettledReport;

    use super::*;

    #[test]
    fn a_correction_agrees_with_what_the_switch_says_about_the_money() {
        let report = || SettledReport {
            switch: SwitchName::new("mock").unwrap(),
            reference: "tx_1:submit".into(),
            amount_minor: 1,
            currency: "EUR".into(),
        };
        let answers = [
            QueryAnswer::Settled(report()),
            QueryAnswer::Returned(report()),
            QueryAnswer::Void { reject: Reject::uncoded("closed") },
            QueryAnswer::NotFound,
            QueryAnswer::Pending,
        ];
        #[rustfmt::skip]
        let table = [
            // correction             exception                    settled returned void   not_found pending
            (Correction::LateDebit,    "late_confirmation",        [true,  false,   false, true,     false]),
            (Correction::LateDebit,    "debited_to_claims",        [true,  false,   false, true,     false]),
            (Correction::ReturnCredit, "contradictory_final_status", [false, true,  true,  true,     false]),
            (Correction::ReturnCredit, "returned_after_debit",     [true,  true,    true,  true,     false]),
            (Correction::ReturnCredit, "debited_to_claims",        [true,  true,    true,  true,     false]),
            // Nobody opens an exception to credit what the switch says is settled.
            (Correction::ReturnCredit, "opened_by_operator",       [false, true,    true,  true,     false]),
        ];
        for (correction, exception, expected) in table {
            let allowed = answers.each_ref().map(|answer| agrees(correction, exception, answer));
            assert_eq!(allowed, expected, "{correction} of {exception}");
        }
    }
}

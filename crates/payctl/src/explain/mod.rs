//! One payment as the ledger, Temporal and the switch see it, with the invariants checked on that evidence.
//! Only the ledger has to answer; Temporal and the switch may be unavailable.
//!
//! | module | source |
//! |---|---|
//! | `workflow` | Temporal: description and query of the workflow |
//! | [`reconciliation::transfer`] | the switch: query or statement |
//! | `invariants` | which invariants hold, on the evidence of all three |

mod invariants;
mod workflow;

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::reads::explain::PaymentExplanation as LedgerExplanation;
use payment_protocol::ids::PaymentId;
use reconciliation::transfer::{self, TransferView};

use crate::config::Config;

pub(crate) use invariants::{InvariantCheck, InvariantStatus};
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
    pub(crate) switch: Result<TransferView, String>,
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
    let configured = config.switch(&before.payment.profile.switch);
    let options = configured.as_ref().map(|switch| &switch.options).map_err(|error| format!("{error:#}"));
    let (workflow, switch) = tokio::join!(
        workflow::describe(config, &before.payment.view.workflow_id),
        transfer::query(options, ledger, &before)
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

//! Decisions about a payment that needs an operator: propose, confirm, withdraw.

use payment_ledger::Ledger;
use payment_ledger::operator::decisions::{ConfirmOutcome, DecisionStatus, DecisionView};
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId, SwitchName};
use reconciliation::correction::{self, CorrectionBar};
use serde_json::json;

use super::wait::{self, DecisionProgress};
use super::{DecisionArgs, OperatorArgs, not_decided};
use crate::config::Config;
use crate::document;
use crate::outcome::CommandOutcome;
use crate::output::{Output, escape_control};

/// Proposes an action. An action that moves no money is confirmed at once and waited for.
pub(super) async fn propose(
    config: &Config,
    payment: &PaymentId,
    action: Action,
    evidence: Option<&str>,
    operator: &OperatorArgs,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let ledger = config.ledger().await?;
    let proposed = ledger.propose(payment, action, &operator.by, &operator.reason, evidence).await;
    let proposed = proposed.map_err(not_decided)?;
    let id = &proposed.decision_id;
    let by = escape_control(&operator.by);
    match proposed.message {
        Some(message) => {
            note(
                operator,
                out,
                format_args!("decision {id}: {action} of payment {payment}, recorded for {by}"),
            )?;
            let progress = wait::for_outcome(config, &ledger, &message, id, operator.wait).await;
            report(&progress, operator, out)
        }
        None => {
            let decision = ledger.decision(id).await.ok().flatten();
            if operator.json {
                out.write_json(
                    &json!({ "decision_id": id, "decision": decision.as_ref().map(document::decision) }),
                )?;
            } else {
                out.write_line(format_args!(
                    "decision {id}: {action} of payment {payment}, proposed by {by}"
                ))?;
                out.write_line(format_args!(
                    "next: another operator confirms it with payctl decide confirm {id} --by NAME --reason TEXT"
                ))?;
            }
            Ok(CommandOutcome::Success)
        }
    }
}

/// Confirms a proposal. A decision about a payment is delivered to its workflow at once and waited for.
pub(super) async fn confirm(args: &DecisionArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let DecisionArgs { decision: id, config, operator } = args;
    let config = config.read()?;
    let ledger = config.ledger().await?;
    verify_correction(&config, &ledger, id).await?;
    match ledger.confirm(id, &operator.by, &operator.reason).await.map_err(not_decided)? {
        ConfirmOutcome::ToApply(message) => {
            note(operator, out, format_args!("decision {id} confirmed"))?;
            let progress = wait::for_outcome(&config, &ledger, &message, id, operator.wait).await;
            report(&progress, operator, out)
        }
        ConfirmOutcome::Corrected { detail } => {
            let decision = ledger.decision(id).await.ok().flatten();
            if operator.json {
                out.write_json(&json!({
                    "decision_id": id,
                    "detail": detail,
                    "decision": decision.as_ref().map(document::decision),
                }))?;
            } else {
                out.write_line(format_args!(
                    "decision {id} confirmed and posted: {}",
                    escape_control(&detail)
                ))?;
            }
            Ok(CommandOutcome::Success)
        }
    }
}

/// Queries the switch before a correction, which this command posts itself. For a decision about an open
/// payment the workflow queries the switch.
async fn verify_correction(config: &Config, ledger: &Ledger, id: &DecisionId) -> anyhow::Result<()> {
    let options_of = |name: &SwitchName| {
        config.switch(name).map(|switch| switch.options).map_err(|error| format!("{error:#}"))
    };
    match correction::verify_proposed(ledger, id, options_of).await {
        Ok(()) => Ok(()),
        Err(bar @ CorrectionBar::Contradicted { .. }) => {
            anyhow::bail!("nothing was decided: {bar}; payctl decide withdraw ends the proposal")
        }
        Err(bar) => Err(anyhow::Error::new(bar).context("nothing was decided")),
    }
}

/// Withdraws a proposal.
pub(super) async fn withdraw(args: &DecisionArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let DecisionArgs { decision: id, config, operator } = args;
    let ledger = config.read()?.ledger().await?;
    ledger.withdraw(id, &operator.by, &operator.reason).await.map_err(not_decided)?;
    if operator.json {
        let decision = ledger.decision(id).await.ok().flatten();
        out.write_json(&json!({ "decision_id": id, "decision": decision.as_ref().map(document::decision) }))?;
    } else {
        out.write_line(format_args!("decision {id} withdrawn; nothing was applied"))?;
    }
    Ok(CommandOutcome::Success)
}

/// Writes an intermediate line, unless one JSON document follows.
fn note(operator: &OperatorArgs, out: &mut Output<'_>, text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    if !operator.json {
        out.write_line(text)?;
    }
    Ok(())
}

/// Writes the decision's result, or why it is not applied yet.
fn report(
    progress: &DecisionProgress,
    operator: &OperatorArgs,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let DecisionProgress { decision_id, payment_id, decision, delivery } = progress;
    let closed = decision.as_ref().filter(|decision| decision.closed_at.is_some());
    let outcome = closed.map_or(CommandOutcome::Unknown, outcome_of);
    if operator.json {
        out.write_json(&json!({
            "decision_id": decision_id,
            "decision": decision.as_ref().map(document::decision),
            "delivery": delivery,
        }))?;
        return Ok(outcome);
    }
    match closed.and_then(document::decision_result) {
        Some(result) => {
            out.write_line(format_args!("decision {decision_id}: {}", escape_control(&result)))?;
        }
        None => {
            out.write_line(format_args!(
                "decision {decision_id} not applied yet: {}",
                escape_control(delivery)
            ))?;
            out.write_line(format_args!(
                "next: payctl show {payment_id}; the decision is recorded and is delivered until it is applied"
            ))?;
        }
    }
    Ok(outcome)
}

fn outcome_of(decision: &DecisionView) -> CommandOutcome {
    match decision.status {
        DecisionStatus::Done => CommandOutcome::Success,
        _ => CommandOutcome::CheckFailed,
    }
}

//! Decisions about a payment that needs an operator: propose, confirm, withdraw, and wait for what comes of it.

use std::time::Duration;

use payment_protocol::decision::Action;
use payment_protocol::ids::PaymentId;
use tokio::time::Instant;

use super::{DecisionArgs, OperatorArgs, write};
use crate::api::ApiResponse;
use crate::operator_api::{DecisionDocument, OperatorClient};
use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Longest time that operator-api is requested to wait.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Proposes an action. An action that moves no money is confirmed at once and waited for.
pub(super) async fn propose(
    payment: &PaymentId,
    action: Action,
    evidence: Option<&str>,
    operator: &OperatorArgs,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let client = operator.session.client()?;
    let body = operator.proposal(action.as_str(), evidence)?;
    let proposed = client.decide::<DecisionDocument>(&format!("payments/{payment}/decisions"), &body).await?;
    let DecisionDocument { decision_id: id, proposed_by: by, status, .. } = &proposed.document;
    if status == "proposed" {
        let lines = [
            format!("decision {id}: {action} of payment {payment}, proposed by {by}"),
            format!("next: another operator confirms it with payctl decide confirm {id} --reason TEXT"),
        ];
        write(&proposed.body, operator, &lines, out)?;
        return Ok(CommandOutcome::Success);
    }
    note(operator, out, &format!("decision {id}: {action} of payment {payment}, recorded for {by}"))?;
    report(&wait(&client, proposed, operator.wait).await, operator, out)
}

/// Confirms a proposal, and waits until a decision about a payment is applied.
pub(super) async fn confirm(args: &DecisionArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let DecisionArgs { decision: id, operator } = args;
    let client = operator.session.client()?;
    let path = format!("decisions/{id}/confirm");
    let confirmed = client.decide::<DecisionDocument>(&path, &operator.body()?).await?;
    if let Some(result) = confirmed.document.result.as_ref().filter(|_| confirmed.document.status == "done") {
        let posted = [format!("decision {id} confirmed and posted: {result}")];
        write(&confirmed.body, operator, &posted, out)?;
        return Ok(CommandOutcome::Success);
    }
    note(operator, out, &format!("decision {id} confirmed"))?;
    report(&wait(&client, confirmed, operator.wait).await, operator, out)
}

/// Withdraws a proposal.
pub(super) async fn withdraw(args: &DecisionArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let DecisionArgs { decision: id, operator } = args;
    let path = format!("decisions/{id}/withdraw");
    let withdrawn = operator.session.client()?.decide::<DecisionDocument>(&path, &operator.body()?).await?;
    let lines = [format!("decision {id} withdrawn; nothing was applied")];
    write(&withdrawn.body, operator, &lines, out)?;
    Ok(CommandOutcome::Success)
}

/// Waits until the decision is final, `wait_s` seconds or Ctrl-C. Returns it as it was last read: it is recorded, and applied without
/// this command.
async fn wait(
    client: &OperatorClient,
    decided: ApiResponse<DecisionDocument>,
    wait_s: u64,
) -> ApiResponse<DecisionDocument> {
    let deadline = Instant::now() + Duration::from_secs(wait_s);
    let mut last = decided;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).min(WAIT_MAX);
        if last.document.result.is_some() || left.is_zero() {
            return last;
        }
        // In whole seconds, and never a request without a wait.
        let wait_s = left.as_secs().saturating_add(1).min(WAIT_MAX.as_secs());
        let path = format!("decisions/{}?wait={wait_s}", last.document.decision_id);
        tokio::select! {
            read = client.get_within(&path, Duration::from_secs(wait_s)) => match read {
                Ok(read) => last = read,
                Err(_) => return last,
            },
            _ = tokio::signal::ctrl_c() => return last,
        }
    }
}

/// Writes an intermediate line, unless one JSON document follows.
fn note(operator: &OperatorArgs, out: &mut Output<'_>, text: &str) -> anyhow::Result<()> {
    if !operator.json {
        out.write_line(text)?;
    }
    Ok(())
}

/// Writes the decision's result, or that it is not applied yet.
fn report(
    decision: &ApiResponse<DecisionDocument>,
    operator: &OperatorArgs,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let DecisionDocument { decision_id: id, payment_id, status, result, .. } = &decision.document;
    let lines = match result {
        Some(result) => vec![format!("decision {id}: {result}")],
        None => vec![
            format!("decision {id} not applied yet: the payment's workflow has not answered"),
            format!(
                "next: payctl show {}; the decision is recorded and is delivered until it is applied",
                payment_id.as_deref().unwrap_or_default()
            ),
        ],
    };
    write(&decision.body, operator, &lines, out)?;
    Ok(match (result, status.as_str()) {
        (None, _) => CommandOutcome::Unknown,
        (Some(_), "done") => CommandOutcome::Success,
        (Some(_), _) => CommandOutcome::CheckFailed,
    })
}

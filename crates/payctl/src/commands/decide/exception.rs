//! Decisions about an exception: opening one, corrections, which need two operators, and closing without moving money.

use payment_protocol::action::Correction;
use serde_json::json;

use super::{CloseArgs, ExceptionArgs, PaymentArgs, not_decided};
use crate::document;
use crate::outcome::CommandOutcome;
use crate::output::{Output, escape_control};

/// Proposes a correction; the confirmation of another operator posts it.
pub(super) async fn correct(
    args: &ExceptionArgs,
    correction: Correction,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let ExceptionArgs { exception, evidence, config, operator } = args;
    let ledger = config.read()?.ledger().await?;
    let proposed = ledger
        .propose_correction(*exception, correction, &operator.by, &operator.reason, evidence.as_deref())
        .await;
    let id = proposed.map_err(not_decided)?.decision_id;
    if operator.json {
        let decision = ledger.decision(&id).await.ok().flatten();
        out.write_json(&json!({ "decision_id": id, "decision": decision.as_ref().map(document::decision) }))?;
    } else {
        let by = escape_control(&operator.by);
        out.write_line(format_args!(
            "decision {id}: {correction} of exception {exception}, proposed by {by}"
        ))?;
        out.write_line(format_args!(
            "next: another operator confirms it with payctl decide confirm {id} --by NAME --reason TEXT"
        ))?;
    }
    Ok(CommandOutcome::Success)
}

/// Opens an exception about an ended payment; moves no money.
pub(super) async fn open(args: &PaymentArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let PaymentArgs { payment, config, operator } = args;
    let ledger = config.read()?.ledger().await?;
    let opened = ledger.open_exception_by_operator(payment, &operator.by, &operator.reason).await;
    let id = opened.map_err(not_decided)?;
    if operator.json {
        out.write_json(&json!({ "exception_id": id, "payment_id": payment }))?;
    } else {
        out.write_line(format_args!("exception {id} of payment {payment} is open; no money moved"))?;
        out.write_line(format_args!(
            "next: propose payctl decide late-debit {id} or return-credit {id}, with --evidence, or close it"
        ))?;
    }
    Ok(CommandOutcome::Success)
}

/// Closes an exception; moves no money.
pub(super) async fn close(args: &CloseArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let CloseArgs { exception, evidence, config, operator } = args;
    anyhow::ensure!(evidence.is_none(), "payctl decide close takes no --evidence; write it into --reason");
    let ledger = config.read()?.ledger().await?;
    let closed = ledger.close_exception(*exception, &operator.by, &operator.reason).await;
    let id = closed.map_err(not_decided)?;
    if operator.json {
        let decision = ledger.decision(&id).await.ok().flatten();
        out.write_json(&json!({ "decision_id": id, "decision": decision.as_ref().map(document::decision) }))?;
    } else {
        out.write_line(format_args!("exception {exception} closed by decision {id}; no money moved"))?;
    }
    Ok(CommandOutcome::Success)
}

//! Decisions about an exception: opening one, corrections, which need two operators, and closing without moving money.

use payment_protocol::action::Correction;

use super::{CloseArgs, ExceptionArgs, PaymentArgs, write};
use crate::operator_api::{DecisionDocument, OpenedExceptionDocument};
use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Proposes a correction; the confirmation of another operator posts it.
pub(super) async fn correct(
    args: &ExceptionArgs,
    correction: Correction,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let ExceptionArgs { exception, evidence, operator } = args;
    let body = operator.proposal(correction.as_str(), evidence.as_deref())?;
    let path = format!("exceptions/{exception}/decisions");
    let proposed = operator.session.client()?.decide::<DecisionDocument>(&path, &body).await?;
    let DecisionDocument { decision_id: id, proposed_by, .. } = &proposed.document;
    let lines = [
        format!("decision {id}: {correction} of exception {exception}, proposed by {proposed_by}"),
        format!("next: another operator confirms it with payctl decide confirm {id} --reason TEXT"),
    ];
    write(&proposed.body, operator, &lines, out)?;
    Ok(CommandOutcome::Success)
}

/// Opens an exception about an ended payment; moves no money.
pub(super) async fn open(args: &PaymentArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let PaymentArgs { payment, operator } = args;
    let path = format!("payments/{payment}/exceptions");
    let opened =
        operator.session.client()?.decide::<OpenedExceptionDocument>(&path, &operator.body()?).await?;
    let id = opened.document.exception_id;
    let lines = [
        format!("exception {id} of payment {payment} is open; no money moved"),
        format!(
            "next: propose payctl decide late-debit {id} or return-credit {id}, with --evidence, or close it"
        ),
    ];
    write(&opened.body, operator, &lines, out)?;
    Ok(CommandOutcome::Success)
}

/// Closes an exception; moves no money.
pub(super) async fn close(args: &CloseArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let CloseArgs { exception, evidence, operator } = args;
    anyhow::ensure!(evidence.is_none(), "payctl decide close takes no --evidence; write it into --reason");
    let path = format!("exceptions/{exception}/decisions");
    let body = operator.proposal("close", None)?;
    let closed = operator.session.client()?.decide::<DecisionDocument>(&path, &body).await?;
    let id = &closed.document.decision_id;
    let lines = [format!("exception {exception} closed by decision {id}; no money moved")];
    write(&closed.body, operator, &lines, out)?;
    Ok(CommandOutcome::Success)
}

//! A payment as its customer sees it, by the API.

use payment_protocol::ids::PaymentId;

use crate::api::{ApiArgs, Payment};
use crate::out::Out;
use crate::outcome::Outcome;
use crate::table::{Align, Table};
use crate::watch::Line;

pub(super) async fn run(
    api: &ApiArgs,
    id: &PaymentId,
    json: bool,
    out: &mut Out<'_>,
) -> anyhow::Result<Outcome> {
    let answer = api.client()?.payment(id, 0).await?;
    if json {
        out.line(answer.document)?;
        return Ok(Outcome::Done);
    }
    let payment = answer.read;
    out.line(facts(&payment))?;
    out.line("")?;
    for step in &payment.timeline {
        out.line(Line { since: payment.created_at, step })?;
    }
    if !payment.notifications.is_empty() {
        out.line(format_args!("\ntold the customer\n{}", told(&payment)))?;
    }
    Ok(Outcome::Done)
}

fn told(payment: &Payment) -> Table<2> {
    let mut table = Table::new([("at", Align::Left), ("message", Align::Left)]);
    for one in &payment.notifications {
        table.row([&one.at.to_string(), &one.message]);
    }
    table
}

fn facts(payment: &Payment) -> Table<2> {
    let mut facts = Table::new([("", Align::Left), ("", Align::Left)]);
    facts.row(["payment", payment.payment_id.as_str()]);
    facts.row(["transaction", &payment.transaction_id]);
    facts.row(["state", payment.status.as_str()]);
    for (name, value) in [("reason", &payment.reason), ("waits for a person", &payment.operator_reason)] {
        if let Some(value) = value {
            facts.row([name, value]);
        }
    }
    facts.row(["amount", &format!("{} {}", payment.amount, payment.currency)]);
    facts.row(["from", &payment.source_account]);
    facts.row(["to", &payment.destination_account]);
    if let Some(id) = &payment.end_to_end_id {
        facts.row(["end-to-end id", id]);
    }
    facts.row(["switch", &payment.switch]);
    facts.row(["workflow", &payment.workflow_id]);
    facts.row(["accepted at", &payment.created_at.to_string()]);
    if let Some(ended_at) = payment.ended_at {
        facts.row(["ended at", &ended_at.to_string()]);
    }
    facts
}

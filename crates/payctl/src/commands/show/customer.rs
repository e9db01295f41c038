//! A payment as the API shows it to its customer.

use payment_protocol::ids::PaymentId;

use crate::api::{ApiArgs, PaymentDocument};
use crate::document;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};
use crate::watch::TimelineLine;

pub(super) async fn run(
    api: &ApiArgs,
    id: &PaymentId,
    json: bool,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let response = api.client()?.payment(id, 0).await?;
    if json {
        out.write_line(response.body)?;
        return Ok(CommandOutcome::Success);
    }
    let payment = response.document;
    out.write_line(fields(&payment))?;
    out.write_line("")?;
    for step in &payment.timeline {
        out.write_line(TimelineLine { accepted_at: payment.created_at, step })?;
    }
    if !payment.notifications.is_empty() {
        out.write_line(format_args!("\ncustomer notifications\n{}", notifications(&payment)))?;
    }
    Ok(CommandOutcome::Success)
}

fn notifications(payment: &PaymentDocument) -> Table<2> {
    let mut table = Table::new([("at", Align::Left), ("message", Align::Left)]);
    for notification in &payment.notifications {
        table.row([&notification.at.to_string(), &notification.message]);
    }
    table
}

fn fields(payment: &PaymentDocument) -> Table<2> {
    let mut fields = Table::new([("", Align::Left), ("", Align::Left)]);
    fields.row(["payment", payment.payment_id.as_str()]);
    fields.row(["transaction", &payment.transaction_id]);
    fields.row(["state", payment.status.as_str()]);
    if let Some(reason) = &payment.reason {
        fields.row(["reason", reason]);
    }
    fields.row(["amount", &format!("{} {}", payment.amount, payment.currency)]);
    fields.row(["from", &payment.source_account]);
    fields.row(["to", &payment.destination_account]);
    if let Some(id) = &payment.end_to_end_id {
        fields.row(["end-to-end id", id]);
    }
    fields.row(["switch", &payment.switch]);
    fields.row(["accepted at", &payment.created_at.to_string()]);
    if payment.returned_minor > 0 {
        fields.row(["came back", &document::money(payment.returned_minor, &payment.currency)]);
    }
    if let Some(restored_at) = payment.restored_at {
        fields.row(["available again at", &restored_at.to_string()]);
    }
    if let Some(ended_at) = payment.ended_at {
        fields.row(["ended at", &ended_at.to_string()]);
    }
    fields
}

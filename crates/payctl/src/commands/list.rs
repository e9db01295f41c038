//! `payctl list`: payments of all tenants.

use payment_ledger::reads::queues::OperatorPaymentFilter;
use payment_ledger::reads::view::PaymentView;
use payment_protocol::PaymentState;
use payment_protocol::ids::{PaymentId, SwitchName};
use serde_json::{Value, json};

use crate::config::ConfigArgs;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{Align, Table};
use crate::{age, document};

/// List payments of all tenants, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Show only payments in this state, like needs_operator
    #[arg(long, value_parser = parse_state)]
    state: Option<PaymentState>,
    /// Show only payments accepted at least this long ago, like 90s, 10m or 48h
    #[arg(long, value_name = "AGE", value_parser = age::parse)]
    older_than: Option<i64>,
    /// Show only payments of this switch
    #[arg(long, value_name = "NAME", value_parser = super::id::<SwitchName>)]
    switch: Option<SwitchName>,
    /// Show only payments after this payment id in the list: the next page
    #[arg(long, value_name = "PAYMENT", value_parser = super::id::<PaymentId>)]
    after: Option<PaymentId>,
    /// Show at most this many payments, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let ledger = args.config.read()?.ledger().await?;
    let filter = OperatorPaymentFilter {
        state: args.state,
        older_than_s: args.older_than,
        switch: args.switch,
        after: args.after,
        limit: args.limit,
    };
    let page = ledger.list(&filter).await?;
    if args.json {
        let payments: Vec<Value> = page.payments.iter().map(document::payment).collect();
        out.write_json(&json!({ "payments": payments, "next": page.next.as_ref().map(PaymentId::as_str) }))?;
        return Ok(CommandOutcome::Success);
    }
    if page.payments.is_empty() {
        let searched = if page.next.is_some() { " among those searched" } else { "" };
        out.write_line(format_args!("no payment matches{searched}"))?;
    } else {
        out.write_line(table(&page.payments))?;
    }
    if let Some(next) = &page.next {
        out.write_line(format_args!("more may follow: --after {next}"))?;
    }
    Ok(CommandOutcome::Success)
}

fn table(payments: &[PaymentView]) -> Table<7> {
    let left = Align::Left;
    let mut table = Table::new([
        ("payment", left),
        ("state", left),
        ("amount", Align::Right),
        ("from", left),
        ("to", left),
        ("switch", left),
        ("reason", left),
    ]);
    for payment in payments {
        table.row([
            &payment.payment_id,
            payment.state.as_str(),
            &document::money(payment.amount_minor, &payment.currency),
            &payment.source_account,
            &payment.destination_account,
            &payment.switch,
            reason(payment),
        ]);
    }
    table
}

/// The operator reason, else the reason of the compensation.
pub(super) fn reason(payment: &PaymentView) -> &str {
    let operator_reason =
        payment.operator_reason.as_deref().filter(|_| payment.state == PaymentState::NeedsOperator);
    operator_reason.or(payment.reason.as_deref()).unwrap_or_default()
}

fn parse_state(text: &str) -> Result<PaymentState, String> {
    PaymentState::parse(text).ok_or_else(|| {
        let known: Vec<_> = PaymentState::ALL.iter().map(|state| state.as_str()).collect();
        format!("the states are {}", known.join(", "))
    })
}

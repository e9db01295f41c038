//! `payctl list`: payments of all tenants.

use payment_ledger::reads::queues::OperatorPaymentFilter;
use payment_ledger::reads::view::PaymentView;
use payment_protocol::PaymentState;
use payment_protocol::ids::{PaymentId, SwitchName};
use serde_json::{Value, json};

use crate::bank::BankArgs;
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};
use crate::table::{Align, Table};
use crate::{age, document};

/// List payments of all tenants, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    bank: BankArgs,
    /// Only in this state, like needs_operator
    #[arg(long, value_parser = state)]
    state: Option<PaymentState>,
    /// Only accepted this long ago or earlier, like 10m
    #[arg(long, value_name = "AGE", value_parser = age::parse)]
    older_than: Option<i64>,
    /// Only of this switch
    #[arg(long, value_name = "NAME", value_parser = super::id::<SwitchName>)]
    switch: Option<SwitchName>,
    /// Only after this payment in the list: the last one of the page before
    #[arg(long, value_name = "PAYMENT", value_parser = super::id::<PaymentId>)]
    after: Option<PaymentId>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let ledger = args.bank.read()?.ledger().await?;
    let filter = OperatorPaymentFilter {
        state: args.state,
        older_than_s: args.older_than,
        switch: args.switch,
        after: args.after,
        limit: args.limit,
    };
    let payments = ledger.list(&filter).await?;
    if args.json {
        let payments: Vec<Value> = payments.iter().map(document::payment).collect();
        out.json(&json!({ "payments": payments }))?;
    } else if payments.is_empty() {
        out.line("no payment is like that")?;
    } else {
        out.line(table(&payments))?;
    }
    Ok(Outcome::Done)
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

/// Why it stands, else why it was turned round.
pub(super) fn reason(payment: &PaymentView) -> &str {
    let standing =
        payment.operator_reason.as_deref().filter(|_| payment.state == PaymentState::NeedsOperator);
    standing.or(payment.reason.as_deref()).unwrap_or_default()
}

fn state(text: &str) -> Result<PaymentState, String> {
    PaymentState::parse(text).ok_or_else(|| {
        let known: Vec<_> = PaymentState::ALL.iter().map(|state| state.as_str()).collect();
        format!("states are: {}", known.join(", "))
    })
}

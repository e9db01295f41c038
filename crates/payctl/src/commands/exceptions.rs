//! `payctl exceptions`: what contradicts the books.

use jiff::Timestamp;
use payment_ledger::reads::queues::ExceptionView;
use payment_protocol::ids::PaymentId;
use serde_json::{Value, json};

use crate::bank::BankArgs;
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};
use crate::table::{self as tables, Align, Table};
use crate::{age, document};

/// List what contradicts the books and waits for a decision, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    bank: BankArgs,
    /// Closed ones too
    #[arg(long)]
    all: bool,
    /// Only of this payment
    #[arg(long, value_name = "ID", value_parser = super::id::<PaymentId>)]
    payment: Option<PaymentId>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let ledger = args.bank.read()?.ledger().await?;
    let exceptions = ledger.exceptions(!args.all, args.payment.as_ref(), args.limit).await?;
    if args.json {
        let exceptions: Vec<Value> = exceptions.iter().map(document::exception).collect();
        out.json(&json!({ "exceptions": exceptions }))?;
    } else if exceptions.is_empty() {
        out.line(if args.all { "no exception" } else { "no open exception" })?;
    } else {
        out.line(table(&exceptions, Timestamp::now()))?;
        tables::remark_cut(exceptions.len(), args.limit, out)?;
    }
    Ok(Outcome::Done)
}

/// Exceptions, for people.
pub(super) fn table(exceptions: &[ExceptionView], now: Timestamp) -> Table<6> {
    let left = Align::Left;
    let mut table = Table::new([
        ("exception", Align::Right),
        ("kind", left),
        ("open for", Align::Right),
        ("payment", left),
        ("closed by", left),
        ("what", left),
    ]);
    for exception in exceptions {
        let open_for = match exception.closed_at {
            None => age::show(now.duration_since(exception.opened_at).as_secs()),
            Some(_) => "closed".into(),
        };
        table.row([
            &exception.exception_id.to_string(),
            &exception.kind,
            &open_for,
            exception.payment_id.as_deref().unwrap_or("none of ours"),
            exception.closed_by.as_deref().unwrap_or_default(),
            &exception.detail,
        ]);
    }
    table
}

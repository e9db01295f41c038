//! `payctl exceptions`: recorded contradictions between the ledger and the switch.

use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use payment_ledger::reads::queues::{ExceptionFilter, ExceptionView};
use payment_protocol::drift::Drift;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::PaymentId;
use serde_json::{Value, json};

use crate::config::ConfigArgs;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{self as tables, Align, Table};
use crate::{age, document};

/// List open exceptions, oldest first; `payctl decide` closes them
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Show closed exceptions, too
    #[arg(long)]
    all: bool,
    /// Show only exceptions of this payment
    #[arg(long, value_name = "ID", value_parser = super::id::<PaymentId>)]
    payment: Option<PaymentId>,
    /// Show only exceptions of this kind
    #[arg(long, value_name = "KIND", value_parser = kinds(), hide_possible_values = true)]
    kind: Option<String>,
    /// Show at most this many exceptions, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What an operator does about open exceptions.
const NEXT: &str = "
next: payctl show PAYMENT; the kind says what to decide: deploy/runbook/exceptions.md
      payctl decide late-debit, return-credit or write-off EXCEPTION, and another operator: payctl decide confirm DECISION
      payctl decide close EXCEPTION, if no money has to move";

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let ledger = args.config.read()?.ledger().await?;
    let filter = ExceptionFilter {
        with_closed: args.all,
        payment_id: args.payment,
        kind: args.kind,
        limit: args.limit,
    };
    let exceptions = ledger.exceptions(&filter).await?;
    if args.json {
        let exceptions: Vec<Value> = exceptions.iter().map(document::exception).collect();
        out.write_json(&json!({ "exceptions": exceptions }))?;
    } else if exceptions.is_empty() {
        out.write_line(if args.all { "no exception" } else { "no open exception" })?;
    } else {
        out.write_line(table(&exceptions, Timestamp::now()))?;
        tables::note_limit(exceptions.len(), args.limit, out)?;
        if exceptions.iter().any(|exception| exception.closed_at.is_none()) {
            out.write_line(NEXT)?;
        }
    }
    Ok(CommandOutcome::Success)
}

/// The kinds that the services and that reconciliation open.
fn kinds() -> PossibleValuesParser {
    let kinds = ExceptionKind::ALL.iter().map(|kind| kind.as_str());
    kinds.chain(Drift::ALL.iter().map(|drift| drift.as_str())).collect::<Vec<_>>().into()
}

/// The decision that closed an exception, or that another operator has to confirm.
fn decision(exception: &ExceptionView) -> String {
    match (&exception.closed_by, &exception.proposed) {
        (Some(closed_by), _) => closed_by.clone(),
        (None, Some(proposed)) => format!("{proposed}, awaits another operator's confirmation"),
        (None, None) => String::new(),
    }
}

/// A table of exceptions.
pub(super) fn table(exceptions: &[ExceptionView], now: Timestamp) -> Table<6> {
    let left = Align::Left;
    let mut table = Table::new([
        ("exception", Align::Right),
        ("kind", left),
        ("open for", Align::Right),
        ("payment", left),
        ("decision", left),
        ("detail", left),
    ]);
    for exception in exceptions {
        let open_for = match exception.closed_at {
            None => age::format(now.duration_since(exception.opened_at).as_secs()),
            Some(_) => "closed".into(),
        };
        table.row([
            &exception.exception_id.to_string(),
            &exception.kind,
            &open_for,
            exception.payment_id.as_deref().unwrap_or("unmatched"),
            &decision(exception),
            &exception.detail,
        ]);
    }
    table
}

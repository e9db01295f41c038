//! `payctl kill-switch`: refuse new payments of a switch or corridor, and accept them again.

use clap::ArgGroup;
use iso_currency::Currency;
use payment_ledger::admission::kill_switches::{KillSwitchTarget, KillSwitchView};
use payment_protocol::ids::SwitchName;
use payment_protocol::money::parse_currency;
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{self as tables, Align, Table};

/// Stop new payments of a switch or corridor with a kill switch; accepted payments proceed
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Stop(StopArgs),
    Lift(LiftArgs),
    List(ListArgs),
}

/// Activate a kill switch: refuse new payments of a switch, or of a currency to some destination accounts
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("target").required(true).args(["switch", "currency"]))]
pub(crate) struct StopArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Switch whose new payments are refused, by its name in the configuration
    #[arg(long, value_name = "NAME", value_parser = super::id::<SwitchName>)]
    switch: Option<SwitchName>,
    /// Currency of the corridor whose new payments are refused, an ISO 4217 code like EUR
    #[arg(long, value_parser = parse_currency, requires = "prefix")]
    currency: Option<Currency>,
    /// Prefix of the corridor's destination accounts, like FR; an empty prefix is every account
    #[arg(long, value_name = "TEXT", requires = "currency", conflicts_with = "switch")]
    prefix: Option<String>,
    /// Name of the operator who activates the kill switch; recorded
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Reason for the stop; recorded
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Lift a kill switch: accept new payments again
#[derive(Debug, clap::Args)]
pub(crate) struct LiftArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Number of the kill switch, as `payctl kill-switch list` shows it
    #[arg(value_name = "NUMBER")]
    kill_switch_id: i64,
    /// Name of the operator who lifts the kill switch; recorded
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Reason for lifting the kill switch; recorded
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// List active kill switches, newest first
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Show lifted kill switches, too
    #[arg(long)]
    all: bool,
    /// Show at most this many kill switches, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Stop(args) => stop(args, out).await?,
        Command::Lift(args) => lift(args, out).await?,
        Command::List(args) => list(args, out).await?,
    }
    Ok(CommandOutcome::Success)
}

async fn stop(args: StopArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let (target, target_text) = match (args.switch, args.currency, args.prefix) {
        (Some(switch), _, _) => {
            let text = format!("switch {switch}");
            (KillSwitchTarget::Switch(switch), text)
        }
        (None, Some(currency), Some(destination_prefix)) => {
            let text = corridor(currency.code(), &destination_prefix);
            (KillSwitchTarget::Corridor { currency, destination_prefix }, text)
        }
        _ => anyhow::bail!("a kill switch needs --switch, or --currency and --prefix"),
    };
    let ledger = args.database.ledger().await?;
    let (id, is_new) = ledger.activate_kill_switch(&target, &args.by, &args.reason).await?;
    let status = if is_new { "activated" } else { "was active before" };
    out.write_line(format_args!("kill switch {id} {status}: new payments of {target_text} are refused"))?;
    out.write_line(format_args!("to lift it: payctl kill-switch lift {id} --by NAME --reason TEXT"))?;
    Ok(())
}

async fn lift(args: LiftArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let id = args.kill_switch_id;
    let ledger = args.database.ledger().await?;
    let was_active = ledger.lift_kill_switch(id, &args.by, &args.reason).await?;
    anyhow::ensure!(was_active, "kill switch {id} is not active; see: payctl kill-switch list");
    out.write_line(format_args!("kill switch {id} lifted"))?;
    Ok(())
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let kill_switches = args.database.ledger().await?.kill_switches(args.all, args.limit).await?;
    if args.json {
        let kill_switches: Vec<Value> = kill_switches.iter().map(document).collect();
        out.write_json(&json!({ "kill_switches": kill_switches }))?;
    } else if kill_switches.is_empty() {
        out.write_line(if args.all { "no kill switch" } else { "no active kill switch" })?;
    } else {
        out.write_line(table(&kill_switches))?;
        tables::note_limit(kill_switches.len(), args.limit, out)?;
    }
    Ok(())
}

fn corridor(currency: &str, destination_prefix: &str) -> String {
    format!("{currency} to {destination_prefix}*")
}

fn table(kill_switches: &[KillSwitchView]) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("number", Align::Right),
        ("refuses", left),
        ("activated by", left),
        ("reason", left),
        ("lifted", left),
    ]);
    for view in kill_switches {
        let target = match (&view.switch, &view.currency, &view.destination_prefix) {
            (Some(switch), _, _) => format!("switch {switch}"),
            (None, Some(currency), Some(prefix)) => corridor(currency, prefix),
            _ => String::new(),
        };
        let lifted = match (&view.lifted_by, &view.lift_reason) {
            (Some(by), Some(reason)) => format!("by {by}: {reason}"),
            _ => String::new(),
        };
        table.row([&view.kill_switch_id.to_string(), &target, &view.activated_by, &view.reason, &lifted]);
    }
    table
}

fn document(view: &KillSwitchView) -> Value {
    json!({
        "kill_switch_id": view.kill_switch_id,
        "switch": view.switch,
        "currency": view.currency,
        "destination_prefix": view.destination_prefix,
        "activated_by": view.activated_by,
        "reason": view.reason,
        "activated_at": view.activated_at,
        "lifted_by": view.lifted_by,
        "lift_reason": view.lift_reason,
        "lifted_at": view.lifted_at,
    })
}

//! `payctl kill-switch`: stop what takes new payments, a switch or a corridor, and lift that again.

use clap::ArgGroup;
use iso_currency::Currency;
use payment_ledger::admission::kill_switches::{KillSwitchTarget, KillSwitchView};
use payment_protocol::ids::SwitchName;
use payment_protocol::money::parse_currency;
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::table::{self as tables, Align, Table};

/// Stop a switch or a corridor: no new payments are taken, those that were accepted go on
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Stop(StopArgs),
    Lift(LiftArgs),
    List(ListArgs),
}

/// Take no new payments by a switch, or in a currency to destinations that begin with a text
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("target").required(true).args(["switch", "currency"]))]
pub(crate) struct StopArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The switch's name, as it is configured
    #[arg(long, value_name = "NAME", value_parser = super::id::<SwitchName>)]
    switch: Option<SwitchName>,
    /// The corridor's currency, like EUR
    #[arg(long, value_parser = parse_currency, requires = "prefix")]
    currency: Option<Currency>,
    /// The beginning of the corridor's destination accounts; an empty one is all
    #[arg(long, value_name = "TEXT", requires = "currency", conflicts_with = "switch")]
    prefix: Option<String>,
    /// Your name
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Take new payments again
#[derive(Debug, clap::Args)]
pub(crate) struct LiftArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The stop's number
    #[arg(value_name = "STOP")]
    kill_switch_id: i64,
    /// Your name
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// List what is stopped, newest first
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Lifted ones too
    #[arg(long)]
    all: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::Stop(args) => stop(args, out).await?,
        Command::Lift(args) => lift(args, out).await?,
        Command::List(args) => list(args, out).await?,
    }
    Ok(Outcome::Done)
}

async fn stop(args: StopArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let target = match (args.switch, args.currency, args.prefix) {
        (Some(switch), _, _) => KillSwitchTarget::Switch(switch),
        (None, Some(currency), Some(destination_prefix)) => {
            KillSwitchTarget::Corridor { currency, destination_prefix }
        }
        _ => anyhow::bail!("what is to be stopped? give --switch, or --currency and --prefix"),
    };
    let ledger = args.database.ledger().await?;
    let (kill_switch_id, is_new) = ledger.activate_kill_switch(&target, &args.by, &args.reason).await?;
    let word = if is_new { "stopped" } else { "was stopped before" };
    out.line(format_args!("{word}: payctl kill-switch lift {kill_switch_id}"))?;
    Ok(())
}

async fn lift(args: LiftArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let ledger = args.database.ledger().await?;
    let stood = ledger.lift_kill_switch(args.kill_switch_id, &args.by, &args.reason).await?;
    anyhow::ensure!(stood, "no stop {} stands; see payctl kill-switch list", args.kill_switch_id);
    out.line("lifted")?;
    Ok(())
}

async fn list(args: ListArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let kill_switches = args.database.ledger().await?.kill_switches(args.all, args.limit).await?;
    if args.json {
        let kill_switches: Vec<Value> = kill_switches.iter().map(document).collect();
        out.json(&json!({ "kill_switches": kill_switches }))?;
    } else if kill_switches.is_empty() {
        out.line("nothing is stopped")?;
    } else {
        out.line(table(&kill_switches))?;
        tables::remark_cut(kill_switches.len(), args.limit, out)?;
    }
    Ok(())
}

fn table(kill_switches: &[KillSwitchView]) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("stop", Align::Right),
        ("what", left),
        ("by", left),
        ("reason", left),
        ("lifted", left),
    ]);
    for stop in kill_switches {
        let what = match (&stop.switch, &stop.currency, &stop.destination_prefix) {
            (Some(switch), _, _) => format!("switch {switch}"),
            (None, Some(currency), Some(prefix)) => format!("{currency} to {prefix}*"),
            _ => String::new(),
        };
        let lifted = match (&stop.lifted_by, &stop.lift_reason) {
            (Some(by), Some(reason)) => format!("by {by}: {reason}"),
            _ => String::new(),
        };
        table.row([&stop.kill_switch_id.to_string(), &what, &stop.activated_by, &stop.reason, &lifted]);
    }
    table
}

fn document(stop: &KillSwitchView) -> Value {
    json!({
        "kill_switch_id": stop.kill_switch_id,
        "switch": stop.switch,
        "currency": stop.currency,
        "destination_prefix": stop.destination_prefix,
        "activated_by": stop.activated_by,
        "reason": stop.reason,
        "activated_at": stop.activated_at,
        "lifted_by": stop.lifted_by,
        "lift_reason": stop.lift_reason,
        "lifted_at": stop.lifted_at,
    })
}

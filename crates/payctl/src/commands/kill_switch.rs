//! `payctl kill-switch`: refuse new payments of a switch or corridor, and accept them again.

use clap::ArgGroup;
use iso_currency::Currency;
use payment_protocol::ids::SwitchName;
use payment_protocol::money::parse_currency;
use serde::Deserialize;
use serde_json::json;

use crate::operator_api::{KillSwitchDocument, ReasonArgs, SessionArgs, note_waiting};
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
    session: SessionArgs,
    /// Switch whose new payments are refused, by its name in the configuration
    #[arg(long, value_name = "NAME", value_parser = super::id::<SwitchName>)]
    switch: Option<SwitchName>,
    /// Currency of the corridor whose new payments are refused, an ISO 4217 code like EUR
    #[arg(long, value_parser = parse_currency, requires = "prefix")]
    currency: Option<Currency>,
    /// Prefix of the corridor's destination accounts, like FR; an empty prefix is every account
    #[arg(long, value_name = "TEXT", requires = "currency", conflicts_with = "switch")]
    prefix: Option<String>,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Propose to lift a kill switch, so that new payments are accepted again; another operator confirms it
#[derive(Debug, clap::Args)]
pub(crate) struct LiftArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Number of the kill switch, as `payctl kill-switch list` shows it
    #[arg(value_name = "NUMBER")]
    kill_switch_id: i64,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// List active kill switches, newest first
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Show lifted kill switches, too
    #[arg(long)]
    all: bool,
    /// Show at most this many kill switches, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1_000))]
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

#[derive(Deserialize)]
struct KillSwitches {
    kill_switches: Vec<KillSwitchDocument>,
}

async fn stop(args: StopArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let (target, target_text) = match (args.switch, args.currency, args.prefix) {
        (Some(switch), _, _) => (json!({"switch": switch}), format!("switch {switch}")),
        (None, Some(currency), Some(prefix)) => {
            let text = corridor(currency.code(), &prefix);
            (json!({"currency": currency.code(), "destination_prefix": prefix}), text)
        }
        _ => anyhow::bail!("a kill switch needs --switch, or --currency and --prefix"),
    };
    let mut change = target;
    change["kind"] = "activate_kill_switch".into();
    let change = args.session.client()?.change(change, &args.reason).await?;
    let detail = change.detail.unwrap_or_default();
    out.write_line(format_args!("{detail}: new payments of {target_text} are refused"))?;
    Ok(())
}

async fn lift(args: LiftArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let change = json!({"kind": "lift_kill_switch", "kill_switch_id": args.kill_switch_id});
    let change = args.session.client()?.change(change, &args.reason).await?;
    note_waiting(&change, out)?;
    Ok(())
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let path = format!("kill-switches?with_lifted={}&limit={}", args.all, args.limit);
    let response = args.session.client()?.get::<KillSwitches>(&path).await?;
    let kill_switches = response.document.kill_switches;
    if args.json {
        out.write_line(response.body)?;
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

fn table(kill_switches: &[KillSwitchDocument]) -> Table<5> {
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

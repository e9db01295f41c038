//! `payctl changes`: what operators proposed, and the confirmation by another one.

use serde::Deserialize;
use serde_json::json;

use crate::operator_api::{ChangeDocument, ReasonArgs, SessionArgs};
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{self as tables, Align, Table};

/// List, confirm and withdraw changes of accounts, limits, kill switches and API keys
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Show(ShowArgs),
    Confirm(DecideArgs),
    Withdraw(DecideArgs),
}

/// List the changes that wait for another operator, oldest first
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Show those that are done or withdrawn, too, newest first
    #[arg(long)]
    all: bool,
    /// Show at most this many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Show one change
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Id of the change
    #[arg(value_name = "CHANGE")]
    id: String,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Confirm another operator's change, which is made with it, or withdraw a change that is not confirmed
#[derive(Debug, clap::Args)]
pub(crate) struct DecideArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Id of the change
    #[arg(value_name = "CHANGE")]
    id: String,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Deserialize)]
struct Changes {
    changes: Vec<ChangeDocument>,
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::List(args) => list(args, out).await?,
        Command::Show(args) => show(args, out).await?,
        Command::Confirm(args) => decide(args, "confirm", out).await?,
        Command::Withdraw(args) => decide(args, "withdraw", out).await?,
    }
    Ok(CommandOutcome::Success)
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let path = format!("changes?with_closed={}&limit={}", args.all, args.limit);
    let response = args.session.client()?.get::<Changes>(&path).await?;
    let changes = response.document.changes;
    if args.json {
        out.write_line(response.body)?;
    } else if changes.is_empty() {
        out.write_line(if args.all { "no change" } else { "no change waits for another operator" })?;
    } else {
        out.write_line(table(&changes))?;
        tables::note_limit(changes.len(), args.limit, out)?;
    }
    Ok(())
}

async fn show(args: ShowArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let response = args.session.client()?.get::<ChangeDocument>(&path(&args.id)?).await?;
    if args.json {
        out.write_line(response.body)?;
    } else {
        write(&response.document, out)?;
    }
    Ok(())
}

async fn decide(args: DecideArgs, action: &str, out: &mut Output<'_>) -> anyhow::Result<()> {
    let path = format!("{}/{action}", path(&args.id)?);
    let body = json!({"reason": args.reason.reason});
    let if_unknown = "the change may have been made; repeat the same command, which has no further effect";
    let change = args.session.client()?.post::<ChangeDocument>(&path, &body, if_unknown).await?.document;
    write(&change, out)
}

/// The path of a change. An id has no character with a meaning in a path.
fn path(id: &str) -> anyhow::Result<String> {
    let is_id = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !id.is_empty();
    anyhow::ensure!(is_id, "{id:?} is not the id of a change; see: payctl changes list");
    Ok(format!("changes/{id}"))
}

fn write(change: &ChangeDocument, out: &mut Output<'_>) -> anyhow::Result<()> {
    let mut fields = Table::new([("", Align::Left), ("", Align::Left)]);
    fields.row(["change", &change.change_id]);
    fields.row(["kind", &change.kind]);
    fields.row(["changes", &change.arguments_text()]);
    if let Some(before) = change.before_text() {
        fields.row(["before", &before]);
    }
    fields.row(["reason", &change.reason]);
    fields.row(["proposed by", &change.proposed_by]);
    if let Some(by) = change.confirmed_by.as_ref().filter(|_| change.needs_two) {
        let reason = change.confirm_reason.as_deref().unwrap_or_default();
        fields.row(["confirmed by", &format!("{by}: {}", reason)]);
    }
    if let Some(by) = &change.withdrawn_by {
        fields.row(["withdrawn by", by]);
    }
    let status = match &change.detail {
        Some(detail) => format!("{}: {}", change.status, detail),
        None => change.status.clone(),
    };
    fields.row(["status", &status]);
    Ok(out.write_line(fields)?)
}

fn table(changes: &[ChangeDocument]) -> Table<6> {
    let left = Align::Left;
    let mut table = Table::new([
        ("change", left),
        ("kind", left),
        ("changes", left),
        ("proposed by", left),
        ("reason", left),
        ("status", left),
    ]);
    for change in changes {
        table.row([
            &change.change_id,
            &change.kind,
            &change.arguments_text(),
            &change.proposed_by,
            &change.reason,
            &change.status,
        ]);
    }
    table
}

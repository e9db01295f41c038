//! `payctl temporal-namespace`: accept that the workflows of open payments are in another Temporal namespace.

use clap::builder::NonEmptyStringValueParser;

use crate::database::DatabaseArgs;
use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Accept another Temporal namespace, after the one with the open payments' workflows is gone
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Accept(AcceptArgs),
}

/// Accept a namespace: payment-workers run in no other one, and cancel the open payments whose workflows it does not have
#[derive(Debug, clap::Args)]
pub(crate) struct AcceptArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Id of the namespace, as the refused payment-worker prints it
    #[arg(value_name = "NAMESPACE_ID", value_parser = NonEmptyStringValueParser::new())]
    namespace_id: String,
    /// Name of the operator who accepts the namespace; recorded
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Reason for the change of the namespace; recorded
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let Command::Accept(args) = command;
    let id = &args.namespace_id;
    let is_new = args.database.ledger().await?.accept_temporal_namespace(id, &args.by, &args.reason).await?;
    let status = if is_new { "accepted" } else { "was accepted before" };
    out.write_line(format_args!(
        "Temporal namespace {id} {status}: payment-workers connected to it run, and resume the open payments whose workflows it lacks"
    ))?;
    Ok(CommandOutcome::Success)
}

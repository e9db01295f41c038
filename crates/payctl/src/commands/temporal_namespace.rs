//! `payctl temporal-namespace`: accept that the workflows of open payments are in another Temporal namespace.

use clap::builder::NonEmptyStringValueParser;
use serde_json::json;

use crate::operator_api::{ReasonArgs, SessionArgs, note_waiting};
use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Accept another Temporal namespace, after the one with the open payments' workflows is gone
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Accept(AcceptArgs),
}

/// Propose a namespace; another operator confirms it, and then payment-workers run in no other one, and cancel the open payments
/// whose workflows it does not have
#[derive(Debug, clap::Args)]
pub(crate) struct AcceptArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Id of the namespace, as the refused payment-worker prints it
    #[arg(value_name = "NAMESPACE_ID", value_parser = NonEmptyStringValueParser::new())]
    namespace_id: String,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let Command::Accept(args) = command;
    let change = json!({"kind": "accept_temporal_namespace", "namespace_id": args.namespace_id});
    let change = args.session.client()?.change(change, &args.reason).await?;
    note_waiting(&change, out)?;
    Ok(CommandOutcome::Success)
}

//! `payctl switch`: the configured switches and their capabilities.

mod list;
mod probe;

use crate::outcome::CommandOutcome;
use crate::output::Output;

/// List the configured switches, and measure a switch's capabilities
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Probe(probe::Args),
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::List(args) => list::run(args, out),
        Command::Probe(args) => probe::run(args, out).await,
    }
}

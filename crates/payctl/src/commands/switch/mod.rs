//! `payctl switch`: the switches that the bank is configured for.

mod list;
mod probe;

use crate::out::Out;
use crate::outcome::Outcome;

/// Look at the configured switches, and find out what one can do
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Probe(probe::Args),
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::List(args) => list::run(args, out),
        Command::Probe(args) => probe::run(args, out).await,
    }
}

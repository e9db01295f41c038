//! `payctl ledger`: the books themselves.

mod verify;

use crate::out::Out;
use crate::outcome::Outcome;

/// Verify the books
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Verify(verify::Args),
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::Verify(args) => verify::run(args, out).await,
    }
}

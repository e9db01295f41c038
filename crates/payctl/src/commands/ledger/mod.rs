//! `payctl ledger`: the books themselves.

mod balance;
mod statement;
mod trial_balance;
mod verify;

use crate::out::Out;
use crate::outcome::Outcome;

/// Verify and read the books
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Verify(verify::Args),
    Balance(balance::Args),
    Statement(statement::Args),
    TrialBalance(trial_balance::Args),
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::Verify(args) => verify::run(args, out).await,
        Command::Balance(args) => balance::run(args, out).await,
        Command::Statement(args) => statement::run(args, out).await,
        Command::TrialBalance(args) => trial_balance::run(args, out).await,
    }
}

//! `payctl ledger`: verify the journal, and read balances and account statements.

mod balance;
mod statement;
mod trial_balance;
mod verify;

use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Verify the journal, and read balances and account statements
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Verify(verify::Args),
    Balance(balance::Args),
    Statement(statement::Args),
    TrialBalance(trial_balance::Args),
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Verify(args) => verify::run(args, out).await,
        Command::Balance(args) => balance::run(args, out).await,
        Command::Statement(args) => statement::run(args, out).await,
        Command::TrialBalance(args) => trial_balance::run(args, out).await,
    }
}

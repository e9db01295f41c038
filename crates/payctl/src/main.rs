//! `payctl`: the command line of operators and developers.
//!
//! `migrate`, `demo`, `keys`, `accounts`, `ledger`, `limits`, `webhooks` and `kill-switch` work on the database; `list`, `stuck`,
//! `exceptions`, `events`, `reconcile`, `show`, `decide` and `switch` on the bank's own configuration; `pay` is a customer of the HTTP API. What is
//! printed on stdout is the result, what is printed on stderr is about the run. It starts no process, and
//! moves money only by the doors that are there for everybody: the ledger's deposits and decisions, and
//! the API's payments.
//!
//! | file | question |
//! |---|---|
//! | `commands` | one file per command |
//! | `bank`, `database`, `api` | what does a command talk to? |
//! | `explain` | what do ledger, Temporal and switch say of a payment, and do they agree? |
//! | `probe` | what can a switch do, and what does that mean for its profile? |
//! | `secret` | how is an API key made, and what is stored of it? |
//! | `watch` | how is a payment followed to its end? |
//! | `out`, `table`, `document`, `age`, `outcome` | what does the person, or the script, see? |

mod age;
mod api;
mod bank;
mod commands;
mod database;
mod document;
mod explain;
mod out;
mod outcome;
mod probe;
mod secret;
mod table;
mod watch;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::commands::{
    accounts, completions, decide, demo, events, exceptions, keys, kill_switch, ledger, limits, list,
    migrate, pay, reconcile, show, stuck, switch, webhooks,
};
use crate::out::{Out, OutError};
use crate::outcome::Outcome;

/// As shells report a process that wrote into a closed pipe (128 + SIGPIPE).
const CLOSED_PIPE: u8 = 141;
/// A wrong argument, no connection, a refusal: the command was not carried out. clap's own code too.
const NOT_DONE: u8 = 2;

/// Operator and developer command line of the payment service.
#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true, after_help = outcome::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Migrate(migrate::Args),
    Demo(demo::Args),
    #[command(subcommand)]
    Keys(keys::Command),
    #[command(subcommand)]
    Accounts(accounts::Command),
    #[command(subcommand)]
    Ledger(ledger::Command),
    #[command(subcommand)]
    Limits(limits::Command),
    #[command(subcommand)]
    KillSwitch(kill_switch::Command),
    Pay(pay::Args),
    List(list::Args),
    Stuck(stuck::Args),
    Exceptions(exceptions::Args),
    Reconcile(reconcile::Args),
    #[command(subcommand)]
    Events(events::Command),
    Show(show::Args),
    Decide(decide::Args),
    #[command(subcommand)]
    Switch(switch::Command),
    #[command(subcommand)]
    Webhooks(webhooks::Command),
    Completions(completions::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut stdout = std::io::stdout();
    match run(cli.command, &mut Out::new(&mut stdout)).await {
        Ok(outcome) => outcome.into(),
        Err(error) if matches!(error.downcast_ref(), Some(OutError::Closed)) => CLOSED_PIPE.into(),
        Err(error) => {
            // When stderr is closed too there is nobody left to tell; the exit code stays.
            let _ = writeln!(std::io::stderr(), "payctl: {error:#}");
            NOT_DONE.into()
        }
    }
}

async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::Migrate(args) => migrate::run(args, out).await,
        Command::Demo(args) => demo::run(args, out).await,
        Command::Keys(command) => keys::run(command, out).await,
        Command::Accounts(command) => accounts::run(command, out).await,
        Command::Ledger(command) => ledger::run(command, out).await,
        Command::Limits(command) => limits::run(command, out).await,
        Command::KillSwitch(command) => kill_switch::run(command, out).await,
        Command::Pay(args) => pay::run(args, out).await,
        Command::List(args) => list::run(args, out).await,
        Command::Stuck(args) => stuck::run(args, out).await,
        Command::Exceptions(args) => exceptions::run(args, out).await,
        Command::Reconcile(args) => reconcile::run(args, out).await,
        Command::Events(command) => events::run(command, out).await,
        Command::Decide(args) => decide::run(args, out).await,
        Command::Show(args) => show::run(args, out).await,
        Command::Switch(command) => switch::run(command, out).await,
        Command::Webhooks(command) => webhooks::run(command, out).await,
        Command::Completions(args) => completions::run(&args, Cli::command(), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}

//! `payctl`: the command line of operators and developers.
//!
//! `ledger`, `webhooks` and `audit` read the database with a login that changes nothing; `reconcile` and `restore-check` have one of their
//! own; `migrate`, `demo` and `operators` with `--as-owner` or `reset-password` need its owner's; `decide`, `accounts`, `limits`,
//! `kill-switch`, `keys`, `temporal-namespace` and `changes` act at operator-api in the session of `login`; `list`, `stuck`, `exceptions`,
//! `events`, `reconcile`, `restore-check`, `show`, `worker`, `switch` and `codec-server` use the service's configuration; `pay` and `listen`
//! call the HTTP API as a customer; `trigger` does that, acts as the demo's operators, and kills workers of this machine. Results go to
//! stdout, remarks and errors to stderr. The command line starts no process, and moves money only through the demo's deposits, operators'
//! decisions and changes, and API payments.
//!
//! | module | responsibility |
//! |---|---|
//! | `commands` | arguments and output, one file per command |
//! | `config`, `database`, `api`, `operator_api` | connections of a command |
//! | `explain` | one payment in the ledger, Temporal and the switch, and its invariants |
//! | `probe` | measure a switch's capabilities and assess its profile |
//! | `api_key` | generate API keys |
//! | `watch` | follow a payment to its final state |
//! | `output`, `table`, `document`, `age`, `outcome` | text, JSON and exit codes |

mod age;
mod api;
mod api_key;
mod commands;
mod config;
mod database;
mod document;
#[cfg(test)]
mod documented_commands;
mod explain;
mod operator_api;
mod outcome;
mod output;
mod probe;
mod table;
mod watch;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::commands::{
    accounts, audit, changes, codec_server, completions, decide, demo, events, exceptions, keys, kill_switch,
    ledger, limits, list, listen, login, migrate, operators, pay, reconcile, restore_check, show, stuck,
    switch, temporal_namespace, trigger, webhooks, worker,
};
use crate::outcome::CommandOutcome;
use crate::output::{Output, OutputError};

/// The exit code that shells report for a process killed by SIGPIPE (128 + 13).
const CLOSED_PIPE: u8 = 141;
/// The command was not carried out: invalid arguments (clap's own code), no connection, or refused.
const NOT_CARRIED_OUT: u8 = 2;

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
    Operators(operators::Command),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    #[command(subcommand)]
    Changes(changes::Command),
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
    Audit(audit::Args),
    #[command(subcommand)]
    TemporalNamespace(temporal_namespace::Command),
    Pay(pay::Args),
    List(list::Args),
    CodecServer(codec_server::Args),
    Listen(listen::Args),
    Stuck(stuck::Args),
    Exceptions(exceptions::Args),
    Reconcile(reconcile::Args),
    RestoreCheck(restore_check::Args),
    #[command(subcommand)]
    Events(events::Command),
    Show(show::Args),
    Trigger(Box<trigger::Args>),
    Worker(worker::Args),
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
    match run(cli.command, &mut Output::new(&mut stdout)).await {
        Ok(outcome) => outcome.into(),
        Err(error) if matches!(error.downcast_ref(), Some(OutputError::Closed)) => CLOSED_PIPE.into(),
        Err(error) => {
            let error = database::explain_missing_right(error);
            // If stderr is closed too, the exit code is all that is left.
            let _ = writeln!(std::io::stderr(), "payctl: {error:#}");
            NOT_CARRIED_OUT.into()
        }
    }
}

async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Migrate(args) => migrate::run(args, out).await,
        Command::Demo(args) => demo::run(args, out).await,
        Command::Operators(command) => operators::run(command, out).await,
        Command::Login(args) => login::log_in(args, out).await,
        Command::Logout(args) => login::log_out(args, out).await,
        Command::Changes(command) => changes::run(command, out).await,
        Command::Keys(command) => keys::run(command, out).await,
        Command::Accounts(command) => accounts::run(command, out).await,
        Command::Ledger(command) => ledger::run(command, out).await,
        Command::Limits(command) => limits::run(command, out).await,
        Command::KillSwitch(command) => kill_switch::run(command, out).await,
        Command::Audit(args) => audit::run(args, out).await,
        Command::TemporalNamespace(command) => temporal_namespace::run(command, out).await,
        Command::Pay(args) => pay::run(args, out).await,
        Command::List(args) => list::run(args, out).await,
        Command::CodecServer(args) => codec_server::run(args, out).await,
        Command::Listen(args) => listen::run(args, out).await,
        Command::Stuck(args) => stuck::run(args, out).await,
        Command::Exceptions(args) => exceptions::run(args, out).await,
        Command::Reconcile(args) => reconcile::run(args, out).await,
        Command::RestoreCheck(args) => restore_check::run(args, out).await,
        Command::Events(command) => events::run(command, out).await,
        Command::Decide(args) => decide::run(args, out).await,
        Command::Show(args) => show::run(args, out).await,
        Command::Trigger(args) => trigger::run(*args, out).await,
        Command::Worker(args) => worker::run(args, out).await,
        Command::Switch(command) => switch::run(command, out).await,
        Command::Webhooks(command) => webhooks::run(command, out).await,
        Command::Completions(args) => completions::run(&args, Cli::command(), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_definitions_of_payctl_are_consistent() {
        Cli::command().debug_assert();
    }
}

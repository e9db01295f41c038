//! `payctl decide`: operator decisions about payments and exceptions.

mod exception;
mod payment;
mod wait;

use payment_ledger::LedgerError;
use payment_ledger::operator::decisions::DecideError;
use payment_protocol::action::Correction;
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId};

use crate::config::ConfigArgs;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;

/// Decide about a payment that needs an operator, or about an exception
///
/// A decision that moves money is proposed by one operator and confirmed by another (four-eyes). The payment's
/// workflow applies a decision about a payment and queries the switch first; background-worker delivers the
/// decision if this command cannot. Every command may be repeated: the same decision by the same operator is
/// recorded once.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Id of the payment that needs an operator
    #[arg(required = true, value_parser = super::id::<PaymentId>)]
    payment: Option<PaymentId>,
    /// Action to decide on; `payctl show` lists the allowed actions of the payment
    #[arg(required = true, value_parser = action())]
    action: Option<Action>,
    /// Evidence of how the transfer ended, and where it is kept; required for debit and release
    #[arg(long, value_name = "TEXT")]
    evidence: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    // Required unless a subcommand has its own.
    #[command(flatten)]
    operator: Option<OperatorArgs>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Confirm a decision that another operator proposed
    Confirm(DecisionArgs),
    /// Withdraw a proposed decision that is not confirmed
    Withdraw(DecisionArgs),
    /// Propose to debit a transfer that settled and was not debited: from the customer, else from the bank's claims account
    LateDebit(ExceptionArgs),
    /// Propose to return the debited amount of a payment whose transfer came back or never settled
    ReturnCredit(ExceptionArgs),
    /// Propose to write a payment's amount on the bank's claims account off as a loss
    WriteOff(ExceptionArgs),
    /// Open an exception about an ended payment, of which an operator knows what no report says, so that a correction can be proposed
    OpenException(PaymentArgs),
    /// Close an exception that needs no correction; moves no money and needs no confirmation
    Close(CloseArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct DecisionArgs {
    /// Id of the decision, as its proposal printed it
    #[arg(value_parser = super::id::<DecisionId>)]
    decision: DecisionId,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct PaymentArgs {
    /// Id of the ended payment
    #[arg(value_parser = super::id::<PaymentId>)]
    payment: PaymentId,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct ExceptionArgs {
    /// Number of the exception, as `payctl exceptions` lists it
    exception: i64,
    /// Evidence of how the transfer ended, and where it is kept; required for late-debit and return-credit
    #[arg(long, value_name = "TEXT")]
    evidence: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct CloseArgs {
    /// Number of the exception, as `payctl exceptions` lists it
    exception: i64,
    /// Refused, with what to do instead: a closed exception has no evidence beside its reason
    #[arg(long, value_name = "TEXT", hide = true)]
    evidence: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// The operator, the reason, and the form of the output.
#[derive(Debug, clap::Args)]
struct OperatorArgs {
    /// Name of the deciding operator: 1 to 64 ASCII letters, digits and . _ - @; recorded permanently
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Reason for the decision; recorded permanently
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Longest time to wait for the decision's outcome, in seconds, 0 to 86400
    #[arg(long, value_name = "SECONDS", default_value_t = 45, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    wait: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    use exception::{close, correct, open};
    match args.command {
        Some(Command::Confirm(args)) => return payment::confirm(&args, out).await,
        Some(Command::Withdraw(args)) => return payment::withdraw(&args, out).await,
        Some(Command::LateDebit(args)) => return correct(&args, Correction::LateDebit, out).await,
        Some(Command::ReturnCredit(args)) => return correct(&args, Correction::ReturnCredit, out).await,
        Some(Command::WriteOff(args)) => return correct(&args, Correction::WriteOff, out).await,
        Some(Command::OpenException(args)) => return open(&args, out).await,
        Some(Command::Close(args)) => return close(&args, out).await,
        None => {}
    }
    let (Some(payment), Some(action), Some(operator)) = (args.payment, args.action, args.operator) else {
        anyhow::bail!("a decision needs a payment, an action, --by and --reason; see payctl decide --help");
    };
    let config = args.config.read()?;
    payment::propose(&config, &payment, action, args.evidence.as_deref(), &operator, out).await
}

/// The actions in the command line's spelling.
fn action() -> impl clap::builder::TypedValueParser<Value = Action> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    let parser = PossibleValuesParser::new(["retry-cancel", "debit", "release"]);
    parser.map(|word| match word.as_str() {
        "debit" => Action::Debit,
        "release" => Action::Release,
        _ => Action::RetryCancel,
    })
}

/// The error of a decision that was refused, or whose recording is unknown.
fn not_decided(error: DecideError) -> anyhow::Error {
    match error {
        DecideError::Refused(refused) => anyhow::anyhow!("nothing was decided: {refused}"),
        DecideError::Ledger(error @ LedgerError::Unavailable(_)) => {
            let context = "the decision may be recorded; repeat the same command, which records it once";
            anyhow::Error::new(error).context(context)
        }
        DecideError::Ledger(error) => anyhow::Error::new(error).context("the decision was not recorded"),
    }
}

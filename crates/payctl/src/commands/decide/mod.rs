//! `payctl decide`: operator decisions about payments and exceptions.

mod exception;
mod payment;

use anyhow::Context as _;
use payment_protocol::action::Correction;
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId};
use serde_json::{Value, json};

use crate::operator_api::SessionArgs;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;

/// Decide about a payment that needs an operator, or about an exception
///
/// A decision that moves money is proposed by one operator and confirmed by another (four-eyes), each logged in with payctl login. The
/// payment's workflow applies a decision about a payment and queries the switch first. Every command may be repeated:
/// the same decision by the same operator is recorded once.
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
    operator: OperatorArgs,
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
    operator: OperatorArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct PaymentArgs {
    /// Id of the ended payment
    #[arg(value_parser = super::id::<PaymentId>)]
    payment: PaymentId,
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
    operator: OperatorArgs,
}

/// The operator's session, the reason, and the form of the output.
#[derive(Debug, clap::Args)]
struct OperatorArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Reason for the decision; recorded permanently
    // Required, but not by clap: a decision about a payment is no subcommand, and clap would require it before each subcommand, too.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Longest time to wait for the decision's outcome, in seconds, 0 to 86400
    #[arg(long, value_name = "SECONDS", default_value_t = 45, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    wait: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl OperatorArgs {
    fn reason(&self) -> anyhow::Result<&str> {
        self.reason.as_deref().context("the reason is missing; state why the operator decides with --reason")
    }

    /// The body of a request.
    fn body(&self) -> anyhow::Result<Value> {
        Ok(json!({"reason": self.reason()?}))
    }

    /// The body of a proposal.
    fn proposal(&self, action: &str, evidence: Option<&str>) -> anyhow::Result<Value> {
        Ok(json!({"action": action, "reason": self.reason()?, "evidence": evidence}))
    }
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
    let (Some(payment), Some(action)) = (args.payment, args.action) else {
        anyhow::bail!("a decision needs a payment and an action; see payctl decide --help");
    };
    payment::propose(&payment, action, args.evidence.as_deref(), &args.operator, out).await
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

/// Writes a decision as it was received, or these lines.
fn write(
    decision: &str,
    operator: &OperatorArgs,
    lines: &[String],
    out: &mut Output<'_>,
) -> anyhow::Result<()> {
    if operator.json {
        return Ok(out.write_line(decision)?);
    }
    for line in lines {
        out.write_line(crate::output::escape_control(line))?;
    }
    Ok(())
}

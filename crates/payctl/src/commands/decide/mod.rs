//! `payctl decide`: what people decide about payments that stand, and about exceptions.

mod exception;
mod standing;
mod wait;

use payment_ledger::operator::decisions::{Correction, DecideError};
use payment_protocol::decision::Action;
use payment_protocol::ids::{DecisionId, PaymentId};

use crate::bank::BankArgs;
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};

/// Decide about a payment that stands before a person, or about an exception
///
/// What moves money is proposed by one person and confirmed by another, and the switch is asked first. A decision about a standing payment is
/// carried out by its workflow, which asks the switch first; without an answer in time it goes on by itself.
/// Everything may be repeated: the same words by the same person are the same decision.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The payment that stands before a person
    #[arg(required = true, value_parser = super::id::<PaymentId>)]
    payment: Option<PaymentId>,
    /// What to do; payctl show names what is allowed
    #[arg(required = true, value_parser = action())]
    action: Option<Action>,
    /// On what it rests, and where that is kept; needed for settle and release
    #[arg(long, value_name = "TEXT")]
    evidence: Option<String>,
    #[command(flatten)]
    bank: BankArgs,
    // Its fields are required unless a subcommand has its own.
    #[command(flatten)]
    said: Option<Said>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Agree to what another person proposed
    Confirm(OfDecision),
    /// Take a proposal back
    Withdraw(OfDecision),
    /// It left and was not debited: debit the customer, else the claims account
    LateDebit(OfException),
    /// It was debited and came back, or never left: give it back
    ReturnCredit(OfException),
    /// Give up what the claims account bore
    WriteOff(OfException),
    /// Close an exception that calls for no correction; no money moves, and one person is enough
    Close(OfException),
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct OfDecision {
    /// The decision, from its proposal
    #[arg(value_parser = super::id::<DecisionId>)]
    decision: DecisionId,
    #[command(flatten)]
    bank: BankArgs,
    #[command(flatten)]
    said: Said,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
struct OfException {
    /// The exception's number
    exception: i64,
    /// On what it rests, and where that is kept
    #[arg(long, value_name = "TEXT")]
    evidence: Option<String>,
    #[command(flatten)]
    bank: BankArgs,
    #[command(flatten)]
    said: Said,
}

/// Who decides, why, and how the answer is wanted.
#[derive(Debug, clap::Args)]
struct Said {
    /// Who decides; on record for ever
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Why; on record for ever
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Seconds to wait for what comes of it
    #[arg(long, value_name = "SECONDS", default_value_t = 45, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    wait: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    use exception::{close, correct};
    match args.command {
        Some(Command::Confirm(of)) => return standing::confirm(&of, out).await,
        Some(Command::Withdraw(of)) => return standing::withdraw(&of, out).await,
        Some(Command::LateDebit(of)) => return correct(&of, Correction::LateDebit, out).await,
        Some(Command::ReturnCredit(of)) => return correct(&of, Correction::ReturnCredit, out).await,
        Some(Command::WriteOff(of)) => return correct(&of, Correction::WriteOff, out).await,
        Some(Command::Close(of)) => return close(&of, out).await,
        None => {}
    }
    let (Some(payment), Some(action), Some(said)) = (args.payment, args.action, args.said) else {
        anyhow::bail!("say which payment, what to do, who decides and why; see --help");
    };
    let bank = args.bank.read()?;
    standing::propose(&bank, &payment, action, args.evidence.as_deref(), &said, out).await
}

/// The actions as they are typed.
fn action() -> impl clap::builder::TypedValueParser<Value = Action> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    let parser = PossibleValuesParser::new(["retry-cancel", "debit", "release"]);
    parser.map(|word| match word.as_str() {
        "debit" => Action::Debit,
        "release" => Action::Release,
        _ => Action::RetryCancel,
    })
}

/// A decision that was not taken: refused, or to be repeated.
fn not_taken(error: DecideError) -> anyhow::Error {
    match error {
        DecideError::Refused(refused) => anyhow::anyhow!("nothing was decided: {refused}"),
        DecideError::Ledger(error) => {
            let again = "whether it is on record is not known; say the same again: it is decided once";
            anyhow::Error::new(error).context(again)
        }
    }
}

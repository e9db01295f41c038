//! `payctl worker`: the payment-worker that carries a payment.

use anyhow::Context as _;
use payment_ledger::reads::queues::OperatorPaymentFilter;
use payment_protocol::ids::PaymentId;

use crate::config::ConfigArgs;
use crate::explain;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;

/// Show which payment-worker carries a payment: the one that began the last workflow task
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The payment's id; the newest payment by default
    #[arg(value_parser = super::id::<PaymentId>)]
    payment_id: Option<PaymentId>,
    /// Print only the process id, for kill
    #[arg(long)]
    pid: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let config = args.config.read()?;
    let ledger = config.ledger().await?;
    let payment = match args.payment_id {
        Some(payment_id) => explain::read_ledger(&ledger, &payment_id).await?.payment.view,
        None => {
            let filter = OperatorPaymentFilter { limit: 1, ..OperatorPaymentFilter::default() };
            let newest = ledger.list(&filter).await?.payments.into_iter().next();
            newest.context("there is no payment yet; make one with payctl pay")?
        }
    };
    let payment_id = &payment.payment_id;
    let worker = explain::carrying_worker(&config, &payment.workflow_id).await?.with_context(|| {
        format!("no payment-worker has begun a workflow task of {payment_id} yet; repeat the command")
    })?;
    if !args.pid {
        let verb = if payment.state.end().is_some() { "was" } else { "is" };
        out.write_line(format_args!("{payment_id} {verb} carried by {worker}"))?;
        return Ok(CommandOutcome::Success);
    }
    let pid = process_id(&worker)
        .with_context(|| format!("{payment_id} is carried by {worker}, which names no process id"))?;
    out.write_line(pid)?;
    Ok(CommandOutcome::Success)
}

/// The process id in the identity that payment-worker connects to Temporal under.
pub(crate) fn process_id(identity: &str) -> Option<i32> {
    identity.rsplit_once("pid ").and_then(|(_, pid)| pid.parse().ok())
}

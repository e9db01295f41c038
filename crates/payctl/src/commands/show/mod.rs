//! `payctl show`: one payment, from the service's own records or through the API.

mod customer;
mod json;
mod operator;
mod tables;

use std::io::Write as _;

use payment_protocol::ids::PaymentId;

use crate::api::ApiArgs;
use crate::config::ConfigArgs;
use crate::explain;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;

/// Show one payment in the ledger, Temporal and the switch, and check its invariants
///
/// Temporal and the switch may be unavailable: the output then says why. With --api, or if the database is
/// unreachable, the payment is shown as the API shows it to its customer. Exit code 1: an invariant is violated.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Read the payment through the API only, as its customer sees it
    #[arg(long = "api")]
    use_api: bool,
    #[command(flatten)]
    api: ApiArgs,
    /// The payment's id, from its acceptance or from payctl list
    #[arg(value_parser = super::id::<PaymentId>)]
    payment_id: PaymentId,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    if args.use_api {
        return customer::run(&args.api, &args.payment_id, args.json, out).await;
    }
    let config = args.config.read()?;
    let ledger = match config.ledger().await {
        Ok(ledger) => ledger,
        Err(error) => {
            // A remark: the payment is shown without stderr, too.
            let _ = writeln!(
                std::io::stderr(),
                "payctl: {error:#}; payment {} is read through the API instead",
                args.payment_id
            );
            return customer::run(&args.api, &args.payment_id, args.json, out).await;
        }
    };
    let explanation = explain::explain_payment(&config, &ledger, &args.payment_id).await?;
    match args.json {
        true => out.write_json(&json::document(&explanation))?,
        false => operator::print(&explanation, out)?,
    }
    let is_violated = explanation.violated().next().is_some();
    Ok(if is_violated { CommandOutcome::CheckFailed } else { CommandOutcome::Success })
}

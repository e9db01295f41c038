//! `payctl show`: one payment, by the bank's own books or as its customer sees it.

mod customer;
mod json;
mod operator;

use std::io::Write as _;

use payment_protocol::ids::PaymentId;

use crate::api::ApiArgs;
use crate::bank::{Bank, BankArgs};
use crate::explain;
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};

/// Explain a payment: by the bank's own books, Temporal and the switch
///
/// Temporal and the switch may be away: what could not be read is said. When the bank's own books cannot be
/// reached, or with --api, it is shown as the API shows it to its customer. Exit code 1: an invariant does not
/// hold for it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    bank: BankArgs,
    /// By the API, as its customer sees it
    #[arg(long = "api")]
    by_api: bool,
    #[command(flatten)]
    api: ApiArgs,
    /// The payment's id, from its acceptance
    #[arg(value_parser = super::id::<PaymentId>)]
    payment_id: PaymentId,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    if args.by_api {
        return customer::run(&args.api, &args.payment_id, args.json, out).await;
    }
    let bank: Bank = args.bank.read()?;
    let ledger = match bank.ledger().await {
        Ok(ledger) => ledger,
        Err(error) => {
            // Only a remark: without stderr the payment is shown all the same.
            let _ = writeln!(std::io::stderr(), "payctl: {error:#}; showing what the API shows");
            return customer::run(&args.api, &args.payment_id, args.json, out).await;
        }
    };
    let picture = explain::picture(&bank, &ledger, &args.payment_id).await?;
    match args.json {
        true => out.json(&json::document(&picture))?,
        false => operator::print(&picture, out)?,
    }
    Ok(if picture.violated().next().is_none() { Outcome::Done } else { Outcome::NotAsItShouldBe })
}

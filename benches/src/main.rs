//! `bench`: the cost of a part against baselines, side by side in one run. The last line of output is JSON. Absolute figures
//! depend on the machine, ratios do not.

#![allow(clippy::float_arithmetic, reason = "measurements are no amounts of money")]

mod common;
mod idempotency;
mod ledger;
mod load;
mod payments;
mod reads;
mod reconciliation;

use clap::Parser;

/// Measure a part against its baselines
#[derive(Debug, Parser)]
enum Args {
    /// The idempotency layer against no layer, a plain table, a cache first, and both combined
    Idempotency(idempotency::Args),
    /// Contention in the ledger: one escrow account without and with a balance row
    Ledger(ledger::Args),
    /// What a payment costs in each process of the running system
    Payments(payments::Args),
    /// Queues, lists, gauges and the hold audit of the ledger, among few and among many stored payments
    Reads(reads::Args),
    /// Time and memory of a reconciliation run, without drift and with drift in every payment, for few and many payments
    Reconcile(reconciliation::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Args::parse() {
        Args::Idempotency(args) => idempotency::run(args).await,
        Args::Ledger(args) => ledger::run(args).await,
        Args::Payments(args) => payments::run(args).await,
        Args::Reads(args) => reads::run(args).await,
        Args::Reconcile(args) => reconciliation::run(args).await,
    }
}

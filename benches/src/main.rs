//! `bench`: what a part costs, against what one would do without it, side by side in one run. Ends with one line of
//! JSON. The machine is whatever it is: read the ratios.

#![allow(clippy::float_arithmetic, reason = "what is measured is no money")]

mod common;
mod idempotency;
mod ledger;
mod load;
mod reconcile;

use clap::Parser;

/// Measures a part against its baselines.
#[derive(Debug, Parser)]
enum Args {
    /// The idempotency layer: no layer, the plain way, a cache first, both, and ours
    Idempotency(idempotency::Args),
    /// The ledger where it is hot: one escrow account, against the same with a balance row
    Ledger(ledger::Args),
    /// Reconciliation: time and memory of a sweep with no drift and with nothing else, over few payments and over many
    Reconcile(reconcile::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Args::parse() {
        Args::Idempotency(args) => idempotency::run(args).await,
        Args::Ledger(args) => ledger::run(args).await,
        Args::Reconcile(args) => reconcile::run(args).await,
    }
}

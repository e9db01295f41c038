//! `payment-worker`: runs payments until SIGTERM. The library documents its parts.

use anyhow::Context as _;
use payment_worker::{config, process};

fn main() -> anyhow::Result<()> {
    service_kit::telemetry::init("payment-worker");
    let options: config::Options = service_kit::config::load("PAYMENTS", "PAYMENTS_CONFIG")?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?
        .block_on(process::run(options))
}

//! The process `playground`: serves the page until a signal.

use playground::server::{Config, router};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    service_kit::telemetry::init("playground");
    let config: Config = service_kit::config::load("PLAYGROUND", "PLAYGROUND_CONFIG")?;
    let shutdown = service_kit::shutdown::on_signals();
    service_kit::serve::serve(config.listen, "PLAYGROUND_LISTEN", router(), shutdown).await
}

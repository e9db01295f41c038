//! The process `playground`: serves the page until a signal.

use playground::server::{Config, Page, router};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    service_kit::telemetry::init("playground");
    let config: Config = service_kit::config::load("PLAYGROUND", "PLAYGROUND_CONFIG")?;
    let shutdown = service_kit::shutdown::on_signals();
    #[cfg(feature = "real")]
    let page =
        Page { real: config.real.map(playground::real::Engine::new).transpose()?.map(std::sync::Arc::new) };
    #[cfg(not(feature = "real"))]
    let page = Page::without_real_processes();
    service_kit::serve::serve(config.listen, "PLAYGROUND_LISTEN", router(page), shutdown).await
}

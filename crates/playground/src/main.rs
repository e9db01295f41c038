//! The process `playground`: serves the page until a signal.

use playground::server::{Config, Page, router};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    service_kit::telemetry::init("playground");
    let config: Config = service_kit::config::load("PLAYGROUND", "PLAYGROUND_CONFIG")?;
    let shutdown = service_kit::shutdown::on_signals();
    #[cfg(feature = "real")]
    let page = {
        use playground::{real::Engine, traces::Traces};
        use std::sync::Arc;

        let temporal_ui = config.real.as_ref().and_then(|real| real.temporal_ui.clone());
        let traces = match config.otlp_listen {
            Some(address) => Some(Arc::new(Traces::receive(address, temporal_ui).await?)),
            None => None,
        };
        Page { real: config.real.map(Engine::new).transpose()?.map(Arc::new), traces }
    };
    #[cfg(not(feature = "real"))]
    let page = Page::without_real_processes();
    service_kit::serve::serve(config.listen, "PLAYGROUND_LISTEN", router(page), shutdown).await
}

//! Writes `deploy/alerts` below the root of the repository: `./dev generate-alerts`.

use std::path::Path;

use anyhow::Context as _;
use monitoring::{alerts, document, metrics};

fn main() -> anyhow::Result<()> {
    let root = std::env::args_os().nth(1).context("give the root of the repository")?;
    let folder = Path::new(&root).join("deploy/alerts");
    std::fs::create_dir_all(&folder)?;
    let alerts = alerts();
    std::fs::write(folder.join("payments.rules.yml"), document::rules(&alerts))?;
    let tables = document::tables(&alerts, metrics::METRICS, mock_switch::METRICS);
    std::fs::write(folder.join("README.md"), tables)?;
    Ok(())
}

//! Generates `deploy/alerts` and `deploy/dashboards` below the root of the repository: `./dev generate-monitoring`.

use std::path::Path;

use anyhow::Context as _;
use monitoring::{alerts, dashboard, document};

fn main() -> anyhow::Result<()> {
    let root = std::env::args_os()
        .nth(1)
        .context("the root of the repository is missing; pass it as the first argument")?;
    let folder = Path::new(&root).join("deploy/alerts");
    std::fs::create_dir_all(&folder)?;
    let alerts = alerts();
    std::fs::write(folder.join("payments.rules.yml"), document::rules(&alerts))?;
    let tables = document::tables(&alerts, mock_switch::METRICS);
    std::fs::write(folder.join("README.md"), tables)?;
    let folder = Path::new(&root).join("deploy/dashboards");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("payments.json"), dashboard::dashboard())?;
    Ok(())
}

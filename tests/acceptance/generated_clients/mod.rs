//! The clients generated from the OpenAPI document, in TypeScript and Python, against the real service (`clients/`).
//!
//! `clients/*/tests/acceptance.*` makes requests and checks the answers; `clients/*/examples/retry-safe` pays while answers are
//! lost. Afterwards the books are compared with what the client printed.

mod flaky_api;
mod program;
mod retry_safe;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use testkit::system::{ALICE, API_KEY, OPENING_MINOR};
use testkit::wait::until;
use testkit::{System, SystemOptions};
use tokio::process::Command;

use self::program::{Language, clients, generators};

/// Time limit for a client, which usually takes seconds.
const WITHIN: Duration = Duration::from_secs(120);

#[tokio::test]
async fn s4_1_the_typescript_client_creates_reads_lists_and_cancels() -> anyhow::Result<()> {
    accept(Language::TypeScript).await
}

#[tokio::test]
async fn s4_1_the_python_client_creates_reads_lists_and_cancels() -> anyhow::Result<()> {
    accept(Language::Python).await
}

async fn accept(language: Language) -> anyhow::Result<()> {
    let options = SystemOptions::default().with_profile("sla_ms", 600_000);
    let system = System::start("generated-client", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let mut client = language.command("tests/acceptance").await?;
    client.env("PAYMENTS_API_URL", system.api.url());
    client.env("PAYMENTS_API_KEY", API_KEY).env("SOURCE_ACCOUNT", ALICE);
    let (printed, ()) = tokio::try_join!(program::output(client, WITHIN), settle(&system))?;

    let printed = printed.success()?;
    assert_eq!(system.state(printed.text("settled")?).await?, "settled");
    assert_eq!(system.state(printed.text("cancelled")?).await?, "cancelled");
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    let audit = system.audit().await?;
    assert_eq!((audit.payments, audit.debited, audit.open), (2, 1, 0));
    Ok(())
}

/// Waits for the payment with the end-to-end id `settle` at the switch and settles it there.
async fn settle(system: &System) -> anyhow::Result<()> {
    let submitted = "SELECT tx_id FROM payments WHERE end_to_end_id = 'settle' AND state = 'submitted'";
    let tx_id: String = until("the payment to settle is submitted", WITHIN, || async {
        Ok(sqlx::query_scalar(submitted).fetch_optional(&system.database.pool).await?)
    })
    .await?;
    system.switch.finish_transfer(&format!("{tx_id}:submit"), "settle").await
}

#[tokio::test]
async fn s4_1_the_committed_clients_match_the_openapi_document() -> anyhow::Result<()> {
    let folder = program::scratch_folder()?;
    let (node, node_modules, python) = generators()?;
    let mut generate = Command::new("bash");
    generate.arg(clients().join("generate.sh")).arg(&folder).args([node, node_modules, python]);
    let generated = program::output(generate, WITHIN).await?;
    ensure!(generated.is_success, "the clients could not be generated:\n{}", generated.stderr);
    for part in ["typescript/src/schema.ts", "python/payments_client"] {
        let (committed, expected) = (files(&clients().join(part))?, files(&folder.join(part))?);
        ensure!(!expected.is_empty(), "no file was generated");
        let names: BTreeSet<_> = committed.keys().chain(expected.keys()).collect();
        let differing: Vec<_> =
            names.into_iter().filter(|name| committed.get(*name) != expected.get(*name)).collect();
        ensure!(
            differing.is_empty(),
            "clients/{part} differs from what clients/openapi.json gives; regenerate it with ./dev generate-clients: {differing:?}"
        );
    }
    Ok(())
}

/// The files below a folder, or one file, with their contents; without what Python compiles.
fn files(path: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    fn add(path: &Path, name: String, files: &mut BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
        if path.is_dir() {
            for entry in std::fs::read_dir(path)? {
                let entry = entry?;
                let child = entry.file_name().to_string_lossy().into_owned();
                if child != "__pycache__" {
                    add(&entry.path(), format!("{name}/{child}"), files)?;
                }
            }
        } else {
            files.insert(name, std::fs::read(path)?);
        }
        Ok(())
    }
    let mut found = BTreeMap::new();
    add(path, ".".into(), &mut found)?;
    Ok(found)
}

//! One run of schemathesis, the generator of requests (`scripts/schemathesis.txt`).

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

/// Longer than a process holds any request; a request may wait for a payment's end.
const REQUEST_TIMEOUT_S: &str = "45";

/// Time limit for a run, which usually takes less than a minute.
pub(crate) fn within() -> Duration {
    Duration::from_secs(if is_long() { 7_200 } else { 600 })
}

/// Requests per operation and phase, at most.
fn examples_max() -> &'static str {
    if is_long() { "500" } else { "25" }
}

/// Whether `./dev test --long` runs the tests.
fn is_long() -> bool {
    std::env::var_os("TEST_LONG").is_some()
}

/// The folder of this test target.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("http")
}

/// A run with the settings and the hooks of these files of [`folder`]; `document` is a file or URL. The caller adds what the hooks need.
///
/// # Errors
/// If schemathesis is not installed.
pub(crate) fn command(document: &str, settings: &str, hooks: &str) -> anyhow::Result<Command> {
    let program = std::env::var_os("TEST_SCHEMATHESIS").context(
        "TEST_SCHEMATHESIS is not set: run the tests by `./dev test`, which installs schemathesis",
    )?;
    let mut command = Command::new(program);
    command
        .args(["--config-file".as_ref(), folder().join(settings).as_os_str()])
        .args(["run", document])
        .args(["--checks", "all", "--workers", "1", "--max-examples", examples_max()])
        .args(["--generation-deterministic", "--no-shrink", "--no-color"])
        .args(["--request-timeout", REQUEST_TIMEOUT_S, "--continue-on-failure"])
        .args(["--suppress-health-check", "all"])
        .env("SCHEMATHESIS_HOOKS", folder().join(hooks))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    Ok(command)
}

/// Runs it to its end.
///
/// # Errors
/// If a check failed, with the report of schemathesis; or if it does not end in time.
pub(crate) async fn run(mut command: Command) -> anyhow::Result<()> {
    let output = tokio::time::timeout(within(), command.output())
        .await
        .with_context(|| format!("schemathesis did not end within {:?}", within()))?
        .context("schemathesis could not be started")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "schemathesis failed: {}:\n{stdout}\n{stderr}", output.status);
    Ok(())
}

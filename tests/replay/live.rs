//! Every path on a running system: recorded by `RECORD`, and each time replayed and counted; and once more with a
//! worker that keeps one workflow in memory, where each wait ends in a replay.

use std::collections::BTreeMap;

use testkit::{System, SystemOptions};
use tokio::sync::Mutex;

use crate::groups::{Group, groups};
use crate::histories::{self, Histories, replay};
use crate::paths::{self, Together};

/// One system at a time: each has many payments at once.
static ALONE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn r27_every_path_ends_as_expected_and_replays() -> anyhow::Result<()> {
    let _alone = ALONE.lock().await;
    let mut taken = Histories::new();
    for Group { name, options, paths } in groups() {
        let system = System::start(&format!("paths-{name}"), options).await?;
        for (name, workflow_id) in paths::drive_all(&system, &paths, Together::Some).await? {
            taken.insert(name, system.history(&workflow_id).await?);
        }
        system.audit().await?;
    }
    let failures = replay(&taken).await?;
    assert!(failures.is_empty(), "a history of this very workflow does not replay: {failures:#?}");
    let recorded = histories::read()?;
    if let Some(record) = std::env::var_os("RECORD") {
        if record == "new" {
            taken.retain(|name, _| !recorded.contains_key(name));
        }
        return histories::write(&taken);
    }

    // A slow machine may add a step by the server, a loop that writes history adds many events.
    let sizes: BTreeMap<_, _> = taken
        .iter()
        .map(|(name, events)| (name, (events.len(), recorded.get(name).map_or(0, Vec::len))))
        .collect();
    let grown: Vec<_> = sizes.iter().filter(|(_, (now, then))| *now > then * 2).collect();
    assert!(grown.is_empty(), "events now and as recorded (tests/replay/README.md): {grown:?}");
    Ok(())
}

#[tokio::test]
async fn r27_every_path_ends_with_a_worker_cache_of_one() -> anyhow::Result<()> {
    let _alone = ALONE.lock().await;
    // Not all at once: a workflow that is pushed out in the middle of a local activity trips an assertion of the SDK's
    // debug builds (temporalio-sdk-core 0.10.1, `managed_run.rs`, "This is an SDK bug"), which ends the worker.
    for Group { name, options, paths } in groups() {
        // A payment under the account lock starts another workflow, which would push it out of memory then.
        let cached_workflows = if name == "locked" { 2 } else { 1 };
        let options = SystemOptions { cached_workflows, ..options };
        let system = System::start(&format!("cache-of-one-{name}"), options).await?;
        paths::drive_all(&system, &paths, Together::PushedOut).await?;
        system.audit().await?;
    }
    Ok(())
}

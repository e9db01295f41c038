//! The recorded histories: one protobuf file for each path in `histories/`, and the table of their events.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use payment_worker::account_lock::AccountLockWorkflow;
use payment_worker::workflow::InterBankPaymentWorkflow;
use prost::Message as _;
use temporalio_client::WorkflowHistory;
use temporalio_common::protos::temporal::api::history::v1::{History, HistoryEvent};
use temporalio_sdk::workflow_replayer::{WorkflowReplayFailure, WorkflowReplayer, WorkflowReplayerOptions};

/// The histories of the paths, by name.
pub(crate) type Histories = BTreeMap<String, Vec<HistoryEvent>>;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("replay/histories")
}

/// Where the table of events lies.
pub(crate) fn table_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("replay/events.txt")
}

/// Reads what is recorded.
pub(crate) fn read() -> anyhow::Result<Histories> {
    let mut histories = Histories::new();
    for file in std::fs::read_dir(folder())? {
        let path = file?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a history has a name")?;
        let history = History::decode(std::fs::read(&path)?.as_slice())
            .with_context(|| format!("{} is no history", path.display()))?;
        histories.insert(name.to_owned(), history.events);
    }
    Ok(histories)
}

/// Writes histories over those of the same name; others stay.
pub(crate) fn write(histories: &Histories) -> anyhow::Result<()> {
    for (name, events) in histories {
        let history = History { events: events.clone() };
        std::fs::write(folder().join(format!("{name}.pb")), history.encode_to_vec())?;
    }
    Ok(std::fs::write(table_file(), table(&read()?))?)
}

/// How many events of which type each path has.
pub(crate) fn table(histories: &Histories) -> String {
    let width = histories.keys().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (name, events) in histories {
        let mut counts = BTreeMap::<String, usize>::new();
        for event in events {
            *counts.entry(format!("{:?}", event.event_type())).or_default() += 1;
        }
        let counts: Vec<_> = counts.iter().map(|(event, count)| format!("{count} {event}")).collect();
        text.push_str(&format!("{name:width$} | {:>2} | {}\n", events.len(), counts.join(", ")));
    }
    text
}

/// Replays histories with the workflows of today; gives the failures, by name.
pub(crate) async fn replay(histories: &Histories) -> anyhow::Result<BTreeMap<String, WorkflowReplayFailure>> {
    let options = WorkflowReplayerOptions::new()
        .register_workflow::<InterBankPaymentWorkflow>()?
        .register_workflow::<AccountLockWorkflow>()?
        .build();
    let replayed = histories.values().map(|events| WorkflowHistory::from(History { events: events.clone() }));
    let results = WorkflowReplayer::new(options)?.replay_workflows(replayed).await?;
    anyhow::ensure!(results.len() == histories.len(), "every history has a result");
    let results = histories.keys().cloned().zip(results);
    Ok(results.filter_map(|(name, result)| Some((name, result.replay_failure?))).collect())
}

//! The files of the recorded histories: one protobuf file per path in `histories/`, and the event table `events.txt`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use payment_worker::account_lock::AccountLockWorkflow;
use payment_worker::workflow::InterBankPaymentWorkflow;
use prost::Message as _;
use temporalio_client::WorkflowHistory;
use temporalio_common::protos::temporal::api::history::v1::{History, HistoryEvent};
use temporalio_sdk::workflow_replayer::{WorkflowReplayFailure, WorkflowReplayer, WorkflowReplayerOptions};
use testkit::temporal::PAYLOAD_KEY;
use workflow_api::TemporalOptions;

/// Histories by the name of their path.
pub(crate) type Histories = BTreeMap<String, Vec<HistoryEvent>>;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("replay/histories")
}

/// Path of the event table.
pub(crate) fn event_table_file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("replay/events.txt")
}

/// Reads all recorded histories.
pub(crate) fn read() -> anyhow::Result<Histories> {
    let mut histories = Histories::new();
    for file in std::fs::read_dir(folder())? {
        let path = file?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a history file has no name")?;
        let history = History::decode(std::fs::read(&path)?.as_slice())
            .with_context(|| format!("{} is not a history: record it again", path.display()))?;
        histories.insert(name.to_owned(), history.events);
    }
    Ok(histories)
}

/// Writes histories, replacing those of the same name, and the event table of all histories.
pub(crate) fn write(histories: &Histories) -> anyhow::Result<()> {
    for (name, events) in histories {
        let history = History { events: events.clone() };
        std::fs::write(folder().join(format!("{name}.pb")), history.encode_to_vec())?;
    }
    Ok(std::fs::write(event_table_file(), event_table(&read()?))?)
}

/// The event table: for each path the number of events, in total and by type.
pub(crate) fn event_table(histories: &Histories) -> String {
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

/// Replays histories with the current workflow code; returns the failures by name.
pub(crate) async fn replay(histories: &Histories) -> anyhow::Result<BTreeMap<String, WorkflowReplayFailure>> {
    let temporal = TemporalOptions { payload_keys: vec![PAYLOAD_KEY.into()], ..TemporalOptions::default() };
    let options = WorkflowReplayerOptions::new()
        .register_workflow::<InterBankPaymentWorkflow>()?
        .register_workflow::<AccountLockWorkflow>()?
        .data_converter(temporal.data_converter()?)
        .build();
    let replayed = histories.values().map(|events| WorkflowHistory::from(History { events: events.clone() }));
    let results = WorkflowReplayer::new(options)?.replay_workflows(replayed).await?;
    anyhow::ensure!(results.len() == histories.len(), "a history has no replay result");
    let results = histories.keys().cloned().zip(results);
    Ok(results.filter_map(|(name, result)| Some((name, result.replay_failure?))).collect())
}

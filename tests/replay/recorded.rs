//! Replays the histories in `histories/` with the current workflow code.

use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_sdk::workflow_replayer::WorkflowReplayFailure;
use testkit::temporal::{EventType, HistoryEvent};

use crate::history_files::{self, Histories, event_table, event_table_file, replay};

/// Events of one path at most, to detect loops that write history.
const EVENTS_MAX: usize = 50;

#[tokio::test]
async fn r27_every_recorded_workflow_history_replays() -> anyhow::Result<()> {
    let histories = history_files::read()?;
    assert!(!histories.is_empty(), "there are no recorded histories");
    let failures = replay(&histories).await?;
    assert!(failures.is_empty(), "histories that do not replay; see tests/replay/README.md: {failures:#?}");
    Ok(())
}

#[test]
fn r27_each_workflow_history_matches_the_event_table_and_is_small() -> anyhow::Result<()> {
    let histories = history_files::read()?;
    let recorded = std::fs::read_to_string(event_table_file())?;
    assert_eq!(event_table(&histories), recorded, "events.txt and the histories are not of one recording");
    for (name, events) in &histories {
        assert!(events.len() <= EVENTS_MAX, "{name} has {} events", events.len());
    }
    Ok(())
}

/// Whether replaying a changed history fails as nondeterministic. Changing the history has the same effect as changing the
/// workflow code.
async fn is_detected(name: &str, change: impl FnOnce(&mut Vec<HistoryEvent>)) -> anyhow::Result<bool> {
    let mut events = history_files::read()?.remove(name).unwrap_or_default();
    let before = events.clone();
    change(&mut events);
    anyhow::ensure!(events != before, "the history {name} was not changed");
    let failures = replay(&Histories::from([(name.to_owned(), events)])).await?;
    Ok(matches!(failures.get(name), Some(WorkflowReplayFailure::Nondeterminism { .. })))
}

fn position_of(events: &[HistoryEvent], event_type: EventType) -> usize {
    events.iter().position(|event| event.event_type() == event_type).unwrap_or_default()
}

fn rename_activities(events: &mut Vec<HistoryEvent>) {
    for event in events {
        if let Some(Attributes::ActivityTaskScheduledEventAttributes(scheduled)) = &mut event.attributes
            && let Some(activity) = &mut scheduled.activity_type
        {
            activity.name = "Activities::something_else".into();
        }
    }
}

#[tokio::test]
async fn r27_a_replay_detects_an_incompatible_workflow_change() -> anyhow::Result<()> {
    let other_submit = is_detected("reconciled_settled", rename_activities);
    assert!(other_submit.await?, "another activity instead of submit");
    let other_holder_check = is_detected("account_lock", rename_activities);
    assert!(other_holder_check.await?, "another activity instead of the check of the lock holder");

    let timer_for_submit = is_detected("reconciled_settled", |events| {
        let timer = events[position_of(events, EventType::TimerStarted)].clone();
        let submit = position_of(events, EventType::ActivityTaskScheduled);
        let event_id = events[submit].event_id;
        events[submit] = HistoryEvent { event_id, ..timer };
    });
    assert!(timer_for_submit.await?, "a timer instead of submit");

    let other_first_steps = is_detected("settled", |events| {
        let reserve = position_of(events, EventType::MarkerRecorded);
        let Some(Attributes::MarkerRecordedEventAttributes(marker)) = &mut events[reserve].attributes else {
            return;
        };
        marker.marker_name = "something_else".into();
    });
    assert!(other_first_steps.await?, "another marker instead of the first steps");
    Ok(())
}

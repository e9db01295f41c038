//! The histories in `histories/` against the workflow of today.

use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_sdk::workflow_replayer::WorkflowReplayFailure;
use testkit::temporal::{EventType, HistoryEvent};

use crate::histories::{self, Histories, replay, table, table_file};

/// Most events of one path. A loop that writes history shows here.
const EVENTS_MAX: usize = 50;

#[tokio::test]
async fn r27_every_recorded_history_replays() -> anyhow::Result<()> {
    let histories = histories::read()?;
    assert!(!histories.is_empty(), "nothing is recorded");
    let failures = replay(&histories).await?;
    assert!(failures.is_empty(), "read tests/replay/README.md: {failures:#?}");
    Ok(())
}

#[test]
fn r27_each_history_matches_the_event_table_and_is_small() -> anyhow::Result<()> {
    let histories = histories::read()?;
    let written = std::fs::read_to_string(table_file())?;
    assert_eq!(table(&histories), written, "record again, and look at what the change costs");
    for (name, events) in &histories {
        assert!(events.len() <= EVENTS_MAX, "{name} has {} events", events.len());
    }
    Ok(())
}

/// A changed history is to the workflow of today what a changed workflow is to the history of yesterday.
async fn is_caught(name: &str, change: impl FnOnce(&mut Vec<HistoryEvent>)) -> anyhow::Result<bool> {
    let mut events = histories::read()?.remove(name).unwrap_or_default();
    let before = events.clone();
    change(&mut events);
    anyhow::ensure!(events != before, "{name}: nothing was changed");
    let failures = replay(&Histories::from([(name.to_owned(), events)])).await?;
    Ok(matches!(failures.get(name), Some(WorkflowReplayFailure::Nondeterminism { .. })))
}

fn first(events: &[HistoryEvent], of: EventType) -> usize {
    events.iter().position(|event| event.event_type() == of).unwrap_or_default()
}

fn with_other_activities(events: &mut Vec<HistoryEvent>) {
    for event in events {
        if let Some(Attributes::ActivityTaskScheduledEventAttributes(scheduled)) = &mut event.attributes
            && let Some(activity) = &mut scheduled.activity_type
        {
            activity.name = "Activities::something_else".into();
        }
    }
}

#[tokio::test]
async fn r27_an_incompatible_change_is_detected() -> anyhow::Result<()> {
    let another_step = is_caught("settled", with_other_activities);
    assert!(another_step.await?, "another activity in the place of submit");
    let another_look = is_caught("account_lock", with_other_activities);
    assert!(another_look.await?, "another activity in the place of the look at the holder");

    let timer_instead = is_caught("settled", |events| {
        let timer = events[first(events, EventType::TimerStarted)].clone();
        let submit = first(events, EventType::ActivityTaskScheduled);
        let event_id = events[submit].event_id;
        events[submit] = HistoryEvent { event_id, ..timer };
    });
    assert!(timer_instead.await?, "a timer where submit is scheduled");

    let no_reserve = is_caught("settled", |events| {
        let reserve = first(events, EventType::MarkerRecorded);
        let Some(Attributes::MarkerRecordedEventAttributes(marker)) = &mut events[reserve].attributes else {
            return;
        };
        marker.marker_name = "something_else".into();
    });
    assert!(no_reserve.await?, "reserve is not what was recorded first");
    Ok(())
}

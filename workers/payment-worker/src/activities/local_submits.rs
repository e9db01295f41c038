//! Which submits may be made within a workflow task: while the switch is quick, for a bounded number of payments, and only where a
//! confirmed commit cannot be lost.
//!
//! A submit within a workflow task saves the server a task and five events. It holds the workflow task until the switch answers, so a
//! switch that is slow gets ordinary activities, which wait in its own queue. And Temporal's history shows the submit only after its
//! answer: where our database can lose a commit, the history must show it before (decision 0025).

#![expect(clippy::disallowed_methods, reason = "the settings are read outside workflow code")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::durability::CommitLossReason;
use payment_protocol::ids::SwitchName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Submits within workflow tasks under way at one switch at most: as many as its in-flight limit allows by default.
pub(crate) const LOCAL_SUBMITS_MAX: usize = 200;
/// A switch is quick while its answers to the last submit, each, took no longer.
const QUICK: Duration = Duration::from_secs(1);
/// Interval at which the settings of the database are read.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(10);

/// The switches' state, shared by all activities of this process.
#[derive(Debug)]
pub struct LocalSubmits {
    switches: BTreeMap<SwitchName, Quickness>,
    /// Whether the database can lose a confirmed commit and go on; true until its settings were read.
    may_lose_commits: AtomicBool,
}

#[derive(Debug)]
struct Quickness {
    is_quick: AtomicBool,
    permits: Arc<Semaphore>,
}

impl LocalSubmits {
    /// Every switch counts as quick until a submit was slow.
    pub(crate) fn new<'a>(switches: impl Iterator<Item = &'a SwitchName>) -> Self {
        let new = |name: &SwitchName| {
            let permits = Arc::new(Semaphore::new(LOCAL_SUBMITS_MAX));
            (name.clone(), Quickness { is_quick: AtomicBool::new(true), permits })
        };
        Self { switches: switches.map(new).collect(), may_lose_commits: AtomicBool::new(true) }
    }

    /// Permits one query within a workflow task, until the permit is dropped. It changes nothing, and the caller bounds its time: it may be
    /// made while submits are slow, and counts as one of them. `None`: query by an ordinary activity.
    pub(crate) fn permit_query(&self, switch: &SwitchName) -> Option<OwnedSemaphorePermit> {
        self.switches.get(switch)?.permits.clone().try_acquire_owned().ok()
    }

    /// Permits one submit within a workflow task, until the permit is dropped. `None`: submit by an ordinary activity.
    pub(crate) fn permit(&self, switch: &SwitchName) -> Option<OwnedSemaphorePermit> {
        let quickness = self.switches.get(switch)?;
        if self.may_lose_commits.load(Ordering::Relaxed) || !quickness.is_quick.load(Ordering::Relaxed) {
            return None;
        }
        self.permit_query(switch)
    }

    /// Records how long the slowest answer to a submit took, and whether the submit had an outcome. Our own ledger's part does not
    /// count: a busy bank would make its switch look slow, and its payments dearer.
    pub(crate) fn record(&self, switch: &SwitchName, has_outcome: bool, took: Duration) {
        if let Some(quickness) = self.switches.get(switch) {
            quickness.is_quick.store(has_outcome && took <= QUICK, Ordering::Relaxed);
        }
    }

    /// Reads the settings of the database, now and then until `stop`.
    pub(crate) async fn follow_settings(self: Arc<Self>, ledger: Ledger, stop: CancellationToken) {
        self.read_settings(&ledger).await;
        tokio::spawn(async move {
            while stop.run_until_cancelled(tokio::time::sleep(SETTINGS_INTERVAL)).await.is_some() {
                self.read_settings(&ledger).await;
            }
        });
    }

    /// A setting that corrupts the data in a crash (`fsync`, `full_page_writes`) does not count: after such a crash no record can be
    /// relied on, and nothing goes on.
    async fn read_settings(&self, ledger: &Ledger) {
        let settings = ledger.commit_settings().await;
        let may_lose = settings.map_or(true, |settings| {
            settings.commit_loss_reasons().iter().any(|reason| {
                !matches!(reason, CommitLossReason::FsyncOff | CommitLossReason::FullPageWritesOff)
            })
        });
        self.may_lose_commits.store(may_lose, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str) -> SwitchName {
        SwitchName::new(name).unwrap()
    }

    fn submits() -> LocalSubmits {
        let submits = LocalSubmits::new([switch("a"), switch("b")].iter());
        submits.may_lose_commits.store(false, Ordering::Relaxed);
        submits
    }

    #[test]
    fn only_a_quick_switch_gets_submits_within_workflow_tasks() {
        let submits = submits();
        assert!(submits.permit(&switch("a")).is_some());
        submits.record(&switch("a"), true, QUICK + Duration::from_millis(1));
        assert!(submits.permit(&switch("a")).is_none(), "a slow answer");
        assert!(submits.permit(&switch("b")).is_some(), "another switch");
        submits.record(&switch("a"), true, QUICK);
        assert!(submits.permit(&switch("a")).is_some(), "a quick answer");
        submits.record(&switch("a"), false, Duration::ZERO);
        assert!(submits.permit(&switch("a")).is_none(), "no answer");
        assert!(submits.permit(&switch("unknown")).is_none(), "a switch that is not configured");
    }

    #[test]
    fn a_hung_switch_holds_no_more_workflow_tasks_than_its_bound() {
        let submits = submits();
        let held: Vec<_> = (0..LOCAL_SUBMITS_MAX).map(|_| submits.permit(&switch("a"))).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(submits.permit(&switch("a")).is_none());
        assert!(submits.permit(&switch("b")).is_some());
        drop(held);
        assert!(submits.permit(&switch("a")).is_some());
    }

    #[test]
    fn no_submit_is_made_within_a_workflow_task_where_a_commit_may_be_lost() {
        let submits = submits();
        submits.may_lose_commits.store(true, Ordering::Relaxed);
        assert!(submits.permit(&switch("a")).is_none());
    }
}

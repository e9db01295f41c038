//! Group commit: concurrent steps of different payments share their statements and one commit.
//!
//! A step joins a group in its plain case only: its row is not locked by others, and nothing but its own payment's facts, its
//! account and its report decides it. A step whose row or account is locked waits for one more group: mostly another group has it. Every other case, and every step of a group that fails, runs alone in a transaction of its own:
//! a bad step fails alone, and a step of a group whose COMMIT had no answer finds its own record. So a group changes what a step
//! costs, and never what it does.
//!
//! One group of a process runs at a time. A payment alone never waits: a group is what arrived while the last one ran, and only after
//! a group of several steps the next one gathers for a moment.
//!
//! | file | content |
//! |---|---|
//! | `changes` | what a step writes, and the statement that writes it |

pub(crate) mod changes;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use payment_protocol::ids::{PaymentId, TxId};
use postgres_kit::{Connection, Pool};
use tokio::sync::oneshot;

use self::changes::{Changes, Written};
use crate::LedgerError;
use crate::accounts::{self, LockedAccount};
use crate::batches::{BatchQueue, Batches};
use crate::row_lock::{self, LockedPayment};

/// Steps in one group at most: more would hold their rows' locks longer than they save.
const GROUP_MAX: usize = 32;

/// How long steps gather at most after a group of several.
const GATHER_MAX: Duration = Duration::from_millis(100);

/// Longest time for a group, from BEGIN to COMMIT: a server that went away without a word must not hold up the steps of this process.
const GROUP_TIMEOUT: Duration = Duration::from_secs(2);

/// `plan_cache_mode`: the statements are set-based, and would otherwise be planned again each time, at twice their cost. Every table is
/// read by keys, also while its statistics say that it is small.
const BEGIN: &str = "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; \
                     SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// A step that can join a group.
pub(crate) trait GroupStep: Send + 'static {
    /// The outcome of the step.
    type Outcome: Send + 'static;

    /// The payment of the step.
    fn target(&self) -> Target;

    /// Whether the step reads the payment's source account, under its lock.
    fn reads_account(&self) -> bool {
        false
    }

    /// What the step writes in its plain case, and its outcome; `None` if the step must run alone. An outcome without changes is one
    /// that was recorded before.
    ///
    /// # Errors
    /// [`LedgerError`]: the step runs alone, and returns the error there.
    fn decide(
        &self,
        locked: &LockedPayment,
        account: Option<&LockedAccount>,
    ) -> Result<Option<(Changes, Self::Outcome)>, LedgerError>;

    /// Completes the outcome of a step that stored a callback with the id of its inbox row.
    fn with_inbox_id(outcome: Self::Outcome, _inbox_id: i64) -> Self::Outcome {
        outcome
    }
}

/// How a step names its payment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Payment(PaymentId),
    Transaction(TxId),
}

impl Target {
    fn is(&self, locked: &LockedPayment) -> bool {
        match self {
            Self::Payment(id) => *id == locked.payment_id,
            Self::Transaction(id) => *id == locked.tx_id,
        }
    }
}

/// The steps that wait for the next group of this process.
#[derive(Clone)]
pub(crate) struct GroupCommit {
    pool: Pool,
    queue: BatchQueue<Box<dyn Waiting>>,
}

impl std::fmt::Debug for GroupCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

/// A queued step of any kind.
trait Waiting: Send {
    fn target(&self) -> Target;
    fn reads_account(&self) -> bool;
    /// Whether its caller has gone, and repeats the step.
    fn is_abandoned(&self) -> bool;
    /// Whether the step, whose row or account is locked, waits for the next group: once.
    fn waits_again(&mut self) -> bool;
    /// Decides the step and keeps its outcome; `None` if it must run alone.
    fn decide(&mut self, locked: &LockedPayment, account: Option<&LockedAccount>) -> Option<Changes>;
    /// The group was committed: answers with the outcome.
    fn answer(self: Box<Self>, inbox_id: Option<i64>);
}

struct QueuedStep<S: GroupStep> {
    step: S,
    outcome: Option<S::Outcome>,
    has_waited: bool,
    /// If it is dropped unanswered, the step runs alone.
    reply: oneshot::Sender<S::Outcome>,
}

impl<S: GroupStep> Waiting for QueuedStep<S> {
    fn target(&self) -> Target {
        self.step.target()
    }

    fn reads_account(&self) -> bool {
        self.step.reads_account()
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn waits_again(&mut self) -> bool {
        !std::mem::replace(&mut self.has_waited, true)
    }

    fn decide(&mut self, locked: &LockedPayment, account: Option<&LockedAccount>) -> Option<Changes> {
        let (changes, outcome) = self.step.decide(locked, account).ok().flatten()?;
        self.outcome = Some(outcome);
        Some(changes)
    }

    fn answer(self: Box<Self>, inbox_id: Option<i64>) {
        if let Some(outcome) = self.outcome {
            let outcome = match inbox_id {
                Some(inbox_id) => S::with_inbox_id(outcome, inbox_id),
                None => outcome,
            };
            // The caller may have gone; the step is committed all the same.
            let _ = self.reply.send(outcome);
        }
    }
}

impl GroupCommit {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, queue: BatchQueue::default() }
    }

    /// Runs a step in the next group. `None`: nothing is known of an outcome, and the caller runs the step alone.
    pub(crate) async fn run<S: GroupStep>(&self, step: S) -> Option<S::Outcome> {
        let (reply, outcome) = oneshot::channel();
        let step = Box::new(QueuedStep { step, outcome: None, has_waited: false, reply });
        if let Some(batches) = self.queue.push(step) {
            tokio::spawn(run_groups(self.pool.clone(), batches));
        }
        outcome.await.ok()
    }
}

/// Takes the steps of the next group, one for each payment. Those whose callers have gone are dropped.
fn take_group(waiting: &mut Vec<Box<dyn Waiting>>) -> Vec<Box<dyn Waiting>> {
    let mut targets = HashSet::new();
    let mut group = Vec::new();
    let mut later = Vec::new();
    for step in std::mem::take(waiting) {
        if step.is_abandoned() {
            continue;
        }
        if group.len() < GROUP_MAX && targets.insert(step.target()) {
            group.push(step);
        } else {
            later.push(step);
        }
    }
    *waiting = later;
    group
}

/// How long steps gather after a group of `steps` that took `took`: as long as its steps would have taken one after the other, since a
/// group takes about as long as one step. So no payment waits longer than it would in a queue of single steps, and the busier the
/// moment, the more steps share the statements of the next group, on a slow server as on a fast one.
fn gathering(steps: u32, took: Duration) -> Duration {
    if steps > 1 { GATHER_MAX.min(took.saturating_mul(steps)) } else { Duration::ZERO }
}

/// Runs groups until no step waits. If the task ends early, every waiting step is dropped, and so runs alone.
async fn run_groups(pool: Pool, mut batches: Batches<Box<dyn Waiting>>) {
    while let Some(group) = batches.next(take_group) {
        let steps = u32::try_from(group.len()).unwrap_or(u32::MAX);
        let started = Instant::now();
        match run_group_in_time(&pool, group).await {
            Ok(RunGroup { committed, locked_out }) => {
                if committed > 0 {
                    metrics::histogram!("ledger_group_steps").record(committed as f64);
                }
                batches.wait_again(locked_out);
            }
            Err(error) => {
                metrics::counter!("ledger_groups_failed_total").increment(1);
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    steps,
                    "the ledger could not commit a group of steps; each of them runs alone"
                );
            }
        }
        let gathering = gathering(steps, started.elapsed());
        if !gathering.is_zero() && batches.waiting() < GROUP_MAX {
            tokio::time::sleep(gathering).await;
        }
    }
}

/// What became of the steps of a group. Those that are not here are dropped, and so run alone.
struct RunGroup {
    /// How many steps were committed.
    committed: usize,
    /// The steps whose rows or accounts were locked.
    locked_out: Vec<Box<dyn Waiting>>,
}

/// As [`run_group`], within [`GROUP_TIMEOUT`].
async fn run_group_in_time(pool: &Pool, group: Vec<Box<dyn Waiting>>) -> Result<RunGroup, LedgerError> {
    let connection = pool.acquire().await?;
    let run = tokio::time::timeout(GROUP_TIMEOUT, run_group(connection, group));
    run.await.unwrap_or(Err(postgres_kit::unanswered().into()))
}

/// Runs a group in one transaction.
async fn run_group(connection: Connection, group: Vec<Box<dyn Waiting>>) -> Result<RunGroup, LedgerError> {
    let mut tx = connection.begin_with(BEGIN).await?;
    let (mut payment_ids, mut tx_ids) = (Vec::new(), Vec::new());
    for step in &group {
        match step.target() {
            Target::Payment(id) => payment_ids.push(id.to_string()),
            Target::Transaction(id) => tx_ids.push(id.to_string()),
        }
    }
    let locked = row_lock::lock_unlocked(&mut tx, &payment_ids, &tx_ids).await?;
    let mut steps = Vec::with_capacity(group.len());
    let mut locked_out = Vec::new();
    for mut step in group {
        let target = step.target();
        match locked.iter().find(|locked| target.is(locked)) {
            Some(locked) => steps.push((step, locked)),
            None if step.waits_again() => locked_out.push(step),
            None => {}
        }
    }
    let account_ids: Vec<&str> = steps
        .iter()
        .filter(|(step, _)| step.reads_account())
        .map(|(_, locked)| locked.source_account.as_str())
        .collect();
    let mut accounts: HashMap<String, LockedAccount> = accounts::lock_unlocked(&mut tx, &account_ids).await?;
    let mut decided = Vec::with_capacity(steps.len());
    let mut used = HashSet::new();
    for (mut step, locked) in steps {
        // A step by payment id and one by transaction id may have the same payment.
        if !used.insert(&locked.payment_id) {
            if step.waits_again() {
                locked_out.push(step);
            }
            continue;
        }
        let account = accounts.get_mut(locked.source_account.as_str());
        // Locked by another transaction, or unknown.
        if step.reads_account() && account.is_none() && step.waits_again() {
            locked_out.push(step);
            continue;
        }
        let Some(changes) = step.decide(locked, account.as_deref()) else { continue };
        if let Some(account) = account {
            changes.postings.iter().for_each(|posting| account.follow(posting, locked.money.amount_minor()));
        }
        decided.push((step, locked, changes));
    }
    let changes: Vec<_> = decided.iter().map(|(_, locked, changes)| (*locked, changes)).collect();
    let Written { inbox_ids } = changes::write(&mut tx, &changes).await?;
    tx.commit().await?;
    let mut inbox_ids = inbox_ids.into_iter();
    let committed = decided.len();
    for (step, _, changes) in decided {
        let inbox_id = changes.callback.is_some().then(|| inbox_ids.next()).flatten();
        step.answer(inbox_id);
    }
    Ok(RunGroup { committed, locked_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_the_next_group_gather_as_long_as_those_of_the_last_would_have_taken_one_by_one() {
        let ms = Duration::from_millis;
        assert_eq!(gathering(1, ms(20)), Duration::ZERO, "a payment alone waits for nothing");
        assert_eq!(gathering(2, ms(3)), ms(6));
        assert_eq!(gathering(2, ms(9)), ms(18), "a slow server");
        assert_eq!(gathering(32, ms(9)), GATHER_MAX);
        assert_eq!(gathering(u32::MAX, Duration::MAX), GATHER_MAX);
    }
}

//! The lookup of API keys: concurrent ones share a statement.
//!
//! A lookup never joins a statement that is under way: that one may have read the key before it was revoked. It waits for the next
//! one, which takes all that wait. A lookup alone waits for none.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postgres_kit::timeout::timed_out;
use sqlx::{PgExecutor, PgPool};
use tokio::sync::oneshot;

use super::{ActiveKey, caller, key_id, scopes};
use crate::{Ledger, LedgerError};

/// Longest time for a shared statement: a server that went away without a word must not hold up the lookups of this process.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The lookups that wait for the next statement of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyLookups {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<WaitingLookup>,
    /// Whether a task looks up until none waits.
    is_running: bool,
}

#[derive(Debug)]
struct WaitingLookup {
    key_hash: Vec<u8>,
    /// An error says why the database did not answer. If it is dropped unanswered, the caller looks the key up by itself.
    reply: oneshot::Sender<Result<Option<ActiveKey>, String>>,
}

impl Ledger {
    /// The active key with this SHA-256; `None` if it is unknown, expired or revoked.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn active_api_key(&self, key_hash: &[u8]) -> Result<Option<ActiveKey>, LedgerError> {
        match self.key_lookups.look_up(&self.pool, key_hash).await {
            Some(Ok(key)) => Ok(key),
            Some(Err(detail)) => Err(LedgerError::Unavailable(io::Error::other(detail).into())),
            None => Ok(active_keys(&self.pool, &[key_hash]).await?.pop().map(|(_, key)| key)),
        }
    }
}

impl KeyLookups {
    /// Looks the key up in the next statement. An error says why the database did not answer; `None`: a key of that statement cannot be
    /// read.
    async fn look_up(&self, pool: &PgPool, key_hash: &[u8]) -> Option<Result<Option<ActiveKey>, String>> {
        let (reply, key) = oneshot::channel();
        let must_start = {
            let mut queue = lock(&self.queue);
            queue.waiting.push(WaitingLookup { key_hash: key_hash.to_vec(), reply });
            !std::mem::replace(&mut queue.is_running, true)
        };
        if must_start {
            // A task of its own: a caller that goes away must not end the lookup of the others.
            tokio::spawn(run(pool.clone(), Running { queue: Arc::clone(&self.queue), is_done: false }));
        }
        key.await.ok()
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task that looks keys up. If it ends early, with its runtime or by a panic, each waiting caller looks up by itself, and the next
/// one starts another task.
struct Running {
    queue: Arc<Mutex<Queue>>,
    is_done: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_done {
            *lock(&self.queue) = Queue::default();
        }
    }
}

impl Running {
    /// All lookups that wait; `None` if none does, which ends the task.
    fn next(&mut self) -> Option<Vec<WaitingLookup>> {
        let mut queue = lock(&self.queue);
        let waiting = std::mem::take(&mut queue.waiting);
        if waiting.is_empty() {
            queue.is_running = false;
            self.is_done = true;
            return None;
        }
        Some(waiting)
    }
}

async fn run(pool: PgPool, mut running: Running) {
    while let Some(waiting) = running.next() {
        let mut hashes: Vec<&[u8]> = waiting.iter().map(|lookup| &*lookup.key_hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let keys = match active_keys_in_time(&pool, &hashes).await {
            Ok(keys) => Ok(keys),
            // Each caller repeats its request: as many statements at once would help no database that does not answer.
            Err(LedgerError::Unavailable(error)) => Err(error.to_string()),
            // A row that cannot be read: each caller looks up by itself, and one of them returns the error.
            Err(_) => continue,
        };
        for lookup in waiting {
            let key = keys.as_ref().map(|keys| {
                keys.iter().find(|(hash, _)| *hash == lookup.key_hash).map(|(_, key)| key.clone())
            });
            // A caller that has gone needs no answer.
            let _ = lookup.reply.send(key.map_err(Clone::clone));
        }
    }
}

/// As [`active_keys`], within [`TIMEOUT`].
async fn active_keys_in_time(
    pool: &PgPool,
    key_hashes: &[&[u8]],
) -> Result<Vec<(Vec<u8>, ActiveKey)>, LedgerError> {
    let mut connection = pool.acquire().await?;
    match tokio::time::timeout(TIMEOUT, active_keys(&mut *connection, key_hashes)).await {
        Ok(keys) => keys,
        Err(_) => Err(timed_out(&mut connection).into()),
    }
}

/// The active ones of some keys, with their hashes.
async fn active_keys(
    executor: impl PgExecutor<'_>,
    key_hashes: &[&[u8]],
) -> Result<Vec<(Vec<u8>, ActiveKey)>, LedgerError> {
    let rows = sqlx::query!(
        "SELECT key_hash, id, tenant_id, client_id, scopes FROM api_keys
         WHERE key_hash = ANY($1) AND revoked_at IS NULL
             AND (expires_at IS NULL OR expires_at > clock_timestamp())",
        key_hashes as &[&[u8]],
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter()
        .map(|row| {
            let key = ActiveKey {
                caller: caller(&row.id, row.tenant_id, row.client_id)?,
                scopes: scopes(&row.id, &row.scopes)?,
                id: key_id(row.id)?,
            };
            Ok((row.key_hash, key))
        })
        .collect()
}

//! The lookup of API keys: concurrent ones share a statement.
//!
//! A lookup never joins a statement that is under way: that one may have read the key before it was revoked. It waits for the next
//! one, which takes all that wait. A lookup alone waits for none.

use std::io;
use std::time::Duration;

use postgres_kit::Pool;
use sqlx::PgExecutor;
use tokio::sync::oneshot;

use super::{ActiveKey, caller, key_id, scopes};
use crate::batches::{BatchQueue, Batches};
use crate::{Ledger, LedgerError};

/// Longest time for a shared statement: a server that went away without a word must not hold up the lookups of this process.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The lookups that wait for the next statement of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyLookups {
    queue: BatchQueue<WaitingLookup>,
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
    async fn look_up(&self, pool: &Pool, key_hash: &[u8]) -> Option<Result<Option<ActiveKey>, String>> {
        let (reply, key) = oneshot::channel();
        if let Some(batches) = self.queue.push(WaitingLookup { key_hash: key_hash.to_vec(), reply }) {
            tokio::spawn(run(pool.clone(), batches));
        }
        key.await.ok()
    }
}

/// Looks keys up until no lookup waits. If the task ends early, each waiting caller looks up by itself.
async fn run(pool: Pool, mut batches: Batches<WaitingLookup>) {
    while let Some(waiting) = batches.next(std::mem::take) {
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
    pool: &Pool,
    key_hashes: &[&[u8]],
) -> Result<Vec<(Vec<u8>, ActiveKey)>, LedgerError> {
    let mut connection = pool.acquire().await?;
    let keys = tokio::time::timeout(TIMEOUT, active_keys(&mut connection, key_hashes));
    keys.await.unwrap_or(Err(postgres_kit::unanswered().into()))
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

//! The seal: every committed journal entry gets a position in a hash chain, so that no entry can be changed, removed, inserted
//! or moved undetected ([`verify`]); the balances of internal accounts are rolled forward with it.
//!
//! Unsealed entries are listed in `journal_unsealed`, written with them. The sealer reads what is committed there, so it
//! depends neither on the order of commits nor on transaction ids, and no writer waits for it. One sealer runs at a time, and
//! a batch is one transaction: a crash leaves nothing half sealed.
//!
//! The entries of the audit log have a chain of their own ([`audit_log`]), sealed and verified with the journal's.
//!
//! A role that may write all of these tables could rebuild the chain from any point on. It cannot change a head hash that was
//! noted elsewhere ([`heads`]).

mod audit_log;
mod chain;
mod checks;
pub mod heads;
pub mod verify;

use chain::{HashLink, SealedEntry};
pub use chain::{SealHash, SealHashError};
use postgres_kit::{Connection, Transaction};

use crate::{Ledger, LedgerError};

/// Key of the sealer's advisory lock.
const SEALER_LOCK: i64 = 7_301_200_308;

/// Entries per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize(i64);

impl BatchSize {
    /// Upper bound: a batch is held in memory.
    pub const MAX: i64 = 10_000;

    /// A batch size, clamped to 1..=[`BatchSize::MAX`].
    #[must_use]
    pub fn new(entries: i64) -> Self {
        Self(entries.clamp(1, Self::MAX))
    }
}

/// Outcome of sealing one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealOutcome {
    /// A batch was sealed.
    Batch {
        /// Entries in it.
        entries: usize,
        /// Whether the batch was full: more entries may be unsealed.
        is_full: bool,
    },
    /// No entry is unsealed.
    NothingToSeal,
    /// Another sealer holds the lock.
    Busy,
}

/// The last link of the chain.
struct Head {
    batch: i64,
    position: i64,
    hash: SealHash,
}

impl Ledger {
    /// Seals one batch of unsealed entries, unless another sealer is running.
    ///
    /// # Errors
    /// [`LedgerError`]: unknown whether the batch was sealed; the next call continues from the committed head.
    pub async fn seal(&self, size: BatchSize) -> Result<SealOutcome, LedgerError> {
        let Some(mut tx) = self.lock_sealer().await? else { return Ok(SealOutcome::Busy) };
        let entries = unsealed_entries(&mut tx, size).await?;
        if entries.is_empty() {
            return nothing_to_seal(tx).await;
        }
        let head = head(&mut tx).await?;
        let ids: Vec<i64> = entries.iter().map(|entry| entry.entry_id).collect();
        append(&mut tx, &head, &entries, &ids).await?;
        roll_forward(&mut tx, head.position, &ids).await?;
        tx.commit().await?;
        Ok(SealOutcome::batch(entries.len(), size))
    }

    /// A transaction with the sealer's lock; `None` while another sealer has it.
    async fn lock_sealer(&self) -> Result<Option<Transaction>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let has_lock =
            sqlx::query_scalar!(r#"SELECT pg_try_advisory_xact_lock($1) AS "has_lock!""#, SEALER_LOCK)
                .fetch_one(&mut *tx)
                .await?;
        Ok(has_lock.then_some(tx))
    }
}

/// Gives the sealer's lock back before it returns: a dropped transaction keeps it until the pool has rolled it back, and the next
/// call would find another sealer at work.
async fn nothing_to_seal(tx: Transaction) -> Result<SealOutcome, LedgerError> {
    tx.rollback().await?;
    Ok(SealOutcome::NothingToSeal)
}

impl SealOutcome {
    fn batch(entries: usize, size: BatchSize) -> Self {
        let is_full = i64::try_from(entries).is_ok_and(|count| count >= size.0);
        Self::Batch { entries, is_full }
    }
}

/// Unsealed entries that exist. An entry deleted from the journal before it was sealed stays in `journal_unsealed`, where
/// [`verify`] reports it, and does not block the others. LATERAL and LIMIT here and wherever unsealed entries are read: whatever the
/// statistics say, the journal is read by its key, and not all of it.
async fn unsealed_entries(tx: &mut Connection, size: BatchSize) -> Result<Vec<SealedEntry>, LedgerError> {
    let entries = sqlx::query_as!(
        SealedEntry,
        "SELECT j.entry_id, j.operation_key, j.payment_id, j.kind, j.debit_account, j.credit_account, j.amount_minor,
                j.currency, j.posted_at
         FROM journal_unsealed u CROSS JOIN LATERAL (SELECT * FROM journal WHERE entry_id = u.entry_id LIMIT 1) j
         ORDER BY u.entry_id LIMIT $1",
        size.0,
    )
    .fetch_all(tx)
    .await?;
    Ok(entries)
}

/// The last link; before the first batch, the empty head.
async fn head(tx: &mut Connection) -> Result<Head, LedgerError> {
    let row = sqlx::query!("SELECT batch, last_position, hash FROM seal_batches ORDER BY batch DESC LIMIT 1")
        .fetch_optional(tx)
        .await?;
    let Some(row) = row else { return Ok(Head { batch: 0, position: 0, hash: SealHash::NONE }) };
    let hash = stored_hash(format!("batch {}", row.batch), &row.hash)?;
    Ok(Head { batch: row.batch, position: row.last_position, hash })
}

/// A stored hash of a chain; `id` names its row in the error.
fn stored_hash(id: String, hash: &[u8]) -> Result<SealHash, LedgerError> {
    SealHash::try_from(hash).map_err(|error| LedgerError::Unreadable {
        id,
        column: "hash",
        value: error.to_string(),
    })
}

/// Appends the entries to the chain after `head`.
async fn append(
    tx: &mut Connection,
    head: &Head,
    entries: &[SealedEntry],
    ids: &[i64],
) -> Result<(), LedgerError> {
    let mut link = HashLink::new(head.batch + 1, head.position + 1, &head.hash);
    let mut hashes = Vec::with_capacity(entries.len());
    for entry in entries {
        let hash = entry.hash();
        link.push(&hash);
        hashes.push(hash.as_bytes().to_vec());
    }
    sqlx::query!(
        "INSERT INTO journal_seals (position, entry_id, hash)
         SELECT $1 + ordinal, entry_id, hash
         FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS sealed (entry_id, hash, ordinal)",
        head.position,
        ids,
        &hashes,
    )
    .execute(&mut *tx)
    .await?;
    let hash = link.end();
    sqlx::query!(
        "INSERT INTO seal_batches (batch, first_position, last_position, previous_hash, hash)
         VALUES ($1, $2, $3, $4, $5)",
        head.batch + 1,
        head.position + 1,
        head.position + i64::try_from(entries.len()).unwrap_or(BatchSize::MAX),
        head.hash.as_bytes(),
        hash.as_bytes(),
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!("DELETE FROM journal_unsealed WHERE entry_id = ANY ($1)", ids).execute(tx).await?;
    Ok(())
}

/// Adds the entries sealed after `position`, those with these ids, to the sealed balances and hours.
async fn roll_forward(tx: &mut Connection, position: i64, ids: &[i64]) -> Result<(), LedgerError> {
    sqlx::query!(
        "WITH moved AS (
             SELECT e.account_id, date_trunc('hour', j.posted_at, 'UTC') AS hour, e.minor, $1 + s.ordinal AS position
             FROM unnest($2::bigint[]) WITH ORDINALITY AS s (entry_id, ordinal)
             CROSS JOIN LATERAL (SELECT * FROM journal WHERE entry_id = s.entry_id LIMIT 1) j
             CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
                 AS e (account_id, minor)
             WHERE e.account_id LIKE 'internal:%'),
         hours AS (
             INSERT INTO sealed_hours AS h (account_id, hour, moved_minor)
             SELECT account_id, hour, sum(minor) FROM moved GROUP BY account_id, hour
             ON CONFLICT (account_id, hour) DO UPDATE SET moved_minor = h.moved_minor + excluded.moved_minor)
         INSERT INTO sealed_balances AS b (account_id, balance_minor, position)
         SELECT account_id, sum(minor), max(position) FROM moved GROUP BY account_id
         ON CONFLICT (account_id) DO UPDATE
             SET balance_minor = b.balance_minor + excluded.balance_minor, position = excluded.position",
        position,
        ids,
    )
    .execute(tx)
    .await?;
    Ok(())
}

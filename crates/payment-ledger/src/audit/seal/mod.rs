//! Sealing: every committed entry of the journal gets its place in a chain of hashes, so that none can be changed, taken
//! out, put in or moved without being found out ([`verify`]); and what internal accounts hold is rolled forward with it.
//!
//! Entries wait in `journal_unsealed`, written with them. The sealer takes what it sees there, which is what was committed,
//! so nothing rests on the order of commits or on transaction ids, and no writer waits for it. One sealer at a time; what it
//! does is one transaction, so that one that dies has done nothing.
//!
//! Whoever may write all of these tables can make the chain anew from any point on. What they cannot change is a head
//! that was noted elsewhere.

mod chain;
mod checks;
pub mod verify;

use chain::{Entry, Link};
pub use chain::{SealHash, SealHashError};
use sqlx::PgConnection;

use crate::{Ledger, LedgerError};

/// Key of the advisory lock that the sealer holds.
const SEALER_LOCK: i64 = 7_301_200_308;

/// How many entries one batch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize(i64);

impl BatchSize {
    /// Most entries of a batch; a batch is held in memory.
    pub const MAX: i64 = 10_000;

    /// At least 1, [`BatchSize::MAX`] at most; what is outside becomes the nearest.
    #[must_use]
    pub fn new(entries: i64) -> Self {
        Self(entries.clamp(1, Self::MAX))
    }
}

/// What one look of the sealer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// A batch of so many entries.
    Batch {
        /// Entries in it.
        entries: usize,
        /// Whether it had no room for more: there may be more waiting.
        is_full: bool,
    },
    /// No entry waits.
    Nothing,
    /// Another sealer is at it.
    Busy,
}

/// The last link of the chain.
struct Head {
    batch: i64,
    position: i64,
    hash: SealHash,
}

impl Ledger {
    /// Seals one batch of what waits, unless another sealer is at it.
    ///
    /// # Errors
    /// [`LedgerError`]: whether it was sealed is not known; the next look goes on from what is there.
    pub async fn seal(&self, size: BatchSize) -> Result<Sealed, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let alone = sqlx::query_scalar!(r#"SELECT pg_try_advisory_xact_lock($1) AS "alone!""#, SEALER_LOCK)
            .fetch_one(&mut *tx)
            .await?;
        if !alone {
            return Ok(Sealed::Busy);
        }
        let entries = waiting(&mut tx, size).await?;
        if entries.is_empty() {
            return Ok(Sealed::Nothing);
        }
        let head = head(&mut tx).await?;
        append(&mut tx, &head, &entries).await?;
        roll_forward(&mut tx, head.position).await?;
        tx.commit().await?;
        let is_full = i64::try_from(entries.len()).is_ok_and(|count| count >= size.0);
        Ok(Sealed::Batch { entries: entries.len(), is_full })
    }
}

/// What waits and is there. An entry that was taken out of the journal while it waited stays where it is, for
/// [`verify`] to name, and keeps nobody else back.
async fn waiting(tx: &mut PgConnection, size: BatchSize) -> Result<Vec<Entry>, LedgerError> {
    let entries = sqlx::query_as!(
        Entry,
        "SELECT j.entry_id, j.operation_key, j.payment_id, j.kind, j.debit_account, j.credit_account, j.amount_minor,
                j.currency, j.posted_at
         FROM journal_unsealed u JOIN journal j USING (entry_id)
         ORDER BY u.entry_id LIMIT $1",
        size.0,
    )
    .fetch_all(tx)
    .await?;
    Ok(entries)
}

/// The last link, or what stands before the first.
async fn head(tx: &mut PgConnection) -> Result<Head, LedgerError> {
    let row = sqlx::query!("SELECT batch, last_position, hash FROM seal_batches ORDER BY batch DESC LIMIT 1")
        .fetch_optional(tx)
        .await?;
    let Some(row) = row else { return Ok(Head { batch: 0, position: 0, hash: SealHash::NONE }) };
    let hash = SealHash::try_from(row.hash.as_slice()).map_err(|error| LedgerError::Unreadable {
        id: format!("batch {}", row.batch),
        column: "hash",
        value: error.to_string(),
    })?;
    Ok(Head { batch: row.batch, position: row.last_position, hash })
}

/// Gives the entries their places after `head`.
async fn append(tx: &mut PgConnection, head: &Head, entries: &[Entry]) -> Result<(), LedgerError> {
    let mut link = Link::new(head.batch + 1, head.position + 1, &head.hash);
    let mut ids = Vec::with_capacity(entries.len());
    let mut hashes = Vec::with_capacity(entries.len());
    for entry in entries {
        let hash = entry.hash();
        link.push(&hash);
        ids.push(entry.entry_id);
        hashes.push(hash.as_bytes().to_vec());
    }
    sqlx::query!(
        "INSERT INTO journal_seals (position, entry_id, hash)
         SELECT $1 + place, entry_id, hash
         FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS sealed (entry_id, hash, place)",
        head.position,
        &ids,
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
    sqlx::query!("DELETE FROM journal_unsealed WHERE entry_id = ANY ($1)", &ids).execute(tx).await?;
    Ok(())
}

/// Adds what was sealed after `position` to the sealed balances, and to the hours it belongs to.
async fn roll_forward(tx: &mut PgConnection, position: i64) -> Result<(), LedgerError> {
    sqlx::query!(
        "WITH moved AS (
             SELECT e.account_id, date_trunc('hour', j.posted_at, 'UTC') AS hour, e.minor, s.position
             FROM journal_seals s
             JOIN journal j USING (entry_id)
             CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
                 AS e (account_id, minor)
             WHERE s.position > $1 AND e.account_id LIKE 'internal:%'),
         hours AS (
             INSERT INTO sealed_hours AS h (account_id, hour, moved_minor)
             SELECT account_id, hour, sum(minor) FROM moved GROUP BY account_id, hour
             ON CONFLICT (account_id, hour) DO UPDATE SET moved_minor = h.moved_minor + excluded.moved_minor)
         INSERT INTO sealed_balances AS b (account_id, balance_minor, position)
         SELECT account_id, sum(minor), max(position) FROM moved GROUP BY account_id
         ON CONFLICT (account_id) DO UPDATE
             SET balance_minor = b.balance_minor + excluded.balance_minor, position = excluded.position",
        position,
    )
    .execute(tx)
    .await?;
    Ok(())
}

//! Verification: the chain is computed again from the journal, entry by entry, and the books are compared with each
//! other. All of one snapshot, in bounded memory. It finds and names; it changes nothing.

use std::collections::BTreeMap;

use sqlx::{Executor as _, PgConnection};

use super::chain::{Entry, Link};
use super::checks::{ANSWERS_MAX, CHECKS};
use super::{BatchSize, SealHash};
use crate::{Ledger, LedgerError};

/// Batches read at a time.
const BATCHES_AT_ONCE: i64 = 1_000;
/// Findings that are listed; all are counted.
const FINDINGS_MAX: usize = 1_000;
/// Bound of one statement: some go through the whole journal.
const STATEMENT_BOUND: &str = "SET LOCAL statement_timeout = '15min'";

/// One thing that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind, in one word.
    pub kind: &'static str,
    /// Of which entry, position, batch, account, payment or currency.
    pub of: String,
    /// What is wrong.
    pub detail: String,
}

/// A verified ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Entries in the chain.
    pub entries: i64,
    /// Batches in the chain.
    pub batches: i64,
    /// Entries that wait to be sealed.
    pub waiting: i64,
    /// Hash of the last batch; none where nothing is sealed. Note it where nobody who may write this database can.
    pub head: Option<SealHash>,
    /// What does not hold, the first thousand; the books are in order when it is empty.
    pub findings: Vec<Finding>,
    /// How many there are; at most a hundred are counted of each comparison of the books.
    pub found: usize,
}

impl Verified {
    fn found(&mut self, kind: &'static str, of: String, detail: String) {
        self.found += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { kind, of, detail });
        }
    }
}

/// A row of `seal_batches`.
struct Batch {
    batch: i64,
    first_position: i64,
    last_position: i64,
    previous_hash: Vec<u8>,
    hash: Vec<u8>,
}

impl Batch {
    /// How many entries it says it has; none where that is no batch the sealer makes.
    fn entries(&self) -> Option<i64> {
        let count = self.last_position.checked_sub(self.first_position)?.checked_add(1)?;
        (1..=BatchSize::MAX).contains(&count).then_some(count)
    }
}

/// A row of `journal_seals`.
struct Seal {
    position: i64,
    entry_id: i64,
    hash: Vec<u8>,
}

impl Ledger {
    /// Verifies everything. With `expected`, a head that was noted earlier must be a link of the chain.
    ///
    /// # Errors
    /// [`LedgerError`]: it could not be read to the end.
    pub async fn verify(&self, expected: Option<SealHash>) -> Result<Verified, LedgerError> {
        let mut tx = self.pool.begin().await?;
        tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        tx.execute(STATEMENT_BOUND).await?;
        let waiting = sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM journal_unsealed"#)
            .fetch_one(&mut *tx)
            .await?;
        let mut verified = Verified { waiting, ..Verified::default() };
        let is_known = walk(&mut tx, &mut verified, expected).await?;
        if let (Some(expected), false) = (expected, is_known) {
            let detail = "it was noted as a head, and the chain does not contain it".into();
            verified.found("head_unknown", expected.to_string(), detail);
        }
        for (kind, question) in CHECKS {
            let answers: Vec<(String, String)> = sqlx::query_as(question)
                .bind(i64::try_from(ANSWERS_MAX).unwrap_or(i64::MAX))
                .fetch_all(&mut *tx)
                .await?;
            answers.into_iter().for_each(|(of, detail)| verified.found(kind, of, detail));
        }
        tx.rollback().await?;
        Ok(verified)
    }
}

/// Walks the chain from its beginning. Returns whether it met `expected`.
async fn walk(
    tx: &mut PgConnection,
    verified: &mut Verified,
    expected: Option<SealHash>,
) -> Result<bool, LedgerError> {
    let mut before = Batch {
        batch: 0,
        first_position: 0,
        last_position: 0,
        previous_hash: vec![],
        hash: SealHash::NONE.as_bytes().to_vec(),
    };
    let mut is_known = false;
    loop {
        let page = sqlx::query_as!(
            Batch,
            "SELECT batch, first_position, last_position, previous_hash, hash FROM seal_batches
             WHERE batch > $1 ORDER BY batch LIMIT $2",
            before.batch,
            BATCHES_AT_ONCE,
        )
        .fetch_all(&mut *tx)
        .await?;
        if page.is_empty() {
            return Ok(is_known);
        }
        let mut rest = page.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut chunk, mut entries) = (vec![], 0);
            while let Some(batch) =
                rest.next_if(|batch| entries == 0 || entries + batch.entries().unwrap_or(0) <= BatchSize::MAX)
            {
                entries += batch.entries().unwrap_or(1);
                chunk.push(batch);
            }
            let content = content(tx, &chunk).await?;
            for batch in chunk {
                follows(verified, &before, &batch);
                let hash = recompute(verified, &batch, &content);
                is_known |= hash.is_some() && hash == expected;
                verified.batches += 1;
                verified.head = SealHash::try_from(batch.hash.as_slice()).ok();
                before = batch;
            }
        }
    }
}

/// Seals by position, with the entry of each where it is there.
type Content = BTreeMap<i64, (Seal, Option<Entry>)>;

/// What is sealed in consecutive batches, ten thousand entries together.
async fn content(tx: &mut PgConnection, chunk: &[Batch]) -> Result<Content, LedgerError> {
    let sound = || chunk.iter().filter(|batch| batch.entries().is_some());
    let from: Vec<i64> = sound().map(|batch| batch.first_position).collect();
    let to: Vec<i64> = sound().map(|batch| batch.last_position).collect();
    let seals = sqlx::query_as!(
        Seal,
        "SELECT s.position, s.entry_id, s.hash
         FROM unnest($1::bigint[], $2::bigint[]) AS batches (first_position, last_position)
         JOIN journal_seals s ON s.position BETWEEN batches.first_position AND batches.last_position",
        &from,
        &to,
    )
    .fetch_all(&mut *tx)
    .await?;
    let ids: Vec<i64> = seals.iter().map(|seal| seal.entry_id).collect();
    let entries = sqlx::query_as!(
        Entry,
        "SELECT entry_id, operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency, posted_at
         FROM journal WHERE entry_id = ANY ($1)",
        &ids,
    )
    .fetch_all(tx)
    .await?;
    let mut entries: BTreeMap<i64, Entry> =
        entries.into_iter().map(|entry| (entry.entry_id, entry)).collect();
    Ok(seals
        .into_iter()
        .map(|seal| {
            let entry = entries.remove(&seal.entry_id);
            (seal.position, (seal, entry))
        })
        .collect())
}

/// Whether a batch is the next after `before`.
fn follows(verified: &mut Verified, before: &Batch, batch: &Batch) {
    let mut broken =
        |detail: String| verified.found("chain_broken", format!("batch {}", batch.batch), detail);
    if batch.batch != before.batch + 1 {
        broken(format!("it comes after batch {}: those between are missing", before.batch));
    }
    if batch.previous_hash != before.hash {
        broken(format!("it does not follow the hash of batch {}", before.batch));
    }
    if Some(batch.first_position) != before.last_position.checked_add(1) {
        let (first, last) = (batch.first_position, before.last_position);
        broken(format!("it begins at position {first}, the batch before it ends at {last}"));
    }
}

/// Computes a batch's hash from its seals, and each seal from its entry. None where the batch says of itself what no
/// batch can be.
fn recompute(verified: &mut Verified, batch: &Batch, content: &Content) -> Option<SealHash> {
    let number = format!("batch {}", batch.batch);
    let previous = SealHash::try_from(batch.previous_hash.as_slice());
    let (Ok(previous), Some(_)) = (previous, batch.entries()) else {
        let (first, last) = (batch.first_position, batch.last_position);
        verified.found("batch_broken", number, format!("no batch goes from position {first} to {last}"));
        return None;
    };
    let mut link = Link::new(batch.batch, batch.first_position, &previous);
    let mut last_id = None;
    for position in batch.first_position..=batch.last_position {
        let Some((seal, entry)) = content.get(&position) else {
            verified.found("seal_missing", format!("position {position}"), format!("it is of {number}"));
            continue;
        };
        if last_id.is_some_and(|last_id| last_id >= seal.entry_id) {
            let detail = format!("entry {} stands there after entry {}", seal.entry_id, last_id.unwrap_or(0));
            verified.found("entry_moved", format!("position {position}"), detail);
        }
        last_id = Some(seal.entry_id);
        verified.entries += 1;
        if let Ok(hash) = SealHash::try_from(seal.hash.as_slice()) {
            link.push(&hash);
        }
        compare(verified, seal, entry.as_ref());
    }
    let hash = link.end();
    if hash.as_bytes() != batch.hash {
        let detail = format!("its seals, from position {} on, give another hash", batch.first_position);
        verified.found("batch_broken", number, detail);
    }
    Some(hash)
}

/// Compares an entry with its seal.
fn compare(verified: &mut Verified, seal: &Seal, entry: Option<&Entry>) {
    let of = format!("entry {}", seal.entry_id);
    match entry {
        None => {
            let detail = format!("it is sealed at position {} and not in the journal", seal.position);
            verified.found("entry_missing", of, detail);
        }
        Some(entry) if entry.hash().as_bytes() != seal.hash => {
            let detail = format!(
                "sealed at position {} as something else than {} {} of {} minor units of {}",
                seal.position, entry.kind, entry.operation_key, entry.amount_minor, entry.currency
            );
            verified.found("entry_changed", of, detail);
        }
        Some(_) => {}
    }
}

//! Verification: recomputes the chain from the journal, entry by entry, and runs the consistency checks. In one snapshot and
//! bounded memory, without any change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postgres_kit::{Connection, Pool, Transaction};
use sqlx::Executor as _;

use super::chain::{HashLink, SealedEntry};
use super::checks::{ENTRY_CHECKS, SUM_CHECKS, VIOLATIONS_MAX};
use super::{BatchSize, SealHash, audit_log};
use crate::amount_text::amount;
use crate::audit::reconcile::window::ReconciliationWindow;
use crate::{Ledger, LedgerError};

/// Batches read per page.
const BATCHES_AT_ONCE: i64 = 1_000;
/// Upper bound of findings that are listed; all are counted.
const FINDINGS_MAX: usize = 1_000;
/// Timeout of one statement: some read the whole journal.
const STATEMENT_TIMEOUT: &str = "SET LOCAL statement_timeout = '15min'";
/// The same on this side of the connection.
const STATEMENT_LIMIT: Duration = Duration::from_secs(16 * 60);

/// One violation of the ledger's consistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationFinding {
    /// Kind of the violation, a stable word.
    pub kind: &'static str,
    /// The entry, position, batch, account, payment or currency.
    pub subject: String,
    /// Description of the violation.
    pub detail: String,
}

/// Report of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerificationReport {
    /// Entries in the chain.
    pub entries: i64,
    /// Batches in the chain.
    pub batches: i64,
    /// Unsealed entries.
    pub unsealed: i64,
    /// Hash of the last batch; `None` if nothing is sealed. Note it outside the reach of anyone who may write this database.
    pub head: Option<SealHash>,
    /// Sealed entries of the audit log. 0 for a window.
    pub audit_log_entries: i64,
    /// Unsealed entries of the audit log. 0 for a window.
    pub audit_log_unsealed: i64,
    /// Hash of the last sealed entry of the audit log, to note like `head`. `None` for a window.
    pub audit_log_head: Option<SealHash>,
    /// The first thousand findings; empty if the ledger is consistent.
    pub findings: Vec<VerificationFinding>,
    /// The number of findings; each consistency check counts at most a hundred.
    pub found: usize,
}

impl VerificationReport {
    fn add_findings(&mut self, kind: &'static str, violations: Vec<(String, String)>) {
        violations.into_iter().for_each(|(subject, detail)| self.add_finding(kind, subject, detail));
    }

    pub(super) fn add_finding(&mut self, kind: &'static str, subject: String, detail: String) {
        self.found += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(VerificationFinding { kind, subject, detail });
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
    /// What the first batch follows.
    fn beginning() -> Self {
        let hash = SealHash::NONE.as_bytes().to_vec();
        Self { batch: 0, first_position: 0, last_position: 0, previous_hash: vec![], hash }
    }

    /// The number of its entries; `None` if its positions are impossible.
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
    /// Verifies the ledger and the audit log. Each of the `expected` heads, noted earlier, must be a link of a chain. The audit log is
    /// read with the rights of the database's owner.
    ///
    /// # Errors
    /// [`LedgerError`]: the verification was not completed.
    pub async fn verify(
        &self,
        expected: impl IntoIterator<Item = SealHash>,
    ) -> Result<VerificationReport, LedgerError> {
        let mut missing = expected.into_iter().collect();
        let mut tx = snapshot(&self.pool).await?;
        let mut verified = verify_journal(&mut tx, &mut missing).await?;
        audit_log::verify(&mut tx, &mut verified, &mut missing).await?;
        for head in missing {
            let detail = "no hash chain contains this head of an earlier time".into();
            verified.add_finding("head_unknown", head.to_string(), detail);
        }
        tx.rollback().await?;
        Ok(verified)
    }

    /// Verifies the ledger, without the audit log.
    ///
    /// # Errors
    /// [`LedgerError`]: the verification was not completed.
    pub async fn verify_journal(&self) -> Result<VerificationReport, LedgerError> {
        let mut tx = snapshot(&self.pool).await?;
        let verified = verify_journal(&mut tx, &mut BTreeSet::new()).await?;
        tx.rollback().await?;
        Ok(verified)
    }

    /// Verifies the entries of a window, and the chain from the last batch before it. Sums over all entries, and what is older than the
    /// window, are for [`Ledger::verify`].
    ///
    /// # Errors
    /// [`LedgerError`]: the verification was not completed.
    pub async fn verify_window(
        &self,
        window: &ReconciliationWindow,
    ) -> Result<VerificationReport, LedgerError> {
        let mut tx = snapshot(&self.pool).await?;
        let mut verified = count_unsealed(&mut tx).await?;
        let before = sqlx::query_as!(
            Batch,
            "SELECT batch, first_position, last_position, previous_hash, hash FROM seal_batches WHERE batch = $1",
            window.after_batch,
        )
        .fetch_optional(&mut *tx)
        .await?;
        walk(&mut tx, &mut verified, before.unwrap_or_else(Batch::beginning), &mut BTreeSet::new()).await?;
        check_entries(&mut tx, &mut verified, window.after_entry_id).await?;
        tx.rollback().await?;
        Ok(verified)
    }
}

/// A snapshot of the database, without the right to change it.
async fn snapshot(pool: &Pool) -> Result<Transaction, LedgerError> {
    let mut tx = pool.begin().await?;
    tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    tx.execute(STATEMENT_TIMEOUT).await?;
    tx.set_statement_limit(STATEMENT_LIMIT);
    Ok(tx)
}

/// Verifies the chain and the books. Takes the heads that the chain contains out of `missing`.
async fn verify_journal(
    tx: &mut Connection,
    missing: &mut BTreeSet<SealHash>,
) -> Result<VerificationReport, LedgerError> {
    let mut verified = count_unsealed(tx).await?;
    walk(tx, &mut verified, Batch::beginning(), missing).await?;
    check_entries(tx, &mut verified, i64::MIN).await?;
    for (kind, query) in SUM_CHECKS {
        let violations = sqlx::query_as(query).bind(limit()).fetch_all(&mut *tx).await?;
        verified.add_findings(kind, violations);
    }
    Ok(verified)
}

async fn count_unsealed(tx: &mut Connection) -> Result<VerificationReport, LedgerError> {
    let unsealed =
        sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM journal_unsealed"#).fetch_one(tx).await?;
    Ok(VerificationReport { unsealed, ..VerificationReport::default() })
}

/// Checks each entry after this one.
async fn check_entries(
    tx: &mut Connection,
    verified: &mut VerificationReport,
    after_entry_id: i64,
) -> Result<(), LedgerError> {
    for (kind, query) in ENTRY_CHECKS {
        let violations = sqlx::query_as(query).bind(limit()).bind(after_entry_id).fetch_all(&mut *tx).await?;
        verified.add_findings(kind, violations);
    }
    Ok(())
}

fn limit() -> i64 {
    i64::try_from(VIOLATIONS_MAX).unwrap_or(i64::MAX)
}

/// Walks the chain after the batch `before`. Takes the heads that it contains out of `missing`.
async fn walk(
    tx: &mut Connection,
    verified: &mut VerificationReport,
    mut before: Batch,
    missing: &mut BTreeSet<SealHash>,
) -> Result<(), LedgerError> {
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
            return Ok(());
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
                check_link(verified, &before, &batch);
                if let Some(hash) = recompute(verified, &batch, &content) {
                    missing.remove(&hash);
                }
                verified.batches += 1;
                verified.head = SealHash::try_from(batch.hash.as_slice()).ok();
                before = batch;
            }
        }
    }
}

/// Seals by position, each with its entry if it exists.
type Content = BTreeMap<i64, (Seal, Option<SealedEntry>)>;

/// Seals and entries of consecutive batches, at most [`BatchSize::MAX`] entries.
async fn content(tx: &mut Connection, chunk: &[Batch]) -> Result<Content, LedgerError> {
    let plausible = || chunk.iter().filter(|batch| batch.entries().is_some());
    let from: Vec<i64> = plausible().map(|batch| batch.first_position).collect();
    let to: Vec<i64> = plausible().map(|batch| batch.last_position).collect();
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
        SealedEntry,
        "SELECT entry_id, operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency, posted_at
         FROM journal WHERE entry_id = ANY ($1)",
        &ids,
    )
    .fetch_all(tx)
    .await?;
    let mut entries: BTreeMap<i64, SealedEntry> =
        entries.into_iter().map(|entry| (entry.entry_id, entry)).collect();
    Ok(seals
        .into_iter()
        .map(|seal| {
            let entry = entries.remove(&seal.entry_id);
            (seal.position, (seal, entry))
        })
        .collect())
}

/// Checks that a batch follows `before`.
fn check_link(verified: &mut VerificationReport, before: &Batch, batch: &Batch) {
    let mut broken =
        |detail: String| verified.add_finding("chain_broken", format!("batch {}", batch.batch), detail);
    if batch.batch != before.batch + 1 {
        broken(format!("follows batch {}: the batches between are missing", before.batch));
    }
    if batch.previous_hash != before.hash {
        broken(format!("its previous hash is not the hash of batch {}", before.batch));
    }
    if Some(batch.first_position) != before.last_position.checked_add(1) {
        let (first, last) = (batch.first_position, before.last_position);
        broken(format!("begins at position {first}, but the previous batch ends at {last}"));
    }
}

/// Recomputes a batch's hash from its seals, and each seal from its entry. `None` if the batch's positions are
/// impossible.
fn recompute(verified: &mut VerificationReport, batch: &Batch, content: &Content) -> Option<SealHash> {
    let number = format!("batch {}", batch.batch);
    let previous = SealHash::try_from(batch.previous_hash.as_slice());
    let (Ok(previous), Some(_)) = (previous, batch.entries()) else {
        let (first, last) = (batch.first_position, batch.last_position);
        verified.add_finding("batch_broken", number, format!("impossible positions: {first} to {last}"));
        return None;
    };
    let mut link = HashLink::new(batch.batch, batch.first_position, &previous);
    let mut last_id = None;
    for position in batch.first_position..=batch.last_position {
        let Some((seal, entry)) = content.get(&position) else {
            verified.add_finding(
                "seal_missing",
                format!("position {position}"),
                format!("missing from {number}"),
            );
            continue;
        };
        if last_id.is_some_and(|last_id| last_id >= seal.entry_id) {
            let detail = format!("entry {} follows entry {}", seal.entry_id, last_id.unwrap_or(0));
            verified.add_finding("entry_moved", format!("position {position}"), detail);
        }
        last_id = Some(seal.entry_id);
        verified.entries += 1;
        if let Ok(hash) = SealHash::try_from(seal.hash.as_slice()) {
            link.push(&hash);
        }
        check_entry(verified, seal, entry.as_ref());
    }
    let hash = link.end();
    if hash.as_bytes() != batch.hash {
        let detail = format!("its seals from position {} on have another hash", batch.first_position);
        verified.add_finding("batch_broken", number, detail);
    }
    Some(hash)
}

/// Compares an entry with its seal.
fn check_entry(verified: &mut VerificationReport, seal: &Seal, entry: Option<&SealedEntry>) {
    let subject = format!("entry {}", seal.entry_id);
    match entry {
        None => {
            let detail = format!("sealed at position {}, but not in the journal", seal.position);
            verified.add_finding("entry_missing", subject, detail);
        }
        Some(entry) if entry.hash().as_bytes() != seal.hash => {
            let detail = format!(
                "its seal at position {} does not match {} {} of {}",
                seal.position,
                entry.kind,
                entry.operation_key,
                amount(entry.amount_minor, &entry.currency)
            );
            verified.add_finding("entry_changed", subject, detail);
        }
        Some(_) => {}
    }
}

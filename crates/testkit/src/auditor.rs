//! Compares the books: the bank's ledger, the switch's own book, and that every payment ended.
//!
//! Shares no code and no query with the service. Read it as an outsider's opinion: settled at the
//! switch <=> debited once at the bank, by its step, by people or by a correction, and not given back;
//! cancelled, rejected, recalled or never there <=> released once, or never held; nothing else.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use sqlx::{Executor as _, PgPool, Row as _};

use crate::switch::{BookEntry, SwitchAdmin};

/// Between two samples: the ledger is to be watched, not worn out.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Payments in the bank's books.
    pub payments: usize,
    /// Of those, debited and not given back.
    pub debited: usize,
    /// Of those, still open.
    pub open: usize,
}

/// Looks at the ledger in one repeatable-read snapshot: nothing negative, the journal explains every
/// balance and what is held of it, holding is the sum of the open holds, and money neither comes nor
/// goes (S0.13).
///
/// # Errors
/// The first thing that does not hold.
pub async fn conservation(pool: &PgPool) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let mut moved: BTreeMap<String, i64> = BTreeMap::new();
    for row in sqlx::query("SELECT debit_account, credit_account, amount_minor FROM journal")
        .fetch_all(&mut *tx)
        .await?
    {
        let amount: i64 = row.get("amount_minor");
        *moved.entry(row.get("debit_account")).or_default() -= amount;
        *moved.entry(row.get("credit_account")).or_default() += amount;
    }
    ensure!(moved.values().sum::<i64>() == 0, "the journal does not balance: {moved:?}");
    for row in
        sqlx::query("SELECT account_id, available_minor FROM accounts WHERE available_minor IS NOT NULL")
            .fetch_all(&mut *tx)
            .await?
    {
        let (account, available): (String, i64) = (row.get("account_id"), row.get("available_minor"));
        let explained = moved.get(&account).copied().unwrap_or(0);
        ensure!(available >= 0, "{account} is overdrawn: {available}");
        ensure!(available == explained, "{account} has {available}, the journal says {explained}");
    }
    let mut held: BTreeMap<String, i64> = BTreeMap::new();
    for row in sqlx::query("SELECT currency, amount_minor FROM holds WHERE status = 'open'")
        .fetch_all(&mut *tx)
        .await?
    {
        *held.entry(format!("internal:holding:{}", row.get::<String, _>("currency"))).or_default() +=
            row.get::<i64, _>("amount_minor");
    }
    for (account, balance) in moved.iter().filter(|(account, _)| account.starts_with("internal:holding:")) {
        let open = held.get(account).copied().unwrap_or(0);
        ensure!(*balance == open, "{account} holds {balance}, its open holds are {open}");
    }
    for row in sqlx::query(
        "SELECT account_id, amount_minor, coalesce(explained, 0)::bigint AS explained FROM
            (SELECT account_id, sum(amount_minor)::bigint AS amount_minor FROM holds WHERE status = 'open' GROUP BY 1) h
         FULL JOIN
            (SELECT p.source_account AS account_id,
                    sum(CASE j.kind WHEN 'reserve' THEN j.amount_minor WHEN 'debit' THEN -j.amount_minor
                                    WHEN 'release' THEN -j.amount_minor END) AS explained
             FROM journal j JOIN payments p USING (payment_id) GROUP BY 1) j USING (account_id)",
    )
    .fetch_all(&mut *tx)
    .await?
    {
        let (account, explained): (String, i64) = (row.get("account_id"), row.get("explained"));
        let open = row.get::<Option<i64>, _>("amount_minor").unwrap_or(0);
        // So what can be spent and what is held are together what the journal says the customer owns.
        ensure!(open == explained, "of {account} {open} is held, the journal says {explained}");
    }
    for (account, balance) in moved.iter().filter(|(account, _)| account.starts_with("internal:escrow:")) {
        ensure!(*balance >= 0, "{account} is negative: {balance}");
    }
    let borne =
        |account: &str| account.starts_with("internal:claims:") || account.starts_with("internal:losses:");
    for (account, balance) in moved.iter().filter(|(account, _)| borne(account)) {
        ensure!(*balance <= 0, "{account} has {balance}: more came back than it bore");
    }
    Ok(())
}

/// Runs `work` and looks at the ledger over and over meanwhile ([`conservation`]), to its end; gives what
/// `work` gave and how often was looked, once at least.
///
/// # Errors
/// What `work` failed with, or the first sample that does not hold, which ends it.
pub async fn while_sampled<T>(
    pool: &PgPool,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(T, usize)> {
    let samples = AtomicUsize::new(0);
    let sampling = async {
        loop {
            if let Err(violated) = conservation(pool).await {
                break violated.context(format!("sample {}", samples.load(Ordering::Relaxed) + 1));
            }
            samples.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
    };
    let done = tokio::select! {
        done = work => done?,
        violated = sampling => return Err(violated),
    };
    conservation(pool).await.context("the last sample")?;
    Ok((done, samples.load(Ordering::Relaxed) + 1))
}

/// Compares bank and switch when everything has ended, or may stand before a person.
///
/// # Errors
/// Every disagreement, in one text.
pub async fn compare(pool: &PgPool, switch: &SwitchAdmin) -> anyhow::Result<Audit> {
    conservation(pool).await?;
    let mut book: BTreeMap<String, Vec<BookEntry>> = BTreeMap::new();
    for entry in switch.book().await? {
        book.entry(entry.reference.clone()).or_default().push(entry);
    }
    let mut audit = Audit { payments: 0, debited: 0, open: 0 };
    let mut wrong = Vec::new();
    let rows = sqlx::query(
        "SELECT p.payment_id, p.tx_id, p.state, p.amount_minor, p.currency,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'reserve') AS reserved,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'debit') AS settled,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'late_debit') AS late,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'late_debit'
                    AND j.operation_key LIKE p.tx_id || ':correct:%') AS corrected,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'return_credit') AS returned,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'release') AS released
         FROM payments p",
    )
    .fetch_all(pool)
    .await?;
    for row in rows {
        audit.payments += 1;
        let (id, tx, state): (String, String, String) =
            (row.get("payment_id"), row.get("tx_id"), row.get("state"));
        let (amount, currency): (i64, String) = (row.get("amount_minor"), row.get("currency"));
        let (reserved, settled, released): (i64, i64, i64) =
            (row.get("reserved"), row.get("settled"), row.get("released"));
        let (late, corrected, returned): (i64, i64, i64) =
            (row.get("late"), row.get("corrected"), row.get("returned"));
        // What the customer, or the bank in the customer's place, bears in the end.
        let debited = settled + late - returned;
        let entries = book.remove(&format!("{tx}:submit")).unwrap_or_default();
        let left = entries.iter().filter(|entry| entry.status == "SETTLED").count();
        let pending = entries.iter().any(|entry| entry.status == "PENDING");
        for entry in &entries {
            let same = entry.amount_minor.is_none_or(|minor| minor == amount)
                && entry.currency.as_deref().is_none_or(|code| code == currency);
            if !same {
                wrong.push(format!("{id} is {amount} {currency} here, and at the switch {entry:?}"));
            }
        }
        let ended = matches!(state.as_str(), "settled" | "rejected" | "failed" | "timed_out" | "cancelled");
        if !ended {
            audit.open += 1;
        }
        if debited > 0 {
            audit.debited += 1;
        }
        // Corrections come after the end and leave it as it is.
        let by_its_end = settled + late - corrected;
        if (by_its_end == 1) != (state == "settled") || settled + late > 1 || left > 1 {
            let debits = settled + late;
            wrong.push(format!("{id} is {state} with {debits} debits, {left} times settled at the switch"));
        }
        if !(0..=1).contains(&debited) {
            wrong.push(format!("{id} was debited {} times and given back {returned} times", settled + late));
        }
        if debited == 1 && left != 1 {
            wrong.push(format!("{id} was debited but did not leave: {entries:?}"));
        }
        if ended && left == 1 && debited != 1 {
            wrong.push(format!("{id} left but is {state} and was not debited"));
        }
        if ended && pending {
            wrong.push(format!("{id} is {state} and still pending at the switch"));
        }
        if reserved < settled + released || (ended && reserved != settled + released) {
            wrong.push(format!(
                "{id} is {state}: {reserved} reserved, {settled} settled, {released} released"
            ));
        }
    }
    for (reference, entries) in book {
        wrong.push(format!("the switch has {reference}, which the bank never had: {entries:?}"));
    }
    if !wrong.is_empty() {
        bail!("the books disagree:\n{}", wrong.join("\n"));
    }
    Ok(audit)
}

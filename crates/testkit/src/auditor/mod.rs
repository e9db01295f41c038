//! Compares the three books after a test: the bank's ledger, the switch's transfers, and Temporal's histories ([`histories`]).
//!
//! Shares no code and no query with the service. Settled at the switch <=> debited once at the bank (by the debit step, a
//! decision or a correction) and not returned; cancelled, rejected, recalled or unknown at the switch <=> released once, or
//! never held.

pub mod histories;
pub(crate) mod sampler;

pub use sampler::is_unavailable;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use sqlx::postgres::PgRow;
use sqlx::{Executor as _, PgPool, Row as _};

use crate::switch::{SwitchAdmin, SwitchTransfer, UNORDERED};

/// Pause between two samples, so that sampling does not slow down the ledger.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Numbers of compared payments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// All payments of the bank.
    pub payments: usize,
    /// Payments debited and not returned.
    pub debited: usize,
    /// Payments that have not ended.
    pub open: usize,
}

impl Audit {
    /// What came after an earlier comparison, whose open payments have stayed open.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            payments: self.payments - before.payments,
            debited: self.debited - before.debited,
            open: self.open - before.open,
        }
    }
}

/// Checks the ledger in one repeatable-read snapshot (S0.13): no negative balance, every balance and hold equals the sum of
/// its journal entries, and the holding account equals the sum of the open holds.
///
/// # Errors
/// The first violation.
pub async fn check_conservation(pool: &PgPool) -> anyhow::Result<()> {
    // A task of its own ends its transaction, whatever its caller does: a BEGIN that is given up would leave the pool a connection
    // within a transaction.
    tokio::spawn(check_snapshot(pool.clone())).await?
}

async fn check_snapshot(pool: PgPool) -> anyhow::Result<()> {
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
    for row in
        sqlx::query("SELECT account_id, available_minor FROM accounts WHERE available_minor IS NOT NULL")
            .fetch_all(&mut *tx)
            .await?
    {
        let (account, available): (String, i64) = (row.get("account_id"), row.get("available_minor"));
        let posted = moved.get(&account).copied().unwrap_or(0);
        ensure!(available >= 0, "{account} is overdrawn: {available}");
        ensure!(
            available == posted,
            "{account} has a balance of {available}, its journal entries sum to {posted}"
        );
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
        ensure!(*balance == open, "{account} has a balance of {balance}, the open holds sum to {open}");
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
        ensure!(open == explained, "{account} has open holds of {open}, its journal entries sum to {explained}");
    }
    for (account, balance) in moved.iter().filter(|(account, _)| account.starts_with("internal:escrow:")) {
        ensure!(*balance >= 0, "{account} is negative: {balance}");
    }
    for row in sqlx::query(
        "SELECT a.account_id, coalesce((SELECT sum(c.open_minor) FROM claims c
                                        WHERE c.closed_at IS NULL AND c.currency = a.currency), 0)::bigint AS claimed
         FROM accounts a WHERE a.account_id LIKE 'internal:claims:%'",
    )
    .fetch_all(&mut *tx)
    .await?
    {
        let (account, claimed): (String, i64) = (row.get("account_id"), row.get("claimed"));
        let paid = -moved.get(&account).copied().unwrap_or(0);
        ensure!(paid == claimed, "{account} has paid {paid}, the open claims sum to {claimed}");
    }
    let charged_wrongly = sqlx::query(
        "SELECT p.payment_id, p.state, c.charged FROM payments p
         JOIN (SELECT p.payment_id, (coalesce(sum(j.amount_minor) FILTER (WHERE j.debit_account = p.source_account), 0)
                                     - coalesce(sum(j.amount_minor) FILTER (WHERE j.credit_account = p.source_account), 0))::bigint
                                    AS charged
               FROM journal j JOIN payments p USING (payment_id) GROUP BY p.payment_id) c USING (payment_id)
         WHERE c.charged NOT BETWEEN 0 AND p.amount_minor",
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(row) = charged_wrongly {
        let (id, state, charged): (String, String, i64) =
            (row.get("payment_id"), row.get("state"), row.get("charged"));
        bail!("the customer of {id}, which is {state}, is charged {charged} minor units");
    }
    let bears_losses =
        |account: &str| account.starts_with("internal:claims:") || account.starts_with("internal:losses:");
    for (account, balance) in moved.iter().filter(|(account, _)| bears_losses(account)) {
        ensure!(*balance <= 0, "{account} has a balance of {balance}: more was returned than charged");
    }
    Ok(())
}

/// Checks in one snapshot that all accounts sum to the opening balances, which the test knows: the available balances, the open holds
/// and the escrow account, less what the bank paid for others. It finds money that came from nowhere, such as a deposit made twice;
/// whether the right money left, the comparison with the switch says.
///
/// # Errors
/// If they do not, or PostgreSQL does not answer.
pub async fn check_total(pool: &PgPool, opening_minor: i64) -> anyhow::Result<()> {
    let total: i64 = sqlx::query_scalar(
        "SELECT ((SELECT coalesce(sum(available_minor), 0) FROM accounts WHERE kind = 'customer')
               + (SELECT coalesce(sum(amount_minor), 0) FROM holds WHERE status = 'open')
               + (SELECT coalesce(sum(CASE WHEN j.credit_account = a.account_id THEN j.amount_minor ELSE -j.amount_minor END), 0)
                  FROM journal j JOIN accounts a ON a.account_id IN (j.credit_account, j.debit_account)
                  WHERE a.account_id LIKE ANY ('{internal:escrow:%,internal:claims:%,internal:losses:%}')))::bigint",
    )
    .fetch_one(pool)
    .await?;
    ensure!(
        total == opening_minor,
        "the accounts, holds and internal accounts sum to {total}, and {opening_minor} were paid in"
    );
    Ok(())
}

/// Runs `work` and repeats [`check_conservation`] meanwhile; returns the result of `work` and the number of samples, at
/// least one.
///
/// # Errors
/// The error of `work`, or the first violation, which cancels `work`.
pub async fn sample_during<T>(
    pool: &PgPool,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(T, usize)> {
    let samples = AtomicUsize::new(0);
    let sampling = async {
        loop {
            if let Err(violation) = check_conservation(pool).await {
                break violation.context(format!("sample {}", samples.load(Ordering::Relaxed) + 1));
            }
            samples.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
    };
    let result = tokio::select! {
        result = work => result?,
        violation = sampling => return Err(violation),
    };
    check_conservation(pool).await.context("the last sample of the balances violates an invariant")?;
    Ok((result, samples.load(Ordering::Relaxed) + 1))
}

/// Compares the bank with its switches. To be called when every payment has ended or needs an operator.
///
/// # Errors
/// Every disagreement, one per line.
pub async fn compare(
    pool: &PgPool,
    switches: impl IntoIterator<Item = &SwitchAdmin>,
) -> anyhow::Result<Audit> {
    check_conservation(pool).await?;
    let (audit, disagreements) = find_disagreements(pool, switches).await?;
    if !disagreements.is_empty() {
        bail!("bank and switch disagree:\n{}", disagreements.join("\n"));
    }
    Ok(audit)
}

/// The same, with the disagreements as a list. The bank has no payment of a transfer that the test says nobody ordered.
///
/// # Errors
/// If PostgreSQL or a switch does not answer.
pub async fn find_disagreements(
    pool: &PgPool,
    switches: impl IntoIterator<Item = &SwitchAdmin>,
) -> anyhow::Result<(Audit, Vec<String>)> {
    let mut by_reference: BTreeMap<String, Vec<SwitchTransfer>> = BTreeMap::new();
    for switch in switches {
        for transfer in switch.transfers().await? {
            by_reference.entry(transfer.reference.clone()).or_default().push(transfer);
        }
    }
    let mut audit = Audit { payments: 0, debited: 0, open: 0 };
    let mut disagreements = Vec::new();
    let rows = sqlx::query(
        "SELECT p.payment_id, coalesce(p.rail_id, p.tx_id || ':submit') AS reference, p.state, p.amount_minor, p.currency,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'reserve') AS reserved,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'debit') AS debited,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'late_debit') AS late,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'late_debit'
                    AND j.operation_key LIKE p.tx_id || ':correct:%') AS corrected,
                (SELECT coalesce(sum(j.amount_minor), 0)::bigint FROM journal j
                 WHERE j.payment_id = p.payment_id AND j.kind IN ('return', 'return_credit')) AS returned_minor,
                (SELECT count(*) FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'release') AS released
         FROM payments p",
    )
    .fetch_all(pool)
    .await?;
    for row in &rows {
        let payment = PaymentRow::read(row);
        let transfers = by_reference.remove(&payment.reference).unwrap_or_default();
        audit.payments += 1;
        audit.open += usize::from(!payment.has_ended());
        audit.debited += usize::from(payment.net_debits() > 0);
        payment.check_amounts(&transfers, &mut disagreements);
        payment.check_end(&transfers, &mut disagreements);
    }
    let ordered = by_reference.into_iter().filter(|(reference, _)| !reference.starts_with(UNORDERED));
    for (reference, transfers) in ordered {
        disagreements
            .push(format!("the switch has {reference}, which the bank does not have: {transfers:?}"));
    }
    Ok((audit, disagreements))
}

/// A payment with the number of its journal entries of each kind.
struct PaymentRow {
    id: String,
    reference: String,
    state: String,
    amount_minor: i64,
    currency: String,
    reserved: i64,
    debited: i64,
    late_debits: i64,
    /// Late debits by a correction, which is made after the payment's end.
    corrected: i64,
    /// What was credited of returns.
    returned_minor: i64,
    released: i64,
}

impl PaymentRow {
    fn read(row: &PgRow) -> Self {
        Self {
            id: row.get("payment_id"),
            reference: row.get("reference"),
            state: row.get("state"),
            amount_minor: row.get("amount_minor"),
            currency: row.get("currency"),
            reserved: row.get("reserved"),
            debited: row.get("debited"),
            late_debits: row.get("late"),
            corrected: row.get("corrected"),
            returned_minor: row.get("returned_minor"),
            released: row.get("released"),
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "settled" | "rejected" | "failed" | "timed_out" | "cancelled")
    }

    /// Debits of the customer, or of the claims account instead, that were not wholly returned.
    fn net_debits(&self) -> i64 {
        self.debited + self.late_debits - i64::from(self.returned_minor >= self.amount_minor)
    }

    fn check_amounts(&self, transfers: &[SwitchTransfer], disagreements: &mut Vec<String>) {
        let Self { id, amount_minor, currency, .. } = self;
        for transfer in transfers {
            let is_same = transfer.amount_minor.is_none_or(|minor| minor == *amount_minor)
                && transfer.currency.as_deref().is_none_or(|code| code == currency);
            if !is_same {
                disagreements
                    .push(format!("{id} is {amount_minor} {currency} at the bank, and {transfer:?}"));
            }
        }
    }

    /// Compares the end and the journal entries of the payment with the transfers.
    fn check_end(&self, transfers: &[SwitchTransfer], disagreements: &mut Vec<String>) {
        let Self { id, state, reserved, debited, late_debits, corrected, returned_minor, released, .. } =
            self;
        let settled = transfers.iter().filter(|transfer| transfer.status == "SETTLED").count();
        let is_pending = transfers.iter().any(|transfer| transfer.status == "PENDING");
        let debits = debited + late_debits;
        let net_debits = self.net_debits();
        // Corrections are made after the end and do not change it.
        if (debits - corrected == 1) != (state == "settled") || debits > 1 || settled > 1 {
            disagreements
                .push(format!("{id} is {state} with {debits} debits, and {settled} settled transfers"));
        }
        if !(0..=1).contains(&net_debits) {
            disagreements
                .push(format!("{id} was debited {debits} times, and {returned_minor} minor units returned"));
        }
        let came_back: i64 = transfers.iter().map(|transfer| transfer.returned_minor).sum();
        if *returned_minor != if debits > 0 { came_back } else { 0 } {
            disagreements.push(format!(
                "{id} was debited {debits} times, and {returned_minor} of the {came_back} that the switch returned was credited"
            ));
        }
        if net_debits == 1 && settled != 1 {
            disagreements.push(format!("{id} was debited, but is not settled at the switch: {transfers:?}"));
        }
        if self.has_ended() && settled == 1 && net_debits != 1 {
            disagreements.push(format!("{id} is settled at the switch, but is {state} and was not debited"));
        }
        if !self.has_ended() && settled == 1 && state != "needs_operator" {
            disagreements
                .push(format!("{id} is settled at the switch, but is {state} and waits for no operator"));
        }
        if self.has_ended() && is_pending {
            disagreements.push(format!("{id} is {state}, but still pending at the switch"));
        }
        if *reserved > 1
            || *released > 1
            || *reserved < debited + released
            || (self.has_ended() && *reserved != debited + released)
        {
            disagreements.push(format!(
                "{id} is {state}: {reserved} reserved, {debited} debited, {released} released"
            ));
        }
    }
}

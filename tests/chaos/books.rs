//! What is compared after the run: the three books, the opening balances, the customers' answers and the events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use payment_protocol::drift::Drift;
use serde_json::Value;
use sqlx::{PgPool, Row as _};
use testkit::auditor::{
    self,
    histories::{self, HistoryAudit},
};
use testkit::switch::UNORDERED;
use testkit::system::OPENING_MINOR;

use crate::bank::Bank;
use crate::customers::{Customers, RECALL_REFUSED_MINOR, order};

/// Everything that is wrong, and what was reached.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) payments: usize,
    /// Accepted payments that the bank or Temporal does not have, in words.
    pub(crate) lost: Vec<String>,
    /// Payments with two effects: two debits, two payments of one key, two notifications of one event.
    pub(crate) doubled: Vec<String>,
    /// Payments that have not ended, and do not wait for operators with a reason that a fault explains.
    pub(crate) stuck: Vec<String>,
    /// Differences between the books.
    pub(crate) violations: Vec<String>,
    /// How often each end, each exception and each race was reached.
    pub(crate) reached: BTreeMap<&'static str, i64>,
}

/// Ends and races that a long run must reach, each with the query that counts it.
const REACHED: [(&str, &str); 19] = [
    ("end: settled", "SELECT count(*) FROM payments WHERE state = 'settled'"),
    ("end: rejected", "SELECT count(*) FROM payments WHERE state = 'rejected'"),
    ("end: failed", "SELECT count(*) FROM payments WHERE state = 'failed'"),
    ("end: timed_out", "SELECT count(*) FROM payments WHERE state = 'timed_out'"),
    ("end: cancelled", "SELECT count(*) FROM payments WHERE state = 'cancelled'"),
    ("waits for operators", "SELECT count(*) FROM payments WHERE state = 'needs_operator'"),
    (
        "reconciliation: runs of a window",
        "SELECT count(*) FROM reconciliation_runs WHERE finished_at IS NOT NULL AND window_began_at IS NOT NULL",
    ),
    (
        "reconciliation: runs of everything",
        "SELECT count(*) FROM reconciliation_runs WHERE finished_at IS NOT NULL AND window_began_at IS NULL",
    ),
    (
        "reconciliation: runs that a source did not answer",
        "SELECT count(*) FROM reconciliation_runs WHERE report -> 'not_compared' <> '[]'",
    ),
    ("race: submitted again", "SELECT count(*) FROM payments WHERE attempts > 1"),
    (
        "race: settled while it was cancelled",
        "SELECT count(*) FROM payments WHERE state = 'settled' AND cancelling_since IS NOT NULL",
    ),
    (
        "race: the customer's cancel came too late",
        "SELECT count(DISTINCT payment_id) FROM inbox JOIN payments USING (payment_id) WHERE kind = 'cancel' AND state = 'settled'",
    ),
    (
        "race: cancelled before a submit",
        "SELECT count(*) FROM payments WHERE state = 'cancelled' AND attempts = 0",
    ),
    (
        "race: the callback before the submit's answer",
        "SELECT count(DISTINCT c.payment_id) FROM switch_callbacks c JOIN submissions s USING (payment_id)
         WHERE s.answered_at > c.received_at",
    ),
    ("race: carried on by another workflow", "SELECT count(*) FROM payments WHERE resume_count > 0"),
    (
        "race: the debit refused, the money recalled",
        "SELECT count(*) FROM payments WHERE final_status = 'returned'",
    ),
    (
        "race: a step refused under its key",
        // Some customers order more than they have.
        "SELECT count(*) FROM operations WHERE outcome = 'refused' AND reason <> 'insufficient_funds'",
    ),
    (
        "race: contradictory callbacks",
        "SELECT count(*) FROM (SELECT payment_id FROM switch_callbacks GROUP BY 1 HAVING count(DISTINCT status) > 1) c",
    ),
    (
        "race: a callback after the end",
        "SELECT count(*) FROM switch_callbacks JOIN payments USING (payment_id) WHERE received_at > ended_at",
    ),
];

/// How long before the record of a refused step its account may have been seen frozen: the transaction may have waited.
const REFUSED_WITHIN: Duration = Duration::from_secs(30);

impl Books {
    /// Compares everything. Every fault is healed, and the payments had the time to end.
    ///
    /// # Errors
    /// If a book cannot be read.
    pub(crate) async fn compare(
        seed: u64,
        bank: &Bank,
        customers: &Customers,
        accounts: usize,
    ) -> anyhow::Result<Self> {
        let pool = &bank.system.database.pool;
        let mut books = Self::default();
        books.compare_answers(pool, customers).await?;
        books.find_stuck(seed, pool, customers).await?;
        books.explain_refusals(pool, bank).await?;
        let opening = OPENING_MINOR * i64::try_from(accounts + 1)?;
        if let Err(error) = auditor::check_conservation(pool).await {
            books.violations.push(format!("{error:#}"));
        }
        if let Err(error) = auditor::check_total(pool, opening).await {
            books.violations.push(format!("{error:#}"));
        }
        let (audit, disagreements) = auditor::find_disagreements(pool, [&bank.system.switch]).await?;
        books.payments = audit.payments;
        books.violations.extend(disagreements);
        books.compare_with_the_switch(pool, bank).await?;
        let histories = match histories::compare(&bank.system).await {
            Ok(histories) => histories,
            Err(error) => {
                books.violations.push(format!("Temporal's histories cannot be read: {error:#}"));
                HistoryAudit::default()
            }
        };
        books.violations.extend(histories.disagreements);
        for (name, query) in REACHED {
            books.reached.insert(name, sqlx::query_scalar(query).fetch_one(pool).await?);
        }
        books.reconcile(pool, bank).await?;
        books.reached.insert("race: a step repeated by Temporal", histories.repeated_steps.try_into()?);
        books.compare_events(pool, bank).await?;
        customers.with_answers(|answers| -> anyhow::Result<()> {
            books
                .reached
                .insert("race: a request repeated after its answer was lost", answers.repeats.try_into()?);
            books
                .reached
                .insert("race: a request repeated while in progress", answers.in_progress.try_into()?);
            books.reached.insert("race: a request refused for now", answers.refused_for_now.try_into()?);
            Ok(())
        })?;
        Ok(books)
    }

    /// The service's own reconciliation, scheduled while everything failed and run once more now, finds each transfer that nobody ordered,
    /// once, and of the payments only those that wait for operators. The statement lists each transfer twice.
    async fn reconcile(&mut self, pool: &PgPool, bank: &Bank) -> anyhow::Result<()> {
        let output =
            bank.system.command("payctl").args(["reconcile", "--grace", "0s", "--json"]).output().await?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        for source in report["not_compared"].as_array().into_iter().flatten() {
            self.violations.push(format!("reconciliation did not compare {source}"));
        }
        ensure!(report["lines"].as_u64() > Some(0), "reconciliation read no statement line: {report}");
        let waiting: BTreeSet<String> =
            sqlx::query_scalar("SELECT payment_id FROM payments WHERE state = 'needs_operator'")
                .fetch_all(pool)
                .await?
                .into_iter()
                .collect();
        let is_waiting = |payment: Option<&str>| payment.is_some_and(|id| waiting.contains(id));
        for finding in report["findings"].as_array().into_iter().flatten() {
            let payment = finding["payment_id"].as_str();
            if payment.is_some() && !is_waiting(payment) {
                self.violations.push(format!("reconciliation found {finding}"));
            }
        }
        let transfers = bank.system.switch.transfers().await?.into_iter();
        let mut unordered: BTreeSet<String> = transfers
            .filter(|transfer| transfer.status == "SETTLED")
            .map(|transfer| transfer.reference)
            .filter(|reference| reference.starts_with(UNORDERED))
            .collect();
        self.reached.insert("exception: transfer without a payment", unordered.len().try_into()?);
        let kinds: Vec<&str> = Drift::ALL.iter().map(|drift| drift.as_str()).collect();
        let exceptions =
            sqlx::query("SELECT kind, payment_id, origin, detail FROM exceptions WHERE kind = ANY($1)")
                .bind(kinds)
                .fetch_all(pool)
                .await?;
        for row in exceptions {
            let (kind, origin, detail): (String, String, String) =
                (row.get("kind"), row.get("origin"), row.get("detail"));
            let is_expected = match kind.as_str() {
                "transfer_without_payment" => {
                    origin.split(':').nth(2).is_some_and(|reference| unordered.remove(reference))
                }
                "unmatched_callback" => detail.contains(UNORDERED),
                _ => is_waiting(row.get("payment_id")),
            };
            if !is_expected {
                self.violations.push(format!("reconciliation opened {kind} of {origin}: {detail}"));
            }
        }
        for reference in unordered {
            self.violations.push(format!("reconciliation did not find {reference}, which nobody ordered"));
        }
        Ok(())
    }

    /// Each accepted order is one payment of the bank, and the bank has no other.
    async fn compare_answers(&mut self, pool: &PgPool, customers: &Customers) -> anyhow::Result<()> {
        let stored: BTreeSet<String> = sqlx::query_scalar("SELECT payment_id FROM payments")
            .fetch_all(pool)
            .await?
            .into_iter()
            .collect();
        customers.with_answers(|answers| {
            for id in answers.accepted.values().filter(|id| !stored.contains(*id)) {
                self.lost.push(format!("{id} was accepted, and the bank does not have it"));
            }
            let accepted: BTreeSet<_> = answers.accepted.values().collect();
            if accepted.len() < answers.accepted.len() {
                self.doubled.push("one payment was the answer to two orders".to_owned());
            }
            for id in stored.iter().filter(|id| !accepted.contains(id)) {
                self.violations.push(format!("{id} is a payment that no customer has an answer for"));
            }
            if answers.unanswered > 0 {
                self.stuck.push(format!("{} orders have no answer", answers.unanswered));
            }
            let (doubled, wrong): (Vec<_>, Vec<_>) =
                answers.wrong.drain(..).partition(|wrong| wrong.contains("two payments"));
            self.doubled.extend(doubled);
            self.violations.extend(wrong);
        });
        let twice = sqlx::query(
            "SELECT payment_id, count(*) AS debits FROM journal WHERE kind IN ('debit', 'late_debit') GROUP BY 1 HAVING count(*) > 1",
        )
        .fetch_all(pool)
        .await?;
        for row in twice {
            let (id, debits): (String, i64) = (row.get("payment_id"), row.get("debits"));
            self.doubled.push(format!("{id} has {debits} debits"));
        }
        Ok(())
    }

    /// A payment waits for operators only where the account was frozen when the money had left and the switch refused the recall.
    async fn find_stuck(&mut self, seed: u64, pool: &PgPool, customers: &Customers) -> anyhow::Result<()> {
        let open = sqlx::query(
            "SELECT payment_id, state, operator_reason, amount_minor FROM payments WHERE ended_at IS NULL",
        )
        .fetch_all(pool)
        .await?;
        let orders: BTreeMap<String, u64> = customers.with_answers(|answers| {
            answers.accepted.iter().map(|(number, id)| (id.clone(), *number)).collect()
        });
        for row in open {
            let (id, state): (String, String) = (row.get("payment_id"), row.get("state"));
            let reason: Option<String> = row.get("operator_reason");
            let amount: Option<i64> = orders.get(&id).map(|number| order(seed, *number).amount_minor);
            let is_explained = state == "needs_operator"
                && reason.as_deref() == Some("recall_refused")
                && amount == Some(RECALL_REFUSED_MINOR);
            if !is_explained {
                let timeline = sqlx::query_scalar::<_, String>(
                    "SELECT to_char(happened_at, 'HH24:MI:SS.MS ') || state || ': ' || detail FROM timeline WHERE payment_id = $1 ORDER BY entry_id",
                )
                .bind(&id)
                .fetch_all(pool)
                .await?;
                self.stuck.push(format!(
                    "{id} of {amount:?} is {state} ({}):\n    {}",
                    reason.unwrap_or_default(),
                    timeline.join("\n    ")
                ));
            }
        }
        Ok(())
    }

    /// An account is taken for frozen only where a fault had frozen it, and no debit is refused for another reason. Where a debit was, the money
    /// is recalled, or operators wait: of no other payment.
    async fn explain_refusals(&mut self, pool: &PgPool, bank: &Bank) -> anyhow::Result<()> {
        let rows = sqlx::query(
            "SELECT p.payment_id, p.source_account, p.state = 'needs_operator' OR p.final_status = 'returned' AS is_recalled,
                    o.operation_key, o.reason, (extract(epoch FROM o.recorded_at) * 1000)::bigint AS refused_ms
             FROM payments p
             LEFT JOIN operations o ON o.payment_id = p.payment_id AND o.outcome = 'refused'
                 AND (o.reason = 'frozen_account' OR o.operation_key LIKE '%:debit')
             WHERE o.payment_id IS NOT NULL OR p.state = 'needs_operator' OR p.final_status = 'returned'",
        )
        .fetch_all(pool)
        .await?;
        for row in rows {
            let (id, account): (String, String) = (row.get("payment_id"), row.get("source_account"));
            let Some(refused_ms) = row.get::<Option<i64>, _>("refused_ms") else {
                self.violations.push(format!("{id} was recalled, and no step of it was refused"));
                continue;
            };
            let (key, reason): (String, String) = (row.get("operation_key"), row.get("reason"));
            let refused_at = SystemTime::UNIX_EPOCH + Duration::from_millis(refused_ms.try_into()?);
            let was_frozen = bank.freezes.iter().any(|freeze| {
                freeze.account == account
                    && freeze.from <= refused_at + REFUSED_WITHIN
                    && freeze.until.is_none_or(|until| refused_at <= until)
            });
            if !was_frozen {
                self.violations.push(format!("{key} was refused ({reason}), and {account} was not frozen"));
            }
            if key.ends_with(":debit") && !row.get::<bool, _>("is_recalled") {
                self.violations.push(format!("{key} was refused, and the money was not recalled"));
            }
        }
        Ok(())
    }

    /// What each account has less than at the beginning is what the switch says that it settled for it and did not return.
    async fn compare_with_the_switch(&mut self, pool: &PgPool, bank: &Bank) -> anyhow::Result<()> {
        let settled: BTreeMap<String, i64> = bank
            .system
            .switch
            .transfers()
            .await?
            .into_iter()
            .filter(|transfer| transfer.status == "SETTLED")
            .map(|transfer| (transfer.reference, transfer.amount_minor.unwrap_or(0)))
            .collect();
        let mut left: BTreeMap<String, i64> = BTreeMap::new();
        let payments = sqlx::query(
            "SELECT p.source_account, p.tx_id || ':submit' AS reference,
                    coalesce((SELECT h.status = 'open' FROM holds h WHERE h.payment_id = p.payment_id), false) AS is_held
             FROM payments p",
        )
        .fetch_all(pool)
        .await?;
        for row in payments {
            let (account, reference): (String, String) = (row.get("source_account"), row.get("reference"));
            // Operators decide about what is still held; the others were debited.
            if !row.get::<bool, _>("is_held") {
                *left.entry(account).or_default() += settled.get(&reference).copied().unwrap_or(0);
            }
        }
        let accounts = sqlx::query(
            "SELECT a.account_id, a.available_minor,
                    (SELECT coalesce(sum(h.amount_minor), 0)::bigint FROM holds h
                     WHERE h.account_id = a.account_id AND h.status = 'open') AS held
             FROM accounts a WHERE a.kind = 'customer'",
        )
        .fetch_all(pool)
        .await?;
        for row in accounts {
            let account: String = row.get("account_id");
            let charged = OPENING_MINOR - row.get::<i64, _>("available_minor") - row.get::<i64, _>("held");
            let left = left.remove(&account).unwrap_or(0);
            if charged != left {
                self.violations
                    .push(format!("{account} was charged {charged}, and {left} left at the switch"));
            }
        }
        Ok(())
    }

    /// Each event is in the stream, in the order of its payment, and each customer is notified of it once.
    async fn compare_events(&mut self, pool: &PgPool, bank: &Bank) -> anyhow::Result<()> {
        let context = async_nats::jetstream::new(async_nats::connect(bank.broker.url()).await?);
        let mut stream = context.get_stream("EVENTS").await?;
        let state = stream.info().await?.state.clone();
        let mut last: BTreeMap<String, i64> = BTreeMap::new();
        let mut published = BTreeSet::new();
        let mut published_again = 0;
        for position in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(position).await?;
            let event: outbox::Event = serde_json::from_slice(&message.payload)?;
            // Published again, because its confirmation was lost.
            if !published.insert((event.key.clone(), event.sequence)) {
                published_again += 1;
                continue;
            }
            let before = last.insert(event.key.clone(), event.sequence).unwrap_or(0);
            if event.sequence != before + 1 {
                self.violations
                    .push(format!("{}: event {} was published after {before}", event.key, event.sequence));
            }
        }
        self.reached.insert("race: an event published again", published_again);
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(pool).await?;
        if stored != i64::try_from(published.len())? {
            self.violations.push(format!("{stored} events are stored, {} published", published.len()));
        }
        let notified: i64 =
            sqlx::query_scalar("SELECT count(DISTINCT event_id) FROM notifications").fetch_one(pool).await?;
        let notifications: i64 =
            sqlx::query_scalar("SELECT count(*) FROM notifications").fetch_one(pool).await?;
        if notifications != notified {
            self.doubled.push(format!("{notifications} notifications of {notified} events"));
        }
        let ended_in_silence: Vec<String> = sqlx::query_scalar(
            "SELECT p.payment_id FROM payments p WHERE ended_at IS NOT NULL
             AND (SELECT count(*) FROM notifications n WHERE n.payment_id = p.payment_id)
               < (SELECT count(*) FROM outbox o WHERE o.subject_key = p.payment_id)",
        )
        .fetch_all(pool)
        .await?;
        self.lost
            .extend(ended_in_silence.into_iter().map(|id| format!("{id} has events without a notification")));
        let without_their_event: Vec<String> = sqlx::query_scalar(
            "SELECT p.payment_id FROM payments p
             WHERE (ended_at IS NOT NULL OR state = 'needs_operator')
               AND (SELECT count(*) FROM outbox o WHERE o.subject_key = p.payment_id AND o.kind = 'transfer_' ||
                        CASE p.state WHEN 'settled' THEN 'sent' ELSE p.state END) <> 1",
        )
        .fetch_all(pool)
        .await?;
        self.lost.extend(
            without_their_event.into_iter().map(|id| format!("{id} has no event of its end, or several")),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use payment_protocol::state::FinalState;

    #[test]
    fn a_long_run_must_reach_every_end() {
        let ends = REACHED.iter().filter_map(|(name, _)| name.strip_prefix("end: ")).collect::<BTreeSet<_>>();
        assert_eq!(ends, FinalState::ALL.iter().map(|end| end.as_str()).collect());
    }
}

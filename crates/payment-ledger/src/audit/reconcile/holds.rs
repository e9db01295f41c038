//! The hold audit: open holds by state and deciding party, and inconsistent holds. Uses the rules of
//! [`super::drift`] with the ledger alone: it needs neither Temporal nor a switch.

use payment_protocol::PaymentState;
use payment_protocol::ids::PaymentId;
use payment_protocol::text_enum;

use super::findings::{Finding, FindingOutcome};
use super::payments::{PaymentComparison, Sources};
use crate::amount_text::amount;
use crate::stored_id::read_id;
use crate::{Ledger, LedgerError};
use payment_protocol::drift::{Drift, Tolerance};

/// Payments compared per batch.
const BATCH: i64 = 1_000;

/// Whether no further batch is read: under load, payments would be added behind the last one without end.
pub(super) fn is_last<T>(batch: &[T]) -> bool {
    i64::try_from(batch.len()).unwrap_or(i64::MAX) < BATCH
}

text_enum!(
    /// The party whose answer a hold depends on.
    DecidedBy {
        /// The bank: nothing was sent, so the hold can be released at once.
        Bank = "bank",
        /// The switch: an attempt is recorded, and its answer decides.
        Switch = "switch",
    }
);

/// Open holds of the payments in one state and currency. A debited amount is on the escrow account, not held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldInState {
    /// The state. Every state is listed, also without holds; final states must have none.
    pub state: PaymentState,
    /// ISO 4217 code. Every currency with internal accounts is listed.
    pub currency: String,
    /// The deciding party.
    pub decided_by: DecidedBy,
    /// Number of holds.
    pub count: i64,
    /// Sum of the holds, in minor units.
    pub amount_minor: i64,
    /// Age of the oldest hold, in seconds.
    pub oldest_s: i64,
}

/// The balance of an internal account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalBalance {
    /// `holding`, `escrow`, `funding`, `claims` or `losses`.
    pub name: String,
    /// ISO 4217 code.
    pub currency: String,
    /// In minor units; exact, since unsealed entries are included.
    pub balance_minor: i64,
}

/// Report of a hold audit.
#[derive(Debug, Default)]
pub struct HoldAuditReport {
    /// Payments audited: open ones, and ended ones with an open hold.
    pub payments: usize,
    /// Findings with their exceptions.
    pub findings: Vec<(Finding, FindingOutcome)>,
    /// Why the first payment that could not be read was left out, for example because a later release wrote its row; `None`: each was
    /// compared.
    pub unreadable: Option<LedgerError>,
}

/// An open payment, as ordered by the index `payments_open`.
pub(super) struct OpenPayment {
    tenant_id: String,
    state: String,
    accepted_at: jiff_sqlx::Timestamp,
    pub(super) payment_id: String,
}

/// An open hold, as ordered by the index `holds_open`.
struct OpenHold {
    account_id: String,
    payment_id: String,
    /// Whether its payment has ended.
    has_ended: bool,
}

impl Ledger {
    /// Open holds by state, currency and deciding party.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn held_by_state(&self) -> Result<Vec<HeldInState>, LedgerError> {
        // One statement, one snapshot.
        let rows = sqlx::query!(
            r#"SELECT currency AS "currency!", h.state, h.is_sent, coalesce(h.count, 0) AS "count!",
                      coalesce(h.amount_minor, 0) AS "amount_minor!", coalesce(h.oldest_s, 0) AS "oldest_s!"
               FROM (SELECT DISTINCT currency FROM accounts WHERE kind = 'internal') AS used
               LEFT JOIN (SELECT h.currency, p.state, p.attempts > 0 AS is_sent, count(*) AS count,
                                 sum(h.amount_minor)::bigint AS amount_minor,
                                 extract(epoch FROM clock_timestamp() - min(h.opened_at))::bigint AS oldest_s
                          FROM holds h JOIN payments p USING (payment_id)
                          WHERE h.status = 'open' GROUP BY 1, 2, 3) AS h USING (currency)
               ORDER BY currency"#
        )
        .fetch_all(&self.pool)
        .await?;
        let mut currencies: Vec<&str> = rows.iter().map(|row| row.currency.as_str()).collect();
        currencies.dedup();
        let of = |state: PaymentState, currency: &str, decided_by: DecidedBy| {
            let row = rows.iter().find(|row| {
                row.currency == currency
                    && row.state.as_deref() == Some(state.as_str())
                    && row.is_sent == Some(decided_by == DecidedBy::Switch)
            });
            HeldInState {
                state,
                currency: currency.to_owned(),
                decided_by,
                count: row.map_or(0, |row| row.count),
                amount_minor: row.map_or(0, |row| row.amount_minor),
                oldest_s: row.map_or(0, |row| row.oldest_s),
            }
        };
        Ok(currencies
            .iter()
            .flat_map(|currency| PaymentState::ALL.iter().map(move |state| (currency, state)))
            .flat_map(|(currency, state)| DecidedBy::ALL.iter().map(move |by| (currency, state, by)))
            .map(|(currency, state, by)| of(*state, currency, *by))
            .collect())
    }

    /// Balances of all internal accounts.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn internal_balances(&self) -> Result<Vec<InternalBalance>, LedgerError> {
        Ok(sqlx::query_as!(
            InternalBalance,
            r#"SELECT split_part(a.account_id, ':', 2) AS "name!", a.currency,
                      (coalesce(b.balance_minor, 0) + coalesce(w.minor, 0))::bigint AS "balance_minor!"
               FROM accounts a
               LEFT JOIN sealed_balances b USING (account_id)
               LEFT JOIN (SELECT m.account_id, sum(m.minor) AS minor
                          FROM journal_unsealed u CROSS JOIN LATERAL (SELECT * FROM journal WHERE entry_id = u.entry_id LIMIT 1) j
                          CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
                              AS m (account_id, minor)
                          GROUP BY m.account_id) AS w USING (account_id)
               WHERE a.kind = 'internal' ORDER BY a.account_id"#
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Compares every open payment and every payment with an open hold with its hold, and the holding accounts with the sum of
    /// the open holds. Each finding opens an exception, once: a reconciliation run finds the same one open.
    ///
    /// The payments are read in the order of two indexes, so the audit's cost is proportional to their number. A payment that
    /// changes its state meanwhile may be passed over or compared twice; the next audit compares it again. One that cannot be read is left
    /// out and hides no other.
    ///
    /// # Errors
    /// [`LedgerError`]; exceptions opened before the error stay open.
    pub async fn audit_holds(&self, tolerance: Tolerance) -> Result<HoldAuditReport, LedgerError> {
        let mut audited = HoldAuditReport::default();
        let mut after = None;
        loop {
            let open = self.open_payments(after.as_ref()).await?;
            let ids = open.iter().map(|row| read_id(&row.payment_id)).collect::<Result<Vec<_>, _>>()?;
            self.audit_into(&ids, tolerance, &mut audited).await?;
            if is_last(&open) {
                break;
            }
            after = open.into_iter().next_back();
        }
        let mut after = None;
        loop {
            let holds = self.open_holds(after.as_ref()).await?;
            let ended = holds.iter().filter(|row| row.has_ended).map(|row| read_id(&row.payment_id));
            let ids = ended.collect::<Result<Vec<_>, _>>()?;
            self.audit_into(&ids, tolerance, &mut audited).await?;
            if is_last(&holds) {
                break;
            }
            after = holds.into_iter().next_back();
        }
        self.open_findings_into(self.find_holding_differences().await?, &mut audited).await?;
        Ok(audited)
    }

    async fn audit_into(
        &self,
        ids: &[PaymentId],
        tolerance: Tolerance,
        audited: &mut HoldAuditReport,
    ) -> Result<(), LedgerError> {
        if ids.is_empty() {
            return Ok(());
        }
        audited.payments += ids.len();
        let compared = match self.compare(&Sources::default(), ids).await {
            Err(error) if !matches!(error, LedgerError::Unavailable(_)) => {
                self.compare_each(ids, audited).await?
            }
            compared => compared?,
        };
        let findings = compared.iter().flat_map(|one| one.findings(tolerance)).collect();
        self.open_findings_into(findings, audited).await
    }

    /// Compares one payment at a time, and leaves out those that cannot be read.
    async fn compare_each(
        &self,
        ids: &[PaymentId],
        audited: &mut HoldAuditReport,
    ) -> Result<Vec<PaymentComparison>, LedgerError> {
        let mut compared = Vec::with_capacity(ids.len());
        for id in ids {
            match self.compare(&Sources::default(), std::slice::from_ref(id)).await {
                Ok(one) => compared.extend(one),
                Err(error @ LedgerError::Unavailable(_)) => return Err(error),
                Err(error) => drop(audited.unreadable.get_or_insert(error)),
            }
        }
        Ok(compared)
    }

    /// The next open payments, in the order of the index `payments_open`.
    pub(super) async fn open_payments(
        &self,
        after: Option<&OpenPayment>,
    ) -> Result<Vec<OpenPayment>, LedgerError> {
        Ok(sqlx::query_as!(
            OpenPayment,
            "SELECT tenant_id, state, accepted_at, payment_id FROM payments
             WHERE ended_at IS NULL AND (tenant_id, state, accepted_at, payment_id)
                                        > ($1, $2, coalesce($3, '-infinity'::timestamptz), $4)
             ORDER BY tenant_id, state, accepted_at, payment_id LIMIT $5",
            after.map_or("", |row| &row.tenant_id),
            after.map_or("", |row| &row.state),
            after.map(|row| row.accepted_at) as Option<jiff_sqlx::Timestamp>,
            after.map_or("", |row| &row.payment_id),
            BATCH,
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// The next open holds, in the order of the index `holds_open`.
    async fn open_holds(&self, after: Option<&OpenHold>) -> Result<Vec<OpenHold>, LedgerError> {
        Ok(sqlx::query_as!(
            OpenHold,
            r#"SELECT h.account_id, h.payment_id,
                      (SELECT p.ended_at IS NOT NULL FROM payments p WHERE p.payment_id = h.payment_id) AS "has_ended!"
               FROM holds h
               WHERE h.status = 'open' AND (h.account_id, h.payment_id) > ($1, $2)
               ORDER BY h.account_id, h.payment_id LIMIT $3"#,
            after.map_or("", |row| &row.account_id),
            after.map_or("", |row| &row.payment_id),
            BATCH,
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Holding accounts that differ from the sum of the open holds. The verification reports the same origin, so both open one
    /// exception.
    async fn find_holding_differences(&self) -> Result<Vec<Finding>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT account_id, held.minor - open.minor AS "excess!"
               FROM accounts a
               CROSS JOIN LATERAL (
                   SELECT (coalesce((SELECT balance_minor FROM sealed_balances b WHERE b.account_id = a.account_id), 0)
                           + coalesce((SELECT sum(CASE WHEN j.credit_account = a.account_id THEN j.amount_minor
                                                       ELSE -j.amount_minor END)
                                       FROM journal_unsealed u CROSS JOIN LATERAL (SELECT * FROM journal WHERE entry_id = u.entry_id LIMIT 1) j
                                       WHERE a.account_id IN (j.credit_account, j.debit_account)), 0))::bigint AS minor) AS held
               CROSS JOIN LATERAL (
                   SELECT coalesce(sum(amount_minor), 0)::bigint AS minor
                   FROM holds h WHERE h.status = 'open' AND h.currency = a.currency) AS open
               WHERE a.kind = 'internal' AND a.account_id = 'internal:holding:' || a.currency
                 AND held.minor <> open.minor"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| {
                Finding::without_payment(
                    Drift::JournalHashMismatch,
                    format!("holding_differs:{}", row.account_id),
                    format!(
                        "holding_differs of {}: its balance exceeds the open holds by {}",
                        row.account_id,
                        amount(row.excess, row.account_id.rsplit(':').next().unwrap_or_default())
                    ),
                )
            })
            .collect())
    }

    async fn open_findings_into(
        &self,
        findings: Vec<Finding>,
        audited: &mut HoldAuditReport,
    ) -> Result<(), LedgerError> {
        let outcomes = self.open_findings(&findings).await?;
        audited.findings.extend(findings.into_iter().zip(outcomes));
        Ok(())
    }
}

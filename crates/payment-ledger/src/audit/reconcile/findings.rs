//! Findings of an audit or a reconciliation run: each opens an exception, once.

use payment_protocol::action::OperatorAction;
use payment_protocol::drift::Drift;
use payment_protocol::ids::PaymentId;
use postgres_kit::text::replace_nul;

use crate::{Ledger, LedgerError};

/// One instance of drift.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub drift: Drift,
    /// The payment; `None` if it has none.
    pub payment_id: Option<PaymentId>,
    /// Deduplicates: the same finding has the same origin in the next run.
    pub origin: String,
    /// The evidence in words.
    pub detail: String,
    /// Operator actions that may resolve it and are accepted now.
    pub allowed: Vec<OperatorAction>,
}

impl Finding {
    /// A finding that belongs to no payment of the ledger.
    #[must_use]
    pub fn without_payment(drift: Drift, origin: String, detail: String) -> Self {
        Self { drift, payment_id: None, origin, detail, allowed: drift.allowed().to_vec() }
    }
}

/// Outcome of reporting a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingOutcome {
    /// An exception was opened now.
    Opened(i64),
    /// Its exception is open, from an earlier run or from the switch's report.
    AlreadyOpen(i64),
    /// An operator closed it, and it is unchanged: it is not opened again. A changed detail opens a new one.
    AlreadyClosed(i64),
}

impl Ledger {
    /// Opens an exception for each finding without one; one outcome each, in their order. Of several findings of one kind and origin
    /// the first opens it: a statement may list a transfer twice. A contradiction that is already open from the switch's report is not
    /// opened again under its kind of drift.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_findings(&self, findings: &[Finding]) -> Result<Vec<FindingOutcome>, LedgerError> {
        if findings.is_empty() {
            return Ok(Vec::new());
        }
        let payments: Vec<Option<&str>> =
            findings.iter().map(|finding| finding.payment_id.as_ref().map(PaymentId::as_str)).collect();
        let kinds: Vec<&str> = findings.iter().map(|finding| finding.drift.as_str()).collect();
        let origins: Vec<String> =
            findings.iter().map(|finding| replace_nul(&finding.origin).into_owned()).collect();
        let details: Vec<String> =
            findings.iter().map(|finding| replace_nul(&finding.detail).into_owned()).collect();
        let mut tx = self.pool.begin().await?;
        // Concurrent runs would each find no exception and open one.
        sqlx::query!("SELECT pg_advisory_xact_lock(hashtext('payment-ledger findings'))")
            .execute(&mut *tx)
            .await?;
        let rows = sqlx::query!(
            r#"WITH found AS (
                   SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
                       AS found (payment_id, kind, origin, detail, ordinal)),
               known AS (
                   SELECT f.ordinal, e.exception_id, e.closed_at IS NOT NULL AS is_closed
                   FROM found f CROSS JOIN LATERAL (
                       SELECT exception_id, closed_at FROM (
                           SELECT exception_id, closed_at FROM exceptions
                           WHERE kind = f.kind AND origin = f.origin AND (closed_at IS NULL OR detail = f.detail)
                           UNION ALL
                           SELECT e.exception_id, e.closed_at FROM exceptions e
                           JOIN (VALUES ('released_but_settled', 'late_confirmation'), ('released_but_settled', 'contradictory_final_status'),
                                        ('settled_not_debited', 'late_confirmation'), ('settled_not_debited', 'contradictory_final_status'),
                                        ('amount_mismatch', 'confirmation_mismatch')) AS same (drift, kind) ON same.kind = e.kind
                           WHERE same.drift = f.kind AND e.payment_id = f.payment_id AND e.closed_at IS NULL
                           UNION ALL
                           SELECT exception_id, closed_at FROM exceptions
                           WHERE f.kind = 'unmatched_callback' AND kind = 'callback_for_unknown_payment' AND origin = f.origin) AS any_of
                       ORDER BY closed_at IS NOT NULL, exception_id LIMIT 1) AS e),
               opened AS (
                   INSERT INTO exceptions (payment_id, kind, origin, detail)
                   SELECT DISTINCT ON (kind, origin) payment_id, kind, origin, detail
                   FROM found WHERE ordinal NOT IN (SELECT ordinal FROM known)
                   ORDER BY kind, origin, ordinal
                   RETURNING exception_id, kind, origin)
               SELECT coalesce(k.exception_id, o.exception_id) AS "exception_id!",
                      CASE WHEN k.ordinal IS NOT NULL THEN k.is_closed
                           WHEN row_number() OVER (PARTITION BY f.kind, f.origin, k.ordinal IS NULL ORDER BY f.ordinal) > 1
                           THEN false END AS is_closed
               FROM found f LEFT JOIN known k USING (ordinal)
               LEFT JOIN opened o ON o.kind = f.kind AND o.origin = f.origin
               ORDER BY f.ordinal"#,
            &payments as &[Option<&str>],
            &kinds as &[&str],
            &origins,
            &details,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows
            .into_iter()
            .map(|row| match row.is_closed {
                None => FindingOutcome::Opened(row.exception_id),
                Some(false) => FindingOutcome::AlreadyOpen(row.exception_id),
                Some(true) => FindingOutcome::AlreadyClosed(row.exception_id),
            })
            .collect())
    }
}

//! What becomes of what a sweep found: an exception, once.

use payment_protocol::ids::PaymentId;

use super::drift::Drift;
use crate::{Ledger, LedgerError, writes};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub drift: Drift,
    /// With which payment; none where it belongs to none.
    pub payment_id: Option<PaymentId>,
    /// What makes it the same finding in the next sweep.
    pub origin: String,
    /// What the books say, for people.
    pub detail: String,
}

/// The exception of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Opened now.
    Opened(i64),
    /// Opened before, by a sweep or when the word came in.
    Open(i64),
    /// A person has closed it as it is now: it is not opened again. Where something else is wrong since, it is.
    Closed(i64),
}

impl Ledger {
    /// Opens an exception for each finding that has none; what is known of each, in their order. A matter that was met
    /// when the switch's word came in is not opened a second time under a sweep's name.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_findings(&self, findings: &[Finding]) -> Result<Vec<Known>, LedgerError> {
        if findings.is_empty() {
            return Ok(Vec::new());
        }
        let payments: Vec<Option<&str>> =
            findings.iter().map(|finding| finding.payment_id.as_ref().map(PaymentId::as_str)).collect();
        let kinds: Vec<&str> = findings.iter().map(|finding| finding.drift.as_str()).collect();
        let origins: Vec<String> =
            findings.iter().map(|finding| writes::storable(&finding.origin).into_owned()).collect();
        let details: Vec<String> =
            findings.iter().map(|finding| writes::storable(&finding.detail).into_owned()).collect();
        let mut tx = self.pool.begin().await?;
        // Two sweeps at once would each find no exception.
        sqlx::query!("SELECT pg_advisory_xact_lock(hashtext('payment-ledger findings'))")
            .execute(&mut *tx)
            .await?;
        let rows = sqlx::query!(
            r#"WITH found AS (
                   SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
                       AS found (payment_id, kind, origin, detail, place)),
               known AS (
                   SELECT f.place, e.exception_id, e.closed_at IS NOT NULL AS is_closed
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
                   SELECT payment_id, kind, origin, detail FROM found WHERE place NOT IN (SELECT place FROM known)
                   RETURNING exception_id, kind, origin)
               SELECT coalesce(k.exception_id, o.exception_id) AS "exception_id!", k.is_closed
               FROM found f LEFT JOIN known k USING (place)
               LEFT JOIN opened o ON o.kind = f.kind AND o.origin = f.origin
               ORDER BY f.place"#,
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
                None => Known::Opened(row.exception_id),
                Some(false) => Known::Open(row.exception_id),
                Some(true) => Known::Closed(row.exception_id),
            })
            .collect())
    }
}

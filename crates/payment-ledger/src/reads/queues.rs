//! Lists for operators, across tenants: payments, stuck payments, and exceptions.

use jiff::Timestamp;
use payment_protocol::PaymentState;
use payment_protocol::ids::{DecisionId, PaymentId, SwitchName};

use crate::operator::decisions::DecisionView;
use crate::reads::view::{PaymentView, plan_by_values, view};
use crate::{Ledger, LedgerError};

/// A filter for the payments of all tenants. Newest first.
#[derive(Clone, Debug, Default)]
pub struct OperatorPaymentFilter {
    /// Only payments in this state.
    pub state: Option<PaymentState>,
    /// Only payments accepted at least this many seconds ago.
    pub older_than_s: Option<i64>,
    /// Only payments of this switch.
    pub switch: Option<SwitchName>,
    /// Only payments after this one in the list (the last one of the previous page).
    pub after: Option<PaymentId>,
    /// Upper bound of payments on the page.
    pub limit: i64,
}

/// A stuck payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckPayment {
    /// The payment, with its operator reason and allowed actions.
    pub payment: PaymentView,
    /// Its tenant.
    pub tenant_id: String,
    /// How long it has needed an operator, been cancelling or not been updated, in seconds.
    pub age_s: i64,
    /// The open decision, which awaits confirmation or is being applied.
    pub pending: Option<DecisionView>,
}

/// An exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptionView {
    /// Its number.
    pub exception_id: i64,
    /// The payment; `None` if the exception has no payment.
    pub payment_id: Option<String>,
    /// Its kind.
    pub kind: String,
    /// The contradiction, in words.
    pub detail: String,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When a decision closed it.
    pub closed_at: Option<Timestamp>,
    /// The decision that closed it.
    pub closed_by: Option<String>,
}

/// Columns of an exception.
pub(crate) struct ExceptionRow {
    pub(crate) exception_id: i64,
    pub(crate) payment_id: Option<String>,
    pub(crate) kind: String,
    pub(crate) detail: String,
    pub(crate) opened_at: jiff_sqlx::Timestamp,
    pub(crate) closed_at: Option<jiff_sqlx::Timestamp>,
    pub(crate) closed_by: Option<String>,
}

impl From<ExceptionRow> for ExceptionView {
    fn from(row: ExceptionRow) -> Self {
        Self {
            exception_id: row.exception_id,
            payment_id: row.payment_id,
            kind: row.kind,
            detail: row.detail,
            opened_at: row.opened_at.to_jiff(),
            closed_at: row.closed_at.map(|at| at.to_jiff()),
            closed_by: row.closed_by,
        }
    }
}

impl Ledger {
    /// Payments of all tenants, newest first. Reads the newest payments of each tenant, by the tenants' own indexes.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn list(&self, filter: &OperatorPaymentFilter) -> Result<Vec<PaymentView>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        plan_by_values(&mut tx).await?;
        let rows = sqlx::query!(
            r#"WITH RECURSIVE tenants AS (
                   (SELECT tenant_id FROM payments ORDER BY tenant_id LIMIT 1)
                   UNION ALL
                   SELECT (SELECT n.tenant_id FROM payments n WHERE n.tenant_id > t.tenant_id ORDER BY n.tenant_id LIMIT 1)
                   FROM tenants t WHERE t.tenant_id IS NOT NULL),
               page AS MATERIALIZED (
                   SELECT newest.payment_id
                   FROM tenants t
                   CROSS JOIN LATERAL (
                       SELECT p.accepted_at, p.payment_id FROM payments p
                       WHERE p.tenant_id = t.tenant_id
                         AND ($1::text IS NULL OR p.state = $1)
                         -- Follows from the state; names the condition of the index payments_open.
                         AND ($6::boolean IS NULL OR (p.ended_at IS NULL) = $6)
                         AND ($2::bigint IS NULL OR p.accepted_at <= now() - $2 * interval '1 second')
                         AND ($3::text IS NULL OR p.switch = $3)
                         AND ($4::text IS NULL OR (p.accepted_at, p.payment_id) <
                              (SELECT a.accepted_at, a.payment_id FROM payments a WHERE a.payment_id = $4))
                       ORDER BY p.accepted_at DESC, p.payment_id DESC
                       LIMIT $5) AS newest
                   ORDER BY newest.accepted_at DESC, newest.payment_id DESC
                   LIMIT $5)
               SELECT p.payment_id, p.tx_id, p.state, p.amount_minor, p.currency, p.source_account, p.destination_account,
                      p.end_to_end_id, p.switch, p.cause, p.operator_reason, p.workflow_id, p.accepted_at, p.updated_at,
                      p.ended_at, p.needs_operator_since, o.reason AS "refusal?"
               FROM page JOIN payments p USING (payment_id)
               LEFT JOIN operations o ON o.operation_key = p.payment_id || ':reserve' AND o.outcome = 'refused'
               ORDER BY p.accepted_at DESC, p.payment_id DESC"#,
            filter.state.map(PaymentState::as_str),
            filter.older_than_s,
            filter.switch.as_ref().map(SwitchName::as_str),
            filter.after.as_ref().map(PaymentId::as_str),
            filter.limit,
            filter.state.map(|state| state.end().is_none()),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.into_iter().map(|row| Ok(view!(row))).collect()
    }

    /// At most `limit` open payments of all tenants that have needed an operator, been cancelling or not been updated for
    /// `older_than_s`, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn stuck(&self, older_than_s: i64, limit: i64) -> Result<Vec<StuckPayment>, LedgerError> {
        let rows = sqlx::query!(
            r#"WITH stuck AS (
                   SELECT payment_id, tenant_id, CASE state WHEN 'needs_operator' THEN coalesce(needs_operator_since, updated_at)
                                                            WHEN 'cancelling' THEN coalesce(cancelling_since, updated_at)
                                                            ELSE updated_at END AS since
                   FROM payments WHERE ended_at IS NULL)
               SELECT p.payment_id, p.tx_id, p.state, p.amount_minor, p.currency, p.source_account, p.destination_account,
                      p.end_to_end_id, p.switch, p.cause, p.operator_reason, p.workflow_id, p.accepted_at, p.updated_at,
                      p.ended_at, p.needs_operator_since, o.reason AS "refusal?", s.tenant_id,
                      extract(epoch FROM clock_timestamp() - s.since)::bigint AS "age_s!",
                      (SELECT d.decision_id FROM decisions d
                       WHERE d.payment_id = p.payment_id AND d.status IN ('proposed', 'confirmed')) AS pending
               FROM stuck s JOIN payments p USING (payment_id)
               LEFT JOIN operations o ON o.operation_key = p.payment_id || ':reserve' AND o.outcome = 'refused'
               WHERE s.since <= clock_timestamp() - $1 * interval '1 second'
               ORDER BY s.since, p.payment_id
               LIMIT $2"#,
            older_than_s as f64,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut stuck = Vec::with_capacity(rows.len());
        for row in rows {
            let pending = match row.pending.as_deref().map(DecisionId::new) {
                Some(Ok(decision_id)) => self.decision(&decision_id).await?,
                _ => None,
            };
            let (tenant_id, age_s) = (row.tenant_id.clone(), row.age_s);
            stuck.push(StuckPayment { payment: view!(row), tenant_id, age_s, pending });
        }
        Ok(stuck)
    }

    /// At most `limit` exceptions, oldest first: the open ones or all, of one payment or of all.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn exceptions(
        &self,
        open_only: bool,
        payment_id: Option<&PaymentId>,
        limit: i64,
    ) -> Result<Vec<ExceptionView>, LedgerError> {
        let rows = sqlx::query_as!(
            ExceptionRow,
            "SELECT exception_id, payment_id, kind, detail, opened_at, closed_at, closed_by
             FROM exceptions
             WHERE (NOT $1 OR closed_at IS NULL) AND ($2::text IS NULL OR payment_id = $2)
             ORDER BY exception_id LIMIT $3",
            open_only,
            payment_id.map(PaymentId::as_str),
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(ExceptionView::from).collect())
    }
}

//! Lists for operators, across tenants: payments, stuck payments, and exceptions.

use jiff::Timestamp;
use payment_protocol::PaymentState;
use payment_protocol::ids::{DecisionId, PaymentId, SwitchName};
use postgres_kit::Connection;

use crate::operator::decisions::DecisionView;
use crate::reads::view::{PaymentView, plan_by_values, view};
use crate::stored_id::read_id;
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

/// Payments among which the payments of a switch are searched for one page, in all tenants together.
const SEARCHED_MAX: i64 = 100_000;

/// A page of the payments of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorPaymentPage {
    /// The payments, newest first; at most [`OperatorPaymentFilter::limit`].
    pub payments: Vec<PaymentView>,
    /// The payment after which the next page begins; `None` after the last page. A page that is not full has one as well if
    /// the search of a switch ended at its bound.
    pub next: Option<PaymentId>,
}

/// A filter for the exceptions of all tenants. Oldest first.
#[derive(Clone, Debug, Default)]
pub struct ExceptionFilter {
    /// Closed ones, too.
    pub with_closed: bool,
    /// Only those of this payment.
    pub payment_id: Option<PaymentId>,
    /// Only those of this kind ([`payment_protocol::exception::ExceptionKind`] or [`payment_protocol::drift::Drift`]).
    pub kind: Option<String>,
    /// Upper bound of exceptions.
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
    /// The newest decision about it that awaits another operator's confirmation.
    pub proposed: Option<String>,
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
    pub(crate) proposed: Option<String>,
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
            proposed: row.proposed,
        }
    }
}

impl Ledger {
    /// The switches of the open payments. It reads each open payment: for the start of a process.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn switches_of_open_payments(&self) -> Result<Vec<SwitchName>, LedgerError> {
        let names = sqlx::query_scalar!("SELECT DISTINCT switch FROM payments WHERE ended_at IS NULL");
        let names = names.fetch_all(&self.pool).await?;
        let parsed = names.into_iter().map(|name| {
            SwitchName::new(name.clone()).map_err(|_| LedgerError::Unreadable {
                id: name.clone(),
                column: "switch",
                value: name,
            })
        });
        parsed.collect()
    }

    /// Payments of all tenants, newest first. Reads the newest payments of each tenant, by the tenants' own indexes. No index
    /// has the switch, which would cost every payment a write at each of its updates: the payments of a switch are searched
    /// among all, at most 100,000 of them for one page.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn list(&self, filter: &OperatorPaymentFilter) -> Result<OperatorPaymentPage, LedgerError> {
        let mut tx = self.pool.begin().await?;
        plan_by_values(&mut tx).await?;
        let tenants = tenants(&mut tx).await?;
        let share = SEARCHED_MAX / i64::try_from(tenants.len()).unwrap_or(i64::MAX).max(1);
        let searched = if filter.switch.is_some() { filter.limit.max(share) } else { filter.limit };
        // `cut` is where the search of some tenant ended first: beyond it, payments of that tenant may be missing. It is the last
        // row, whether or not it is of the switch.
        let rows = sqlx::query!(
            r#"WITH searched AS MATERIALIZED (
                   SELECT newest.*
                   FROM unnest($8::text[]) AS t (tenant_id)
                   CROSS JOIN LATERAL (
                       SELECT p.accepted_at, p.payment_id, p.switch,
                              row_number() OVER (ORDER BY p.accepted_at DESC, p.payment_id DESC) AS place
                       FROM payments p
                       WHERE p.tenant_id = t.tenant_id
                         AND ($1::text IS NULL OR p.state = $1)
                         -- Follows from the state; names the condition of the index payments_open.
                         AND ($5::boolean IS NULL OR (p.ended_at IS NULL) = $5)
                         AND ($2::bigint IS NULL OR p.accepted_at <= now() - $2 * interval '1 second')
                         AND ($3::text IS NULL OR (p.accepted_at, p.payment_id) <
                              (SELECT a.accepted_at, a.payment_id FROM payments a WHERE a.payment_id = $3))
                       ORDER BY p.accepted_at DESC, p.payment_id DESC
                       LIMIT $7) AS newest),
               cut AS (
                   SELECT s.accepted_at, s.payment_id FROM searched s WHERE s.place = $7
                   ORDER BY s.accepted_at DESC, s.payment_id DESC LIMIT 1),
               page AS MATERIALIZED (
                   SELECT s.payment_id, s.payment_id = c.payment_id AS is_cut
                   FROM searched s LEFT JOIN cut c ON true
                   WHERE ($6::text IS NULL OR s.switch = $6 OR s.payment_id = c.payment_id)
                     AND (c.payment_id IS NULL OR (s.accepted_at, s.payment_id) >= (c.accepted_at, c.payment_id))
                   ORDER BY s.accepted_at DESC, s.payment_id DESC
                   LIMIT $4)
               SELECT p.payment_id, p.tx_id, p.state, p.amount_minor, p.currency, p.source_account, p.destination_account,
                      p.end_to_end_id, p.switch, p.cause, p.operator_reason, p.workflow_id, p.accepted_at, p.updated_at,
                      p.ended_at, p.restored_at, p.returned_minor, p.needs_operator_since, (SELECT o.reason FROM operations o
                       WHERE o.operation_key = p.payment_id || ':reserve' AND o.outcome = 'refused') AS "refusal?", coalesce(is_cut, false) AS "is_cut!"
               FROM page JOIN payments p USING (payment_id)
               ORDER BY p.accepted_at DESC, p.payment_id DESC"#,
            filter.state.map(PaymentState::as_str),
            filter.older_than_s,
            filter.after.as_ref().map(PaymentId::as_str),
            filter.limit,
            filter.state.map(|state| state.end().is_none()),
            filter.switch.as_ref().map(SwitchName::as_str),
            searched,
            &tenants,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let is_full = i64::try_from(rows.len()).is_ok_and(|count| count >= filter.limit);
        let last = rows.last().filter(|row| is_full || row.is_cut);
        let next = last.map(|row| read_id(&row.payment_id)).transpose()?;
        let is_wanted = |switch: &str| filter.switch.as_ref().is_none_or(|wanted| wanted.as_str() == switch);
        let wanted = rows.into_iter().filter(|row| is_wanted(&row.switch));
        let payments = wanted.map(|row| Ok(view!(row))).collect::<Result<_, LedgerError>>()?;
        Ok(OperatorPaymentPage { payments, next })
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
                      p.ended_at, p.restored_at, p.returned_minor, p.needs_operator_since, (SELECT o.reason FROM operations o
                       WHERE o.operation_key = p.payment_id || ':reserve' AND o.outcome = 'refused') AS "refusal?", s.tenant_id,
                      extract(epoch FROM clock_timestamp() - s.since)::bigint AS "age_s!",
                      (SELECT d.decision_id FROM decisions d
                       WHERE d.payment_id = p.payment_id AND d.status IN ('proposed', 'confirmed')) AS pending
               FROM stuck s JOIN payments p USING (payment_id)
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

    /// Exceptions, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn exceptions(&self, filter: &ExceptionFilter) -> Result<Vec<ExceptionView>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        plan_by_values(&mut tx).await?;
        let rows = sqlx::query_as!(
            ExceptionRow,
            "SELECT exception_id, payment_id, kind, detail, opened_at, closed_at, closed_by,
                    (SELECT d.decision_id FROM decisions d WHERE d.exception_id = e.exception_id AND d.status = 'proposed'
                     ORDER BY d.proposed_at DESC LIMIT 1) AS proposed
             FROM exceptions e
             WHERE (NOT $1 OR closed_at IS NULL) AND ($2::text IS NULL OR payment_id = $2) AND ($3::text IS NULL OR kind = $3)
             ORDER BY exception_id LIMIT $4",
            !filter.with_closed,
            filter.payment_id.as_ref().map(PaymentId::as_str),
            filter.kind,
            filter.limit,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(ExceptionView::from).collect())
    }
}

/// The tenants with payments. Each is found by one index probe.
async fn tenants(tx: &mut Connection) -> Result<Vec<String>, LedgerError> {
    Ok(sqlx::query_scalar!(
        r#"WITH RECURSIVE tenants AS (
               (SELECT tenant_id FROM payments ORDER BY tenant_id LIMIT 1)
               UNION ALL
               SELECT (SELECT n.tenant_id FROM payments n WHERE n.tenant_id > t.tenant_id ORDER BY n.tenant_id LIMIT 1)
               FROM tenants t WHERE t.tenant_id IS NOT NULL)
           SELECT tenant_id AS "tenant_id!" FROM tenants WHERE tenant_id IS NOT NULL"#
    )
    .fetch_all(tx)
    .await?)
}

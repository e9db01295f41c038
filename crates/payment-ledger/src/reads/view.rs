//! The customer's view of a payment.

use jiff::Timestamp;
use payment_protocol::PaymentState;
use payment_protocol::decision::Action;
use payment_protocol::ids::{AccountId, PaymentId, TenantId};
use postgres_kit::Connection;

use crate::{Ledger, LedgerError};

/// A payment as its customer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentView {
    /// Its id.
    pub payment_id: String,
    /// Its transaction id.
    pub tx_id: String,
    /// Its state.
    pub state: PaymentState,
    /// Amount, in minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// The account to debit.
    pub source_account: String,
    /// The account to credit.
    pub destination_account: String,
    /// The customer's own id.
    pub end_to_end_id: Option<String>,
    /// The switch it was routed to.
    pub switch: String,
    /// Why it did not settle, or is being compensated: code of the cause, or of the reserve's refusal. `None` once it has
    /// settled.
    pub reason: Option<String>,
    /// Why it needs an operator, or needed one last.
    pub operator_reason: Option<String>,
    /// Since when it needs an operator; `None` if it does not.
    pub needs_operator_since: Option<Timestamp>,
    /// When the customer's account was restored without a confirmation; `None` if it was not.
    pub restored_at: Option<Timestamp>,
    /// What came back of the debited amount, in minor units.
    pub returned_minor: i64,
    /// Decisions allowed now.
    pub allowed_actions: Vec<Action>,
    /// Its current workflow.
    pub workflow_id: String,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it was last updated.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// One line of a payment's timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// The state after the event.
    pub state: String,
    /// The event in words.
    pub detail: String,
    /// Time of the event, by the database's clock.
    pub happened_at: Timestamp,
}

/// A filter for the payments of a tenant. Newest first.
#[derive(Clone, Debug, Default)]
pub struct PaymentFilter {
    /// Only payments in this state.
    pub state: Option<PaymentState>,
    /// Only payments from this account.
    pub source_account: Option<AccountId>,
    /// Only payments with this end-to-end id.
    pub end_to_end_id: Option<String>,
    /// Only payments accepted at least this many seconds ago.
    pub older_than_s: Option<i64>,
    /// Only payments after this one in the list (the last one of the previous page).
    pub after: Option<PaymentId>,
    /// Upper bound of payments on the page.
    pub limit: i64,
}

macro_rules! view {
    ($row:expr) => {{
        let row = $row;
        let state = payment_protocol::PaymentState::parse(&row.state).ok_or_else(|| {
            $crate::LedgerError::Unreadable {
                id: row.payment_id.clone(),
                column: "state",
                value: row.state.clone(),
            }
        })?;
        let code =
            |json: &serde_json::Value| json.get("code").and_then(|code| code.as_str()).map(str::to_owned);
        let needs_operator = state == payment_protocol::PaymentState::NeedsOperator;
        let operator_reason =
            row.operator_reason.as_deref().and_then(payment_protocol::OperatorReason::parse);
        $crate::reads::view::PaymentView {
            // A payment that settled in spite of a cause has no reason to show.
            reason: row
                .cause
                .as_ref()
                .and_then(code)
                .or(row.refusal)
                .filter(|_| state != payment_protocol::PaymentState::Settled),
            payment_id: row.payment_id,
            tx_id: row.tx_id,
            state,
            amount_minor: row.amount_minor,
            currency: row.currency,
            source_account: row.source_account,
            destination_account: row.destination_account,
            end_to_end_id: row.end_to_end_id,
            switch: row.switch,
            operator_reason: row.operator_reason,
            needs_operator_since: row.needs_operator_since.filter(|_| needs_operator).map(|at| at.to_jiff()),
            restored_at: row.restored_at.map(|at| at.to_jiff()),
            returned_minor: row.returned_minor,
            allowed_actions: operator_reason
                .filter(|_| needs_operator)
                .map_or_else(Vec::new, |reason| reason.allowed().to_vec()),
            workflow_id: row.workflow_id,
            accepted_at: row.accepted_at.to_jiff(),
            updated_at: row.updated_at.to_jiff(),
            ended_at: row.ended_at.map(|at| at.to_jiff()),
        }
    }};
}
pub(crate) use view;

impl Ledger {
    /// One payment of a tenant. `None` if the tenant has no such payment.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn payment(
        &self,
        tenant: &TenantId,
        payment_id: &PaymentId,
    ) -> Result<Option<PaymentView>, LedgerError> {
        let row = sqlx::query!(
            r#"SELECT p.payment_id, p.tx_id, p.state, p.amount_minor, p.currency, p.source_account, p.destination_account,
                      p.end_to_end_id, p.switch, p.cause, p.operator_reason, p.workflow_id, p.accepted_at, p.updated_at,
                      p.ended_at, p.restored_at, p.returned_minor, p.needs_operator_since, (SELECT o.reason FROM operations o
                       WHERE o.operation_key = p.payment_id || ':reserve' AND o.outcome = 'refused') AS "refusal?"
               FROM payments p
               WHERE p.payment_id = $1 AND p.tenant_id = $2"#,
            payment_id.as_str(),
            tenant.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(|row| Ok(view!(row))).transpose()
    }

    /// Payments of a tenant, newest first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn payments(
        &self,
        tenant: &TenantId,
        filter: &PaymentFilter,
    ) -> Result<Vec<PaymentView>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        plan_by_values(&mut tx).await?;
        let rows = sqlx::query!(
            r#"SELECT p.payment_id, p.tx_id, p.state, p.amount_minor, p.currency, p.source_account, p.destination_account,
                      p.end_to_end_id, p.switch, p.cause, p.operator_reason, p.workflow_id, p.accepted_at, p.updated_at,
                      p.ended_at, p.restored_at, p.returned_minor, p.needs_operator_since, (SELECT o.reason FROM operations o
                       WHERE o.operation_key = p.payment_id || ':reserve' AND o.outcome = 'refused') AS "refusal?"
               FROM payments p
               WHERE p.tenant_id = $1
                 AND ($2::text IS NULL OR p.state = $2)
                 -- Follows from the state; names the condition of the index payments_open.
                 AND ($8::boolean IS NULL OR (p.ended_at IS NULL) = $8)
                 AND ($3::text IS NULL OR p.source_account = $3)
                 AND ($4::text IS NULL OR p.end_to_end_id = $4)
                 AND ($5::bigint IS NULL OR p.accepted_at <= now() - $5 * interval '1 second')
                 AND ($6::text IS NULL OR (p.accepted_at, p.payment_id) <
                      (SELECT a.accepted_at, a.payment_id FROM payments a WHERE a.payment_id = $6 AND a.tenant_id = $1))
               ORDER BY p.accepted_at DESC, p.payment_id DESC
               LIMIT $7"#,
            tenant.as_str(),
            filter.state.map(PaymentState::as_str),
            filter.source_account.as_ref().map(AccountId::as_str),
            filter.end_to_end_id.as_deref(),
            filter.older_than_s,
            filter.after.as_ref().map(PaymentId::as_str),
            filter.limit,
            filter.state.map(|state| state.end().is_none()),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.into_iter().map(|row| Ok(view!(row))).collect()
    }

    /// A payment's timeline, oldest first: at most `limit` lines after the first `after`.
    ///
    /// A line's position never changes: the writer of a line holds the lock of the payment's row, so the lines of a payment
    /// are numbered in the order of their commits. Numbers of different payments are not comparable.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn timeline(
        &self,
        payment_id: &PaymentId,
        after: i64,
        limit: i64,
    ) -> Result<Vec<TimelineEntry>, LedgerError> {
        timeline(&mut self.pool.acquire().await?, payment_id, after, limit, false).await
    }

    /// The number of each payment's newest timeline line, internal lines included: it grows with every line. Numbers of
    /// different payments are not comparable.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn newest_timeline_entries(
        &self,
        payments: &[PaymentId],
    ) -> Result<Vec<(PaymentId, i64)>, LedgerError> {
        let ids: Vec<String> = payments.iter().map(PaymentId::to_string).collect();
        let rows = sqlx::query!(
            r#"SELECT w.ordinal AS "ordinal!", t.entry_id
               FROM unnest($1::text[]) WITH ORDINALITY AS w (payment_id, ordinal)
               CROSS JOIN LATERAL (SELECT l.entry_id FROM timeline l WHERE l.payment_id = w.payment_id
                                   ORDER BY l.entry_id DESC LIMIT 1) t"#,
            &ids,
        )
        .fetch_all(&self.pool)
        .await?;
        let requested =
            |ordinal: i64| usize::try_from(ordinal - 1).ok().and_then(|ordinal| payments.get(ordinal));
        Ok(rows.into_iter().filter_map(|row| Some((requested(row.ordinal)?.clone(), row.entry_id))).collect())
    }
}

/// Plans the transaction's statements for the values of their parameters, each time: a plan for any value of an optional filter
/// could use no index for it.
pub(crate) async fn plan_by_values(tx: &mut Connection) -> Result<(), LedgerError> {
    sqlx::query!("SELECT set_config('plan_cache_mode', 'force_custom_plan', true) AS mode")
        .fetch_one(tx)
        .await?;
    Ok(())
}

/// As [`Ledger::timeline`], on the caller's connection, optionally with internal lines.
pub(crate) async fn timeline(
    connection: &mut Connection,
    payment_id: &PaymentId,
    after: i64,
    limit: i64,
    with_internal: bool,
) -> Result<Vec<TimelineEntry>, LedgerError> {
    let rows = sqlx::query!(
        "SELECT state, detail, happened_at FROM timeline
         WHERE payment_id = $1 AND ($4 OR NOT is_internal) ORDER BY entry_id OFFSET $2 LIMIT $3",
        payment_id.as_str(),
        after,
        limit,
        with_internal,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| TimelineEntry {
            state: row.state,
            detail: row.detail,
            happened_at: row.happened_at.to_jiff(),
        })
        .collect())
}

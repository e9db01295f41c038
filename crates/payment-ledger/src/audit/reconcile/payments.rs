//! Payments, in batches: what the three books say of each.

use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;
use payment_protocol::facts::HoldStatus;
use payment_protocol::ids::{PaymentId, SwitchName};

use super::ReconciliationRunId;
use super::drift::{Seen, Tolerance, judge};
use super::found::Finding;
use crate::{Ledger, LedgerError};

/// One payment in the three books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The payment.
    pub payment_id: PaymentId,
    /// Its switch.
    pub switch: String,
    /// ISO 4217 code.
    pub currency: String,
    /// How much it sends, in minor units.
    pub amount_minor: i64,
    /// What the switch says of each of its transfers, for people.
    pub at_the_switch: String,
    /// What the books say.
    pub seen: Seen,
}

impl Compared {
    /// What is wrong with it, in words.
    pub fn findings(&self, tolerance: Tolerance) -> impl Iterator<Item = Finding> {
        let Self { payment_id, switch, currency, amount_minor, at_the_switch, seen } = self;
        let hold = seen.hold.map_or("none", HoldStatus::as_str);
        let detail = format!(
            "{amount_minor} {currency} (minor units) by {switch}; {}; hold {hold}; debits {}; at the switch: {at_the_switch}",
            seen.state, seen.debits
        );
        judge(seen, tolerance).into_iter().map(move |drift| Finding {
            drift,
            payment_id: Some(payment_id.clone()),
            origin: payment_id.to_string(),
            detail: detail.clone(),
        })
    }
}

/// The books that payments are compared with, besides our own.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Switches whose statement was read to its end.
    pub statements: Vec<SwitchName>,
    /// The sweep to which Temporal said which workflows run; none where it was not asked or did not say.
    pub workflows: Option<ReconciliationRunId>,
}

impl Ledger {
    /// At most `limit` payments after `after`, in the order of their ids.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn payments_after(
        &self,
        after: Option<&PaymentId>,
        limit: i64,
    ) -> Result<Vec<PaymentId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "SELECT payment_id FROM payments WHERE payment_id > $1 ORDER BY payment_id LIMIT $2",
            after.map_or("", PaymentId::as_str),
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        ids.iter().map(|id| read_id(id)).collect()
    }

    /// These payments, in the order of their ids, as the three books have them now.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn compare(
        &self,
        sources: &Sources,
        payments: &[PaymentId],
    ) -> Result<Vec<Compared>, LedgerError> {
        let ids: Vec<&str> = payments.iter().map(PaymentId::as_str).collect();
        let statements: Vec<&str> = sources.statements.iter().map(SwitchName::as_str).collect();
        let rows = sqlx::query!(
            r#"SELECT p.payment_id, p.switch, p.currency, p.amount_minor, p.state, p.operator_reason, p.attempts,
                      h.status AS "hold?",
                      EXISTS (SELECT FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'reserve') AS "is_reserved!",
                      d.debits AS "debits!", d.debited_before_s,
                      p.switch = ANY ($3) AS "has_statement!", l.settled AS "settled!", l.other_amounts AS "other_amounts!",
                      l.settled_for_s, l.said,
                      CASE WHEN p.state = 'cancelling'
                           THEN extract(epoch FROM clock_timestamp() - p.cancelling_since)::bigint END AS cancelling_s,
                      extract(epoch FROM clock_timestamp() - p.updated_at)::bigint AS "idle_s!",
                      EXISTS (SELECT FROM running_workflows w
                              WHERE w.reconciliation_id = $2 AND w.workflow_id = p.workflow_id) AS "has_workflow!"
               FROM (SELECT * FROM payments WHERE payment_id = ANY ($1)) AS p
               LEFT JOIN holds h ON h.payment_id = p.payment_id
               LEFT JOIN statement_cursors r ON r.switch = p.switch
               CROSS JOIN LATERAL (
                   -- Apart, as the journal's indexes by payment are.
                   SELECT coalesce(sum(j.debits), 0)::bigint AS debits,
                          extract(epoch FROM r.read_at - max(j.posted_at))::bigint AS debited_before_s
                   FROM (SELECT 1 AS debits, posted_at FROM journal
                         WHERE payment_id = p.payment_id AND kind IN ('debit', 'late_debit')
                         UNION ALL
                         SELECT -1, posted_at FROM journal
                         WHERE payment_id = p.payment_id AND kind = 'return_credit') AS j) AS d
               CROSS JOIN LATERAL (
                   SELECT count(DISTINCT transfer_id) FILTER (WHERE NOT is_recalled)::bigint AS settled,
                          count(DISTINCT transfer_id) FILTER (
                              WHERE NOT is_recalled AND (amount_minor, currency) IS DISTINCT FROM (p.amount_minor, p.currency)
                          )::bigint AS other_amounts,
                          extract(epoch FROM clock_timestamp() - max(finished_at) FILTER (WHERE NOT is_recalled))::bigint
                              AS settled_for_s,
                          string_agg(transfer_id || ': ' || amount_minor || ' ' || currency
                                     || CASE WHEN is_recalled THEN ' settled and recalled' ELSE ' settled' END, ', '
                                     ORDER BY transfer_id) AS said
                   FROM (SELECT s.transfer_id, s.amount_minor, s.currency, s.finished_at,
                                EXISTS (SELECT FROM statement_lines b
                                        WHERE b.switch = s.switch AND b.transfer_id = s.transfer_id
                                          AND b.status = 'RECALLED') AS is_recalled
                         FROM statement_lines s
                         WHERE s.switch = p.switch AND s.reference = p.tx_id || ':submit' AND s.status = 'SETTLED'
                         UNION ALL
                         SELECT s.transfer_id, s.amount_minor, s.currency, s.finished_at,
                                EXISTS (SELECT FROM statement_lines b
                                        WHERE b.switch = s.switch AND b.transfer_id = s.transfer_id
                                          AND b.status = 'RECALLED')
                         FROM submissions m JOIN statement_lines s
                              ON s.switch = p.switch AND s.transfer_id = m.transfer_id AND s.reference IS NULL
                         WHERE m.payment_id = p.payment_id AND s.status = 'SETTLED') AS line) AS l
               ORDER BY p.payment_id"#,
            &ids as &[&str],
            sources.workflows.map(|sweep| sweep.0),
            &statements as &[&str],
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let unreadable = |column: &'static str, value: &str| LedgerError::Unreadable {
                    id: row.payment_id.clone(),
                    column,
                    value: value.to_owned(),
                };
                let payment_id = read_id(&row.payment_id)?;
                let state = PaymentState::parse(&row.state).ok_or_else(|| unreadable("state", &row.state))?;
                let hold = row
                    .hold
                    .as_deref()
                    .map(|word| HoldStatus::parse(word).ok_or_else(|| unreadable("hold", word)))
                    .transpose()?;
                let seen = Seen {
                    state,
                    operator_reason: row.operator_reason.as_deref().and_then(OperatorReason::parse),
                    attempts: row.attempts,
                    hold,
                    is_reserved: row.is_reserved,
                    debits: row.debits,
                    settled: row.has_statement.then_some(row.settled),
                    other_amounts: if row.has_statement { row.other_amounts } else { 0 },
                    settled_for_s: row.settled_for_s,
                    debited_before_s: row.debited_before_s,
                    cancelling_s: row.cancelling_s,
                    idle_s: row.idle_s,
                    has_workflow: sources.workflows.map(|_| row.has_workflow),
                };
                Ok(Compared {
                    payment_id,
                    switch: row.switch,
                    currency: row.currency,
                    amount_minor: row.amount_minor,
                    at_the_switch: row.said.unwrap_or_else(|| "nothing settled".into()),
                    seen,
                })
            })
            .collect()
    }
}

pub(super) fn read_id(text: &str) -> Result<PaymentId, LedgerError> {
    PaymentId::new(text).map_err(|_| LedgerError::Unreadable {
        id: text.to_owned(),
        column: "payment_id",
        value: text.to_owned(),
    })
}

//! Evidence about payments, in batches.

use payment_protocol::PaymentState;
use payment_protocol::action::OperatorAction;
use payment_protocol::cause::OperatorReason;
use payment_protocol::drift::{Drift, PaymentEvidence, Tolerance, find_drift};
use payment_protocol::facts::HoldStatus;
use payment_protocol::ids::{PaymentId, SwitchName};
use payment_protocol::report::SettledReport;

use super::ReconciliationRunId;
use super::findings::Finding;
use crate::amount_text::amount;
use crate::profiles::{self, Profiles};
use crate::stored_id::read_id;
use crate::switch::final_status::{FinalStatusSource, return_origin};
use crate::{Ledger, LedgerError};

/// One payment of a reconciliation run, with the ledger's, the switch statement's and Temporal's evidence about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentComparison {
    /// The payment.
    pub payment_id: PaymentId,
    /// Its switch.
    pub switch: String,
    /// ISO 4217 code.
    pub currency: String,
    /// Its amount, in minor units.
    pub amount_minor: i64,
    /// Its transfers by the switch's statement, in words.
    pub switch_transfers: String,
    /// How long its cancel may take before the switch's profile calls for an alert, in seconds; `None` unless it is cancelling.
    pub alert_after_s: Option<i64>,
    /// The evidence.
    pub evidence: PaymentEvidence,
}

impl PaymentComparison {
    /// The drift of this payment, as findings. A cancel may take the tolerance, or longer where its switch's profile says so.
    pub fn findings(&self, tolerance: Tolerance) -> impl Iterator<Item = Finding> {
        let Self { payment_id, switch, currency, amount_minor, switch_transfers, alert_after_s, evidence } =
            self;
        let cancelling_s = tolerance.cancelling_s.max(alert_after_s.unwrap_or(0));
        let tolerance = Tolerance { cancelling_s, ..tolerance };
        let hold = evidence.hold.map_or("none", HoldStatus::as_str);
        let detail = format!(
            "{} by {switch}; {}; hold {hold}; debits {}; at the switch: {switch_transfers}",
            amount(*amount_minor, currency),
            evidence.state,
            evidence.debits
        );
        find_drift(evidence, tolerance).into_iter().map(move |drift| Finding {
            drift,
            payment_id: Some(payment_id.clone()),
            origin: payment_id.to_string(),
            detail: detail.clone(),
            allowed: allowed(drift, evidence),
        })
    }
}

/// The actions that may resolve the drift and that a payment in this state accepts.
fn allowed(drift: Drift, evidence: &PaymentEvidence) -> Vec<OperatorAction> {
    let is_accepted = |action: &OperatorAction| match action {
        OperatorAction::OpenPayment(action) => {
            evidence.operator_reason.is_some_and(|reason| reason.allowed().contains(action))
        }
        OperatorAction::Correction(_) => evidence.state.end().is_some(),
        OperatorAction::Close => true,
    };
    drift.allowed().iter().copied().filter(is_accepted).collect()
}

/// The sources that payments are compared with, besides the ledger.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Switches whose statement was read to its end.
    pub statements: Vec<SwitchName>,
    /// The run that listed the running workflows; `None` if Temporal did not list them.
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

    /// Returns of these payments that the statements show and the payments do not have as their final status. One that has become an
    /// exception is recorded: it differs from the payment, or the payment ended without an attempt.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unrecorded_returns(
        &self,
        payments: &[PaymentId],
    ) -> Result<Vec<(PaymentId, SettledReport)>, LedgerError> {
        let ids: Vec<&str> = payments.iter().map(PaymentId::as_str).collect();
        let rows = sqlx::query!(
            r#"WITH unrecorded AS (
                   SELECT *, ARRAY(SELECT e.origin FROM exceptions e
                                   WHERE e.payment_id = p.payment_id
                                     AND starts_with(e.origin, p.payment_id || ':returned:')
                                     -- Until an attempt shows, or may be missing from the record.
                                     AND (e.kind <> 'settled_without_attempt' OR p.attempts = 0 AND NOT p.attempts_uncertain)) AS exceptions
                   FROM payments p
                   WHERE payment_id = ANY ($1) AND final_status IS DISTINCT FROM 'returned'
                     AND NOT (ended_at IS NOT NULL AND attempts = 0 AND NOT attempts_uncertain
                              AND final_status IS DISTINCT FROM 'settled'
                              AND EXISTS (SELECT FROM exceptions e
                                          WHERE e.payment_id = p.payment_id
                                            AND starts_with(e.origin, p.payment_id || ':returned'))))
               SELECT p.payment_id AS "payment_id!", p.switch AS "switch!", p.tx_id || ':submit' AS "reference!",
                      s.amount_minor AS "amount_minor!", s.currency AS "currency!", p.exceptions AS "exceptions!"
               FROM unrecorded p JOIN statement_lines s ON s.switch = p.switch AND s.reference = coalesce(p.rail_id, p.tx_id || ':submit')
               WHERE s.status = 'RETURNED' AND s.return_id IS NULL
               UNION ALL
               SELECT p.payment_id, p.switch, p.tx_id || ':submit', s.amount_minor, s.currency, p.exceptions
               FROM unrecorded p JOIN submissions m ON m.payment_id = p.payment_id
               JOIN statement_lines s ON s.switch = p.switch AND s.transfer_id = m.transfer_id AND s.reference IS NULL
               WHERE s.status = 'RETURNED' AND s.return_id IS NULL"#,
            &ids as &[&str],
        )
        .fetch_all(&self.pool)
        .await?;
        let mut returns = Vec::with_capacity(rows.len());
        for row in rows {
            let switch = SwitchName::new(row.switch.as_str()).map_err(|_| LedgerError::Unreadable {
                id: row.payment_id.clone(),
                column: "switch",
                value: row.switch,
            })?;
            let report = SettledReport {
                switch,
                reference: row.reference,
                amount_minor: row.amount_minor,
                currency: row.currency,
            };
            let payment_id = read_id(&row.payment_id)?;
            let origin = return_origin(&payment_id, &report, FinalStatusSource::Statement);
            if !row.exceptions.contains(&origin) {
                returns.push((payment_id, report));
            }
        }
        Ok(returns)
    }

    /// Whether the statements that were read so far show that the whole money of the payment came back.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn lists_return(&self, payment_id: &PaymentId) -> Result<bool, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (
                   SELECT FROM payments p JOIN statement_lines s ON s.switch = p.switch AND s.reference = coalesce(p.rail_id, p.tx_id || ':submit')
                   WHERE p.payment_id = $1 AND s.status = 'RETURNED' AND s.return_id IS NULL
                   UNION ALL
                   SELECT FROM payments p JOIN submissions m ON m.payment_id = p.payment_id
                   JOIN statement_lines s ON s.switch = p.switch AND s.transfer_id = m.transfer_id AND s.reference IS NULL
                   WHERE p.payment_id = $1 AND s.status = 'RETURNED' AND s.return_id IS NULL) AS "listed!""#,
            payment_id.as_str(),
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// The evidence about these payments now, in the order of their ids.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn compare(
        &self,
        sources: &Sources,
        payments: &[PaymentId],
    ) -> Result<Vec<PaymentComparison>, LedgerError> {
        let ids: Vec<&str> = payments.iter().map(PaymentId::as_str).collect();
        let statements: Vec<&str> = sources.statements.iter().map(SwitchName::as_str).collect();
        let rows = sqlx::query_as!(
            EvidenceRow,
            r#"SELECT p.payment_id, p.profile_hash, p.switch, p.currency, p.amount_minor, p.state, p.operator_reason, p.attempts,
                      h.status AS "hold?", p.final_status = 'returned' AS is_return_recorded,
                      EXISTS (SELECT FROM journal j WHERE j.payment_id = p.payment_id AND j.kind = 'reserve') AS "is_reserved!",
                      d.debits AS "debits!", d.debited_before_s,
                      -- What a recall brought back was never charged, and is booked nowhere.
                      coalesce((SELECT extract(epoch FROM r.read_at - max(b.booked_at))::bigint FROM returns b
                                WHERE b.payment_id = p.payment_id),
                               CASE WHEN p.final_status = 'returned'
                                    THEN extract(epoch FROM r.read_at - coalesce(p.ended_at, p.updated_at))::bigint END)
                          AS returned_before_s,
                      p.switch = ANY ($3) AS "has_statement!", l.settled AS "settled!", l.other_amounts AS "other_amounts!",
                      l.settled_for_s, l.transfer_ids, l.transfer_amounts, l.transfer_currencies, l.transfer_returns,
                      CASE WHEN p.state = 'cancelling'
                           THEN extract(epoch FROM clock_timestamp() - p.cancelling_since)::bigint END AS cancelling_s,
                      extract(epoch FROM clock_timestamp() - p.updated_at)::bigint AS "idle_s!",
                      EXISTS (SELECT FROM running_workflows w
                              WHERE w.reconciliation_id = $2 AND w.workflow_id = p.workflow_id) AS "has_workflow!"
               FROM (SELECT * FROM payments WHERE payment_id = ANY ($1)) AS p
               LEFT JOIN holds h ON h.payment_id = p.payment_id
               LEFT JOIN statement_cursors r ON r.switch = p.switch
               CROSS JOIN LATERAL (
                   SELECT (coalesce(sum(j.debits), 0) - (p.returned_minor = p.amount_minor)::int)::bigint AS debits,
                          extract(epoch FROM r.read_at - max(j.posted_at))::bigint AS debited_before_s
                   FROM (SELECT 1 AS debits, posted_at FROM journal
                         WHERE payment_id = p.payment_id AND kind IN ('debit', 'late_debit')) AS j) AS d
               CROSS JOIN LATERAL (
                   SELECT count(DISTINCT transfer_id) FILTER (WHERE NOT is_returned)::bigint AS settled,
                          count(DISTINCT transfer_id) FILTER (
                              WHERE NOT is_returned AND (amount_minor, currency) IS DISTINCT FROM (p.amount_minor, p.currency)
                          )::bigint AS other_amounts,
                          extract(epoch FROM clock_timestamp() - max(finished_at) FILTER (WHERE NOT is_returned))::bigint
                              AS settled_for_s,
                          array_agg(transfer_id ORDER BY transfer_id, line_id) AS transfer_ids,
                          array_agg(amount_minor ORDER BY transfer_id, line_id) AS transfer_amounts,
                          array_agg(currency ORDER BY transfer_id, line_id) AS transfer_currencies,
                          array_agg(is_returned ORDER BY transfer_id, line_id) AS transfer_returns
                   FROM (SELECT s.line_id, s.transfer_id, s.amount_minor, s.currency, s.finished_at,
                                coalesce((SELECT bool_or(b.return_id IS NULL) OR sum(b.amount_minor) >= s.amount_minor
                                          FROM (SELECT DISTINCT return_id, amount_minor FROM statement_lines
                                                WHERE switch = s.switch AND transfer_id = s.transfer_id
                                                  AND reference IS NOT DISTINCT FROM s.reference AND status = 'RETURNED') AS b), false)
                                    AS is_returned
                         FROM (SELECT * FROM statement_lines
                               WHERE switch = p.switch AND reference = coalesce(p.rail_id, p.tx_id || ':submit') AND status = 'SETTLED'
                               UNION ALL
                               SELECT listed.* FROM submissions m JOIN statement_lines listed
                                    ON listed.switch = p.switch AND listed.transfer_id = m.transfer_id AND listed.reference IS NULL
                               WHERE m.payment_id = p.payment_id AND listed.status = 'SETTLED') AS s) AS line) AS l
               ORDER BY p.payment_id"#,
            &ids as &[&str],
            sources.workflows.map(|run| run.0),
            &statements as &[&str],
        )
        .fetch_all(&self.pool)
        .await?;
        let has_workflows = sources.workflows.is_some();
        let cancelling = rows.iter().filter(|row| row.cancelling_s.is_some());
        let profiles = profiles::read(&self.pool, cancelling.map(|row| row.profile_hash.as_slice())).await?;
        rows.into_iter().map(|row| row.comparison(has_workflows, &profiles)).collect()
    }
}

/// Columns of the evidence about one payment.
struct EvidenceRow {
    payment_id: String,
    profile_hash: Vec<u8>,
    switch: String,
    currency: String,
    amount_minor: i64,
    state: String,
    operator_reason: Option<String>,
    attempts: i32,
    hold: Option<String>,
    is_return_recorded: Option<bool>,
    is_reserved: bool,
    debits: i64,
    debited_before_s: Option<i64>,
    returned_before_s: Option<i64>,
    has_statement: bool,
    settled: i64,
    other_amounts: i64,
    settled_for_s: Option<i64>,
    transfer_ids: Option<Vec<String>>,
    transfer_amounts: Option<Vec<i64>>,
    transfer_currencies: Option<Vec<String>>,
    transfer_returns: Option<Vec<bool>>,
    cancelling_s: Option<i64>,
    idle_s: i64,
    has_workflow: bool,
}

impl EvidenceRow {
    /// The settled transfers of the statement in words; one column has one value of each.
    fn transfers(&self) -> String {
        let ids = self.transfer_ids.iter().flatten();
        let amounts = self.transfer_amounts.iter().flatten().zip(self.transfer_currencies.iter().flatten());
        let transfers: Vec<String> = ids
            .zip(amounts)
            .zip(self.transfer_returns.iter().flatten())
            .map(|((id, (minor, currency)), is_returned)| {
                let end = if *is_returned { "settled and returned" } else { "settled" };
                format!("{id}: {} {end}", amount(*minor, currency))
            })
            .collect();
        if transfers.is_empty() { "nothing settled".to_owned() } else { transfers.join(", ") }
    }

    fn comparison(self, has_workflows: bool, profiles: &Profiles) -> Result<PaymentComparison, LedgerError> {
        // A profile that this version cannot parse hides no drift.
        let profile = profiles.of(&self.payment_id, &self.profile_hash).ok();
        let alert_after_s =
            profile.and_then(|profile| i64::try_from(profile.alert_after_ms.div_ceil(1_000)).ok());
        let unreadable = |column: &'static str, value: &str| LedgerError::Unreadable {
            id: self.payment_id.clone(),
            column,
            value: value.to_owned(),
        };
        let state = PaymentState::parse(&self.state).ok_or_else(|| unreadable("state", &self.state))?;
        let hold = self
            .hold
            .as_deref()
            .map(|word| HoldStatus::parse(word).ok_or_else(|| unreadable("hold", word)))
            .transpose()?;
        let evidence = PaymentEvidence {
            state,
            operator_reason: self.operator_reason.as_deref().and_then(OperatorReason::parse),
            attempts: self.attempts,
            hold,
            is_return_recorded: self.is_return_recorded == Some(true),
            is_reserved: self.is_reserved,
            debits: self.debits,
            settled: self.has_statement.then_some(self.settled),
            other_amounts: if self.has_statement { self.other_amounts } else { 0 },
            settled_for_s: self.settled_for_s,
            debited_before_s: self.debited_before_s,
            returned_before_s: self.returned_before_s,
            cancelling_s: self.cancelling_s,
            idle_s: self.idle_s,
            has_workflow: has_workflows.then_some(self.has_workflow),
        };
        let switch_transfers = self.transfers();
        Ok(PaymentComparison {
            payment_id: read_id(&self.payment_id)?,
            switch: self.switch,
            currency: self.currency,
            amount_minor: self.amount_minor,
            switch_transfers,
            alert_after_s,
            evidence,
        })
    }
}

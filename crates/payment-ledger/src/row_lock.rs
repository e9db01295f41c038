//! Payment rows under their locks, with the facts that the rules read.

use std::sync::Arc;

use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::facts::{Facts, FinalStatus, HoldStatus, RecallRecord, ReserveRecord};
use payment_protocol::ids::{AccountId, PaymentId, RunId, TxId};
use payment_protocol::keys;
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::rail_id::RailId;
use payment_protocol::report::ExpectedTransfer;
use payment_protocol::{PaymentState, SwitchProfile};
use postgres_kit::Connection;

use crate::LedgerError;
use crate::profiles::{self, Profiles};
use crate::stored_id::read_id;

/// One payment while its row is locked.
pub(crate) struct LockedPayment {
    pub(crate) payment_id: PaymentId,
    pub(crate) tx_id: TxId,
    pub(crate) tenant_id: String,
    pub(crate) source_account: AccountId,
    pub(crate) destination_account: String,
    pub(crate) end_to_end_id: Option<String>,
    pub(crate) money: Money,
    pub(crate) profile: Arc<SwitchProfile>,
    pub(crate) submit_deadline: Option<jiff::Timestamp>,
    pub(crate) accepted_at: jiff::Timestamp,
    /// The rail's id of the transfer; `None` before it was minted, and where the switch takes our reference.
    pub(crate) rail_id: Option<RailId>,
    /// Whether Temporal shows an acceptance by the switch that no attempt on record shows.
    pub(crate) acceptance_unrecorded: bool,
    pub(crate) cancelling_ms: u64,
    /// Whether the payment needs an operator, or did earlier.
    pub(crate) needed_operator: bool,
    pub(crate) too_late: bool,
    /// Whether the time has come to restore the customer's account, if no confirmation is recorded.
    pub(crate) restore_is_due: bool,
    /// The workflow that receives the payment's signals now.
    pub(crate) workflow_id: String,
    /// Position of the payment in its distributed trace.
    pub(crate) trace_parent: Option<String>,
    /// Whether a callback of the payment's own switch is stored that contradicts a SUCCESS: a FAILURE, or one that a query must confirm
    /// and that has another amount.
    pub(crate) success_contradicted: bool,
    /// Whether an operator decision is proposed or confirmed, and has no outcome.
    pub(crate) decision_open: bool,
    pub(crate) facts: Facts,
    /// A contradiction between the payment's hold and its other rows; `None` if they agree.
    contradiction: Option<&'static str>,
}

impl LockedPayment {
    /// Checks that the hold agrees with the payment and its reserve. Every step that moves money checks it first; a step that only
    /// records what the switch or an operator said does not, so that no evidence is lost.
    pub(crate) fn require_consistent_hold(&self) -> Result<(), LedgerError> {
        self.contradiction.map_or(Ok(()), |detail| Err(self.inconsistent(detail)))
    }

    /// As [`LockedPayment::require_consistent_hold`], and checks that the hold has the status that the step starts from; `None` if
    /// the step starts without a hold.
    pub(crate) fn require_hold(&self, expected: Option<HoldStatus>) -> Result<(), LedgerError> {
        self.require_consistent_hold()?;
        if self.facts.hold == expected {
            Ok(())
        } else {
            Err(self.inconsistent("the hold does not have the status that the step starts from"))
        }
    }

    /// The state of the payment once its compensation has begun: a payment that needs an operator stays in the operators' queue.
    pub(crate) fn state_while_compensated(&self) -> PaymentState {
        match self.facts.state {
            PaymentState::NeedsOperator => PaymentState::NeedsOperator,
            _ => PaymentState::Cancelling,
        }
    }

    /// The final state of a payment whose end is past, or is written by this transaction: a return that was kept is booked with the debit,
    /// which settles it.
    pub(crate) fn final_state(&self) -> PaymentState {
        let state = self.facts.state;
        if state.end().is_some() { state } else { PaymentState::Settled }
    }

    /// A part of the payment's amount.
    pub(crate) fn part(&self, amount_minor: i64) -> Result<Money, LedgerError> {
        Money::from_minor(amount_minor, self.money.currency()).map_err(|_| LedgerError::Unreadable {
            id: self.payment_id.to_string(),
            column: "amount_minor",
            value: amount_minor.to_string(),
        })
    }

    fn inconsistent(&self, detail: &'static str) -> LedgerError {
        LedgerError::Inconsistent { payment_id: self.payment_id.to_string(), detail }
    }

    /// The values that a matching report must have.
    pub(crate) fn expected(&self) -> ExpectedTransfer {
        ExpectedTransfer {
            switch: self.profile.switch.clone(),
            reference: keys::submit(&self.tx_id),
            money: self.money,
        }
    }
}

/// Columns of a payment and of the records that its facts are read from.
struct LockedPaymentRow {
    payment_id: String,
    tenant_id: String,
    source_account: String,
    destination_account: String,
    end_to_end_id: Option<String>,
    amount_minor: i64,
    currency: String,
    profile_hash: Vec<u8>,
    state: String,
    run_id: Option<String>,
    attempts: i32,
    asks: i32,
    last_ask_age_ms: Option<i64>,
    attempts_uncertain: bool,
    acceptance_unrecorded: bool,
    submit_deadline: Option<jiff_sqlx::Timestamp>,
    accepted_at: jiff_sqlx::Timestamp,
    rail_id: Option<String>,
    cause: Option<serde_json::Value>,
    final_status: Option<String>,
    first_attempt_age_ms: Option<i64>,
    cancelling_ms: Option<i64>,
    needed_operator: bool,
    too_late: bool,
    restore_is_due: bool,
    restored: bool,
    has_unbooked_return: bool,
    workflow_id: String,
    trace_parent: Option<String>,
    failure_reported: bool,
    money_reported: bool,
    return_reported: bool,
    other_amount_reported: bool,
    decision_open: bool,
    hold: Option<String>,
    hold_matches: Option<bool>,
    reserve_outcome: Option<String>,
    reserve_reason: Option<String>,
    debit_reason: Option<String>,
    recall_outcome: Option<String>,
    cancel_requested: bool,
    confirmation_mismatch: bool,
    reported_without_attempt: bool,
    returned_without_attempt: bool,
    account_busy: bool,
}

/// Locks a payment's row, then reads its facts. Two statements: one would join other tables as of before the lock was
/// granted. The lock is one that a foreign key to the payment does not wait for: a consumer that notifies holds up no step.
pub(crate) async fn lock_payment(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<LockedPayment, LedgerError> {
    let id = payment_id.as_str();
    sqlx::query!("SELECT payment_id FROM payments WHERE payment_id = $1 FOR NO KEY UPDATE", id)
        .fetch_optional(&mut *tx)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(id.to_owned()))?;
    let locked = read_locked(tx, &[id.to_owned()]).await?.pop();
    locked.unwrap_or_else(|| Err(LedgerError::UnknownPayment(id.to_owned())))
}

/// Locks those of the payments that no other transaction has locked, by their ids or their transaction ids, then reads their facts.
/// It waits for no lock. A row that this version cannot parse is left out.
pub(crate) async fn lock_unlocked(
    tx: &mut Connection,
    payment_ids: &[String],
    tx_ids: &[String],
) -> Result<Vec<LockedPayment>, LedgerError> {
    let mut unlocked: Vec<String> = Vec::new();
    if !payment_ids.is_empty() {
        unlocked = sqlx::query_scalar!(
            "SELECT payment_id FROM payments WHERE payment_id = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED",
            payment_ids,
        )
        .fetch_all(&mut *tx)
        .await?;
    }
    if !tx_ids.is_empty() {
        let by_transaction = sqlx::query_scalar!(
            "SELECT payment_id FROM payments WHERE tx_id = ANY ($1) AND payment_id <> ALL ($2) FOR NO KEY UPDATE SKIP LOCKED",
            tx_ids,
            &unlocked,
        );
        unlocked.extend(by_transaction.fetch_all(&mut *tx).await?);
    }
    if unlocked.is_empty() {
        return Ok(Vec::new());
    }
    Ok(read_locked(tx, &unlocked).await?.into_iter().flatten().collect())
}

/// Reads the facts of payments whose rows are locked, in any order.
async fn read_locked(
    tx: &mut Connection,
    payment_ids: &[String],
) -> Result<Vec<Result<LockedPayment, LedgerError>>, LedgerError> {
    let mut keys = [Vec::new(), Vec::new(), Vec::new()];
    for id in payment_ids {
        let payment_id: PaymentId = read_id(id)?;
        let tx_id = TxId::derive(&payment_id);
        keys[0].push(keys::reserve(&payment_id).to_string());
        keys[1].push(keys::debit(&tx_id).to_string());
        keys[2].push(keys::recall(&tx_id).to_string());
    }
    let [reserve, debit, recall] = keys;
    let rows = sqlx::query_as!(
        LockedPaymentRow,
        r#"SELECT p.payment_id AS "payment_id!", p.tenant_id AS "tenant_id!", p.source_account AS "source_account!",
                  p.destination_account AS "destination_account!", p.end_to_end_id, p.amount_minor AS "amount_minor!",
                  p.currency AS "currency!", p.profile_hash AS "profile_hash!", p.state AS "state!", p.run_id, p.attempts AS "attempts!",
                  p.asks AS "asks!",
                  (extract(epoch FROM clock_timestamp() - p.last_asked_at) * 1000)::bigint AS last_ask_age_ms, p.attempts_uncertain AS "attempts_uncertain!", p.acceptance_unrecorded AS "acceptance_unrecorded!", p.submit_deadline, p.accepted_at AS "accepted_at!: jiff_sqlx::Timestamp", p.rail_id,
                  p.cause, p.final_status,
                  (extract(epoch FROM clock_timestamp() - coalesce(
                       p.first_attempt_at, CASE WHEN p.attempts_uncertain THEN p.accepted_at END)) * 1000)::bigint
                      AS first_attempt_age_ms,
                  (extract(epoch FROM clock_timestamp() - p.cancelling_since) * 1000)::bigint AS cancelling_ms,
                  p.operator_reason IS NOT NULL AS "needed_operator!",
                  clock_timestamp() > p.valid_until AS "too_late!",
                  coalesce(p.restore_due_at <= clock_timestamp(), false) AS "restore_is_due!",
                  h.borne_by_bank_since IS NOT NULL AS "restored!", p.has_unbooked_return AS "has_unbooked_return!",
                  p.workflow_id AS "workflow_id!", p.trace_parent,
                  reported.failure AS "failure_reported!", reported.money AS "money_reported!",
                  reported.returned AS "return_reported!", reported.other_amount AS "other_amount_reported!",
                  EXISTS (SELECT FROM decisions d WHERE d.payment_id = p.payment_id AND d.status IN ('proposed', 'confirmed'))
                      AS "decision_open!",
                  h.status AS "hold?",
                  (h.account_id, h.amount_minor, h.currency) = (p.source_account, p.amount_minor, p.currency) AS hold_matches,
                  reserve.outcome AS "reserve_outcome?", reserve.reason AS reserve_reason,
                  debit.reason AS debit_reason,
                  recall.outcome AS "recall_outcome?",
                  EXISTS (SELECT FROM inbox i WHERE i.payment_id = p.payment_id AND i.kind = 'cancel') AS "cancel_requested!",
                  EXISTS (SELECT FROM exceptions e WHERE e.payment_id = p.payment_id AND e.kind = 'confirmation_mismatch'
                             AND e.closed_at IS NULL) AS "confirmation_mismatch!",
                  EXISTS (SELECT FROM exceptions e WHERE e.payment_id = p.payment_id AND e.kind = 'settled_without_attempt'
                             AND e.closed_at IS NULL) AS "reported_without_attempt!",
                  -- The origin is the one of switch/final_status.rs.
                  EXISTS (SELECT FROM exceptions e WHERE e.payment_id = p.payment_id AND e.kind = 'settled_without_attempt'
                             AND e.closed_at IS NULL AND starts_with(e.origin, p.payment_id || ':returned:'))
                      AS "returned_without_attempt!",
                  CASE WHEN p.needs_account_lock THEN EXISTS (
                      SELECT FROM payments o
                      WHERE o.switch = p.switch AND o.destination_account = p.destination_account AND o.ended_at IS NULL
                        AND (o.attempts > 0 OR o.attempts_uncertain) AND o.needs_account_lock
                        AND o.payment_id <> p.payment_id)
                  ELSE false END AS "account_busy!"
           -- LIMIT: PostgreSQL takes an array that it does not know for ten rows, and would plan this for each payment again, at several
           -- times the cost of reading it; with a limit that it does not know, for one row.
           FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                             AS u (payment_id, reserve_key, debit_key, recall_key) LIMIT $5) k
           -- LATERAL and LIMIT: with a plan from when the tables were small, each payment would read all of them.
           CROSS JOIN LATERAL (SELECT * FROM payments WHERE payment_id = k.payment_id LIMIT 1) p
           LEFT JOIN LATERAL (SELECT * FROM holds WHERE payment_id = k.payment_id LIMIT 1) h ON true
           CROSS JOIN LATERAL (
               SELECT coalesce(bool_or(status = 'FAILURE'), false) AS failure,
                      coalesce(bool_or(status IN ('SUCCESS', 'RETURNED')), false) AS money,
                      coalesce(bool_or(status = 'RETURNED'), false) AS returned,
                      coalesce(bool_or(status IN ('SUCCESS', 'RETURNED')
                                       AND (amount_minor, currency) <> (p.amount_minor, p.currency)), false) AS other_amount
               FROM switch_callbacks WHERE payment_id = k.payment_id AND switch = p.switch) reported
           LEFT JOIN LATERAL (SELECT * FROM operations WHERE operation_key = k.reserve_key LIMIT 1) reserve ON true
           LEFT JOIN LATERAL (SELECT * FROM operations WHERE operation_key = k.debit_key AND outcome = 'refused' LIMIT 1) debit ON true
           LEFT JOIN LATERAL (SELECT * FROM operations WHERE operation_key = k.recall_key LIMIT 1) recall ON true"#,
        payment_ids,
        &reserve,
        &debit,
        &recall,
        i64::try_from(payment_ids.len()).unwrap_or(i64::MAX),
    )
    .fetch_all(&mut *tx)
    .await?;
    let profiles = profiles::read(&mut *tx, rows.iter().map(|row| row.profile_hash.as_slice())).await?;
    Ok(rows.into_iter().map(|row| row.into_locked(&profiles)).collect())
}

impl LockedPaymentRow {
    fn into_locked(self, profiles: &Profiles) -> Result<LockedPayment, LedgerError> {
        let payment_id: PaymentId = read_id(&self.payment_id)?;
        let unreadable = |column: &'static str, value: &str| LedgerError::Unreadable {
            id: payment_id.to_string(),
            column,
            value: value.to_owned(),
        };
        let profile = profiles.of(&self.payment_id, &self.profile_hash)?;
        let money = parse_currency(&self.currency)
            .and_then(|currency| Money::from_minor(self.amount_minor, currency))
            .map_err(|_| unreadable("amount_minor", &format!("{} {}", self.amount_minor, self.currency)))?;
        let source_account = AccountId::new(self.source_account.as_str())
            .map_err(|_| unreadable("source_account", &self.source_account))?;
        let must_confirm = profile.confirms_by_query(money);
        let facts = self.facts(must_confirm, unreadable)?;
        // Pairs with the journal entry of steps/reserve.rs, from which the database opens the hold.
        let contradiction = if self.hold_matches == Some(false) {
            Some("the hold differs from the payment")
        } else if facts.hold.is_some() && facts.reserve != Some(ReserveRecord::Held) {
            Some("there is a hold without a recorded reserve")
        } else {
            None
        };
        Ok(LockedPayment {
            tx_id: TxId::derive(&payment_id),
            payment_id,
            tenant_id: self.tenant_id,
            source_account,
            destination_account: self.destination_account,
            end_to_end_id: self.end_to_end_id,
            money,
            profile,
            submit_deadline: self.submit_deadline.map(|at| at.to_jiff()),
            accepted_at: self.accepted_at.to_jiff(),
            rail_id: self.rail_id.map(RailId::stored),
            acceptance_unrecorded: self.acceptance_unrecorded,
            cancelling_ms: unsigned_ms(self.cancelling_ms),
            needed_operator: self.needed_operator,
            too_late: self.too_late,
            restore_is_due: self.restore_is_due,
            workflow_id: self.workflow_id,
            trace_parent: self.trace_parent,
            success_contradicted: self.failure_reported || must_confirm && self.other_amount_reported,
            decision_open: self.decision_open,
            facts,
            contradiction,
        })
    }

    /// The facts. `must_confirm`: a query must confirm a callback about the payment.
    fn facts(
        &self,
        must_confirm: bool,
        unreadable: impl Fn(&'static str, &str) -> LedgerError,
    ) -> Result<Facts, LedgerError> {
        let state = PaymentState::parse(&self.state).ok_or_else(|| unreadable("state", &self.state))?;
        let run_id = self
            .run_id
            .as_deref()
            .map(|run| RunId::new(run).map_err(|_| unreadable("run_id", run)))
            .transpose()?;
        let cause: Option<Cause> = self
            .cause
            .as_ref()
            .map(|json| {
                serde_json::from_value(json.clone()).map_err(|_| unreadable("cause", &json.to_string()))
            })
            .transpose()?;
        Ok(Facts {
            state,
            run_id,
            reserve: self.reserve_record(&unreadable)?,
            hold: parse_word("hold", self.hold.as_deref(), HoldStatus::parse, &unreadable)?,
            attempts: u32::try_from(self.attempts).unwrap_or(u32::MAX),
            asks: u32::try_from(self.asks).unwrap_or(u32::MAX),
            last_ask_age_ms: self.last_ask_age_ms.map(|age| unsigned_ms(Some(age))),
            attempts_uncertain: self.attempts_uncertain,
            first_attempt_age_ms: self.first_attempt_age_ms.map(|age| unsigned_ms(Some(age))),
            cause,
            final_status: parse_word(
                "final_status",
                self.final_status.as_deref(),
                FinalStatus::parse,
                &unreadable,
            )?,
            confirmation_mismatch: self.confirmation_mismatch,
            reported_without_attempt: self.reported_without_attempt,
            returned_without_attempt: self.returned_without_attempt,
            report_to_confirm: must_confirm && self.money_reported,
            return_to_confirm: must_confirm && self.return_reported,
            failure_reported: self.failure_reported,
            debit_refused: self.debit_reason.clone(),
            recall: self.recall_record(),
            cancel_requested: self.cancel_requested,
            account_busy: self.account_busy,
            restored: self.restored,
            has_unbooked_return: self.has_unbooked_return,
        })
    }

    fn reserve_record(
        &self,
        unreadable: impl Fn(&'static str, &str) -> LedgerError,
    ) -> Result<Option<ReserveRecord>, LedgerError> {
        match (self.reserve_outcome.as_deref(), self.reserve_reason.as_deref()) {
            (None, _) => Ok(None),
            (Some("done"), _) => Ok(Some(ReserveRecord::Held)),
            (Some(_), reason) => {
                let reason = reason.unwrap_or_default();
                let refusal =
                    ReserveRefusal::parse(reason).ok_or_else(|| unreadable("reason of reserve", reason))?;
                Ok(Some(ReserveRecord::Refused(refusal)))
            }
        }
    }

    fn recall_record(&self) -> Option<RecallRecord> {
        match self.recall_outcome.as_deref() {
            None => None,
            Some("done") => Some(RecallRecord::Recalled),
            Some("unsupported") => Some(RecallRecord::RecallUnsupported),
            Some(_) => Some(RecallRecord::Refused),
        }
    }
}

fn parse_word<T>(
    column: &'static str,
    text: Option<&str>,
    parse: fn(&str) -> Option<T>,
    unreadable: impl Fn(&'static str, &str) -> LedgerError,
) -> Result<Option<T>, LedgerError> {
    text.map(|text| parse(text).ok_or_else(|| unreadable(column, text))).transpose()
}

/// Database ages as unsigned milliseconds; a negative age (a clock set back) is 0.
fn unsigned_ms(age_ms: Option<i64>) -> u64 {
    age_ms.and_then(|age| u64::try_from(age).ok()).unwrap_or(0)
}

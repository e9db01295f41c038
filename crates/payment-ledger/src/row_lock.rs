//! A payment row under its lock, with the facts that the rules read.

use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::facts::{Facts, FinalStatus, HoldStatus, RecallRecord, ReserveRecord};
use payment_protocol::ids::{AccountId, PaymentId, RunId, TxId};
use payment_protocol::keys;
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::report::ExpectedTransfer;
use payment_protocol::{PaymentState, SwitchProfile};
use sqlx::PgConnection;

use crate::LedgerError;

/// One payment while its row is locked.
pub(crate) struct LockedPayment {
    pub(crate) payment_id: PaymentId,
    pub(crate) tx_id: TxId,
    pub(crate) tenant_id: String,
    pub(crate) source_account: AccountId,
    pub(crate) money: Money,
    pub(crate) profile: SwitchProfile,
    pub(crate) submit_deadline: Option<jiff::Timestamp>,
    pub(crate) cancelling_ms: u64,
    /// Whether the payment needs an operator, or did earlier.
    pub(crate) needed_operator: bool,
    pub(crate) too_late: bool,
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
    tenant_id: String,
    source_account: String,
    amount_minor: i64,
    currency: String,
    profile: serde_json::Value,
    state: String,
    run_id: Option<String>,
    attempts: i32,
    attempts_uncertain: bool,
    submit_deadline: Option<jiff_sqlx::Timestamp>,
    cause: Option<serde_json::Value>,
    final_status: Option<String>,
    first_attempt_age_ms: Option<i64>,
    cancelling_ms: Option<i64>,
    needed_operator: bool,
    too_late: bool,
    hold: Option<String>,
    hold_matches: Option<bool>,
    reserve_outcome: Option<String>,
    reserve_reason: Option<String>,
    debit_reason: Option<String>,
    recall_outcome: Option<String>,
    cancel_requested: bool,
    confirmation_mismatch: bool,
    reported_without_attempt: bool,
    account_busy: bool,
}

/// Locks a payment's row, then reads its facts. Two statements: one would join other tables as of before the lock was
/// granted.
pub(crate) async fn lock_payment(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
) -> Result<LockedPayment, LedgerError> {
    let id = payment_id.as_str();
    sqlx::query!("SELECT payment_id FROM payments WHERE payment_id = $1 FOR UPDATE", id)
        .fetch_optional(&mut *tx)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(id.to_owned()))?;
    let tx_id = TxId::derive(payment_id);
    let (reserve, debit, recall) = (keys::reserve(payment_id), keys::debit(&tx_id), keys::recall(&tx_id));
    let row = sqlx::query_as!(
        LockedPaymentRow,
        r#"SELECT p.tenant_id, p.source_account, p.amount_minor, p.currency, p.profile, p.state, p.run_id, p.attempts, p.attempts_uncertain,
                  p.submit_deadline, p.cause, p.final_status,
                  (extract(epoch FROM clock_timestamp() - coalesce(
                       p.first_attempt_at, CASE WHEN p.attempts_uncertain THEN p.accepted_at END)) * 1000)::bigint
                      AS first_attempt_age_ms,
                  (extract(epoch FROM clock_timestamp() - p.cancelling_since) * 1000)::bigint AS cancelling_ms,
                  p.operator_reason IS NOT NULL AS "needed_operator!",
                  clock_timestamp() > p.valid_until AS "too_late!",
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
                  CASE WHEN p.profile ->> 'strategy' = 'validate' THEN EXISTS (
                      SELECT FROM payments o
                      WHERE o.switch = p.switch AND o.destination_account = p.destination_account AND o.ended_at IS NULL
                        AND (o.attempts > 0 OR o.attempts_uncertain) AND o.profile ->> 'strategy' = 'validate'
                        AND o.payment_id <> p.payment_id)
                  ELSE false END AS "account_busy!"
           FROM payments p
           LEFT JOIN holds h ON h.payment_id = p.payment_id
           LEFT JOIN operations reserve ON reserve.operation_key = $2
           LEFT JOIN operations debit ON debit.operation_key = $3 AND debit.outcome = 'refused'
           LEFT JOIN operations recall ON recall.operation_key = $4
           WHERE p.payment_id = $1"#,
        id,
        reserve.as_str(),
        debit.as_str(),
        recall.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    row.into_locked(payment_id, tx_id)
}

impl LockedPaymentRow {
    fn into_locked(self, payment_id: &PaymentId, tx_id: TxId) -> Result<LockedPayment, LedgerError> {
        let unreadable = |column: &'static str, value: &str| LedgerError::Unreadable {
            id: payment_id.to_string(),
            column,
            value: value.to_owned(),
        };
        let profile = serde_json::from_value(self.profile.clone())
            .map_err(|_| unreadable("profile", &self.profile.to_string()))?;
        let money = parse_currency(&self.currency)
            .and_then(|currency| Money::from_minor(self.amount_minor, currency))
            .map_err(|_| unreadable("amount_minor", &format!("{} {}", self.amount_minor, self.currency)))?;
        let source_account = AccountId::new(self.source_account.as_str())
            .map_err(|_| unreadable("source_account", &self.source_account))?;
        let facts = self.facts(unreadable)?;
        // Pairs with the journal entry of steps/reserve.rs, from which the database opens the hold.
        let contradiction = if self.hold_matches == Some(false) {
            Some("the hold differs from the payment")
        } else if facts.hold.is_some() && facts.reserve != Some(ReserveRecord::Held) {
            Some("there is a hold without a recorded reserve")
        } else {
            None
        };
        Ok(LockedPayment {
            payment_id: payment_id.clone(),
            tx_id,
            tenant_id: self.tenant_id,
            source_account,
            money,
            profile,
            submit_deadline: self.submit_deadline.map(|at| at.to_jiff()),
            cancelling_ms: unsigned_ms(self.cancelling_ms),
            needed_operator: self.needed_operator,
            too_late: self.too_late,
            facts,
            contradiction,
        })
    }

    fn facts(&self, unreadable: impl Fn(&'static str, &str) -> LedgerError) -> Result<Facts, LedgerError> {
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
            debit_refused: self.debit_reason.clone(),
            recall: self.recall_record(),
            cancel_requested: self.cancel_requested,
            account_busy: self.account_busy,
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

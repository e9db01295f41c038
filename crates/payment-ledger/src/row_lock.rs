//! A payment row under its lock, with everything the rules look at.

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
pub(crate) struct Locked {
    pub(crate) payment_id: PaymentId,
    pub(crate) tx_id: TxId,
    pub(crate) tenant_id: String,
    pub(crate) source_account: AccountId,
    pub(crate) money: Money,
    pub(crate) profile: SwitchProfile,
    pub(crate) submit_deadline: Option<jiff::Timestamp>,
    pub(crate) cancelling_ms: u64,
    /// It came to stand before a person, and may still.
    pub(crate) stood: bool,
    pub(crate) too_late: bool,
    pub(crate) facts: Facts,
}

impl Locked {
    /// What a report must say to be this payment's.
    pub(crate) fn expected(&self) -> ExpectedTransfer {
        ExpectedTransfer {
            switch: self.profile.switch.clone(),
            reference: keys::submit(&self.tx_id),
            money: self.money,
        }
    }
}

/// Locks the row, then reads: in two statements, since one would join what other tables held before
/// the lock was granted.
pub(crate) async fn lock(tx: &mut PgConnection, payment_id: &PaymentId) -> Result<Locked, LedgerError> {
    let id = payment_id.as_str();
    sqlx::query!("SELECT payment_id FROM payments WHERE payment_id = $1 FOR UPDATE", id)
        .fetch_optional(&mut *tx)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(id.to_owned()))?;
    let tx_id = TxId::derive(payment_id);
    let (reserve, debit, recall) = (keys::reserve(payment_id), keys::debit(&tx_id), keys::recall(&tx_id));
    let row = sqlx::query!(
        r#"SELECT p.tenant_id, p.source_account, p.amount_minor, p.currency, p.profile, p.state, p.run_id, p.attempts,
                  p.submit_deadline, p.cause, p.final_status,
                  (extract(epoch FROM clock_timestamp() - p.first_attempt_at) * 1000)::bigint AS first_attempt_age_ms,
                  (extract(epoch FROM clock_timestamp() - p.cancelling_since) * 1000)::bigint AS cancelling_ms,
                  p.operator_reason IS NOT NULL AS "stood!",
                  clock_timestamp() > p.valid_until AS "too_late!",
                  h.status AS "hold?",
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
                        AND o.attempts > 0 AND o.profile ->> 'strategy' = 'validate' AND o.payment_id <> p.payment_id)
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

    let unreadable = |column: &'static str, value: &str| LedgerError::Unreadable {
        id: id.to_owned(),
        column,
        value: value.to_owned(),
    };
    fn word<T>(
        column: &'static str,
        text: Option<&str>,
        parse: fn(&str) -> Option<T>,
        unreadable: impl Fn(&'static str, &str) -> LedgerError,
    ) -> Result<Option<T>, LedgerError> {
        text.map(|text| parse(text).ok_or_else(|| unreadable(column, text))).transpose()
    }
    let state = PaymentState::parse(&row.state).ok_or_else(|| unreadable("state", &row.state))?;
    let hold = word("hold", row.hold.as_deref(), HoldStatus::parse, unreadable)?;
    let final_status = word("final_status", row.final_status.as_deref(), FinalStatus::parse, unreadable)?;
    let recall = match row.recall_outcome.as_deref() {
        None => None,
        Some("done") => Some(RecallRecord::Recalled),
        Some("impossible") => Some(RecallRecord::RecallUnsupported),
        Some(_) => Some(RecallRecord::Refused),
    };
    let reserve = match (row.reserve_outcome.as_deref(), row.reserve_reason.as_deref()) {
        (None, _) => None,
        (Some("done"), _) => Some(ReserveRecord::Held),
        (Some(_), reason) => {
            let reason = reason.unwrap_or_default();
            let refusal =
                ReserveRefusal::parse(reason).ok_or_else(|| unreadable("reason of reserve", reason))?;
            Some(ReserveRecord::Refused(refusal))
        }
    };
    let run_id = row
        .run_id
        .as_deref()
        .map(|run| RunId::new(run).map_err(|_| unreadable("run_id", run)))
        .transpose()?;
    let cause: Option<Cause> = row
        .cause
        .map(|json| serde_json::from_value(json.clone()).map_err(|_| unreadable("cause", &json.to_string())))
        .transpose()?;
    let profile = serde_json::from_value(row.profile.clone())
        .map_err(|_| unreadable("profile", &row.profile.to_string()))?;
    let money = parse_currency(&row.currency)
        .and_then(|currency| Money::from_minor(row.amount_minor, currency))
        .map_err(|_| unreadable("amount_minor", &format!("{} {}", row.amount_minor, row.currency)))?;
    let source_account = AccountId::new(row.source_account.as_str())
        .map_err(|_| unreadable("source_account", &row.source_account))?;

    Ok(Locked {
        payment_id: payment_id.clone(),
        tx_id,
        tenant_id: row.tenant_id,
        source_account,
        money,
        profile,
        submit_deadline: row.submit_deadline.map(|at| at.to_jiff()),
        cancelling_ms: millis(row.cancelling_ms),
        stood: row.stood,
        too_late: row.too_late,
        facts: Facts {
            state,
            run_id,
            reserve,
            hold,
            attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
            first_attempt_age_ms: row.first_attempt_age_ms.map(|age| millis(Some(age))),
            cause,
            final_status,
            confirmation_mismatch: row.confirmation_mismatch,
            reported_without_attempt: row.reported_without_attempt,
            debit_refused: row.debit_reason,
            recall,
            cancel_requested: row.cancel_requested,
            account_busy: row.account_busy,
        },
    })
}

/// Database ages as unsigned milliseconds; a clock set back counts as no age.
fn millis(age_ms: Option<i64>) -> u64 {
    age_ms.and_then(|age| u64::try_from(age).ok()).unwrap_or(0)
}

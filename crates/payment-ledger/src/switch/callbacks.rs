//! Callbacks of the switch, stored with their consequences before they are delivered to a workflow.
//!
//! Storing a callback and ending a payment lock the same payment row: the second one sees the first, so no
//! callback is lost between them.

use payment_protocol::PaymentState;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::{EventId, PaymentId, SwitchName, TxId};
use payment_protocol::inbox::{CallbackStatus, InboxMessage, InboxMessageKind};
use payment_protocol::reject::Reject;
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::returns::Posting;
use payment_protocol::rules::{self, FinalStatusRuling};
use postgres_kit::Connection;
use postgres_kit::text::replace_nul;

use crate::accounts::LockedAccount;
use crate::group_commit::changes::Changes;
use crate::group_commit::{GroupStep, Target};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::switch::final_status::{
    FinalStatusSource, describe_posting, settled_line, write_final_reject, write_returned, write_settled,
};
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, writes};

/// An authentic callback: its signature over the raw body was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The switch whose secret signed it.
    pub switch: SwitchName,
    /// The switch's event id.
    pub event_id: EventId,
    /// The reference, or the rail's id, as received.
    pub reference: String,
    /// The reported status.
    pub status: CallbackStatus,
    /// The reported amount, in minor units.
    pub amount_minor: i64,
    /// The reported currency.
    pub currency: String,
    /// The switch's reason.
    pub reason: Option<String>,
    /// The code of a FAILURE's reason, if the switch's rejects have codes.
    pub reason_code: Option<String>,
    /// Where the money of a SUCCESS is at the receiving bank, if the switch says so.
    pub posting: Option<Posting>,
    /// The raw body.
    pub body: Vec<u8>,
}

/// Outcome of storing a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCallbackOutcome {
    /// Stored now; deliver the message, if there is one.
    New(Option<InboxMessage>),
    /// Stored before, with the same body.
    Duplicate,
    /// The event id was used before with another body: an exception is open, and the first body is kept.
    CallbackEventIdReused,
}

impl Ledger {
    /// Stores a callback and its consequences in one transaction.
    ///
    /// # Errors
    /// [`LedgerError`]: not stored, or unknown; the switch repeats the callback.
    pub async fn store_callback(&self, callback: &Callback) -> Result<StoreCallbackOutcome, LedgerError> {
        let tx_id = self.named_transaction(&callback.switch, &callback.reference).await?;
        if callback.status == CallbackStatus::Success
            && let Some(tx_id) = tx_id.clone()
            && let Some(message) = self.group.run(SuccessStep { callback: callback.clone(), tx_id }).await
        {
            return Ok(StoreCallbackOutcome::New(Some(message)));
        }
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let message = match receive(&mut tx, &ReceivedReport::from(callback), tx_id.as_ref()).await? {
            Received::Before(outcome) => {
                tx.commit().await?;
                return Ok(outcome);
            }
            Received::Unknown => None,
            Received::New(locked) if apply_callback(&mut tx, &locked, callback).await? => {
                Some(insert_message(&mut tx, &locked, callback).await?)
            }
            Received::New(_) => None,
        };
        tx.commit().await?;
        Ok(StoreCallbackOutcome::New(message))
    }
}

impl Callback {
    /// The report about a payment, whose transfer it may call by the rail's id.
    fn report(&self, locked: &LockedPayment) -> SettledReport {
        SettledReport {
            switch: self.switch.clone(),
            reference: locked.transfer_name().translate(&self.reference),
            amount_minor: self.amount_minor,
            currency: self.currency.clone(),
        }
    }

    /// The message for the workflow of the callback's payment.
    fn message(&self, locked: &LockedPayment, inbox_id: i64) -> InboxMessage {
        InboxMessage {
            inbox_id,
            payment_id: locked.payment_id.clone(),
            workflow_id: locked.workflow_id.clone(),
            ended: locked.facts.state.end().is_some(),
            kind: InboxMessageKind::Callback {
                status: self.status,
                reason: self.reason.clone(),
                event_id: self.event_id.to_string(),
            },
        }
    }
}

/// The final status that a callback reports.
fn reported_by(status: CallbackStatus) -> FinalStatus {
    match status {
        CallbackStatus::Success => FinalStatus::Settled,
        CallbackStatus::Returned => FinalStatus::Returned,
        CallbackStatus::Failure => FinalStatus::Void,
    }
}

/// Whether the workflow receives a callback that changes nothing on record.
fn delivers_again(locked: &LockedPayment, reported: FinalStatus) -> bool {
    rules::delivers_again(&locked.facts, &locked.profile, locked.money, reported)
}

/// What a callback says that moves no money until a query confirms it; `None` if its ruling applies now. The callback itself is the record.
fn unconfirmed(
    locked: &LockedPayment,
    status: CallbackStatus,
    report: &SettledReport,
) -> Option<FinalStatus> {
    let reported = reported_by(status);
    let (facts, profile, expected) = (&locked.facts, &locked.profile, locked.expected());
    rules::is_unconfirmed(facts, profile, &expected, report, reported).then_some(reported)
}

/// What a SUCCESS that moves no money yet says about the money at the receiving bank.
fn unconfirmed_line(posting: Option<Posting>) -> Option<String> {
    posting.map(|posting| format!("a callback says that {}", describe_posting(posting)))
}

/// A SUCCESS in a group: the first report about an open payment, which nothing contradicts.
struct SuccessStep {
    callback: Callback,
    tx_id: TxId,
}

impl GroupStep for SuccessStep {
    type Outcome = InboxMessage;

    fn target(&self) -> Target {
        Target::Transaction(self.tx_id.clone())
    }

    fn decide(
        &self,
        locked: &LockedPayment,
        _account: Option<&LockedAccount>,
    ) -> Result<Option<(Changes, InboxMessage)>, LedgerError> {
        let report = self.callback.report(locked);
        let answers_us = false;
        let is_plain = rules::settled_report(&locked.facts, &locked.expected(), &report, answers_us)
            == FinalStatusRuling::First
            && locked.facts.state.end().is_none()
            && !locked.facts.report_to_confirm
            && !locked.needed_operator
            && !locked.success_contradicted;
        if !is_plain {
            return Ok(None);
        }
        let callback = Some(self.callback.clone());
        let changes = if unconfirmed(locked, self.callback.status, &report).is_some() {
            let line = unconfirmed_line(self.callback.posting);
            Changes { money_reported: true, line, callback, ..Changes::default() }
        } else {
            Changes {
                state: Some(PaymentState::Confirmed),
                final_status: Some((FinalStatus::Settled, FinalStatusSource::Callback.as_str())),
                line: Some(settled_line(FinalStatusSource::Callback, self.callback.posting)),
                callback,
                ..Changes::default()
            }
        };
        Ok(Some((changes, self.callback.message(locked, 0))))
    }

    fn with_inbox_id(message: InboxMessage, inbox_id: i64) -> InboxMessage {
        InboxMessage { inbox_id, ..message }
    }
}

/// A report of a switch as it is stored, whatever it reports.
pub(super) struct ReceivedReport<'a> {
    pub(super) switch: &'a SwitchName,
    pub(super) event_id: &'a EventId,
    pub(super) reference: &'a str,
    pub(super) status: &'a str,
    pub(super) amount_minor: i64,
    pub(super) currency: &'a str,
    pub(super) reason: Option<&'a str>,
    pub(super) reason_code: Option<&'a str>,
    pub(super) body: &'a [u8],
}

impl<'a> From<&'a Callback> for ReceivedReport<'a> {
    fn from(callback: &'a Callback) -> Self {
        Self {
            switch: &callback.switch,
            event_id: &callback.event_id,
            reference: &callback.reference,
            status: callback.status.as_str(),
            amount_minor: callback.amount_minor,
            currency: &callback.currency,
            reason: callback.reason.as_deref(),
            reason_code: callback.reason_code.as_deref(),
            body: &callback.body,
        }
    }
}

/// What became of a report when it was stored.
pub(super) enum Received {
    /// It is about this payment.
    New(Box<LockedPayment>),
    /// It is about no payment, or about one of another switch: an exception is open.
    Unknown,
    /// Nothing was stored.
    Before(StoreCallbackOutcome),
}

/// Stores a report under the lock of its payment's row. `tx_id`: the transaction that it names. The caller commits.
pub(super) async fn receive(
    tx: &mut LedgerTransaction,
    report: &ReceivedReport<'_>,
    tx_id: Option<&TxId>,
) -> Result<Received, LedgerError> {
    let known = match tx_id {
        None => None,
        Some(tx_id) => {
            sqlx::query_scalar!("SELECT payment_id FROM payments WHERE tx_id = $1", tx_id.as_str())
                .fetch_optional(&mut **tx)
                .await?
                .and_then(|id| PaymentId::new(id).ok())
        }
    };
    let locked = match &known {
        Some(payment_id) => Some(lock_payment(tx, payment_id).await?),
        None => None,
    };
    // Event ids are unique per switch only.
    let origin = format!("{}:{}", report.switch, report.event_id);
    if let Some(earlier) = insert(tx, report, known.as_ref()).await? {
        // Empty: erased since.
        if earlier.is_empty() || earlier == report.body {
            return Ok(Received::Before(StoreCallbackOutcome::Duplicate));
        }
        let detail = format!("callback event {origin} was received again with another body");
        tx.open_exception(known.as_ref(), ExceptionKind::CallbackEventIdReused, &origin, &detail).await?;
        return Ok(Received::Before(StoreCallbackOutcome::CallbackEventIdReused));
    }
    if let Some(locked) = locked {
        return Ok(Received::New(Box::new(locked)));
    }
    let detail = format!(
        "the switch reported {} for reference {}, which belongs to no payment",
        report.status, report.reference
    );
    tx.open_exception(None, ExceptionKind::CallbackForUnknownPayment, &origin, &detail).await?;
    Ok(Received::Unknown)
}

/// As [`receive`], for a report that only the payment's own switch can make. `reported`: the report in words, for the exception of another.
pub(super) async fn receive_from_own_switch(
    tx: &mut LedgerTransaction,
    report: &ReceivedReport<'_>,
    tx_id: Option<&TxId>,
    reported: &str,
) -> Result<Received, LedgerError> {
    let received = receive(tx, report, tx_id).await?;
    let switch = report.switch;
    let Received::New(locked) = &received else { return Ok(received) };
    if *switch == locked.profile.switch {
        return Ok(received);
    }
    let origin = format!("{switch}:{}", report.event_id);
    let detail = format!("another switch than the payment's, {switch}, {reported}");
    let kind = ExceptionKind::CallbackFromOtherSwitch;
    tx.open_exception(Some(&locked.payment_id), kind, &origin, &detail).await?;
    Ok(Received::Unknown)
}

/// Inserts the report; returns the stored body if the event id exists already.
async fn insert(
    tx: &mut Connection,
    report: &ReceivedReport<'_>,
    payment_id: Option<&PaymentId>,
) -> Result<Option<Vec<u8>>, LedgerError> {
    let reason = report.reason.map(replace_nul);
    let reason_code = report.reason_code.map(replace_nul);
    let inserted = sqlx::query!(
        "INSERT INTO switch_callbacks
             (switch, event_id, payment_id, reference, status, amount_minor, currency, reason, body, reason_code)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING",
        report.switch.as_str(),
        report.event_id.as_str(),
        payment_id.map(PaymentId::as_str),
        &*replace_nul(report.reference),
        report.status,
        report.amount_minor,
        &*replace_nul(report.currency),
        reason.as_deref(),
        report.body,
        reason_code.as_deref(),
    )
    .execute(&mut *tx)
    .await?;
    if inserted.rows_affected() > 0 {
        return Ok(None);
    }
    let earlier = sqlx::query_scalar!(
        "SELECT body FROM switch_callbacks WHERE switch = $1 AND event_id = $2",
        report.switch.as_str(),
        report.event_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(Some(earlier))
}

/// Writes the consequences of a callback; returns whether the workflow receives a message.
async fn apply_callback(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    callback: &Callback,
) -> Result<bool, LedgerError> {
    let payment_id = &locked.payment_id;
    let open = locked.facts.state.end().is_none();
    if callback.status != CallbackStatus::Failure {
        let report = callback.report(locked);
        if let Some(reported) = unconfirmed(locked, callback.status, &report) {
            if let Some(line) = unconfirmed_line(callback.posting) {
                writes::append_timeline(tx, payment_id, locked.facts.state, &line).await?;
            }
            return store_unconfirmed(tx, locked, reported).await;
        }
        let ruling = if callback.status == CallbackStatus::Returned {
            write_returned(tx, locked, &report, FinalStatusSource::Callback).await?
        } else {
            write_settled(tx, locked, &report, FinalStatusSource::Callback, callback.posting).await?
        };
        let is_delivered = match ruling {
            FinalStatusRuling::First => open,
            FinalStatusRuling::Differs(Difference::Switch)
            | FinalStatusRuling::NoAttempt
            | FinalStatusRuling::Contradicts => false,
            FinalStatusRuling::Same | FinalStatusRuling::Differs(_) => {
                delivers_again(locked, reported_by(callback.status))
            }
        };
        return Ok(is_delivered);
    }
    let reject = Reject {
        code: callback.reason_code.clone(),
        reason: callback.reason.clone().unwrap_or_else(|| "no reason given".into()),
    };
    // Event ids are unique per switch only.
    let origin = format!("{}:{}", callback.switch, callback.event_id);
    if callback.switch != locked.profile.switch {
        let detail =
            format!("another switch than the payment's, {}, reported FAILURE: {reject}", callback.switch);
        tx.open_exception(Some(payment_id), ExceptionKind::CallbackFromOtherSwitch, &origin, &detail).await?;
        return Ok(false);
    }
    if matches!(locked.facts.final_status, Some(FinalStatus::Settled | FinalStatus::Returned)) {
        let detail = format!("the switch reported FAILURE after it had reported SUCCESS: {reject}");
        tx.open_exception(Some(payment_id), ExceptionKind::ContradictoryFinalStatus, &origin, &detail)
            .await?;
        return Ok(false);
    }
    let is_of_this_amount = callback.amount_minor == locked.money.amount_minor()
        && callback.currency == locked.money.currency().code();
    let ruling = rules::final_reject_callback(&locked.facts, &locked.profile, locked.money, &reject);
    let ruling = ruling.filter(|_| open && is_of_this_amount);
    if let Some(ruling) = ruling {
        write_final_reject(tx, locked, &reject, ruling).await?;
    }
    if open && ruling.is_none() {
        let detail =
            format!("the switch reported a failure, which a cancel or a query must confirm: {reject}");
        writes::append_timeline(tx, payment_id, locked.facts.state, &detail).await?;
    }
    Ok(open && (ruling == Some(FinalStatusRuling::First) || delivers_again(locked, FinalStatus::Void)))
}

/// Stores that the payment awaits the switch's answer about a callback; returns whether the workflow receives a message.
async fn store_unconfirmed(
    tx: &mut Connection,
    locked: &LockedPayment,
    reported: FinalStatus,
) -> Result<bool, LedgerError> {
    let is_delivered = delivers_again(locked, reported);
    if is_delivered {
        sqlx::query!(
            "UPDATE payments SET money_reported_at = coalesce(money_reported_at, clock_timestamp()), updated_at = clock_timestamp()
             WHERE payment_id = $1",
            locked.payment_id.as_str(),
        )
        .execute(tx)
        .await?;
    }
    Ok(is_delivered)
}

async fn insert_message(
    tx: &mut Connection,
    locked: &LockedPayment,
    callback: &Callback,
) -> Result<InboxMessage, LedgerError> {
    // Due after one second: the process that stored the callback delivers it first.
    let row = sqlx::query!(
        "INSERT INTO inbox (payment_id, kind, switch, event_id, next_delivery_at)
         VALUES ($1, 'callback', $2, $3, clock_timestamp() + interval '1 second') RETURNING inbox_id",
        locked.payment_id.as_str(),
        callback.switch.as_str(),
        callback.event_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(callback.message(locked, row.inbox_id))
}

//! Everything the ledger has recorded about one payment, read in one snapshot, for operators.

mod read;

use jiff::Timestamp;
use payment_protocol::cause::Cause;
use payment_protocol::ids::{PaymentId, ReturnId, TxId};
use payment_protocol::{SwitchProfile, keys};
use sqlx::Executor as _;

use crate::events::notifications::{self, Notification};
use crate::operator::decisions::{self, DecisionView};
use crate::reads::queues::ExceptionView;
use crate::reads::view::{self, PaymentView, TimelineEntry};
use crate::switch::recalls::{self, RecallView};
use crate::{Ledger, LedgerError};

/// One payment with all its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentExplanation {
    /// The payment's row.
    pub payment: PaymentRow,
    /// Submit attempts.
    pub submissions: Vec<SubmissionView>,
    /// Operations under the payment's keys, in the order they were recorded.
    pub operations: Vec<OperationView>,
    /// Journal entries under the payment's keys.
    pub journal: Vec<JournalEntryView>,
    /// Its hold.
    pub hold: Option<HoldView>,
    /// Callbacks of the switch.
    pub callbacks: Vec<CallbackView>,
    /// Its recall, if one goes on after its end.
    pub recall: Option<RecallView>,
    /// Messages for its workflow, delivered and undelivered.
    pub inbox: Vec<InboxMessageView>,
    /// Operator decisions.
    pub decisions: Vec<DecisionView>,
    /// Exceptions.
    pub exceptions: Vec<ExceptionView>,
    /// Alerts.
    pub alerts: Vec<AlertView>,
    /// Notifications of the customer.
    pub notifications: Vec<Notification>,
    /// Its timeline, internal lines included.
    pub timeline: Vec<TimelineEntry>,
}

/// The payment's row, with the columns that only operators see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentRow {
    /// The customer's view.
    pub view: PaymentView,
    /// Its tenant.
    pub tenant_id: String,
    /// Its client.
    pub client_id: String,
    /// The switch profile as of acceptance.
    pub profile: SwitchProfile,
    /// Recovery workflows started.
    pub resume_count: i32,
    /// The run that reserved the amount.
    pub run_id: Option<String>,
    /// Submit attempts.
    pub attempts: i32,
    /// When the first attempt was recorded.
    pub first_attempt_at: Option<Timestamp>,
    /// Submit deadline, by the switch's clock.
    pub submit_deadline: Option<Timestamp>,
    /// The id by which the rail knows the transfer, once it is minted.
    pub rail_id: Option<String>,
    /// The first cause of compensation.
    pub cause: Option<Cause>,
    /// Since when it is cancelling.
    pub cancelling_since: Option<Timestamp>,
    /// The final status at the switch.
    pub final_status: Option<String>,
    /// Source of the final status.
    pub final_status_source: Option<String>,
    /// The latest time of its start.
    pub valid_until: Timestamp,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// Queries of the transfer; counted only where the profile limits them.
    pub queries: i32,
    /// When the last of them was allowed.
    pub last_query_at: Option<Timestamp>,
}

/// One submit attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmissionView {
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// When it was recorded, before it was sent.
    pub recorded_at: Timestamp,
    /// `accepted`, `refused` or `unknown`; `None` without an answer.
    pub outcome: Option<String>,
    /// The switch's reason, or the error.
    pub detail: Option<String>,
    /// When the answer was recorded.
    pub answered_at: Option<Timestamp>,
    /// The newest transfer before it, at a switch without references.
    pub marker: Option<String>,
    /// The switch's id of the transfer.
    pub transfer_id: Option<String>,
}

/// One recorded operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationView {
    /// The operation key.
    pub operation_key: String,
    /// `done`, `refused` or `unsupported`.
    pub outcome: String,
    /// Why it was not done.
    pub reason: Option<String>,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

/// One journal entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntryView {
    /// The operation key.
    pub operation_key: String,
    /// `reserve`, `debit`, `release` or a correction.
    pub kind: String,
    /// The debited account.
    pub debit_account: String,
    /// The credited account.
    pub credit_account: String,
    /// Amount in minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// When it was posted.
    pub posted_at: Timestamp,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldView {
    /// The customer's account.
    pub account_id: String,
    /// Amount in minor units.
    pub amount_minor: i64,
    /// `open`, `debited` or `released`.
    pub status: String,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Since when the bank bears it; `None` if the customer does.
    pub borne_by_bank_since: Option<Timestamp>,
    /// When it was closed.
    pub closed_at: Option<Timestamp>,
}

/// A stored callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackView {
    /// The switch.
    pub switch: String,
    /// The switch's event id.
    pub event_id: String,
    /// SUCCESS or FAILURE.
    pub status: String,
    /// The reported amount, in minor units.
    pub amount_minor: i64,
    /// The reported currency.
    pub currency: String,
    /// The switch's reason.
    pub reason: Option<String>,
    /// When it was received.
    pub received_at: Timestamp,
}

/// A message in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxMessageView {
    /// `callback`, `cancel`, `final_status` or `decision`.
    pub kind: String,
    /// Event id of the callback.
    pub event_id: Option<String>,
    /// Id of the decision.
    pub decision_id: Option<String>,
    /// When it was received.
    pub received_at: Timestamp,
    /// Delivery attempts by the inbox relay.
    pub delivery_attempts: i32,
    /// When it was delivered; `None` while it is undelivered.
    pub delivered_at: Option<Timestamp>,
}

/// A raised alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertView {
    /// Its kind.
    pub kind: String,
    /// The alert in words.
    pub detail: String,
    /// When it was raised.
    pub raised_at: Timestamp,
}

impl Ledger {
    /// All records of one payment, of any tenant; at most `timeline_limit` lines of its timeline. `None` if there is no
    /// such payment.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn explain(
        &self,
        payment_id: &PaymentId,
        timeline_limit: i64,
    ) -> Result<Option<PaymentExplanation>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let tx = &mut *tx;
        let Some(payment) = read::row(tx, payment_id).await? else { return Ok(None) };
        let decisions = decisions::of_payment(tx, payment_id).await?;
        let returns = read::returns(tx, payment_id).await?;
        let keys = all_keys(payment_id, &decisions, &returns);
        Ok(Some(PaymentExplanation {
            payment,
            submissions: read::submissions(tx, payment_id).await?,
            operations: read::operations(tx, &keys).await?,
            journal: read::journal(tx, &keys).await?,
            hold: read::hold(tx, payment_id).await?,
            callbacks: read::callbacks(tx, payment_id).await?,
            recall: recalls::view(tx, payment_id).await?,
            inbox: read::inbox(tx, payment_id).await?,
            decisions,
            exceptions: read::exceptions(tx, payment_id).await?,
            alerts: read::alerts(tx, payment_id).await?,
            notifications: notifications::notifications(tx, payment_id, timeline_limit).await?,
            timeline: view::timeline(tx, payment_id, 0, timeline_limit, true).await?,
        }))
    }
}

/// Every operation key of this payment.
fn all_keys(payment_id: &PaymentId, decisions: &[DecisionView], returns: &[ReturnId]) -> Vec<String> {
    let tx_id = TxId::derive(payment_id);
    let mut all = vec![
        keys::reserve(payment_id).to_string(),
        keys::debit(&tx_id).to_string(),
        keys::recall(&tx_id).to_string(),
        keys::compensate_reserve(&tx_id).to_string(),
        keys::advance(&tx_id).to_string(),
        keys::collect(&tx_id).to_string(),
    ];
    all.extend(returns.iter().map(|return_id| keys::book_return(&tx_id, return_id).to_string()));
    for DecisionView { decision_id, .. } in decisions {
        all.push(keys::debit_by_decision(&tx_id, decision_id).to_string());
        all.push(keys::compensate_reserve_by_decision(&tx_id, decision_id).to_string());
        all.push(keys::correction(&tx_id, decision_id).to_string());
    }
    all
}

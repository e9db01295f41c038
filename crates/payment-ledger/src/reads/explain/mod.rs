//! Everything the ledger knows of one payment, read in one snapshot, for people.

mod read;

use jiff::Timestamp;
use payment_protocol::cause::Cause;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::{SwitchProfile, keys};
use sqlx::Executor as _;

use crate::events::notifications::{self, Notification};
use crate::operator::decisions::{self, DecisionView};
use crate::reads::queues::ExceptionView;
use crate::reads::view::{self, PaymentView, TimelineEntry};
use crate::{Ledger, LedgerError};

/// One payment, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The row.
    pub payment: Row,
    /// Attempts at the switch.
    pub submissions: Vec<Submission>,
    /// What is recorded under the payment's keys, in the order it was recorded.
    pub operations: Vec<Operation>,
    /// What was posted under them.
    pub journal: Vec<Entry>,
    /// What was set aside.
    pub hold: Option<Hold>,
    /// What the switch reported.
    pub callbacks: Vec<StoredCallback>,
    /// What the workflow was, or is to be, told.
    pub inbox: Vec<InboxEntry>,
    /// What people decided.
    pub decisions: Vec<DecisionView>,
    /// What contradicts the books.
    pub exceptions: Vec<ExceptionView>,
    /// What was alerted.
    pub alerts: Vec<RaisedAlert>,
    /// What the customer was told.
    pub notifications: Vec<Notification>,
    /// What happened.
    pub timeline: Vec<TimelineEntry>,
}

/// The payment's row, with what only operators see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As the customer sees it.
    pub view: PaymentView,
    /// Whose.
    pub tenant_id: String,
    /// Through which client.
    pub client_id: String,
    /// The switch's profile as it was at acceptance.
    pub profile: SwitchProfile,
    /// Times it was taken up again.
    pub resume_count: i32,
    /// The run that reserved from the top.
    pub run_id: Option<String>,
    /// Attempts at the switch.
    pub attempts: i32,
    /// When the first was recorded.
    pub first_attempt_at: Option<Timestamp>,
    /// Submit's deadline, on the switch's clock.
    pub submit_deadline: Option<Timestamp>,
    /// The first cause that turned it round.
    pub cause: Option<Cause>,
    /// Since when the switch is asked to cancel.
    pub cancelling_since: Option<Timestamp>,
    /// The switch's first definite answer.
    pub final_status: Option<String>,
    /// Who brought it.
    pub final_status_source: Option<String>,
    /// Until when it had to be started.
    pub valid_until: Timestamp,
    /// When it was started.
    pub started_at: Option<Timestamp>,
}

/// One attempt at the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// From 1.
    pub attempt: i32,
    /// When it was recorded, before it was sent.
    pub recorded_at: Timestamp,
    /// accepted, refused or unknown; none without an answer.
    pub outcome: Option<String>,
    /// The switch's words, or what happened instead.
    pub detail: Option<String>,
    /// When the answer was recorded.
    pub answered_at: Option<Timestamp>,
    /// The newest transfer at a switch without references before it.
    pub marker: Option<String>,
    /// What the switch calls the transfer.
    pub transfer_id: Option<String>,
}

/// What is recorded under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The key.
    pub operation_key: String,
    /// done or refused.
    pub outcome: String,
    /// Why it was refused.
    pub reason: Option<String>,
    /// When.
    pub recorded_at: Timestamp,
}

/// One journal row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Under which key.
    pub operation_key: String,
    /// reserve, settle, release or a correction.
    pub kind: String,
    /// Which account gave.
    pub debit_account: String,
    /// Which account took.
    pub credit_account: String,
    /// Minor units.
    pub amount_minor: i64,
    /// ISO 4217 code.
    pub currency: String,
    /// When.
    pub posted_at: Timestamp,
}

/// Money set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// In which account.
    pub account_id: String,
    /// Minor units.
    pub amount_minor: i64,
    /// open, settled or released.
    pub status: String,
    /// When it was made.
    pub opened_at: Timestamp,
    /// When it was closed.
    pub closed_at: Option<Timestamp>,
}

/// A callback as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCallback {
    /// Of which switch.
    pub switch: String,
    /// Its id of the event.
    pub event_id: String,
    /// SUCCESS or FAILURE.
    pub status: String,
    /// Minor units, as it said.
    pub amount_minor: i64,
    /// The currency it said.
    pub currency: String,
    /// Its words.
    pub reason: Option<String>,
    /// When it came.
    pub received_at: Timestamp,
}

/// A row of the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEntry {
    /// callback, cancel, final_status or decision.
    pub kind: String,
    /// Which callback.
    pub event_id: Option<String>,
    /// Which decision.
    pub decision_id: Option<String>,
    /// When it came.
    pub received_at: Timestamp,
    /// Times the relay took it.
    pub delivery_attempts: i32,
    /// When the workflow was told; none when it is still to be.
    pub delivered_at: Option<Timestamp>,
}

/// An alert that was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaisedAlert {
    /// What kind.
    pub kind: String,
    /// In words.
    pub detail: String,
    /// When.
    pub raised_at: Timestamp,
}

impl Ledger {
    /// Everything about one payment, whosever it is; at most `timeline_limit` lines of its timeline. None when there is no
    /// such payment.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn explain(
        &self,
        payment_id: &PaymentId,
        timeline_limit: i64,
    ) -> Result<Option<Explained>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let tx = &mut *tx;
        let Some(payment) = read::row(tx, payment_id).await? else { return Ok(None) };
        let decisions = decisions::of_payment(tx, payment_id).await?;
        let keys = all_keys(payment_id, &decisions);
        Ok(Some(Explained {
            payment,
            submissions: read::submissions(tx, payment_id).await?,
            operations: read::operations(tx, &keys).await?,
            journal: read::journal(tx, &keys).await?,
            hold: read::hold(tx, payment_id).await?,
            callbacks: read::callbacks(tx, payment_id).await?,
            inbox: read::inbox(tx, payment_id).await?,
            decisions,
            exceptions: read::exceptions(tx, payment_id).await?,
            alerts: read::alerts(tx, payment_id).await?,
            notifications: notifications::notifications(tx, payment_id, timeline_limit).await?,
            timeline: view::timeline(tx, payment_id, 0, timeline_limit, true).await?,
        }))
    }
}

/// Every key under which something of this payment may be recorded.
fn all_keys(payment_id: &PaymentId, decisions: &[DecisionView]) -> Vec<String> {
    let tx_id = TxId::derive(payment_id);
    let mut all = vec![
        keys::reserve(payment_id).to_string(),
        keys::debit(&tx_id).to_string(),
        keys::recall(&tx_id).to_string(),
        keys::compensate_reserve(&tx_id).to_string(),
    ];
    for DecisionView { decision_id, .. } in decisions {
        all.push(keys::debit_by_decision(&tx_id, decision_id).to_string());
        all.push(keys::compensate_reserve_by_decision(&tx_id, decision_id).to_string());
        all.push(keys::correction(&tx_id, decision_id).to_string());
    }
    all
}

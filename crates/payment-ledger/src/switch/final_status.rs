//! The final status: the switch's first definite answer, written before money moves; only a return replaces it.
//!
//! Callbacks, queries, statements and answers to a cancel are all recorded here, under the payment row's lock: the
//! second one is compared with the first, and a contradiction opens an exception.

use payment_protocol::PaymentState;
use payment_protocol::cancel::VoidReason;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::PaymentId;
use payment_protocol::reject::Reject;
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::returns::Posting;
use payment_protocol::rules::{self, FinalStatusRuling};
use postgres_kit::Connection;

use super::returns;
use crate::amount_text::amount;
use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::cancel::is_accepted;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, writes};

/// The source of a final status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalStatusSource {
    /// A callback.
    Callback,
    /// A query.
    Query,
    /// The answer to our cancel.
    Cancel,
    /// The switch's statement.
    Statement,
}

impl FinalStatusSource {
    /// Whether the report answers our own question.
    fn answers_us(self) -> bool {
        self != Self::Callback
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Callback => "callback",
            Self::Query => "query",
            Self::Cancel => "cancel",
            Self::Statement => "statement",
        }
    }
}

impl Ledger {
    /// Records a SUCCESS that a query, a cancel or a statement returned.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_settled(
        &self,
        payment_id: &PaymentId,
        report: &SettledReport,
        source: FinalStatusSource,
    ) -> Result<FinalStatusRuling, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let ruling = write_settled(&mut tx, &locked, report, source, None).await?;
        tx.commit().await?;
        Ok(ruling)
    }

    /// Records that the money came back, as a query, a cancel or a statement returned.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_returned(
        &self,
        payment_id: &PaymentId,
        report: &SettledReport,
        source: FinalStatusSource,
    ) -> Result<FinalStatusRuling, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let ruling = write_returned(&mut tx, &locked, report, source).await?;
        tx.commit().await?;
        Ok(ruling)
    }

    /// Records that the transfer will never settle.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_void(
        &self,
        payment_id: &PaymentId,
        void_reason: VoidReason,
    ) -> Result<FinalStatusRuling, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let (source, event) = match void_reason {
            VoidReason::NeverSent => ("never_sent", "no transfer was sent"),
            VoidReason::Cancelled | VoidReason::CancelledUnsaid => {
                ("cancelled", "the switch cancelled the transfer")
            }
            VoidReason::Tombstoned => {
                ("tombstone", "the switch has not received the transfer, and refuses it from now on")
            }
            VoidReason::Rejected => ("rejected", "the switch had already rejected or cancelled the transfer"),
            VoidReason::DeadlinePassed => {
                ("deadline", "the switch does not know the transfer, and its deadline has passed")
            }
            VoidReason::NotInClosedStatement => {
                ("statement", "the transfer is not in a statement that is complete beyond its time")
            }
        };
        let accepted = is_accepted(&mut tx, &locked).await?;
        // An absence proves nothing of a transfer that may be out by another id.
        let may_be_elsewhere = void_reason.is_absence() && locked.may_have_other_id();
        if may_be_elsewhere || !rules::void_is_believed(&locked.facts, void_reason, accepted) {
            return Ok(FinalStatusRuling::NoAttempt);
        }
        let ruling = rules::void_report(&locked.facts);
        write_void(&mut tx, &locked, ruling, source, event).await?;
        tx.commit().await?;
        Ok(ruling)
    }
}

/// Writes that the transfer is void, or opens an exception if that contradicts the records.
async fn write_void(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    ruling: FinalStatusRuling,
    source: &str,
    event: &str,
) -> Result<(), LedgerError> {
    let payment_id = &locked.payment_id;
    match ruling {
        FinalStatusRuling::First => {
            write_and_wake_workflow(tx, locked, FinalStatus::Void, source).await?;
            writes::append_timeline(tx, payment_id, locked.facts.state, event).await?;
            open_exception_for_denied_callback(tx, locked, event).await
        }
        FinalStatusRuling::Contradicts => {
            let origin = format!("{payment_id}:{source}");
            let detail = format!("{event}, after the switch had reported SUCCESS");
            let kind = ExceptionKind::ContradictoryFinalStatus;
            tx.open_exception(Some(payment_id), kind, &origin, &detail).await
        }
        FinalStatusRuling::Same | FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt => Ok(()),
    }
}

/// Writes a final reject by its ruling, with its line in the timeline.
pub(crate) async fn write_final_reject(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    reject: &Reject,
    ruling: FinalStatusRuling,
) -> Result<(), LedgerError> {
    let event = format!("the switch rejected the transfer for good ({reject})");
    write_void(tx, locked, ruling, "reject", &event).await
}

/// The line of a SUCCESS in the timeline.
pub(crate) fn settled_line(source: FinalStatusSource, posting: Option<Posting>) -> String {
    let posting = posting.map(|posting| format!("; {}", describe_posting(posting))).unwrap_or_default();
    format!("the switch settled the transfer (by {}){posting}", source.as_str())
}

/// Where the money of a settled transfer is, in words.
pub(super) fn describe_posting(posting: Posting) -> &'static str {
    match posting {
        Posting::Posted => "the receiving bank has posted it to the payee",
        Posting::Pending => "the receiving bank has not posted it to the payee yet",
        Posting::Blocked => "the receiving bank keeps it back from the payee",
        Posting::ReturnComing => "the receiving bank will return it",
    }
}

/// Writes a SUCCESS as the final status, or opens an exception if the SUCCESS contradicts the records.
pub(crate) async fn write_settled(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    report: &SettledReport,
    source: FinalStatusSource,
    posting: Option<Posting>,
) -> Result<FinalStatusRuling, LedgerError> {
    let payment_id = &locked.payment_id;
    let ruling = rules::settled_report(&locked.facts, &locked.expected(), report, source.answers_us());
    let report_text = describe(report, source);
    let (kind, detail) = match ruling {
        FinalStatusRuling::Same => return Ok(ruling),
        FinalStatusRuling::First => {
            write_and_wake_workflow(tx, locked, FinalStatus::Settled, source.as_str()).await?;
            let detail = settled_line(source, posting);
            writes::move_to_state(tx, payment_id, PaymentState::Confirmed, &detail).await?;
            return open_exceptions_for_callbacks(tx, locked).await.map(|()| ruling);
        }
        FinalStatusRuling::Differs(Difference::Switch) => (
            ExceptionKind::CallbackFromOtherSwitch,
            format!("another switch than the payment's reported SUCCESS: {report_text}"),
        ),
        FinalStatusRuling::Differs(difference) => (
            ExceptionKind::ConfirmationMismatch,
            format!("the reported SUCCESS differs from the payment in {difference}: {report_text}"),
        ),
        FinalStatusRuling::NoAttempt => (
            ExceptionKind::SettledWithoutAttempt,
            format!("the switch reported SUCCESS for a payment without a recorded attempt: {report_text}"),
        ),
        FinalStatusRuling::Contradicts if locked.facts.state.end().is_some() => (
            ExceptionKind::LateConfirmation,
            format!(
                "the switch reported SUCCESS after the payment had ended as {}: {report_text}",
                locked.facts.state
            ),
        ),
        FinalStatusRuling::Contradicts => (
            ExceptionKind::ContradictoryFinalStatus,
            format!("the switch reported SUCCESS after it had reported the transfer as void: {report_text}"),
        ),
    };
    let origin = format!("{payment_id}:{report_text}");
    tx.open_exception(Some(payment_id), kind, &origin, &detail).await?;
    Ok(ruling)
}

/// Writes a return as the final status. The money of a debited payment must be credited back, which operators decide: an
/// exception asks for it, once. A return that differs from the payment, or has no attempt, is an exception only.
pub(crate) async fn write_returned(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    report: &SettledReport,
    source: FinalStatusSource,
) -> Result<FinalStatusRuling, LedgerError> {
    let payment_id = &locked.payment_id;
    let (facts, expected) = (&locked.facts, locked.expected());
    let ruling = if source.answers_us() {
        rules::returned_report(facts, &expected, report, true)
    } else {
        rules::returned_callback(facts, &locked.profile, &expected, report)
    };
    let report_text = describe(report, source);
    let (kind, detail) = match ruling {
        FinalStatusRuling::Same => return Ok(ruling),
        FinalStatusRuling::First => {
            write_and_wake_workflow(tx, locked, FinalStatus::Returned, source.as_str()).await?;
            let detail = format!("the transfer settled, and the money came back (by {})", source.as_str());
            let state = locked.facts.state;
            if state.end().is_some() || state == PaymentState::Confirmed {
                writes::append_timeline(tx, payment_id, state, &detail).await?;
            } else {
                writes::move_to_state(tx, payment_id, PaymentState::Confirmed, &detail).await?;
            }
            // The exceptions for callbacks before a SUCCESS were opened with it.
            if facts.final_status.is_none() {
                open_exceptions_for_callbacks(tx, locked).await?;
            }
            if !is_debited(tx, payment_id).await? {
                return Ok(ruling);
            }
            (ExceptionKind::ReturnedAfterDebit, returned_after_debit(&report_text))
        }
        FinalStatusRuling::Differs(Difference::Switch) => (
            ExceptionKind::CallbackFromOtherSwitch,
            format!("another switch than the payment's reported a return: {report_text}"),
        ),
        FinalStatusRuling::Differs(difference) => (
            ExceptionKind::ConfirmationMismatch,
            format!("the reported return differs from the payment in {difference}: {report_text}"),
        ),
        // Operators charged it after its end.
        FinalStatusRuling::NoAttempt | FinalStatusRuling::Contradicts
            if is_debited(tx, payment_id).await? =>
        {
            (ExceptionKind::ReturnedAfterDebit, returned_after_debit(&report_text))
        }
        FinalStatusRuling::Contradicts => (
            ExceptionKind::ContradictoryFinalStatus,
            format!(
                "a callback reported a return after the payment had ended as {}, and nothing was charged: {report_text}",
                facts.state
            ),
        ),
        FinalStatusRuling::NoAttempt => (
            ExceptionKind::SettledWithoutAttempt,
            format!("the switch reported a return for a payment without a recorded attempt: {report_text}"),
        ),
    };
    // A payment is returned once, whichever message says so.
    let origin = match kind {
        ExceptionKind::ReturnedAfterDebit => returns::after_debit_origin(payment_id),
        _ => return_origin(payment_id, report, source),
    };
    tx.open_exception(Some(payment_id), kind, &origin, &detail).await?;
    Ok(ruling)
}

/// The origin of the exception for a reported return that does not become the final status.
pub(crate) fn return_origin(
    payment_id: &PaymentId,
    report: &SettledReport,
    source: FinalStatusSource,
) -> String {
    format!("{payment_id}:returned:{}", describe(report, source))
}

fn returned_after_debit(report_text: &str) -> String {
    format!("the money of a debited payment came back: {report_text}")
}

/// Whether a customer or the bank was charged for the payment and not wholly credited back.
async fn is_debited(tx: &mut Connection, payment_id: &PaymentId) -> Result<bool, LedgerError> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM journal WHERE payment_id = $1 AND kind IN ('debit', 'late_debit'))
                  AND EXISTS (SELECT FROM payments WHERE payment_id = $1 AND returned_minor < amount_minor) AS "debited!""#,
        payment_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?)
}

/// A report in words.
fn describe(report: &SettledReport, source: FinalStatusSource) -> String {
    format!(
        "{} by {}: {} for {}",
        report.switch,
        source.as_str(),
        amount(report.amount_minor, &report.currency),
        report.reference
    )
}

/// A callback that said that the money left is contradicted by what happened, `event`, before a query confirmed it.
pub(crate) async fn open_exception_for_denied_callback(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    event: &str,
) -> Result<(), LedgerError> {
    let detail = format!(
        "{event}, although a callback had said that the money left: the switch contradicts its callback, or the secret that signs its callbacks is in wrong hands"
    );
    open_exception_for_unconfirmed_callback(tx, locked, &detail).await
}

/// A callback said that the money left, and no query has confirmed it: operators must know, once.
pub(crate) async fn open_exception_for_unconfirmed_callback(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    detail: &str,
) -> Result<(), LedgerError> {
    if !rules::has_unconfirmed_report(&locked.facts) {
        return Ok(());
    }
    let payment_id = &locked.payment_id;
    let origin = format!("{payment_id}:unconfirmed");
    tx.open_exception(Some(payment_id), ExceptionKind::ContradictoryFinalStatus, &origin, detail).await
}

/// Earlier callbacks of the same switch contradict that the money left: a FAILURE; one that needed a query and had another amount.
pub(crate) async fn open_exceptions_for_callbacks(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
) -> Result<(), LedgerError> {
    if !locked.success_contradicted {
        return Ok(());
    }
    let LockedPayment { payment_id, profile, money, .. } = locked;
    // One exception for each kind, however many there are: it is opened within the transaction that moves the money.
    let callbacks = sqlx::query!(
        r#"SELECT DISTINCT ON (status = 'FAILURE') status, event_id, amount_minor, currency,
                  count(*) OVER (PARTITION BY status = 'FAILURE') AS "count!"
           FROM switch_callbacks
           WHERE payment_id = $1 AND switch = $2
             AND (status = 'FAILURE'
                  OR status IN ('SUCCESS', 'RETURNED') AND $3 AND (amount_minor, currency) <> ($4, $5))
           ORDER BY status = 'FAILURE', received_at, event_id"#,
        payment_id.as_str(),
        profile.switch.as_str(),
        profile.confirms_by_query(*money),
        money.amount_minor(),
        money.currency().code(),
    )
    .fetch_all(&mut **tx)
    .await?;
    for callback in callbacks {
        let event = match callback.count {
            1 => format!("event {}", callback.event_id),
            count => format!("{count} events, first in {}", callback.event_id),
        };
        let (kind, origin, detail) = if callback.status == "FAILURE" {
            (
                ExceptionKind::ContradictoryFinalStatus,
                format!("{payment_id}:failure_before_success"),
                format!("the switch reported FAILURE in {event}, and later that the money had left"),
            )
        } else {
            (
                ExceptionKind::ConfirmationMismatch,
                format!("{payment_id}:other_amount_before_success"),
                format!(
                    "the switch reported {} of {} in {event}, which differs from the payment, and confirmed the payment's amount later",
                    callback.status,
                    amount(callback.amount_minor, &callback.currency),
                ),
            )
        };
        tx.open_exception(Some(payment_id), kind, &origin, &detail).await?;
    }
    Ok(())
}

/// Writes the final status, and wakes the workflow of a payment that needs an operator.
async fn write_and_wake_workflow(
    tx: &mut Connection,
    locked: &LockedPayment,
    final_status: FinalStatus,
    source: &str,
) -> Result<(), LedgerError> {
    write(tx, &locked.payment_id, final_status, source).await?;
    // A payment that needs an operator may not poll the switch: a late answer must wake its workflow. The state is no criterion, since a
    // late cancel attempt may have changed it.
    if locked.needed_operator {
        let id = locked.payment_id.as_str();
        sqlx::query!("INSERT INTO inbox (payment_id, kind) VALUES ($1, 'final_status')", id)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// Writes the final status and its source.
pub(crate) async fn write(
    tx: &mut Connection,
    payment_id: &PaymentId,
    final_status: FinalStatus,
    source: &str,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "UPDATE payments SET final_status = $2, final_status_source = $3, updated_at = clock_timestamp() WHERE payment_id = $1",
        payment_id.as_str(),
        final_status.as_str(),
        source,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

//! The switch's first definite answer: written once, whoever brings it, before money moves.
//!
//! Callbacks, queries and answers to a cancel all come through here, under the payment row's lock,
//! so that whichever comes second compares with the first and opens the exception.

use payment_protocol::PaymentState;
use payment_protocol::cancel::VoidReason;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::PaymentId;
use payment_protocol::money::{format_major, parse_currency};
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::{self, FinalStatusRuling};
use sqlx::PgConnection;

use crate::row_lock::{Locked, lock};
use crate::writes::Exception;
use crate::{Ledger, LedgerError, writes};

/// Who brought a definite answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A callback.
    Callback,
    /// A query.
    Query,
    /// The answer to our cancel.
    Cancel,
    /// The switch's statement.
    Statement,
}

impl Source {
    fn as_str(self) -> &'static str {
        match self {
            Self::Callback => "callback",
            Self::Query => "query",
            Self::Cancel => "cancel",
            Self::Statement => "statement",
        }
    }
}

impl Ledger {
    /// Records a SUCCESS that was asked for.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_settled(
        &self,
        payment_id: &PaymentId,
        report: &SettledReport,
        source: Source,
    ) -> Result<FinalStatusRuling, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        let ruling = write_settled(&mut tx, &locked, report, source).await?;
        tx.commit().await?;
        Ok(ruling)
    }

    /// Records that the transfer can never settle.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_void(
        &self,
        payment_id: &PaymentId,
        death: VoidReason,
    ) -> Result<FinalStatusRuling, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        let (source, told) = match death {
            VoidReason::NeverSent => ("never_sent", "nothing was ever sent"),
            VoidReason::Cancelled => ("cancelled", "the switch cancelled the transfer"),
            VoidReason::Rejected => ("rejected", "the switch had rejected the transfer"),
            VoidReason::DeadlinePassed => {
                ("deadline", "the switch knows nothing of the transfer and its deadline has passed")
            }
        };
        if death == VoidReason::NeverSent && !rules::never_sent(&locked.facts) {
            return Ok(FinalStatusRuling::NoAttempt);
        }
        let ruling = rules::void_report(&locked.facts);
        match ruling {
            FinalStatusRuling::First => {
                write_and_wake(&mut tx, &locked, FinalStatus::Void, source).await?;
                writes::timeline(&mut tx, payment_id, locked.facts.state, told).await?;
            }
            FinalStatusRuling::Contradicts => {
                let origin = format!("{payment_id}:{source}");
                let detail = format!("{told}, after it had reported SUCCESS");
                writes::exception(
                    &mut tx,
                    Some(payment_id),
                    Exception::ContradictoryFinalStatus,
                    &origin,
                    &detail,
                )
                .await?;
            }
            FinalStatusRuling::Same | FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt => {}
        }
        tx.commit().await?;
        Ok(ruling)
    }
}

/// Writes a SUCCESS next to what is written, or the exception it is.
pub(crate) async fn write_settled(
    tx: &mut PgConnection,
    locked: &Locked,
    report: &SettledReport,
    source: Source,
) -> Result<FinalStatusRuling, LedgerError> {
    let payment_id = &locked.payment_id;
    let ruling = rules::settled_report(&locked.facts, &locked.expected(), report);
    let said = format!(
        "{} by {}: {} for {}",
        report.switch,
        source.as_str(),
        amount(report.amount_minor, &report.currency),
        report.reference
    );
    let (kind, detail) = match ruling {
        FinalStatusRuling::Same => return Ok(ruling),
        FinalStatusRuling::First => {
            write_and_wake(tx, locked, FinalStatus::Settled, source.as_str()).await?;
            let detail = format!("the switch settled the transfer (by {})", source.as_str());
            writes::state(tx, payment_id, PaymentState::Confirmed, &detail).await?;
            return note_earlier_failures(tx, locked).await.map(|()| ruling);
        }
        FinalStatusRuling::Differs(Difference::Switch) => {
            (Exception::CallbackFromOtherSwitch, format!("SUCCESS of another switch: {said}"))
        }
        FinalStatusRuling::Differs(difference) => {
            (Exception::ConfirmationMismatch, format!("SUCCESS differs in {difference}: {said}"))
        }
        FinalStatusRuling::NoAttempt => {
            (Exception::SettledWithoutAttempt, format!("SUCCESS of what was not sent: {said}"))
        }
        FinalStatusRuling::Contradicts if locked.facts.state.end().is_some() => (
            Exception::LateConfirmation,
            format!("SUCCESS after the payment was {}: {said}", locked.facts.state),
        ),
        FinalStatusRuling::Contradicts => (
            Exception::ContradictoryFinalStatus,
            format!("SUCCESS after the switch had said the transfer is dead: {said}"),
        ),
    };
    let origin = format!("{payment_id}:{said}");
    writes::exception(tx, Some(payment_id), kind, &origin, &detail).await?;
    Ok(ruling)
}

/// A FAILURE of the same switch that came before the SUCCESS contradicts it.
pub(crate) async fn note_earlier_failures(tx: &mut PgConnection, locked: &Locked) -> Result<(), LedgerError> {
    let Locked { payment_id, profile, .. } = locked;
    let failures = sqlx::query!(
        "SELECT event_id FROM switch_callbacks WHERE payment_id = $1 AND switch = $2 AND status = 'FAILURE'",
        payment_id.as_str(),
        profile.switch.as_str(),
    )
    .fetch_all(&mut *tx)
    .await?;
    for failure in failures {
        let detail = format!("FAILURE of event {} before the SUCCESS", failure.event_id);
        let origin = format!("{}:{}", profile.switch, failure.event_id);
        writes::exception(tx, Some(payment_id), Exception::ContradictoryFinalStatus, &origin, &detail)
            .await?;
    }
    Ok(())
}

/// Writes the answer, and wakes the workflow of a payment that stands.
async fn write_and_wake(
    tx: &mut PgConnection,
    locked: &Locked,
    final_status: FinalStatus,
    source: &str,
) -> Result<(), LedgerError> {
    write(tx, &locked.payment_id, final_status, source).await?;
    // Who stands before a person asks nobody any more: a late answer must wake the workflow. The state does not
    // say who stands, since an asking that comes late may have changed it.
    if locked.stood {
        let id = locked.payment_id.as_str();
        sqlx::query!("INSERT INTO inbox (payment_id, kind) VALUES ($1, 'final_status')", id)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// Writes the answer and who brought it.
pub(crate) async fn write(
    tx: &mut PgConnection,
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

/// An amount as people read it; of a currency that is none, in the units that came.
fn amount(minor: i64, currency: &str) -> String {
    match parse_currency(currency) {
        Ok(known) => format!("{} {currency}", format_major(minor, known)),
        Err(_) => format!("{minor} minor units of {currency:?}"),
    }
}

//! The switch's first definite answer: written once, whoever brings it, before money moves.
//!
//! Callbacks, queries and answers to a cancel all come through here, under the payment row's lock,
//! so that whichever comes second compares with the first and opens the exception.

use payment_protocol::PaymentState;
use payment_protocol::cancel::Death;
use payment_protocol::facts::Verdict;
use payment_protocol::ids::PaymentId;
use payment_protocol::money::{format_major, parse_currency};
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::{self, VerdictRuling};
use sqlx::PgConnection;

use crate::locked::{Locked, lock};
use crate::record::Exception;
use crate::{Ledger, LedgerError, record};

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
    ) -> Result<VerdictRuling, LedgerError> {
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
    pub async fn record_dead(
        &self,
        payment_id: &PaymentId,
        death: Death,
    ) -> Result<VerdictRuling, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        let (source, told) = match death {
            Death::NeverSent => ("never_sent", "nothing was ever sent"),
            Death::Cancelled => ("cancelled", "the switch cancelled the transfer"),
            Death::Rejected => ("rejected", "the switch had rejected the transfer"),
            Death::DeadlinePassed => {
                ("deadline", "the switch knows nothing of the transfer and its deadline has passed")
            }
        };
        if death == Death::NeverSent && !rules::never_sent(&locked.facts) {
            return Ok(VerdictRuling::NoAttempt);
        }
        let ruling = rules::dead_report(&locked.facts);
        match ruling {
            VerdictRuling::First => {
                write_and_wake(&mut tx, &locked, Verdict::Dead, source).await?;
                record::timeline(&mut tx, payment_id, locked.facts.state, told).await?;
            }
            VerdictRuling::Contradicts => {
                let origin = format!("{payment_id}:{source}");
                let detail = format!("{told}, after it had reported SUCCESS");
                record::exception(&mut tx, Some(payment_id), Exception::Contradiction, &origin, &detail)
                    .await?;
            }
            VerdictRuling::Same | VerdictRuling::Differs(_) | VerdictRuling::NoAttempt => {}
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
) -> Result<VerdictRuling, LedgerError> {
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
        VerdictRuling::Same => return Ok(ruling),
        VerdictRuling::First => {
            write_and_wake(tx, locked, Verdict::Settled, source.as_str()).await?;
            let detail = format!("the switch settled the transfer (by {})", source.as_str());
            record::state(tx, payment_id, PaymentState::Confirmed, &detail).await?;
            return note_earlier_failures(tx, locked).await.map(|()| ruling);
        }
        VerdictRuling::Differs(Difference::Switch) => {
            (Exception::OtherSwitch, format!("SUCCESS of another switch: {said}"))
        }
        VerdictRuling::Differs(difference) => {
            (Exception::ReportDiffers, format!("SUCCESS differs in {difference}: {said}"))
        }
        VerdictRuling::NoAttempt => (Exception::NotSent, format!("SUCCESS of what was not sent: {said}")),
        VerdictRuling::Contradicts if locked.facts.state.end().is_some() => (
            Exception::LateConfirmation,
            format!("SUCCESS after the payment was {}: {said}", locked.facts.state),
        ),
        VerdictRuling::Contradicts => (
            Exception::Contradiction,
            format!("SUCCESS after the switch had said the transfer is dead: {said}"),
        ),
    };
    let origin = format!("{payment_id}:{said}");
    record::exception(tx, Some(payment_id), kind, &origin, &detail).await?;
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
        record::exception(tx, Some(payment_id), Exception::Contradiction, &origin, &detail).await?;
    }
    Ok(())
}

/// Writes the answer, and wakes the workflow of a payment that stands.
async fn write_and_wake(
    tx: &mut PgConnection,
    locked: &Locked,
    verdict: Verdict,
    source: &str,
) -> Result<(), LedgerError> {
    write(tx, &locked.payment_id, verdict, source).await?;
    // Who stands before a person asks nobody any more: a late answer must wake the workflow. The state does not
    // say who stands, since an asking that comes late may have changed it.
    if locked.stood {
        let id = locked.payment_id.as_str();
        sqlx::query!("INSERT INTO inbox (payment_id, kind) VALUES ($1, 'verdict')", id)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// Writes the answer and who brought it.
pub(crate) async fn write(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    verdict: Verdict,
    source: &str,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "UPDATE payments SET verdict = $2, verdict_source = $3, updated_at = clock_timestamp() WHERE payment_id = $1",
        payment_id.as_str(),
        verdict.as_str(),
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

//! One attempt at submit: the switch is asked, our ledger lets the attempt out, it is sent.
//!
//! Run once per attempt; the repetition is the implementer's, within the profile's budget.

use crate::profile::{Strategy, SwitchProfile};
use crate::report::SettledReport;
use crate::rules::{AttemptRuling, NotSent, VerdictRuling};

/// The switch's answer to a query by our reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryAnswer {
    /// It has the transfer and has not decided.
    Pending,
    /// It settled.
    Settled(SettledReport),
    /// It is finally rejected or cancelled.
    Dead {
        /// The switch's words.
        reason: String,
    },
    /// It knows no such reference.
    NotFound,
    /// It understood us and refused to talk: our fault (400, 401, 403, 404 of the endpoint).
    OurFault {
        /// What it said.
        detail: String,
    },
    /// No answer, or none that can be read.
    NoAnswer {
        /// What happened instead.
        detail: String,
    },
}

/// The switch's answer to a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendAnswer {
    /// It has it.
    Accepted,
    /// It says no. This releases nothing by itself.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// It may or may not have it.
    Unknown {
        /// What happened instead of an answer.
        detail: String,
    },
}

/// Outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The switch has the transfer.
    Accepted,
    /// The switch refused it.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// The switch has already said that it settled.
    Settled,
    /// Our own ledger let nothing out.
    NotSent(NotSent),
    /// Not known; may be attempted again.
    Unknown {
        /// What happened.
        detail: String,
    },
}

/// What one attempt can do. Errors are the implementer's: an attempt whose ledger does not answer
/// is simply not known.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait SubmitDoor {
    /// The implementer's own failure: the ledger did not answer.
    type Error;
    /// Asks the switch by our reference.
    async fn query(&self) -> QueryAnswer;
    /// Records the attempt under the payment row's lock, before anything is sent.
    async fn record_attempt(&self) -> Result<AttemptRuling, Self::Error>;
    /// Sends the transfer with the reference and the recorded deadline.
    async fn send(&self) -> SendAnswer;
    /// Records what attempt `n` brought.
    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), Self::Error>;
    /// Records that the switch has the transfer, without a new attempt. Where no attempt is on record
    /// this is an exception, and [`NotSent::ReportedUnsent`].
    async fn record_found(&self) -> Result<Option<NotSent>, Self::Error>;
    /// Records a SUCCESS that a query brought.
    async fn record_settled(&self, report: &SettledReport) -> Result<VerdictRuling, Self::Error>;
}

/// Runs one attempt.
///
/// # Errors
/// The door's own: nothing is known, the attempt may be repeated.
pub async fn attempt<D: SubmitDoor>(door: &D, profile: &SwitchProfile) -> Result<Attempt, D::Error> {
    // Check-and-skip (S0.4, S1.4). The race it leaves, a zombie attempt that lands between this look
    // and our send, is closed by the switch's deduplication, and where there is none by the single
    // attempt that the ledger lets out.
    if profile.strategy == Strategy::Query {
        match door.query().await {
            QueryAnswer::Pending => {
                return Ok(match door.record_found().await? {
                    None => Attempt::Accepted,
                    Some(reason) => Attempt::NotSent(reason),
                });
            }
            QueryAnswer::Settled(report) => {
                return Ok(match door.record_settled(&report).await? {
                    VerdictRuling::First | VerdictRuling::Same => Attempt::Settled,
                    // The wait decides: settle sees the difference on record.
                    VerdictRuling::Differs(_) => Attempt::Settled,
                    VerdictRuling::NoAttempt => Attempt::NotSent(NotSent::ReportedUnsent),
                    // Dead was on record first, so a cancel was asked: no attempt goes out after it.
                    VerdictRuling::Contradicts => Attempt::NotSent(NotSent::CancelAsked),
                });
            }
            QueryAnswer::Dead { reason } => return Ok(Attempt::Refused { reason }),
            QueryAnswer::NotFound => {}
            QueryAnswer::OurFault { detail } | QueryAnswer::NoAnswer { detail } => {
                return Ok(Attempt::Unknown { detail });
            }
        }
    }
    let n = match door.record_attempt().await? {
        AttemptRuling::Send(n) => n,
        AttemptRuling::Settled => return Ok(Attempt::Settled),
        AttemptRuling::NotSent(reason) => return Ok(Attempt::NotSent(reason)),
    };
    let answer = door.send().await;
    door.record_answer(n, &answer).await?;
    Ok(match answer {
        SendAnswer::Accepted => Attempt::Accepted,
        SendAnswer::Refused { reason } => Attempt::Refused { reason },
        SendAnswer::Unknown { detail } => Attempt::Unknown { detail },
    })
}

//! One asking to cancel, and the whole table of the switch's answers. The one door to releasing
//! money: nothing else in the service concludes that a sent transfer is dead.
//!
//! Run once per asking; an undecided one is repeated by the implementer, for ever, at the profile's
//! interval.

use crate::cause::OperatorReason;
use crate::facts::Verdict;
use crate::keys::{self, Reference, UndoKey};
use crate::payment::Payment;
use crate::profile::SwitchProfile;
use crate::report::SettledReport;
use crate::rules::{VerdictRuling, forgotten};
use crate::state::End;
use crate::submit::QueryAnswer;

/// The switch's answer to our cancel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CancelAnswer {
    /// Cancelled. `tombstoned` when the reference was unknown and only a mark was left, or when the
    /// switch does not say.
    Cancelled {
        /// See above.
        tombstoned: bool,
    },
    /// It had rejected the transfer already.
    AlreadyRejected,
    /// It had settled the transfer already.
    AlreadySettled(SettledReport),
    /// It knows no such reference and leaves no mark.
    NotFound,
    /// Refused, in process, or it has no cancel: may still settle.
    Undecided {
        /// The switch's words.
        detail: String,
    },
    /// It has no cancel for this transfer: a query stands in.
    CannotCancel,
    /// Our fault: malformed, 401, 403, 404 of the endpoint.
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

/// What our own books say when an asking begins. Beginning fences submit: no attempt goes out after.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Begun {
    /// The payment's end, if it has ended.
    pub end: Option<End>,
    /// The switch's first definite answer, if there is one.
    pub verdict: Option<Verdict>,
    /// Nothing was ever sent ([`crate::rules::never_sent`]).
    pub never_sent: bool,
    /// Submit's deadline on the switch's clock, in milliseconds since the epoch.
    pub deadline_ms: Option<i64>,
    /// How long the payment has been cancelling, in milliseconds.
    pub cancelling_ms: u64,
}

/// The switch's answer with the two clocks it is judged by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heard<A> {
    /// The answer.
    pub answer: A,
    /// The switch's clock in that answer (`Date`), in milliseconds since the epoch; none without an
    /// answer.
    pub switch_now_ms: Option<i64>,
    /// Age of the first attempt when the answer had arrived, by the database's clock.
    pub first_attempt_age_ms: Option<u64>,
}

/// How a transfer is known to be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Death {
    /// No attempt was ever recorded, so nothing was sent: the only short way.
    NeverSent,
    /// The switch cancelled it.
    Cancelled,
    /// The switch had rejected it.
    Rejected,
    /// The switch knows nothing of it and the deadline has passed on the switch's clock.
    DeadlinePassed,
}

/// Outcome of one asking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asking {
    /// Can never settle; recorded.
    Dead,
    /// Settled; recorded.
    Settled,
    /// A SUCCESS that differs from the payment; recorded.
    Differs,
    /// No answer of this switch can decide it.
    Undecidable(OperatorReason),
    /// The payment has ended.
    Ended(End),
    /// Ask again.
    Again {
        /// Not before this many milliseconds, where the switch's clock says so.
        not_before_ms: Option<u64>,
        /// Why it is undecided.
        detail: String,
        /// Whether a person should see it now: our fault, or undecided for too long.
        alert: bool,
    },
}

/// What one asking can do.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait CancelDoor {
    /// The implementer's own failure: the ledger did not answer.
    type Error;
    /// Marks the payment as cancelling under its row's lock, and reads the books.
    async fn begin(&self) -> Result<Begun, Self::Error>;
    /// Asks the switch to cancel the transfer of this reference. The key is the asking's own, so that a
    /// repeat of it is not taken for the submit.
    async fn cancel(&self, reference: &Reference, key: &UndoKey) -> Result<Heard<CancelAnswer>, Self::Error>;
    /// Asks the switch for the transfer.
    async fn query(&self, reference: &Reference) -> Result<Heard<QueryAnswer>, Self::Error>;
    /// Looks for the transfer in the switch's statement, which shows only what is final: not found is no
    /// more than not final yet.
    async fn statement(&self, reference: &Reference) -> Result<Heard<QueryAnswer>, Self::Error>;
    /// Records that the transfer is dead.
    async fn record_dead(&self, death: Death) -> Result<VerdictRuling, Self::Error>;
    /// Records a SUCCESS.
    async fn record_settled(&self, report: &SettledReport) -> Result<VerdictRuling, Self::Error>;
}

/// Asks once.
///
/// # Errors
/// The door's own: nothing is known, the asking is repeated.
pub async fn ask<D: CancelDoor>(door: &D, payment: &Payment) -> Result<Asking, D::Error> {
    let profile = &payment.profile;
    let begun = door.begin().await?;
    if let Some(end) = begun.end {
        return Ok(Asking::Ended(end));
    }
    match begun.verdict {
        Some(Verdict::Settled) => return Ok(Asking::Settled),
        Some(Verdict::Dead) => return Ok(Asking::Dead),
        None if begun.never_sent => return dead(door, Death::NeverSent).await,
        None => {}
    }
    if !profile.can_cancel {
        return by_looking(door, payment, &begun).await;
    }
    let heard = door.cancel(&payment.reference(), &keys::undo_submit(&payment.tx_id)).await?;
    match heard.answer {
        // Cancelled what it does not know, and leaves no mark: that is nothing found.
        CancelAnswer::Cancelled { tombstoned: true } if !profile.tombstones => {
            not_there(door, payment, &begun, &heard).await
        }
        CancelAnswer::Cancelled { tombstoned } => {
            // After the switch's retention a mark on an unknown reference proves nothing: the
            // transfer may have settled and been forgotten.
            if tombstoned && forgotten(heard.first_attempt_age_ms, profile) {
                return Ok(Asking::Undecidable(OperatorReason::RetentionPassed));
            }
            dead(door, Death::Cancelled).await
        }
        CancelAnswer::AlreadyRejected => dead(door, Death::Rejected).await,
        CancelAnswer::AlreadySettled(report) => settled(door, &report).await,
        CancelAnswer::NotFound => not_there(door, payment, &begun, &heard).await,
        CancelAnswer::CannotCancel if profile.has_query => by_looking(door, payment, &begun).await,
        // May still settle. A look can find that it has; it cannot find that it never will.
        CancelAnswer::CannotCancel => {
            may_still_settle(door, payment, &begun, "it cannot cancel".into()).await
        }
        CancelAnswer::Undecided { detail } => may_still_settle(door, payment, &begun, detail).await,
        CancelAnswer::OurFault { detail } => Ok(Asking::Again { not_before_ms: None, detail, alert: true }),
        CancelAnswer::NoAnswer { detail } => Ok(again(profile, &begun, detail)),
    }
}

/// Asks for the transfer without touching it: by query, else in the statement. None where the switch has
/// neither.
///
/// # Errors
/// The door's own.
pub async fn look<D: CancelDoor>(
    door: &D,
    payment: &Payment,
) -> Result<Option<Heard<QueryAnswer>>, D::Error> {
    let reference = payment.reference();
    Ok(if payment.profile.has_query {
        Some(door.query(&reference).await?)
    } else if payment.profile.has_statement {
        Some(door.statement(&reference).await?)
    } else {
        None
    })
}

async fn may_still_settle<D: CancelDoor>(
    door: &D,
    payment: &Payment,
    begun: &Begun,
    detail: String,
) -> Result<Asking, D::Error> {
    match look(door, payment).await?.map(|heard| heard.answer) {
        Some(QueryAnswer::Settled(report)) => settled(door, &report).await,
        _ => Ok(again(&payment.profile, begun, detail)),
    }
}

/// A switch that cannot cancel feeds the same table by what can be looked up: only a final rejected status,
/// or nothing found past the deadline, is dead.
async fn by_looking<D: CancelDoor>(door: &D, payment: &Payment, begun: &Begun) -> Result<Asking, D::Error> {
    let profile = &payment.profile;
    let Some(heard) = look(door, payment).await? else {
        return Ok(Asking::Undecidable(OperatorReason::CannotAsk));
    };
    match heard.answer {
        QueryAnswer::Settled(report) => settled(door, &report).await,
        QueryAnswer::Dead { .. } => dead(door, Death::Rejected).await,
        QueryAnswer::NotFound if profile.has_query => nothing_found(door, profile, begun, &heard).await,
        // A statement shows only what is final. Somebody may know more, and the payment goes on looking.
        QueryAnswer::NotFound => Ok(Asking::Undecidable(OperatorReason::CannotAsk)),
        QueryAnswer::Pending => Ok(again(profile, begun, "the switch has not decided".into())),
        QueryAnswer::OurFault { detail } => Ok(Asking::Again { not_before_ms: None, detail, alert: true }),
        QueryAnswer::NoAnswer { detail } => Ok(again(profile, begun, detail)),
    }
}

/// A cancel did not find the transfer. Its answer may be a repeat of an earlier one under the same key;
/// a query has no key, so where there is one its answer is what counts.
async fn not_there<D: CancelDoor>(
    door: &D,
    payment: &Payment,
    begun: &Begun,
    heard: &Heard<CancelAnswer>,
) -> Result<Asking, D::Error> {
    if payment.profile.has_query {
        by_looking(door, payment, begun).await
    } else {
        nothing_found(door, &payment.profile, begun, heard).await
    }
}

/// Nothing found proves nothing by itself: a paused attempt can land at any later time. It counts
/// when the switch would refuse that attempt, because its deadline has passed on the switch's clock.
async fn nothing_found<D: CancelDoor, A>(
    door: &D,
    profile: &SwitchProfile,
    begun: &Begun,
    heard: &Heard<A>,
) -> Result<Asking, D::Error> {
    if forgotten(heard.first_attempt_age_ms, profile) {
        return Ok(Asking::Undecidable(OperatorReason::RetentionPassed));
    }
    let (true, Some(deadline_ms)) = (profile.honours_deadline, begun.deadline_ms) else {
        return Ok(Asking::Undecidable(OperatorReason::NothingProves));
    };
    let Some(switch_now_ms) = heard.switch_now_ms else {
        return Ok(again(profile, begun, "nothing found, and the answer carries no Date".into()));
    };
    let skew_ms = i64::try_from(profile.max_skew_ms).unwrap_or(i64::MAX);
    let over_ms = deadline_ms.saturating_add(skew_ms).saturating_sub(switch_now_ms);
    if over_ms < 0 {
        return dead(door, Death::DeadlinePassed).await;
    }
    Ok(Asking::Again {
        // One more, since the deadline must have passed, not just be reached.
        not_before_ms: Some(u64::try_from(over_ms).unwrap_or(0).saturating_add(1)),
        detail: "nothing found; waiting out the deadline on the switch's clock".into(),
        alert: false,
    })
}

async fn dead<D: CancelDoor>(door: &D, death: Death) -> Result<Asking, D::Error> {
    Ok(match door.record_dead(death).await? {
        // A SUCCESS was on record first; it stands.
        VerdictRuling::Contradicts => Asking::Settled,
        // What seemed unsent was reported in the meantime: begin anew.
        VerdictRuling::NoAttempt => {
            Asking::Again { not_before_ms: None, detail: "reported meanwhile".into(), alert: false }
        }
        _ => Asking::Dead,
    })
}

async fn settled<D: CancelDoor>(door: &D, report: &SettledReport) -> Result<Asking, D::Error> {
    Ok(match door.record_settled(report).await? {
        VerdictRuling::First | VerdictRuling::Same => Asking::Settled,
        VerdictRuling::Differs(_) => Asking::Differs,
        // Dead was on record first; it stands.
        VerdictRuling::Contradicts => Asking::Dead,
        // The switch settled what we have no record of sending: our record is older than the truth.
        VerdictRuling::NoAttempt => Asking::Undecidable(OperatorReason::SettledNotSent),
    })
}

fn again(profile: &SwitchProfile, begun: &Begun, detail: String) -> Asking {
    Asking::Again { not_before_ms: None, detail, alert: begun.cancelling_ms >= profile.alert_after_ms }
}

//! One asking to cancel, and the whole table of the switch's answers. The one port to releasing
//! money: nothing else in the service concludes that a sent transfer is dead.
//!
//! Run once per asking; an undecided one is repeated by the implementer, for ever, at the profile's
//! interval.

use crate::cause::OperatorReason;
use crate::facts::FinalStatus;
use crate::keys::{self, CompensationKey, Reference};
use crate::payment::Payment;
use crate::profile::SwitchProfile;
use crate::report::SettledReport;
use crate::rules::{FinalStatusRuling, retention_expired};
use crate::state::FinalState;
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
pub struct CancelContext {
    /// The payment's end, if it has ended.
    pub end: Option<FinalState>,
    /// The switch's first definite answer, if there is one.
    pub final_status: Option<FinalStatus>,
    /// Nothing was ever sent ([`crate::rules::never_sent`]).
    pub never_sent: bool,
    /// Submit's deadline on the switch's clock, in milliseconds since the epoch.
    pub deadline_ms: Option<i64>,
    /// How long the payment has been cancelling, in milliseconds.
    pub cancelling_ms: u64,
}

/// The switch's answer with the two clocks it is judged by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SwitchResponse<A> {
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
pub enum VoidReason {
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
pub enum CancelAttemptOutcome {
    /// Can never settle; recorded.
    Void,
    /// Settled; recorded.
    Settled,
    /// A SUCCESS that differs from the payment; recorded.
    Differs,
    /// No answer of this switch can decide it.
    Undecidable(OperatorReason),
    /// The payment has ended.
    Ended(FinalState),
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
pub trait CancelPort {
    /// The implementer's own failure: the ledger did not answer.
    type Error;
    /// Marks the payment as cancelling under its row's lock, and reads the books.
    async fn begin(&self) -> Result<CancelContext, Self::Error>;
    /// Asks the switch to cancel the transfer of this reference. The key is the asking's own, so that a
    /// repeat of it is not taken for the submit.
    async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchResponse<CancelAnswer>, Self::Error>;
    /// Asks the switch for the transfer.
    async fn query(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, Self::Error>;
    /// Looks for the transfer in the switch's statement, which shows only what is final: not found is no
    /// more than not final yet.
    async fn statement(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, Self::Error>;
    /// Records that the transfer is dead.
    async fn record_void(&self, death: VoidReason) -> Result<FinalStatusRuling, Self::Error>;
    /// Records a SUCCESS.
    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, Self::Error>;
}

/// Asks once.
///
/// # Errors
/// The port's own: nothing is known, the asking is repeated.
pub async fn ask<D: CancelPort>(port: &D, payment: &Payment) -> Result<CancelAttemptOutcome, D::Error> {
    let profile = &payment.profile;
    let begun = port.begin().await?;
    if let Some(end) = begun.end {
        return Ok(CancelAttemptOutcome::Ended(end));
    }
    match begun.final_status {
        Some(FinalStatus::Settled) => return Ok(CancelAttemptOutcome::Settled),
        Some(FinalStatus::Void) => return Ok(CancelAttemptOutcome::Void),
        None if begun.never_sent => return dead(port, VoidReason::NeverSent).await,
        None => {}
    }
    if !profile.can_cancel {
        return by_looking(port, payment, &begun).await;
    }
    let heard = port.cancel(&payment.reference(), &keys::compensate_submit(&payment.tx_id)).await?;
    match heard.answer {
        // Cancelled what it does not know, and leaves no mark: that is nothing found.
        CancelAnswer::Cancelled { tombstoned: true } if !profile.tombstones => {
            not_found(port, payment, &begun, &heard).await
        }
        CancelAnswer::Cancelled { tombstoned } => {
            // After the switch's retention a mark on an unknown reference proves nothing: the
            // transfer may have settled and been retention_expired.
            if tombstoned && retention_expired(heard.first_attempt_age_ms, profile) {
                return Ok(CancelAttemptOutcome::Undecidable(OperatorReason::SwitchRetentionExpired));
            }
            dead(port, VoidReason::Cancelled).await
        }
        CancelAnswer::AlreadyRejected => dead(port, VoidReason::Rejected).await,
        CancelAnswer::AlreadySettled(report) => settled(port, &report).await,
        CancelAnswer::NotFound => not_found(port, payment, &begun, &heard).await,
        CancelAnswer::CannotCancel if profile.has_query => by_looking(port, payment, &begun).await,
        // May still settle. A look can find that it has; it cannot find that it never will.
        CancelAnswer::CannotCancel => {
            may_still_settle(port, payment, &begun, "it cannot cancel".into()).await
        }
        CancelAnswer::Undecided { detail } => may_still_settle(port, payment, &begun, detail).await,
        CancelAnswer::OurFault { detail } => {
            Ok(CancelAttemptOutcome::Again { not_before_ms: None, detail, alert: true })
        }
        CancelAnswer::NoAnswer { detail } => Ok(again(profile, &begun, detail)),
    }
}

/// Asks for the transfer without touching it: by query, else in the statement. None where the switch has
/// neither.
///
/// # Errors
/// The port's own.
pub async fn look<D: CancelPort>(
    port: &D,
    payment: &Payment,
) -> Result<Option<SwitchResponse<QueryAnswer>>, D::Error> {
    let reference = payment.reference();
    Ok(if payment.profile.has_query {
        Some(port.query(&reference).await?)
    } else if payment.profile.has_statement {
        Some(port.statement(&reference).await?)
    } else {
        None
    })
}

async fn may_still_settle<D: CancelPort>(
    port: &D,
    payment: &Payment,
    begun: &CancelContext,
    detail: String,
) -> Result<CancelAttemptOutcome, D::Error> {
    match look(port, payment).await?.map(|heard| heard.answer) {
        Some(QueryAnswer::Settled(report)) => settled(port, &report).await,
        _ => Ok(again(&payment.profile, begun, detail)),
    }
}

/// A switch that cannot cancel feeds the same table by what can be looked up: only a final rejected status,
/// or nothing found past the deadline, is dead.
async fn by_looking<D: CancelPort>(
    port: &D,
    payment: &Payment,
    begun: &CancelContext,
) -> Result<CancelAttemptOutcome, D::Error> {
    let profile = &payment.profile;
    let Some(heard) = look(port, payment).await? else {
        return Ok(CancelAttemptOutcome::Undecidable(OperatorReason::NoCancelOrQuery));
    };
    match heard.answer {
        QueryAnswer::Settled(report) => settled(port, &report).await,
        QueryAnswer::Void { .. } => dead(port, VoidReason::Rejected).await,
        QueryAnswer::NotFound if profile.has_query => nothing_found(port, profile, begun, &heard).await,
        // A statement shows only what is final. Somebody may know more, and the payment goes on looking.
        QueryAnswer::NotFound => Ok(CancelAttemptOutcome::Undecidable(OperatorReason::NoCancelOrQuery)),
        QueryAnswer::Pending => Ok(again(profile, begun, "the switch has not decided".into())),
        QueryAnswer::OurFault { detail } => {
            Ok(CancelAttemptOutcome::Again { not_before_ms: None, detail, alert: true })
        }
        QueryAnswer::NoAnswer { detail } => Ok(again(profile, begun, detail)),
    }
}

/// A cancel did not find the transfer. Its answer may be a repeat of an earlier one under the same key;
/// a query has no key, so where there is one its answer is what counts.
async fn not_found<D: CancelPort>(
    port: &D,
    payment: &Payment,
    begun: &CancelContext,
    heard: &SwitchResponse<CancelAnswer>,
) -> Result<CancelAttemptOutcome, D::Error> {
    if payment.profile.has_query {
        by_looking(port, payment, begun).await
    } else {
        nothing_found(port, &payment.profile, begun, heard).await
    }
}

/// Nothing found proves nothing by itself: a paused attempt can land at any later time. It counts
/// when the switch would refuse that attempt, because its deadline has passed on the switch's clock.
async fn nothing_found<D: CancelPort, A>(
    port: &D,
    profile: &SwitchProfile,
    begun: &CancelContext,
    heard: &SwitchResponse<A>,
) -> Result<CancelAttemptOutcome, D::Error> {
    if retention_expired(heard.first_attempt_age_ms, profile) {
        return Ok(CancelAttemptOutcome::Undecidable(OperatorReason::SwitchRetentionExpired));
    }
    let (true, Some(deadline_ms)) = (profile.honours_deadline, begun.deadline_ms) else {
        return Ok(CancelAttemptOutcome::Undecidable(OperatorReason::NotFoundIsInconclusive));
    };
    let Some(switch_now_ms) = heard.switch_now_ms else {
        return Ok(again(profile, begun, "nothing found, and the answer carries no Date".into()));
    };
    let skew_ms = i64::try_from(profile.max_skew_ms).unwrap_or(i64::MAX);
    let over_ms = deadline_ms.saturating_add(skew_ms).saturating_sub(switch_now_ms);
    if over_ms < 0 {
        return dead(port, VoidReason::DeadlinePassed).await;
    }
    Ok(CancelAttemptOutcome::Again {
        // One more, since the deadline must have passed, not just be reached.
        not_before_ms: Some(u64::try_from(over_ms).unwrap_or(0).saturating_add(1)),
        detail: "nothing found; waiting out the deadline on the switch's clock".into(),
        alert: false,
    })
}

async fn dead<D: CancelPort>(port: &D, death: VoidReason) -> Result<CancelAttemptOutcome, D::Error> {
    Ok(match port.record_void(death).await? {
        // A SUCCESS was on record first; it stands.
        FinalStatusRuling::Contradicts => CancelAttemptOutcome::Settled,
        // What seemed unsent was reported in the meantime: begin anew.
        FinalStatusRuling::NoAttempt => CancelAttemptOutcome::Again {
            not_before_ms: None,
            detail: "reported meanwhile".into(),
            alert: false,
        },
        _ => CancelAttemptOutcome::Void,
    })
}

async fn settled<D: CancelPort>(port: &D, report: &SettledReport) -> Result<CancelAttemptOutcome, D::Error> {
    Ok(match port.record_settled(report).await? {
        FinalStatusRuling::First | FinalStatusRuling::Same => CancelAttemptOutcome::Settled,
        FinalStatusRuling::Differs(_) => CancelAttemptOutcome::Differs,
        // Void was on record first; it stands.
        FinalStatusRuling::Contradicts => CancelAttemptOutcome::Void,
        // The switch settled what we have no record of sending: our record is older than the truth.
        FinalStatusRuling::NoAttempt => {
            CancelAttemptOutcome::Undecidable(OperatorReason::SettledWithoutAttempt)
        }
    })
}

fn again(profile: &SwitchProfile, begun: &CancelContext, detail: String) -> CancelAttemptOutcome {
    CancelAttemptOutcome::Again {
        not_before_ms: None,
        detail,
        alert: begun.cancelling_ms >= profile.alert_after_ms,
    }
}

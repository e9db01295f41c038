//! One cancel attempt, and the complete table of the switch's answers. Besides it, only a final reject
//! ([`crate::rules::final_reject`]) makes a transfer that was sent void.
//!
//! Runs once per attempt. The caller repeats an undecided attempt without end, at the profile's interval.

use crate::cause::OperatorReason;
use crate::facts::FinalStatus;
use crate::keys::{self, CompensationKey, Reference};
use crate::look::look;
use crate::payment::Payment;
use crate::profile::SwitchProfile;
use crate::report::SettledReport;
use crate::rules::{AskRuling, FinalStatusRuling, retention_expired};
use crate::state::FinalState;
use crate::submit::QueryAnswer;

/// The switch's answer to our cancel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CancelAnswer {
    /// Cancelled.
    Cancelled {
        /// Whether the reference was unknown and the switch left a tombstone; `None` if the switch does not say.
        tombstoned: Option<bool>,
    },
    /// The switch had rejected the transfer before.
    AlreadyRejected,
    /// The switch had settled the transfer before.
    AlreadySettled(SettledReport),
    /// The switch had settled the transfer before, and the money came back.
    AlreadyReturned(SettledReport),
    /// The switch does not know the reference and leaves no tombstone.
    NotFound,
    /// Refused, or the transfer is in process: it may still settle.
    Undecided {
        /// The switch's words.
        detail: String,
    },
    /// The switch cannot cancel this transfer: a query is used instead.
    CannotCancel,
    /// Our fault: a malformed request, 401, 403, or 404 of the endpoint.
    OurFault {
        /// The switch's words.
        detail: String,
    },
    /// No answer, or an unreadable one.
    NoAnswer {
        /// The reason: no answer arrived, or the content that could not be read.
        detail: String,
    },
}

/// Our ledger's record when a cancel attempt begins. Beginning fences submit: no submit attempt is sent after.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CancelContext {
    /// The payment's final state; `None` if the payment is open.
    pub end: Option<FinalState>,
    /// The switch's first definite answer; `None` if no definite answer is recorded.
    pub final_status: Option<FinalStatus>,
    /// Nothing was ever sent ([`crate::rules::never_sent`]).
    pub never_sent: bool,
    /// The switch accepted the transfer, according to our record. That it does not know the transfer is then a contradiction.
    pub accepted: bool,
    /// The switch reported a SUCCESS that could not be taken for this payment's.
    pub has_doubtful_success: bool,
    /// Submit's deadline on the switch's clock, in milliseconds since the epoch; `None` if no attempt is recorded.
    pub deadline_ms: Option<i64>,
    /// The transfer may be out by another id than the one on record: that the switch does not know this one proves nothing.
    pub may_have_other_id: bool,
    /// How long the payment has been cancelling, in milliseconds.
    pub cancelling_ms: u64,
}

/// An answer of the switch, with the two times needed to judge it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SwitchResponse<A> {
    /// The answer.
    pub answer: A,
    /// The switch's clock in that answer (`Date`), in milliseconds since the epoch; `None` without an answer
    /// or without the header.
    pub switch_now_ms: Option<i64>,
    /// Age of the first submit attempt when the answer arrived, by the database's clock, in milliseconds.
    pub first_attempt_age_ms: Option<u64>,
}

/// Why a transfer is known to be void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VoidReason {
    /// No attempt was recorded, so nothing was sent. The only reason that needs no answer of the switch.
    NeverSent,
    /// The switch cancelled the transfer.
    Cancelled,
    /// The switch cancelled the transfer, and does not say whether it knew it.
    CancelledUnsaid,
    /// The switch had never received the transfer, and will refuse it.
    Tombstoned,
    /// The switch had rejected the transfer.
    Rejected,
    /// The switch does not know the transfer, and the deadline has passed on the switch's clock.
    DeadlinePassed,
    /// The transfer is not in a statement that is complete beyond the time at which it could have settled.
    NotInClosedStatement,
}

impl VoidReason {
    /// Whether the switch does not have the transfer, so that one under another id may be out.
    #[must_use]
    pub fn is_absence(self) -> bool {
        matches!(self, Self::Tombstoned | Self::DeadlinePassed | Self::NotInClosedStatement)
    }
}

/// Outcome of one cancel attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CancelAttemptOutcome {
    /// The transfer will never settle, or its money came back: recorded. The customer owes nothing.
    Void,
    /// The transfer settled; recorded.
    Settled,
    /// The switch reported a SUCCESS that differs from the payment; recorded.
    Differs,
    /// No answer of this switch can decide it.
    Undecidable(OperatorReason),
    /// The payment has ended.
    Ended(FinalState),
    /// Undecided: attempt again.
    Retry {
        /// Wait at least this many milliseconds; `None` if the profile's interval applies.
        not_before_ms: Option<u64>,
        /// Why the attempt is undecided.
        detail: String,
        /// Whether to alert an operator now: our fault, or undecided for too long.
        alert: bool,
    },
}

/// The actions of one cancel attempt.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait CancelPort {
    /// The adapter's own error: the ledger did not answer.
    type Error;
    /// Marks the payment as cancelling under its row's lock, and reads the record.
    async fn begin(&self) -> Result<CancelContext, Self::Error>;
    /// Records the latest deadline that an attempt without a record can have, unless a deadline is recorded. Returns the recorded
    /// one, in milliseconds since the epoch.
    async fn bound_deadline(&self, latest_ms: i64) -> Result<i64, Self::Error>;
    /// Sends the cancel of the transfer with this reference. The key is cancel's own, so that the switch does
    /// not take a repeated cancel for the submit.
    async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchResponse<CancelAnswer>, Self::Error>;
    /// Counts a query before it is sent, under the payment row's lock. Called only where the profile limits queries.
    async fn begin_query(&self) -> Result<AskRuling, Self::Error>;
    /// Queries the status of the transfer. Where the query is a repeat, sends the recorded submit again.
    async fn query(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, Self::Error>;
    /// Searches the switch's statement for the transfer. A statement lists only finished transfers, so `NotListed` means no more
    /// than "not finished", unless the statement is complete beyond the time at which the transfer could have settled.
    async fn statement(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, Self::Error>;
    /// Records that the transfer is void.
    async fn record_void(&self, reason: VoidReason) -> Result<FinalStatusRuling, Self::Error>;
    /// Records a SUCCESS.
    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, Self::Error>;
    /// Records that the money came back.
    async fn record_returned(&self, report: &SettledReport) -> Result<FinalStatusRuling, Self::Error>;
}

/// Makes one cancel attempt.
///
/// # Errors
/// The port's own error: nothing is known, and the caller repeats the attempt.
pub async fn attempt<P: CancelPort>(port: &P, payment: &Payment) -> Result<CancelAttemptOutcome, P::Error> {
    let profile = &payment.profile;
    let context = port.begin().await?;
    if let Some(end) = context.end {
        return Ok(CancelAttemptOutcome::Ended(end));
    }
    match context.final_status {
        Some(FinalStatus::Settled) => return Ok(CancelAttemptOutcome::Settled),
        Some(FinalStatus::Void | FinalStatus::Returned) => return Ok(CancelAttemptOutcome::Void),
        None if context.never_sent => return void(port, VoidReason::NeverSent).await,
        None => {}
    }
    if !profile.can_cancel {
        return decide_by_query(port, payment, &context).await;
    }
    let response = port.cancel(&payment.reference(), &keys::compensate_submit(&payment.tx_id)).await?;
    match response.answer {
        // A switch without tombstones cancelled an unknown reference: this is "not found".
        CancelAnswer::Cancelled { tombstoned } => {
            let may_be_unknown = tombstoned.unwrap_or(true);
            if may_be_unknown && !profile.tombstones {
                return not_found_by_cancel(port, payment, &context, &response).await;
            }
            // After the switch's retention a tombstone proves nothing: the transfer may have settled and its
            // reference may have been dropped.
            if may_be_unknown && retention_expired(response.first_attempt_age_ms, profile) {
                return Ok(CancelAttemptOutcome::Undecidable(OperatorReason::SwitchRetentionExpired));
            }
            match tombstoned {
                Some(true) => absent(port, &context, VoidReason::Tombstoned).await,
                // It does not say whether it knew the transfer, of which it had reported a SUCCESS: the status decides.
                None if context.has_doubtful_success && profile.has_query => {
                    decide_by_query(port, payment, &context).await
                }
                // A switch that does not say which cancelled what it had accepted.
                None if !context.accepted => absent(port, &context, VoidReason::Tombstoned).await,
                None if profile.has_query => void(port, VoidReason::CancelledUnsaid).await,
                Some(false) | None => void(port, VoidReason::Cancelled).await,
            }
        }
        CancelAnswer::AlreadyRejected => void(port, VoidReason::Rejected).await,
        CancelAnswer::AlreadySettled(report) => settled(port, &report).await,
        CancelAnswer::AlreadyReturned(report) => returned(port, &report).await,
        CancelAnswer::NotFound => not_found_by_cancel(port, payment, &context, &response).await,
        CancelAnswer::CannotCancel if profile.has_query => decide_by_query(port, payment, &context).await,
        CancelAnswer::CannotCancel => {
            let detail = "the switch cannot cancel the transfer".into();
            may_still_settle(port, payment, &context, &response, detail).await
        }
        CancelAnswer::Undecided { ref detail } => {
            may_still_settle(port, payment, &context, &response, detail.clone()).await
        }
        CancelAnswer::OurFault { ref detail } => Ok(our_fault(profile, &response, detail)),
        CancelAnswer::NoAnswer { ref detail } => Ok(retry_or_operator(profile, &context, &response, detail)),
    }
}

/// The outcome of a cancel attempt that the switch left undecided. A switch may repeat this answer under cancel's key for
/// ever, so a definite status counts; "not found" beside an undecided cancel is a contradiction and proves nothing.
async fn may_still_settle<P: CancelPort>(
    port: &P,
    payment: &Payment,
    context: &CancelContext,
    cancelled: &SwitchResponse<CancelAnswer>,
    detail: String,
) -> Result<CancelAttemptOutcome, P::Error> {
    match look(port, payment).await?.answer().map(|response| response.answer) {
        Some(QueryAnswer::Settled(report)) => settled(port, &report).await,
        Some(QueryAnswer::Returned(report)) => returned(port, &report).await,
        Some(QueryAnswer::Void { .. }) => void(port, VoidReason::Rejected).await,
        Some(
            QueryAnswer::Pending
            | QueryAnswer::NotFound
            | QueryAnswer::NotListed { .. }
            | QueryAnswer::Ambiguous { .. }
            | QueryAnswer::OurFault { .. }
            | QueryAnswer::NoAnswer { .. },
        )
        | None => Ok(retry_or_operator(&payment.profile, context, cancelled, &detail)),
    }
}

/// The same table for a switch that cannot cancel, by the transfer's status: only a final rejected status, "not found" after the
/// deadline, or its absence from a closed statement makes the transfer void.
async fn decide_by_query<P: CancelPort>(
    port: &P,
    payment: &Payment,
    context: &CancelContext,
) -> Result<CancelAttemptOutcome, P::Error> {
    let profile = &payment.profile;
    let look = look(port, payment).await?;
    // A statement that cannot be read today may be read tomorrow, and one that is not complete will be.
    let mut statement_closes = false;
    if let Some(listed) = &look.listed {
        if is_void_by_statement(port, profile, context.deadline_ms, listed).await? {
            return absent(port, context, VoidReason::NotInClosedStatement).await;
        }
        let age_ms = listed.first_attempt_age_ms.unwrap_or(0);
        statement_closes = profile.statement_decides_within_ms().is_some_and(|within_ms| age_ms < within_ms);
    }
    let outcome = match (look.not_asked, look.answer()) {
        (Some(AskRuling::TooEarly { wait_ms }), _) => CancelAttemptOutcome::Retry {
            not_before_ms: Some(wait_ms),
            detail: "the switch refuses a query so soon".into(),
            alert: false,
        },
        (not_asked, None) => CancelAttemptOutcome::Undecidable(no_query_left(not_asked)),
        (not_asked, Some(response)) => match response.answer {
            QueryAnswer::Settled(report) => settled(port, &report).await?,
            QueryAnswer::Returned(report) => returned(port, &report).await?,
            QueryAnswer::Void { .. } => void(port, VoidReason::Rejected).await?,
            QueryAnswer::NotFound => not_found(port, profile, context, &response).await?,
            QueryAnswer::Ambiguous { .. } => {
                CancelAttemptOutcome::Undecidable(OperatorReason::AmbiguousTransfer)
            }
            // A statement lists only finished transfers. An operator may know more, and the polls continue.
            QueryAnswer::NotListed { .. } => CancelAttemptOutcome::Undecidable(no_query_left(not_asked)),
            QueryAnswer::Pending => {
                retry_or_operator(profile, context, &response, "the switch has not decided")
            }
            QueryAnswer::OurFault { ref detail } => our_fault(profile, &response, detail),
            QueryAnswer::NoAnswer { ref detail } => retry_or_operator(profile, context, &response, detail),
        },
    };
    Ok(match outcome {
        // Operators decide about a return of another amount.
        CancelAttemptOutcome::Undecidable(OperatorReason::ConfirmationMismatch) => outcome,
        // It decides when it is closed.
        CancelAttemptOutcome::Undecidable(_) if statement_closes => {
            retry(profile, context, "the statement, which is not complete yet, decides")
        }
        outcome => outcome,
    })
}

/// Why operators decide, if the switch answers no query and its statement does not decide.
fn no_query_left(not_asked: Option<AskRuling>) -> OperatorReason {
    match not_asked {
        Some(AskRuling::Spent) => OperatorReason::QueriesSpent,
        Some(AskRuling::Ask | AskRuling::TooEarly { .. }) | None => OperatorReason::NoCancelOrQuery,
    }
}

/// Whether the absence from a statement proves that the transfer never settles: the statement is complete up to a time at which no
/// attempt can arrive any more, and everything that arrived has settled or never will.
pub(crate) async fn is_void_by_statement<P: CancelPort>(
    port: &P,
    profile: &SwitchProfile,
    deadline_ms: Option<i64>,
    listed: &SwitchResponse<QueryAnswer>,
) -> Result<bool, P::Error> {
    let QueryAnswer::NotListed { complete_until_ms } = listed.answer else { return Ok(false) };
    let (Some(settled_within_ms), Some(complete_until_ms), Some(switch_now_ms)) =
        (profile.settled_within_ms, complete_until_ms, listed.switch_now_ms)
    else {
        return Ok(false);
    };
    let open_ms = profile.arrives_within_ms().saturating_add(settled_within_ms);
    let open_ms = i64::try_from(open_ms).unwrap_or(i64::MAX);
    let deadline_ms = recorded_deadline(port, profile, deadline_ms, switch_now_ms).await?;
    Ok(complete_until_ms > deadline_ms.saturating_add(open_ms))
}

/// Submit's deadline on the switch's clock. An attempt whose record was lost read the switch's clock before now, because no attempt
/// follows the start of a cancel: its deadline is bounded.
async fn recorded_deadline<P: CancelPort>(
    port: &P,
    profile: &SwitchProfile,
    deadline_ms: Option<i64>,
    switch_now_ms: i64,
) -> Result<i64, P::Error> {
    match deadline_ms {
        Some(deadline_ms) => Ok(deadline_ms),
        None => {
            let distance_ms = i64::try_from(profile.submit_deadline_ms).unwrap_or(i64::MAX);
            port.bound_deadline(switch_now_ms.saturating_add(distance_ms)).await
        }
    }
}

/// The outcome of a cancel that did not find the transfer. The switch may have repeated an earlier answer under the
/// same key; a query has no key, so the answer of a query counts if the switch offers one.
async fn not_found_by_cancel<P: CancelPort>(
    port: &P,
    payment: &Payment,
    context: &CancelContext,
    response: &SwitchResponse<CancelAnswer>,
) -> Result<CancelAttemptOutcome, P::Error> {
    if payment.profile.has_query {
        decide_by_query(port, payment, context).await
    } else {
        not_found(port, &payment.profile, context, response).await
    }
}

/// "Not found" alone proves nothing: a delayed attempt can still arrive. The answer counts once the switch would
/// refuse that attempt, because the attempt's deadline has passed on the switch's clock.
async fn not_found<P: CancelPort, A>(
    port: &P,
    profile: &SwitchProfile,
    context: &CancelContext,
    response: &SwitchResponse<A>,
) -> Result<CancelAttemptOutcome, P::Error> {
    if retention_expired(response.first_attempt_age_ms, profile) {
        return Ok(CancelAttemptOutcome::Undecidable(OperatorReason::SwitchRetentionExpired));
    }
    if !profile.honours_deadline {
        return Ok(CancelAttemptOutcome::Undecidable(OperatorReason::NotFoundIsInconclusive));
    }
    let Some(switch_now_ms) = response.switch_now_ms else {
        let detail = "the switch does not know the transfer, and its answer has no Date header";
        return Ok(retry_or_operator(profile, context, response, detail));
    };
    let deadline_ms = recorded_deadline(port, profile, context.deadline_ms, switch_now_ms).await?;
    let skew_ms = i64::try_from(profile.max_skew_ms).unwrap_or(i64::MAX);
    let remaining_ms = deadline_ms.saturating_add(skew_ms).saturating_sub(switch_now_ms);
    if remaining_ms < 0 {
        return absent(port, context, VoidReason::DeadlinePassed).await;
    }
    Ok(CancelAttemptOutcome::Retry {
        // One more, because the deadline must have passed, not only be reached.
        not_before_ms: Some(u64::try_from(remaining_ms).unwrap_or(0).saturating_add(1)),
        detail: "the switch does not know the transfer; waiting for the deadline on the switch's clock"
            .into(),
        alert: false,
    })
}

/// The switch does not have the transfer, for `reason`: void, unless our record shows that it may have it nevertheless.
async fn absent<P: CancelPort>(
    port: &P,
    context: &CancelContext,
    reason: VoidReason,
) -> Result<CancelAttemptOutcome, P::Error> {
    let contradicted_by = match reason {
        _ if context.may_have_other_id => Some(OperatorReason::NotFoundIsInconclusive),
        VoidReason::NotInClosedStatement => {
            context.has_doubtful_success.then_some(OperatorReason::ConfirmationMismatch)
        }
        _ => context.accepted.then_some(OperatorReason::AcceptedThenUnknown),
    };
    match contradicted_by {
        Some(contradiction) => Ok(CancelAttemptOutcome::Undecidable(contradiction)),
        None => void(port, reason).await,
    }
}

async fn void<P: CancelPort>(port: &P, reason: VoidReason) -> Result<CancelAttemptOutcome, P::Error> {
    Ok(match port.record_void(reason).await? {
        // A SUCCESS was recorded first and remains valid.
        FinalStatusRuling::Contradicts => CancelAttemptOutcome::Settled,
        // The switch reported the transfer in the meantime: begin again.
        FinalStatusRuling::NoAttempt => CancelAttemptOutcome::Retry {
            not_before_ms: None,
            detail: "the switch reported the transfer in the meantime".into(),
            alert: false,
        },
        _ => CancelAttemptOutcome::Void,
    })
}

async fn settled<P: CancelPort>(port: &P, report: &SettledReport) -> Result<CancelAttemptOutcome, P::Error> {
    Ok(match port.record_settled(report).await? {
        FinalStatusRuling::First | FinalStatusRuling::Same => CancelAttemptOutcome::Settled,
        FinalStatusRuling::Differs(_) => CancelAttemptOutcome::Differs,
        // `void` was recorded first and remains valid.
        FinalStatusRuling::Contradicts => CancelAttemptOutcome::Void,
        // The switch settled a transfer that we have no record of: our record is older than the switch's.
        FinalStatusRuling::NoAttempt => {
            CancelAttemptOutcome::Undecidable(OperatorReason::SettledWithoutAttempt)
        }
    })
}

async fn returned<P: CancelPort>(port: &P, report: &SettledReport) -> Result<CancelAttemptOutcome, P::Error> {
    Ok(match port.record_returned(report).await? {
        // The money came back, and its amount is for operators: nothing is left that could settle.
        FinalStatusRuling::Differs(_) => {
            CancelAttemptOutcome::Undecidable(OperatorReason::ConfirmationMismatch)
        }
        FinalStatusRuling::NoAttempt => {
            CancelAttemptOutcome::Undecidable(OperatorReason::SettledWithoutAttempt)
        }
        FinalStatusRuling::First | FinalStatusRuling::Same | FinalStatusRuling::Contradicts => {
            CancelAttemptOutcome::Void
        }
    })
}

/// A retry, because the switch gave no decisive answer. After the switch's retention none will come: operators decide, so that
/// no payment waits for ever for a switch that is gone, or that never decides.
fn retry_or_operator<A>(
    profile: &SwitchProfile,
    context: &CancelContext,
    response: &SwitchResponse<A>,
    detail: &str,
) -> CancelAttemptOutcome {
    if retention_expired(response.first_attempt_age_ms, profile) {
        return CancelAttemptOutcome::Undecidable(OperatorReason::SwitchRetentionExpired);
    }
    retry(profile, context, detail)
}

fn retry(profile: &SwitchProfile, context: &CancelContext, detail: &str) -> CancelAttemptOutcome {
    CancelAttemptOutcome::Retry {
        not_before_ms: None,
        detail: detail.to_owned(),
        alert: context.cancelling_ms >= profile.alert_after_ms,
    }
}

/// As [`retry_or_operator`], after an answer that blames our request: operators are alerted at once.
fn our_fault<A>(profile: &SwitchProfile, response: &SwitchResponse<A>, detail: &str) -> CancelAttemptOutcome {
    if retention_expired(response.first_attempt_age_ms, profile) {
        return CancelAttemptOutcome::Undecidable(OperatorReason::SwitchRetentionExpired);
    }
    CancelAttemptOutcome::Retry { not_before_ms: None, detail: detail.to_owned(), alert: true }
}

//! What may be written next to what is written. Pure functions over [`Facts`].
//!
//! The ledger reads the facts under the payment row's lock, asks here, and writes the answer in the
//! same transaction. No step decides from memory: a paused attempt that lands late meets the facts
//! as they are then.

use crate::cause::{Cause, ReserveRefusal};
use crate::facts::{Facts, FinalStatus, HoldStatus, RecallRecord, ReserveRecord};
use crate::ids::RunId;
use crate::profile::SwitchProfile;
use crate::report::{Difference, Expected, SettledReport, compare};
use crate::state::{FinalState, text_enum};

/// What a reserve may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReserveRuling {
    /// Look at the account and hold the amount or record the refusal.
    Try,
    /// Record this refusal without looking at the account.
    Refuse(ReserveRefusal),
    /// Recorded before: the same answer again.
    Recorded(ReserveRecord),
    /// Another run has this payment, or had it and began to compensation it: go the resume way.
    AnotherRun,
    /// The payment has ended.
    Ended(FinalState),
}

/// Rules the reserve of `run`. `too_late` says that the start is past `valid_until` on the
/// database's clock.
#[must_use]
pub fn reserve(facts: &Facts, run: &RunId, too_late: bool) -> ReserveRuling {
    if let Some(ReserveRecord::Refused(refusal)) = facts.reserve {
        return ReserveRuling::Recorded(ReserveRecord::Refused(refusal));
    }
    if let Some(end) = facts.state.end() {
        return ReserveRuling::Ended(end);
    }
    if facts.run_id.as_ref().is_some_and(|first| first != run) {
        return ReserveRuling::AnotherRun;
    }
    match facts.reserve {
        Some(record) => ReserveRuling::Recorded(record),
        // A reset to before the reserve: what is being undone ends for the cause of the compensation.
        None if facts.cause.is_some() => ReserveRuling::AnotherRun,
        None if facts.cancel_requested => ReserveRuling::Refuse(ReserveRefusal::CustomerCancel),
        None if too_late => ReserveRuling::Refuse(ReserveRefusal::StartedTooLate),
        None => ReserveRuling::Try,
    }
}

text_enum!(
    /// Why an attempt was not let out. Nothing was sent by it; earlier attempts may have been.
    NotSent {
        /// The hold is not open: never made, settled, released or fenced.
        NoOpenHold = "no_open_hold",
        /// Another run has this payment.
        AnotherRun = "another_run",
        /// The switch is already being asked to cancel.
        CancelStarted = "cancel_started",
        /// A customer's cancel is in the inbox.
        CustomerCancel = "customer_cancel",
        /// One attempt is on record, and more than one is never sent: the switch does not deduplicate, or the
        /// strategy says so.
        SecondAttemptForbidden = "second_attempt_forbidden",
        /// Another payment's transfer to the same account is under way at a switch without references.
        AccountBusy = "account_busy",
        /// The switch has what our record says was never sent.
        ReportedWithoutAttempt = "reported_without_attempt",
        /// The switch may have retention_expired the first attempt.
        SwitchRetentionExpired = "switch_retention_expired",
    }
);

/// What an attempt of submit may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptRuling {
    /// Record attempt number `n` (from 1), then send.
    Send(u32),
    /// Do not send: the switch has already said that the transfer settled.
    Settled,
    /// Do not send.
    NotSent(NotSent),
}

/// Rules one attempt of submit by `run`.
#[must_use]
pub fn attempt(facts: &Facts, run: &RunId, profile: &SwitchProfile) -> AttemptRuling {
    use AttemptRuling::NotSent as No;
    if facts.final_status == Some(FinalStatus::Settled) {
        return AttemptRuling::Settled;
    }
    if facts.run_id.as_ref() != Some(run) {
        return No(NotSent::AnotherRun);
    }
    if facts.hold != Some(HoldStatus::Open) {
        return No(NotSent::NoOpenHold);
    }
    if facts.cause.is_some() || facts.final_status.is_some() {
        return No(NotSent::CancelStarted);
    }
    if facts.cancel_requested {
        return No(NotSent::CustomerCancel);
    }
    if facts.attempts == 0 && facts.reported_without_attempt {
        return No(NotSent::ReportedWithoutAttempt);
    }
    if facts.attempts > 0 && profile.forbids_second_attempt() {
        return No(NotSent::SecondAttemptForbidden);
    }
    if facts.account_busy && profile.needs_account_lock() {
        return No(NotSent::AccountBusy);
    }
    if retention_expired(facts.first_attempt_age_ms, profile) {
        return No(NotSent::SwitchRetentionExpired);
    }
    AttemptRuling::Send(facts.attempts.saturating_add(1))
}

/// Whether the switch may have retention_expired the reference by now.
#[must_use]
pub fn retention_expired(first_attempt_age_ms: Option<u64>, profile: &SwitchProfile) -> bool {
    first_attempt_age_ms.is_some_and(|age_ms| age_ms >= profile.retention_s.saturating_mul(1_000))
}

/// What a definite answer of the switch means next to what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalStatusRuling {
    /// The first definite answer: write it.
    First,
    /// Written before.
    Same,
    /// A SUCCESS of something else: keep the hold, exception.
    Differs(Difference),
    /// A SUCCESS for a payment of which no attempt is recorded: exception, nothing moves.
    NoAttempt,
    /// The other answer was written first: exception, the first stands.
    Contradicts,
}

/// Rules a SUCCESS from wherever it came.
#[must_use]
pub fn settled_report(facts: &Facts, expected: &Expected, report: &SettledReport) -> FinalStatusRuling {
    match compare(expected, report) {
        // Another switch's word is never about this payment, sent or not.
        Err(Difference::Switch) => FinalStatusRuling::Differs(Difference::Switch),
        _ if facts.attempts == 0 => FinalStatusRuling::NoAttempt,
        Err(difference) => FinalStatusRuling::Differs(difference),
        Ok(()) => definite(facts, FinalStatus::Settled),
    }
}

/// Rules an answer to our cancel that says the transfer is dead.
#[must_use]
pub fn void_report(facts: &Facts) -> FinalStatusRuling {
    definite(facts, FinalStatus::Void)
}

fn definite(facts: &Facts, said: FinalStatus) -> FinalStatusRuling {
    match facts.final_status {
        None => FinalStatusRuling::First,
        Some(first) if first == said => FinalStatusRuling::Same,
        Some(_) => FinalStatusRuling::Contradicts,
    }
}

/// Whether nothing was ever sent: no attempt is on record, and the switch has not said otherwise. The
/// only short way to releasing.
#[must_use]
pub fn never_sent(facts: &Facts) -> bool {
    facts.attempts == 0 && !facts.reported_without_attempt
}

/// What settle may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DebitRuling {
    /// Debit, or record why the account cannot be debited.
    Debit,
    /// Debited before.
    Already,
    /// Refused before, for good.
    Refused(String),
    /// The switch's SUCCESS differs from the payment.
    Differs,
    /// The switch has not said SUCCESS of this payment.
    NotConfirmed,
}

/// Rules a settle.
#[must_use]
pub fn debit(facts: &Facts) -> DebitRuling {
    match (facts.hold, facts.final_status) {
        (Some(HoldStatus::Settled), _) => DebitRuling::Already,
        (Some(HoldStatus::Open), Some(FinalStatus::Settled)) => match &facts.debit_refused {
            Some(reason) => DebitRuling::Refused(reason.clone()),
            // Recall is asked only after a refused settle; what came back is never debited.
            None if facts.recall == Some(RecallRecord::Recalled) => DebitRuling::Refused("recalled".into()),
            None => DebitRuling::Debit,
        },
        (_, None) if facts.confirmation_mismatch => DebitRuling::Differs,
        _ => DebitRuling::NotConfirmed,
    }
}

text_enum!(
    /// Why a release is refused.
    ReleaseRefusal {
        /// The hold was settled.
        HoldSettled = "hold_settled",
        /// The transfer may still settle at the switch.
        MayStillSettle = "may_still_settle",
    }
);

/// What a release may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseRuling {
    /// Give the held amount back.
    GiveBack,
    /// Nothing is held: write the fence, so that a late reserve is refused.
    Fence,
    /// Released before.
    Already,
    /// There is nothing to release: the payment ended, and not by being undone.
    Ended(FinalState),
    /// Not allowed.
    Refused(ReleaseRefusal),
}

/// Rules a release: the one port (design, "The rule under everything").
#[must_use]
pub fn release(facts: &Facts) -> ReleaseRuling {
    let dead = facts.final_status == Some(FinalStatus::Void);
    let recalled = facts.recall == Some(RecallRecord::Recalled);
    match (facts.hold, facts.state.end()) {
        (Some(HoldStatus::Settled), _) => ReleaseRuling::Refused(ReleaseRefusal::HoldSettled),
        // People charged somebody else for money that left.
        (Some(HoldStatus::Released), Some(FinalState::Settled)) => ReleaseRuling::Ended(FinalState::Settled),
        (Some(HoldStatus::Released), _) => ReleaseRuling::Already,
        (None, Some(_)) if facts.cause.is_some() => ReleaseRuling::Already,
        (None, Some(end)) => ReleaseRuling::Ended(end),
        _ if !(never_sent(facts) || dead || recalled) => {
            ReleaseRuling::Refused(ReleaseRefusal::MayStillSettle)
        }
        (None, None) => ReleaseRuling::Fence,
        (Some(HoldStatus::Open), _) => ReleaseRuling::GiveBack,
    }
}

text_enum!(
    /// Why the books refuse what people decided.
    DecisionRefusal {
        /// It is not on record as confirmed by two people, for this payment and this action.
        NotConfirmed = "not_confirmed",
        /// The switch said that the transfer is dead.
        SwitchSaysVoid = "switch_says_void",
        /// The switch said that the transfer settled.
        SwitchSaysSettled = "switch_says_settled",
        /// The switch gave the money back: what is held must be released.
        Recalled = "recalled",
        /// The switch is being asked to give the money back, and may.
        RecallUnderWay = "recall_under_way",
    }
);

/// What a debit that people decided may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DebitByDecisionRuling {
    /// Debit what is held, where the account may be debited; charge the claims account where it may not.
    Charge,
    /// The payment has ended.
    Ended(FinalState),
    /// Not allowed.
    Refused(DecisionRefusal),
}

/// Rules a debit that people decided. It needs no report of the switch, and never goes against one.
#[must_use]
pub fn debit_by_decision(facts: &Facts) -> DebitByDecisionRuling {
    use DebitByDecisionRuling::Refused;
    if let Some(end) = facts.state.end() {
        return DebitByDecisionRuling::Ended(end);
    }
    if facts.final_status == Some(FinalStatus::Void) {
        return Refused(DecisionRefusal::SwitchSaysVoid);
    }
    match facts.recall {
        Some(RecallRecord::Recalled) => Refused(DecisionRefusal::Recalled),
        None if facts.debit_refused.is_some() => Refused(DecisionRefusal::RecallUnderWay),
        Some(RecallRecord::Refused | RecallRecord::RecallUnsupported) | None => DebitByDecisionRuling::Charge,
    }
}

/// What a release that people decided may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseByDecisionRuling {
    /// Give back what is held, or fence what is not, and end the payment.
    Release,
    /// The payment has ended.
    Ended(FinalState),
    /// Not allowed.
    Refused(DecisionRefusal),
}

/// Rules a release that people decided: their evidence stands in for an answer that the switch cannot
/// give, never against one that it gave.
#[must_use]
pub fn release_by_decision(facts: &Facts) -> ReleaseByDecisionRuling {
    if let Some(end) = facts.state.end() {
        return ReleaseByDecisionRuling::Ended(end);
    }
    if facts.final_status == Some(FinalStatus::Settled) && facts.recall != Some(RecallRecord::Recalled) {
        return ReleaseByDecisionRuling::Refused(DecisionRefusal::SwitchSaysSettled);
    }
    ReleaseByDecisionRuling::Release
}

/// The cause that names the end: the first one recorded.
#[must_use]
pub fn first_cause(facts: &Facts, now: &Cause) -> Cause {
    facts.cause.clone().unwrap_or_else(|| now.clone())
}

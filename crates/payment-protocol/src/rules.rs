//! The writes that the recorded facts allow next. Pure functions over [`Facts`].
//!
//! The ledger reads the facts under the payment row's lock, calls a rule, and writes the result in the same
//! transaction. No step decides from memory: a delayed attempt is judged by the facts at its arrival.

use crate::cancel::VoidReason;
use crate::cause::{Cause, ReserveRefusal};
use crate::facts::{Facts, FinalStatus, HoldStatus, ReserveRecord};
use crate::ids::RunId;
use crate::money::Money;
use crate::port::SubmitProgress;
use crate::profile::{LateSettlement, SwitchProfile};
use crate::reject::Reject;
use crate::report::{Difference, ExpectedTransfer, SettledReport, compare};
use crate::state::{FinalState, text_enum};

/// Ruling on a reserve.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReserveRuling {
    /// Check the account, then hold the amount or record the refusal.
    Try,
    /// Record this refusal without checking the account.
    Refuse(ReserveRefusal),
    /// An outcome is recorded: return it again.
    Recorded(ReserveRecord),
    /// Another run owns this payment, or began to compensate it: continue as a recovery.
    AnotherRun,
    /// The payment has ended.
    Ended(FinalState),
}

/// Rules on the reserve of `run`. `too_late`: the start is past `valid_until` on the database's clock.
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
        // The workflow was reset to before the reserve: the recorded cause names the final state.
        None if facts.cause.is_some() => ReserveRuling::AnotherRun,
        // The database may have lost a reserve, and what followed: the payment is recovered, and not refused unasked.
        None if facts.attempts_uncertain => ReserveRuling::AnotherRun,
        None if facts.cancel_requested => ReserveRuling::Refuse(ReserveRefusal::CustomerCancel),
        None if too_late => ReserveRuling::Refuse(ReserveRefusal::StartedTooLate),
        None => ReserveRuling::Try,
    }
}

/// Whether `refusal` may end a payment before its reserve, without a question to the switch.
#[must_use]
pub fn may_refuse_unreserved(facts: &Facts, refusal: ReserveRefusal) -> bool {
    // That a payment is invalid follows from the payment itself: nothing of it was ever sent.
    let is_complete = !facts.attempts_uncertain || refusal == ReserveRefusal::Invalid;
    let was_never_sent = facts.attempts == 0 && is_complete;
    facts.reserve.is_none() && facts.state.end().is_none() && was_never_sent
}

text_enum!(
    /// Why the ledger refused a submit attempt. The refused attempt sent nothing; earlier attempts may have.
    NotSent {
        /// The hold is not open: never made, debited, released or fenced.
        NoOpenHold = "no_open_hold",
        /// Another run owns this payment.
        AnotherRun = "another_run",
        /// The payment is being cancelled at the switch.
        CancelStarted = "cancel_started",
        /// A customer's cancel request is in the inbox.
        CustomerCancel = "customer_cancel",
        /// One attempt is recorded, and a second is never sent: the switch does not deduplicate, or the
        /// strategy forbids it.
        SecondAttemptForbidden = "second_attempt_forbidden",
        /// Another payment's transfer to the same account is under way at a switch without references.
        AccountBusy = "account_busy",
        /// The switch has a transfer that was never sent according to our record.
        ReportedWithoutAttempt = "reported_without_attempt",
        /// The switch's retention of the first attempt may have expired.
        SwitchRetentionExpired = "switch_retention_expired",
        /// The switch rejected the transfer for good.
        Rejected = "rejected",
    }
);

/// Ruling on a submit attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptRuling {
    /// Record the attempt with this number (from 1), then send.
    Send(u32),
    /// Do not send: the switch has already reported that the transfer settled.
    Settled,
    /// Do not send.
    NotSent(NotSent),
}

/// Rules on one submit attempt of `run`. `tried_before`: an earlier try of this submit may have sent the transfer, according to
/// Temporal, whose record survives a commit that our database lost.
#[must_use]
pub fn attempt(facts: &Facts, run: &RunId, profile: &SwitchProfile, tried_before: bool) -> AttemptRuling {
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
    // Without a cause, only a final reject can have been recorded.
    if facts.cause.is_none() && facts.final_status == Some(FinalStatus::Void) {
        return No(NotSent::Rejected);
    }
    if facts.cause.is_some() || facts.final_status.is_some() {
        return No(NotSent::CancelStarted);
    }
    if facts.cancel_requested {
        return No(NotSent::CustomerCancel);
    }
    if facts.attempts == 0 && is_reported_unexpectedly(facts) {
        return No(NotSent::ReportedWithoutAttempt);
    }
    let may_be_second = facts.attempts > 0 || facts.attempts_uncertain || tried_before;
    if may_be_second && profile.forbids_second_attempt() {
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

/// Whether the switch's retention of the reference may have expired. False without an attempt.
#[must_use]
pub fn retention_expired(first_attempt_age_ms: Option<u64>, profile: &SwitchProfile) -> bool {
    first_attempt_age_ms.is_some_and(|age_ms| age_ms >= profile.retention_s.saturating_mul(1_000))
}

/// Ruling on a query of the transfer, at a switch that limits queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskRuling {
    /// Count the query, then send it.
    Ask,
    /// The switch refuses a query so soon after the submit, or after the query before.
    TooEarly {
        /// The next query is due in this many milliseconds.
        wait_ms: u64,
    },
    /// No query may be sent any more: their number or their time is used up, or there is no recorded attempt to repeat.
    Spent,
}

/// Rules on one query of the transfer.
#[must_use]
pub fn ask(facts: &Facts, profile: &SwitchProfile) -> AskRuling {
    // Only a recorded attempt is repeated, and only while the switch answers the repeat with the first outcome.
    let is_decided = facts.state.end().is_some() || facts.final_status.is_some();
    let nothing_to_repeat = profile.query_is_repeat
        && (is_decided || facts.attempts == 0 || retention_expired(facts.first_attempt_age_ms, profile));
    let is_counted_out = profile.asks_max > 0 && facts.asks >= profile.asks_max;
    let age_ms = facts.first_attempt_age_ms.unwrap_or(0);
    let window_ms = profile.ask_window_s.saturating_mul(1_000);
    let is_past_window = window_ms > 0 && age_ms >= window_ms;
    if nothing_to_repeat || is_counted_out || is_past_window {
        return AskRuling::Spent;
    }
    let since_last_ms = facts.last_ask_age_ms.unwrap_or(u64::MAX);
    let wait_ms = profile
        .first_ask_after_ms
        .saturating_sub(age_ms)
        .max(profile.ask_interval_ms.saturating_sub(since_last_ms));
    match wait_ms {
        0 => AskRuling::Ask,
        wait_ms => AskRuling::TooEarly { wait_ms },
    }
}

/// How a definite answer of the switch relates to the recorded facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalStatusRuling {
    /// The first definite answer, or the first report of a return: record it.
    First,
    /// The same answer is recorded.
    Same,
    /// A SUCCESS that differs from the payment: keep the hold, record an exception.
    Differs(Difference),
    /// A SUCCESS for a payment without a recorded attempt: record an exception, move nothing.
    NoAttempt,
    /// The other answer was recorded first and remains valid: record an exception.
    Contradicts,
}

/// Rules on a SUCCESS, whichever message carried it. `answers_us`: the report answers our own question about our reference, which
/// stands for an attempt whose record was lost; a callback that nobody expects does not.
#[must_use]
pub fn settled_report(
    facts: &Facts,
    expected: &ExpectedTransfer,
    report: &SettledReport,
    answers_us: bool,
) -> FinalStatusRuling {
    money_report(facts, expected, report, answers_us, FinalStatus::Settled)
}

/// Rules on a report that the money came back; see [`settled_report`], and [`returned_callback`].
#[must_use]
pub fn returned_report(
    facts: &Facts,
    expected: &ExpectedTransfer,
    report: &SettledReport,
    answers_us: bool,
) -> FinalStatusRuling {
    money_report(facts, expected, report, answers_us, FinalStatus::Returned)
}

/// Rules on a callback that reports a return. After the end of a payment that was not charged it contradicts the end where a query must
/// confirm callbacks: were it believed, it would pass for the reason of a SUCCESS that follows.
#[must_use]
pub fn returned_callback(
    facts: &Facts,
    profile: &SwitchProfile,
    expected: &ExpectedTransfer,
    report: &SettledReport,
) -> FinalStatusRuling {
    let answers_us = false;
    let ruling = returned_report(facts, expected, report, answers_us);
    let ended_unpaid = facts.state.end().is_some_and(|end| end != FinalState::Settled)
        && facts.final_status != Some(FinalStatus::Settled);
    if ended_unpaid && ruling == FinalStatusRuling::First && profile.confirms_by_query(expected.money) {
        FinalStatusRuling::Contradicts
    } else {
        ruling
    }
}

/// Whether a callback that says that the transfer settled or came back, with whatever amount, moves no money until a query confirms it: it
/// is stored and delivered, and the payment asks the switch. A SUCCESS would be the first definite report; the debit that follows begins
/// with the query. A return would change an open payment; if an answer that says settled is recorded first, the payment is debited, and
/// operators credit what came back.
#[must_use]
pub fn is_unconfirmed(
    facts: &Facts,
    profile: &SwitchProfile,
    expected: &ExpectedTransfer,
    report: &SettledReport,
    reported: FinalStatus,
) -> bool {
    let would_change = match reported {
        FinalStatus::Settled => is_undecided(facts),
        FinalStatus::Returned => facts.state.end().is_none(),
        // A reject leads to the cancel, which asks.
        FinalStatus::Void => false,
    };
    let answers_us = false;
    would_change
        && profile.confirms_by_query(expected.money)
        && concerns_the_transfer(money_report(facts, expected, report, answers_us, reported))
}

/// Whether the workflow of an open payment receives a callback that changes nothing on record. Where a query must confirm callbacks, the
/// workflow asks the switch after the first, until it answers: one of each kind is enough, and a flood of them gives the payment no more
/// to do.
#[must_use]
pub fn delivers_again(facts: &Facts, profile: &SwitchProfile, money: Money, reported: FinalStatus) -> bool {
    let was_reported = match reported {
        FinalStatus::Returned => facts.return_to_confirm,
        FinalStatus::Settled => facts.report_to_confirm,
        FinalStatus::Void => facts.failure_reported,
    };
    facts.state.end().is_none() && !(was_reported && profile.confirms_by_query(money))
}

/// Whether the report is of the payment's own switch, about a transfer that is on record, and new.
fn concerns_the_transfer(ruling: FinalStatusRuling) -> bool {
    match ruling {
        FinalStatusRuling::First => true,
        FinalStatusRuling::Differs(difference) => difference != Difference::Switch,
        FinalStatusRuling::Same | FinalStatusRuling::NoAttempt | FinalStatusRuling::Contradicts => false,
    }
}

/// As [`final_reject`], in a callback about an amount: not believed where a query must confirm it.
#[must_use]
pub fn final_reject_callback(
    facts: &Facts,
    profile: &SwitchProfile,
    money: Money,
    reject: &Reject,
) -> Option<FinalStatusRuling> {
    if needs_query(facts, profile, money) { None } else { final_reject(facts, profile, reject) }
}

fn money_report(
    facts: &Facts,
    expected: &ExpectedTransfer,
    report: &SettledReport,
    answers_us: bool,
    reported: FinalStatus,
) -> FinalStatusRuling {
    let is_first_success = reported == FinalStatus::Settled && facts.final_status.is_none();
    let is_expected = has_left(facts) || (facts.attempts_uncertain && answers_us);
    match compare(expected, report) {
        // A report of another switch never concerns this payment, whether or not anything was sent.
        Err(Difference::Switch) => FinalStatusRuling::Differs(Difference::Switch),
        _ if !is_expected => FinalStatusRuling::NoAttempt,
        // A report that came before the attempt's record outweighs a callback, which may be older; a return also outweighs an answer
        // to us, which may have been under way.
        _ if is_first_success
            && (facts.returned_without_attempt || facts.reported_without_attempt && !answers_us) =>
        {
            FinalStatusRuling::NoAttempt
        }
        Err(difference) => FinalStatusRuling::Differs(difference),
        // The payment ended before the answer to a lost attempt arrived: nothing was debited, and operators decide.
        Ok(()) if is_first_success && facts.state.end().is_some() => FinalStatusRuling::Contradicts,
        Ok(()) => final_status(facts, reported),
    }
}

/// Whether a transfer is on record: by an attempt, or by an answer that it settled, which stands for an attempt whose record was lost.
#[must_use]
pub fn has_left(facts: &Facts) -> bool {
    let was_answered = matches!(facts.final_status, Some(FinalStatus::Settled | FinalStatus::Returned));
    facts.attempts > 0 || was_answered
}

/// Whether the switch reported a SUCCESS that could not be taken for this payment's: with other data, without a recorded attempt, by a
/// return of money that was not charged, or by a callback that no query has confirmed. What the switch says afterwards is then for
/// operators.
#[must_use]
pub fn has_doubtful_success(facts: &Facts) -> bool {
    facts.confirmation_mismatch || has_unconfirmed_report(facts) || is_reported_unexpectedly(facts)
}

/// Whether a callback said that the transfer settled, or that it came back, and the switch has neither confirmed nor denied it. One that
/// came before its attempt was recorded has an exception of its own.
#[must_use]
pub fn has_unconfirmed_report(facts: &Facts) -> bool {
    facts.report_to_confirm && !facts.reported_without_attempt && is_undecided(facts)
}

/// Whether the switch must answer a query before the payment's money moves: nothing definite is recorded, and the profile does not
/// believe a callback alone ([`crate::profile::ConfirmByQuery`]).
#[must_use]
pub fn needs_query(facts: &Facts, profile: &SwitchProfile, money: Money) -> bool {
    is_undecided(facts) && profile.confirms_by_query(money)
}

/// What the switch has said of a payment that needs an operator: its definite answer, or a callback that said that the money left, which
/// the debit asks the switch to confirm. `None` if it has said neither.
#[must_use]
pub fn reported(facts: &Facts) -> Option<FinalStatus> {
    facts.final_status.or(has_unconfirmed_report(facts).then_some(FinalStatus::Settled))
}

/// Whether the payment is open, and no definite answer of the switch is recorded.
fn is_undecided(facts: &Facts) -> bool {
    facts.state.end().is_none() && facts.final_status.is_none()
}

/// Whether the switch has shown that it had the transfer, by a report without a recorded attempt or by a return of money that was not
/// charged.
fn is_reported_unexpectedly(facts: &Facts) -> bool {
    facts.reported_without_attempt || facts.has_unbooked_return
}

/// Rules on a final reject, in the answer to an attempt or in a callback; `None` if the profile does not believe it, or nothing was
/// sent that could have been rejected.
#[must_use]
pub fn final_reject(facts: &Facts, profile: &SwitchProfile, reject: &Reject) -> Option<FinalStatusRuling> {
    let is_believed = profile.is_final(reject) && !never_sent(facts) && !has_doubtful_success(facts);
    is_believed.then(|| void_report(facts))
}

/// Rules on an answer that reports the transfer as void.
#[must_use]
pub fn void_report(facts: &Facts) -> FinalStatusRuling {
    final_status(facts, FinalStatus::Void)
}

/// Whether a reason for which a transfer is void is believed under the row's lock. `accepted`: the switch accepted the transfer,
/// according to our record; that it never knew the transfer is then a contradiction.
#[must_use]
pub fn void_is_believed(facts: &Facts, reason: VoidReason, accepted: bool) -> bool {
    match reason {
        VoidReason::NeverSent => never_sent(facts),
        VoidReason::Tombstoned | VoidReason::DeadlinePassed => !accepted,
        // A SUCCESS that could not be taken is on record: no absence outweighs it, and no cancel that may be of an unknown transfer.
        VoidReason::NotInClosedStatement | VoidReason::CancelledUnsaid => !has_doubtful_success(facts),
        VoidReason::Cancelled | VoidReason::Rejected => true,
    }
}

fn final_status(facts: &Facts, reported: FinalStatus) -> FinalStatusRuling {
    use FinalStatus::{Returned, Settled};
    match (facts.final_status, reported) {
        // A return is the last thing that happens to a transfer, whatever was reported before.
        (None, _) | (Some(Settled | FinalStatus::Void), Returned) => FinalStatusRuling::First,
        // A settlement that is reported after its return is older than the return.
        (Some(Returned), Settled) => FinalStatusRuling::Same,
        (Some(first), reported) if first == reported => FinalStatusRuling::Same,
        (Some(_), _) => FinalStatusRuling::Contradicts,
    }
}

/// Whether a cancel attempt begins the compensation: it records the cause, and that the payment is cancelling. Without an answer of
/// the switch, and where a final reject was recorded before any cause.
#[must_use]
pub fn begins_cancel(facts: &Facts) -> bool {
    let is_unsettled = match facts.final_status {
        None => true,
        Some(FinalStatus::Void) => facts.cause.is_none(),
        Some(FinalStatus::Settled | FinalStatus::Returned) => false,
    };
    is_unsettled && facts.state.end().is_none()
}

/// Whether nothing was ever sent: no attempt is recorded, no attempt can be missing from the record, and the switch has neither
/// reported one nor returned money of it. The only case that releases without an answer of the switch.
#[must_use]
pub fn never_sent(facts: &Facts) -> bool {
    facts.attempts == 0 && !facts.attempts_uncertain && !is_reported_unexpectedly(facts)
}

/// Whether a cancel that begins marks the payment as one whose record may lack attempts. Unless the workflow
/// knows that it scheduled no submit, the database may have lost the commit of an attempt. A report of the transfer says the same. What an
/// answer of the switch proves depends on the age of the transfer, and only a marked payment without a recorded attempt has one.
#[must_use]
pub fn may_lack_attempts(facts: &Facts, submit: SubmitProgress) -> bool {
    let may_have_sent = submit != SubmitProgress::NotScheduled || is_reported_unexpectedly(facts);
    is_undecided(facts) && facts.attempts == 0 && may_have_sent
}

/// Whether our record lacks the switch's acceptance that the workflow knows of, because the database lost its commit: the payment
/// is marked before the cancel begins. `accepted`: whether an acceptance is recorded. A switch that says later that it does not know the
/// transfer contradicts itself, and its word alone releases nothing.
#[must_use]
pub fn lacks_acceptance(facts: &Facts, accepted: bool, submit: SubmitProgress) -> bool {
    is_undecided(facts) && !accepted && submit == SubmitProgress::Accepted
}

/// Ruling on a debit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DebitRuling {
    /// Debit, or record why the account cannot be debited.
    Debit,
    /// The customer was debited before, or the bank charged.
    Already,
    /// Refused before, permanently.
    Refused(String),
    /// The money came back: the customer owes nothing.
    Returned,
    /// The money left, and nothing is held that could be debited: our database lost the reserve.
    NoHold,
    /// The switch's SUCCESS differs from the payment.
    Differs,
    /// The switch has not reported SUCCESS for this payment.
    NotConfirmed,
}

/// Rules on a debit.
#[must_use]
pub fn debit(facts: &Facts) -> DebitRuling {
    match (facts.hold, facts.final_status) {
        (Some(HoldStatus::Debited), _) => DebitRuling::Already,
        // The bank was charged instead.
        (Some(HoldStatus::Released), _) if facts.state.end() == Some(FinalState::Settled) => {
            DebitRuling::Already
        }
        (Some(HoldStatus::Open), Some(FinalStatus::Settled)) => match &facts.debit_refused {
            Some(reason) => DebitRuling::Refused(reason.clone()),
            None => DebitRuling::Debit,
        },
        (_, Some(FinalStatus::Returned)) => DebitRuling::Returned,
        (None, Some(FinalStatus::Settled)) => DebitRuling::NoHold,
        (_, None) if facts.confirmation_mismatch => DebitRuling::Differs,
        _ => DebitRuling::NotConfirmed,
    }
}

text_enum!(
    /// Who bears the amount of an open hold.
    Bearer {
        /// The customer: a release credits the customer's account.
        Customer = "customer",
        /// The bank, which restored the customer's account by an advance: a release settles the claim.
        Bank = "bank",
    }
);

/// Who bears the payment's hold: the customer, until an advance restored the account.
#[must_use]
pub fn bearer(facts: &Facts) -> Bearer {
    if facts.restored { Bearer::Bank } else { Bearer::Customer }
}

/// Ruling on the restore of the customer's account, once it is due.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RestoreRuling {
    /// Advance the amount to the customer. The transfer may still settle, so the hold stays open, and the bank bears it.
    Advance,
    /// The transfer is void or returned: record this cause and that the payment is cancelling, then rule again.
    Compensate(Cause),
    /// The transfer is void or returned: release the hold for this cause, the first one recorded.
    Release(Cause),
    /// Nothing is held at the customer's cost, or the transfer settled.
    NotDue,
}

/// Rules on the restore of the customer's account. It depends on the recorded facts alone, and asks nobody.
#[must_use]
pub fn restore(facts: &Facts) -> RestoreRuling {
    let is_held = facts.hold == Some(HoldStatus::Open) && facts.state.end().is_none();
    if !is_held || facts.restored {
        return RestoreRuling::NotDue;
    }
    // A refused debit and a recall follow a SUCCESS, although its record may be lost: the money left.
    let is_confirmed = facts.debit_refused.is_some() || facts.recall.is_some();
    let now = match facts.final_status {
        None if is_confirmed => return RestoreRuling::NotDue,
        None => return RestoreRuling::Advance,
        Some(FinalStatus::Settled) => return RestoreRuling::NotDue,
        // Without a cause, only a final reject can have been recorded.
        Some(FinalStatus::Void) => {
            Cause::FailureReported { reason: "the switch rejected the transfer for good".into() }
        }
        Some(FinalStatus::Returned) => Cause::Returned,
    };
    let cause = first_cause(facts, &now);
    if facts.state.may_become(cause.end().into()) {
        RestoreRuling::Release(cause)
    } else {
        RestoreRuling::Compensate(cause)
    }
}

/// Whether the amount is collected from the customer, after a debit of a hold that the bank bears; if the account can pay it.
#[must_use]
pub fn collects(facts: &Facts, profile: &SwitchProfile) -> bool {
    bearer(facts) == Bearer::Bank && profile.late_settlement == LateSettlement::Collect
}

text_enum!(
    /// Why a release is refused.
    ReleaseRefusal {
        /// The hold was debited.
        HoldDebited = "hold_debited",
        /// The transfer may still settle at the switch.
        MayStillSettle = "may_still_settle",
    }
);

/// Ruling on a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseRuling {
    /// Release the hold.
    Release,
    /// Nothing is held: record the fence, so that a late reserve is refused.
    Fence,
    /// The hold was released before.
    Already,
    /// There is nothing to release: the payment ended without compensation.
    Ended(FinalState),
    /// The release is not allowed, for this reason.
    Refused(ReleaseRefusal),
}

/// Rules on a release. Money that was sent is released only if the switch reported void or returned the money.
#[must_use]
pub fn release(facts: &Facts) -> ReleaseRuling {
    let owes_nothing = matches!(facts.final_status, Some(FinalStatus::Void | FinalStatus::Returned));
    match (facts.hold, facts.state.end()) {
        (Some(HoldStatus::Debited), _) => ReleaseRuling::Refused(ReleaseRefusal::HoldDebited),
        // A decision debited the claims account for money that left.
        (Some(HoldStatus::Released), Some(FinalState::Settled)) => ReleaseRuling::Ended(FinalState::Settled),
        (Some(HoldStatus::Released), _) => ReleaseRuling::Already,
        (None, Some(_)) if facts.cause.is_some() => ReleaseRuling::Already,
        (None, Some(end)) => ReleaseRuling::Ended(end),
        _ if !(never_sent(facts) || owes_nothing) => ReleaseRuling::Refused(ReleaseRefusal::MayStillSettle),
        (None, None) => ReleaseRuling::Fence,
        (Some(HoldStatus::Open), _) => ReleaseRuling::Release,
    }
}

text_enum!(
    /// Why the ledger refuses an operator decision.
    DecisionRefusal {
        /// The decision is not recorded as approved for this payment and this action.
        NotConfirmed = "not_confirmed",
        /// The switch reported that the transfer is void.
        SwitchSaysVoid = "switch_says_void",
        /// The switch reported that the transfer settled.
        SwitchSaysSettled = "switch_says_settled",
        /// The money came back: the hold must be released.
        Returned = "returned",
        /// A recall is under way, and the switch may return the money.
        RecallUnderWay = "recall_under_way",
    }
);

/// Ruling on a debit by decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DebitByDecisionRuling {
    /// Debit the hold if the account may be debited, else charge the claims account.
    Charge,
    /// The payment has ended.
    Ended(FinalState),
    /// The debit is not allowed, for this reason.
    Refused(DecisionRefusal),
}

/// Rules on a debit by decision, which needs no report of the switch but never contradicts one.
#[must_use]
pub fn debit_by_decision(facts: &Facts) -> DebitByDecisionRuling {
    use DebitByDecisionRuling::Refused;
    if let Some(end) = facts.state.end() {
        return DebitByDecisionRuling::Ended(end);
    }
    match facts.final_status {
        Some(FinalStatus::Void) => return Refused(DecisionRefusal::SwitchSaysVoid),
        Some(FinalStatus::Returned) => return Refused(DecisionRefusal::Returned),
        Some(FinalStatus::Settled) | None => {}
    }
    match facts.recall {
        None if facts.debit_refused.is_some() => Refused(DecisionRefusal::RecallUnderWay),
        Some(_) | None => DebitByDecisionRuling::Charge,
    }
}

/// Ruling on a release by decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseByDecisionRuling {
    /// Release the hold, or fence a reserve that is not recorded, and end the payment.
    Release,
    /// The payment has ended.
    Ended(FinalState),
    /// The release by decision is not allowed, for this reason.
    Refused(DecisionRefusal),
}

/// Rules on a release by decision: approved evidence replaces an answer that the switch cannot give, and never
/// contradicts one that it gave.
#[must_use]
pub fn release_by_decision(facts: &Facts) -> ReleaseByDecisionRuling {
    if let Some(end) = facts.state.end() {
        return ReleaseByDecisionRuling::Ended(end);
    }
    if facts.final_status == Some(FinalStatus::Settled) {
        return ReleaseByDecisionRuling::Refused(DecisionRefusal::SwitchSaysSettled);
    }
    ReleaseByDecisionRuling::Release
}

/// The cause that names the final state: the first one recorded.
#[must_use]
pub fn first_cause(facts: &Facts, now: &Cause) -> Cause {
    facts.cause.clone().unwrap_or_else(|| now.clone())
}

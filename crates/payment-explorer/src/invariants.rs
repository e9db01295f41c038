//! What must hold in every state, by its number in `crates/ARCHITECTURE.md`.

use payment_protocol::facts::{FinalStatus, HoldStatus, RecallRecord};
use payment_protocol::port::{CancelOutcome, NeedsOperatorOutcome, RecallOutcome};
use payment_protocol::state::FinalState;

use crate::bank::{Bank, Exception};
use crate::model::Model;
use crate::run::{Answer, Step};
use crate::script::Came;
use crate::state::{Run, State};
use crate::switch::Status;

/// One that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Violation {
    /// Its number, `I1` and so on.
    pub number: &'static str,
    /// What it says.
    pub says: &'static str,
}

macro_rules! invariants {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $says:literal;)+) => {
        $($(#[$doc])* pub(crate) const $name: Violation = Violation { number: $number, says: $says };)+

        /// Every invariant that is checked.
        pub const ALL: &[Violation] = &[$($name),+];
    };
}

invariants! {
    CONSERVATION = "I1", "source + holding + escrow + claims is constant, and only open holds are in holding";
    SETTLED_XOR_RELEASED = "I2", "a hold is settled or released, never both";
    DEBITED_UNSETTLED = "I3", "never debited while not settled at the switch";
    RELEASED_UNDECIDED = "I4", "never released while it may still settle";
    FIRST_ANSWER = "I5", "the switch's first definite answer stands";
    ONE_EFFECT = "I6", "at most one effect per key";
    ON_RECORD = "I7", "an attempt is on record before it is sent, and the money leaves once";
    ONE_RUN = "I8", "a payment runs from the top once";
    AN_END = "I9", "an end is an end";
    NO_CALLBACK_LOST = "I10", "no callback vanishes: what contradicts the books is an exception";
    FIRST_CAUSE = "I11", "the first cause names the end";
    BOOKS_AGREE = "I12", "a payment ends only when the books agree";
    UNDO_ORDER = "I13", "undone in order: nothing is released before the switch was asked and answered";
    WORKFLOW_AGREES = "I14", "a workflow completes only at an end, with the end of the row";
    REPLAYS = "I15", "run again with the same answers, the code asks the same questions";
    /// Checked by [`crate::search`], on the whole graph.
    NO_DEAD_END = "I16", "no dead end: when faults stop, the payment can still end";
    RECALL_IS_NO_CANCEL = "I17", "a cancel never undoes a settlement: recall is asked only where the bank could not debit";
}

/// The first invariant that `next`, reached from `before`, breaks.
#[must_use]
pub fn broken(model: &Model, before: &State, next: &State) -> Option<Violation> {
    let checks: [(Violation, bool); 16] = [
        (CONSERVATION, conserved(&next.bank)),
        (SETTLED_XOR_RELEASED, next.bank.journal.debit + next.bank.journal.release <= 1),
        (ONE_EFFECT, one_effect(&next.bank)),
        (DEBITED_UNSETTLED, debits(&next.bank) == 0 || next.switch.settled()),
        (RELEASED_UNDECIDED, released_for_good(next)),
        (
            FIRST_ANSWER,
            before.bank.final_status.is_none() || before.bank.final_status == next.bank.final_status,
        ),
        (ON_RECORD, on_record(next)),
        (ONE_RUN, one_run(model, before, next)),
        (AN_END, !before.bank.ended() || before.bank.state == next.bank.state),
        (NO_CALLBACK_LOST, contradictions_are_exceptions(&next.bank)),
        (FIRST_CAUSE, first_cause_names_the_end(before, next)),
        (BOOKS_AGREE, books_agree(model, next)),
        (UNDO_ORDER, undone_in_order(model, next)),
        (WORKFLOW_AGREES, workflow_agrees(next)),
        (REPLAYS, replays(model, next)),
        (RECALL_IS_NO_CANCEL, recalls_what_it_could_not_debit(model, next)),
    ];
    checks.into_iter().find(|(_, holds)| !holds).map(|(violation, _)| violation)
}

fn debits(bank: &Bank) -> u8 {
    bank.journal.debit + bank.journal.late_debit + bank.journal.claim
}

/// Every posting moves one amount from one account to another; holding has what open holds say.
fn conserved(bank: &Bank) -> bool {
    let journal = &bank.journal;
    let holding = i16::from(journal.reserve) - i16::from(journal.debit) - i16::from(journal.release);
    holding == i16::from(bank.hold == Some(HoldStatus::Open))
}

fn one_effect(bank: &Bank) -> bool {
    let journal = &bank.journal;
    journal.reserve <= 1 && journal.debit <= 1 && journal.release <= 1 && debits(bank) <= 1
}

fn released_for_good(next: &State) -> bool {
    let released = next.bank.journal.release > 0 || (next.bank.ended() && next.bank.journal.debit == 0);
    // A debit that people decided, of the claims account or late, stands for the money that left; a
    // correction waits for its exception.
    let accounted = debits(&next.bank) > 0;
    !released || accounted || !(next.switch.settled() || next.switch.pending())
}

fn on_record(next: &State) -> bool {
    let left =
        next.switch.transfers.iter().filter(|status| matches!(status, Status::Settled | Status::Recalled));
    left.count() <= 1 && (next.bank.attempts > 0 || next.switch.transfers.is_empty())
}

/// The run of a payment is written once, and only its own questions reserve and submit.
fn one_run(model: &Model, before: &State, next: &State) -> bool {
    let written_once = before.bank.run.is_none() || before.bank.run == next.bank.run;
    let Run::Live(live) = &next.run else { return written_once };
    if next.run == before.run {
        return written_once;
    }
    let submitted = model.past_of(&live.past).iter().any(|exchange| {
        exchange.asked == Step::Submit
            && !matches!(
                exchange.heard,
                Answer::Submit(payment_protocol::port::SubmitOutcome::NotSent(_))
                    | Answer::Submit(payment_protocol::port::SubmitOutcome::Unknown)
            )
    });
    let own = next.bank.run == Some(live.id);
    written_once && (!submitted || own || live.resume == 0)
}

fn contradictions_are_exceptions(bank: &Bank) -> bool {
    let kinds = [
        Exception::LateConfirmation,
        Exception::ContradictoryFinalStatus,
        Exception::ConfirmationMismatch,
        Exception::SettledWithoutAttempt,
    ];
    let told = kinds.iter().any(|kind| bank.exceptions.contain(*kind));
    let recalled = bank.recall == Some(RecallRecord::Recalled);
    let success_ignored = bank.success_stored && bank.ended() && debits(bank) == 0 && !recalled;
    let failure_ignored =
        bank.failure_stored && bank.final_status == Some(FinalStatus::Settled) && bank.success_stored;
    told || !(success_ignored || failure_ignored)
}

fn first_cause_names_the_end(before: &State, next: &State) -> bool {
    let written_once = before.bank.cause.is_none() || before.bank.cause == next.bank.cause;
    match (&next.bank.cause, next.bank.state.end()) {
        (Some(cause), Some(end)) if end != FinalState::Settled => written_once && cause.end() == end,
        _ => written_once,
    }
}

fn books_agree(model: &Model, next: &State) -> bool {
    let Some(end) = next.bank.state.end() else { return true };
    let released_late = next.bank.exceptions.contain(Exception::LateConfirmation);
    let corrected = end != FinalState::Settled && debits(&next.bank) > 0;
    next.bank.hold != Some(HoldStatus::Open)
        && (end == FinalState::Settled) == (debits(&next.bank) > 0 && !corrected)
        && (end == FinalState::Settled || corrected || released_late || !next.switch.settled())
        // What people released on their evidence is theirs to answer for.
        && (end == FinalState::Settled || corrected || !next.may_settle(model) || harmless(model, next))
}

/// What is still on its way can be taken no more, or was let out after nothing could settle.
fn harmless(model: &Model, next: &State) -> bool {
    let (profile, switch) = (model.profile(), &next.switch);
    let kept_out = switch.retention_expired
        || profile.honours_deadline
        || (profile.tombstones && switch.tombstone)
        || (profile.deduplicates && !switch.transfers.is_empty());
    !switch.pending() && (kept_out || next.bank.attempts == 0)
}

/// A release that follows a submit comes after an answer that decides.
fn undone_in_order(model: &Model, next: &State) -> bool {
    let Run::Live(live) = &next.run else { return true };
    let Came::Asks(Step::Release(_)) = &*model.run_at(live.resume, &live.past) else { return true };
    let past = model.past_of(&live.past);
    let sent = live.resume > 0 || past.iter().any(|exchange| exchange.asked == Step::Submit);
    !sent
        || past.iter().any(|exchange| {
            matches!(
                exchange.heard,
                Answer::Cancel(CancelOutcome::Void)
                    | Answer::Recall(RecallOutcome::Recalled)
                    | Answer::NeedsOperator(NeedsOperatorOutcome::Verdict(FinalStatus::Void))
                    | Answer::ApplyDecision(payment_protocol::decision::DecisionOutcome::FinalStatus(
                        FinalStatus::Void
                    ))
            )
        })
}

fn recalls_what_it_could_not_debit(model: &Model, next: &State) -> bool {
    let Run::Live(live) = &next.run else { return true };
    !matches!(&*model.run_at(live.resume, &live.past), Came::Asks(Step::Recall)) || next.bank.debit_refused
}

fn workflow_agrees(next: &State) -> bool {
    match &next.run {
        Run::Closed(Ok(())) => next.bank.state.end() == Some(FinalState::Settled),
        Run::Closed(Err(error)) => next.bank.state.end() == Some(error.end),
        Run::NotStarted | Run::Live(_) | Run::Lost => true,
    }
}

fn replays(model: &Model, next: &State) -> bool {
    let run = match &next.run {
        Run::Live(live) => !matches!(&*model.run_at(live.resume, &live.past), Came::Strayed),
        Run::NotStarted | Run::Lost | Run::Closed(_) => true,
    };
    let attempt = next
        .current
        .as_ref()
        .is_none_or(|attempt| !matches!(&*model.attempt_at(attempt.job, &attempt.past), Came::Strayed));
    run && attempt
}

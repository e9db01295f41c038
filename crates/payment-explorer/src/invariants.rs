//! The invariants, which hold in every state, by their numbers in `crates/ARCHITECTURE.md`.

use payment_protocol::action::Action;
use payment_protocol::cancel::SwitchResponse;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::facts::{FinalStatus, HoldStatus, RecallRecord};
use payment_protocol::port::{
    CancelOutcome, DebitOutcome, NeedsOperatorOutcome, RecallOutcome, SubmitOutcome,
};
use payment_protocol::rules::retention_expired;
use payment_protocol::state::FinalState;
use payment_protocol::submit::QueryAnswer;

use crate::bank::{Bank, Exception, OpenDecision};
use crate::model::Model;
use crate::replay::Progress;
use crate::state::{RunningWorkflow, State, WorkflowState};
use crate::switch::{ClockPhase, QueryResult, TransferStatus};
use crate::workflow::{PortCall, PortReply};

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Violation {
    /// The invariant's number, `I1` and so on.
    pub number: &'static str,
    /// The invariant.
    pub invariant: &'static str,
}

macro_rules! invariants {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $invariant:literal;)+) => {
        $($(#[$doc])* pub(crate) const $name: Violation =
            Violation { number: $number, invariant: $invariant };)+

        /// Every invariant that is checked.
        pub const ALL: &[Violation] = &[$($name),+];
    };
}

invariants! {
    CONSERVATION = "I1", "source + holding + escrow + claims is constant, and holding contains open holds only";
    DEBITED_XOR_RELEASED = "I2", "a hold is debited or released, never both";
    DEBITED_ONLY_IF_SETTLED = "I3", "no debit without a settled transfer at the switch, and none after a return";
    RELEASED_ONLY_IF_DECIDED = "I4", "no release while the transfer may still settle";
    FIRST_ANSWER = "I5", "the switch's first definite answer is kept; only a return replaces it";
    ONE_EFFECT = "I6", "at most one effect per key";
    RECORDED_BEFORE_SENT = "I7", "an attempt is recorded before it is sent, and the money leaves once";
    ONE_FORWARD_RUN = "I8", "a payment runs forward once";
    FINAL_STATE_IS_KEPT = "I9", "a final state never changes";
    NO_CALLBACK_LOST = "I10", "no callback is lost: one that contradicts the books opens an exception";
    FIRST_CAUSE = "I11", "the first cause names the final state";
    BOOKS_AGREE = "I12", "a payment ends only when the books agree";
    COMPENSATION_ORDER = "I13", "nothing is released before the switch answered the cancel";
    WORKFLOW_AGREES = "I14", "a workflow completes only with the final state of the payment's row";
    DETERMINISTIC = "I15", "a replay with the same replies makes the same calls";
    /// Checked by [`crate::search`], on the complete graph.
    NO_DEAD_END = "I16", "no dead end: when the faults stop, the payment can still end";
    RECALL_ONLY_AFTER_REFUSED_DEBIT = "I17", "a recall follows only a debit that the bank refused, and no payment waits for one that takes days; a cancel never recalls";
    STATE_TRANSITION = "I19", "the state changes only along PaymentState::successors()";
    OWN_TRANSFER = "I20", "a cancel or a recall changes only the payment's own transfer";
    DECISION_AFTER_THE_SWITCH = "I21", "no decision is applied against an answer that the switch can give";
    QUERY_WITHIN_LIMITS = "I22", "no query is sent before the rail's time for it, or beyond the number that the rail answers";
    RESTORED_ONCE = "I24", "the customer's account is restored at most once: with an open hold, and after no confirmation and no final reject";
    SILENT_ADVANCE = "I25", "an advance writes no final status, and sets the cause, so that no further attempt is sent";
    BEARER = "I26", "after an advance the bank bears the hold: a release pays the claim and never the customer";
    CHARGED_ONCE = "I27", "the customer is charged at most once, and never paid: an advance is collected only after its transfer settled";
    RETURNED_ONCE = "I30", "a return is booked at most once, never more than was charged, and the end stays settled";
    REFUSED_RELEASE_WAITS = "I32", "a release that the database refused for good is repeated only after an event";
    CLAIM_IS_VISIBLE = "I28", "a claim is open exactly while the bank has paid; after the end it has an exception";
}

/// The first invariant that the move from `before` to `next` violates.
#[must_use]
pub fn violated(model: &Model, before: &State, next: &State) -> Option<Violation> {
    // A failover takes back what was committed: what follows is compared with what it left.
    let before = if before.standby.is_some() && next.standby.is_none() { next } else { before };
    // What two operators move on false evidence is corrected after the end: see `search::is_finished`.
    let decided_falsely = next.was_decided_falsely(model);
    let checks: [(Violation, bool); 27] = [
        (CONSERVATION, conserved(&next.bank)),
        (DEBITED_XOR_RELEASED, next.bank.journal.debit + releases(&next.bank) <= 1),
        (ONE_EFFECT, one_effect(&next.bank)),
        (DEBITED_ONLY_IF_SETTLED, decided_falsely || debited_only_if_settled(model, before, next)),
        (RELEASED_ONLY_IF_DECIDED, decided_falsely || released_only_if_decided(next)),
        (FIRST_ANSWER, first_answer_is_kept(before, next)),
        (RECORDED_BEFORE_SENT, recorded_before_sent(model, next)),
        (ONE_FORWARD_RUN, one_forward_run(model, before, next)),
        (FINAL_STATE_IS_KEPT, !before.bank.ended() || before.bank.state == next.bank.state),
        (NO_CALLBACK_LOST, contradictions_are_exceptions(model, next)),
        (FIRST_CAUSE, first_cause_names_the_final_state(before, next)),
        (BOOKS_AGREE, decided_falsely || books_agree(model, next)),
        (COMPENSATION_ORDER, compensated_in_order(model, next)),
        (REFUSED_RELEASE_WAITS, refused_release_waits(model, before, next)),
        (WORKFLOW_AGREES, workflow_agrees(model, next)),
        (DETERMINISTIC, deterministic(model, next)),
        (RECALL_ONLY_AFTER_REFUSED_DEBIT, recall_follows_a_refused_debit(model, next)),
        (DECISION_AFTER_THE_SWITCH, evidence_replaces_no_answer(model, before, next)),
        // A lost commit may have been of the count.
        (QUERY_WITHIN_LIMITS, !next.switch.has_refused_a_query || commit_was_lost(model, next)),
        (RESTORED_ONCE, restored_once(before, next)),
        (SILENT_ADVANCE, silent_advance(before, next)),
        (BEARER, next.bank.journal.advance == 0 || next.bank.journal.release == 0),
        // Before I27, which a return that is booked twice violates as well.
        (RETURNED_ONCE, returned_once(before, next)),
        (CHARGED_ONCE, charged_once(&next.bank)),
        (CLAIM_IS_VISIBLE, claim_is_visible(&next.bank)),
        (OWN_TRANSFER, !next.listing.others.iter().any(|other| other.changed_by_us)),
        (STATE_TRANSITION, state_follows_the_table(model, before, next)),
    ];
    checks.into_iter().find(|(_, holds)| !holds).map(|(violation, _)| violation)
}

/// A receiving bank may return the money after the debit, which is an exception. No debit follows a return that the bank
/// knows of, and none goes with a recall whose answer is on record. Beyond its retention a switch need not say what became of a recall
/// whose answer was lost: what left on record is debited by a decision, and what came back is corrected.
fn debited_only_if_settled(model: &Model, before: &State, next: &State) -> bool {
    let is_new = next.bank.journal.debits() > before.bank.journal.debits();
    let decides_debit = |decision: &OpenDecision| decision.action == Action::Debit;
    let is_forgotten = next.clock == ClockPhase::AfterRetention
        && next.bank.recall == Some(RecallRecord::RecallUnsupported)
        && next.bank.decision.as_ref().is_some_and(decides_debit);
    next.bank.journal.debits() == 0
        || next.switch.settled()
        || (next.switch.returned()
            && (!next.switch.recalled || commit_was_lost(model, next) || is_forgotten)
            && !(is_new && model.knows_of_return(&before.bank)))
}

/// Whether a false decision was applied only where the switch had no definite answer: to the attempt that applies it, or at that moment
/// if the attempt asked nothing. Exact while one attempt runs: without faults, and with one fault of the switch.
fn evidence_replaces_no_answer(model: &Model, before: &State, next: &State) -> bool {
    let applied = next.budget.false_decisions < before.budget.false_decisions;
    let exact = model.bounds.faults + model.bounds.lost_commits + model.bounds.failovers == 0
        && model.bounds.switch_faults <= 1;
    // Several transfers are no answer, and which one is ours may be recorded in between.
    let only_ours = before.listing.others.is_empty();
    if !(applied && exact && only_ours) {
        return true;
    }
    let answers = before.current.as_ref().map(|attempt| model.answers_to(attempt)).unwrap_or_default();
    if answers.is_empty() {
        let can_answer = before.can_be_queried(model) && !before.switch.silent;
        let definite = [QueryResult::Void, QueryResult::Pending, QueryResult::Returned];
        return !(can_answer && definite.contains(&before.switch.query()));
    }
    !answers.iter().any(|answer| is_definite(model, answer))
}

/// Whether no evidence counts against this answer. A switch that is undecided beyond its retention need never decide.
fn is_definite(model: &Model, response: &SwitchResponse<QueryAnswer>) -> bool {
    match response.answer {
        QueryAnswer::Void { .. } | QueryAnswer::Returned(_) => true,
        QueryAnswer::Pending => !retention_expired(response.first_attempt_age_ms, model.profile()),
        _ => false,
    }
}

fn first_answer_is_kept(before: &State, next: &State) -> bool {
    let (first, now) = (before.bank.final_status, next.bank.final_status);
    first.is_none() || first == now || now == Some(FinalStatus::Returned)
}

/// Whether every entry moves one amount from one account to another; holding contains the open holds.
fn conserved(bank: &Bank) -> bool {
    let journal = &bank.journal;
    let holding = i16::from(journal.reserve) - i16::from(journal.debit) - i16::from(releases(bank));
    holding == i16::from(bank.hold == Some(HoldStatus::Open))
}

fn one_effect(bank: &Bank) -> bool {
    let journal = &bank.journal;
    journal.reserve <= 1
        && journal.debit <= 1
        && releases(bank) <= 1
        && bank.journal.debits() <= 1
        && journal.advance <= 1
        && journal.collect <= 1
}

/// Releases of the hold, to the customer and to the bank.
fn releases(bank: &Bank) -> u8 {
    bank.journal.release + bank.journal.release_to_claims
}

fn restored_once(before: &State, next: &State) -> bool {
    let is_new = next.bank.journal.advance > before.bank.journal.advance;
    let from = &before.bank;
    !is_new || (!from.restored && from.hold == Some(HoldStatus::Open) && from.final_status.is_none())
}

fn silent_advance(before: &State, next: &State) -> bool {
    let is_new = next.bank.journal.advance > before.bank.journal.advance;
    !is_new || (next.bank.final_status == before.bank.final_status && next.bank.cause.is_some())
}

fn returned_once(before: &State, next: &State) -> bool {
    let journal = &next.bank.journal;
    let is_new = journal.returns() > before.bank.journal.returns();
    journal.returns() <= journal.debits()
        && (!is_new || !before.bank.ended() || before.bank.state == next.bank.state)
}

/// The customer is charged the amount or nothing, in every state; what is held counts as charged.
fn charged_once(bank: &Bank) -> bool {
    let journal = &bank.journal;
    let charged = journal.reserve + journal.collect + journal.late_debit;
    let credited = journal.release + journal.advance + journal.returned + journal.return_credit;
    let is_collected_rightly = journal.collect == 0 || journal.debits() > 0;
    (0..=1).contains(&(i16::from(charged) - i16::from(credited))) && is_collected_rightly
}

fn claim_is_visible(bank: &Bank) -> bool {
    let journal = &bank.journal;
    let paid = journal.advance + journal.claim;
    // After a write-off the bank's loss is settled, and a return pays it.
    let to_claims = (journal.return_to_bank + journal.returned_to_bank).saturating_sub(journal.write_off);
    let paid_back = journal.release_to_claims + journal.collect + journal.write_off + to_claims;
    let is_open = paid > paid_back;
    let asked_for = [Exception::DebitedToClaims, Exception::ReturnedAfterDebit];
    let is_listed = asked_for.iter().any(|kind| bank.exceptions.contain(*kind));
    paid >= paid_back && is_open == bank.claim_open && (!is_open || !bank.ended() || is_listed)
}

fn released_only_if_decided(next: &State) -> bool {
    let released = releases(&next.bank) > 0 || (next.bank.ended() && next.bank.journal.debit == 0);
    // A debit by decision, from the claims account or late, replaces the debit of the hold; a correction waits
    // for its exception.
    let accounted = next.bank.journal.debits() > 0;
    !released || accounted || !(next.switch.settled() || next.switch.pending())
}

/// Whether our database confirmed a commit and lost it: what was recorded need not be there.
fn commit_was_lost(model: &Model, next: &State) -> bool {
    next.budget.lost_commits < model.bounds.lost_commits
        || next.budget.failovers < model.bounds.failovers && next.standby.is_none()
}

fn recorded_before_sent(model: &Model, next: &State) -> bool {
    let left = next
        .switch
        .transfers
        .iter()
        .filter(|status| matches!(status, TransferStatus::Settled | TransferStatus::Returned));
    left.count() <= 1
        && (next.bank.attempts > 0 || commit_was_lost(model, next) || next.switch.transfers.is_empty())
}

/// Whether the run of a payment is written once, and only that run's calls reserve and submit.
fn one_forward_run(model: &Model, before: &State, next: &State) -> bool {
    let written_once = before.bank.run.is_none() || before.bank.run == next.bank.run;
    if before.workflows().eq(next.workflows()) {
        return written_once;
    }
    written_once && running(next).all(|running| submits_in_its_own_run(model, next, running))
}

fn submits_in_its_own_run(model: &Model, next: &State, running: &RunningWorkflow) -> bool {
    let submitted = model.exchanges_of(&running.history).iter().any(|exchange| {
        exchange.call == PortCall::Submit
            && !matches!(
                exchange.reply,
                PortReply::Submit(SubmitOutcome::NotSent(_) | SubmitOutcome::Unknown)
            )
    });
    !submitted || next.bank.run == Some(running.run) || running.resume == 0
}

fn contradictions_are_exceptions(model: &Model, next: &State) -> bool {
    let bank = &next.bank;
    let kinds = [
        Exception::LateConfirmation,
        Exception::ContradictoryFinalStatus,
        Exception::ConfirmationMismatch,
        Exception::SettledWithoutAttempt,
    ];
    let open = kinds.iter().any(|kind| bank.exceptions.contain(*kind));
    // A callback that a query must confirm is no return.
    let returned = bank.final_status == Some(FinalStatus::Returned)
        && (next.switch.returned() || !model.confirms_by_query());
    let success_ignored = bank.success_stored && bank.ended() && bank.journal.debits() == 0 && !returned;
    let failure_ignored =
        bank.failure_stored && bank.final_status == Some(FinalStatus::Settled) && bank.success_stored;
    let return_ignored = bank.knows_of_return()
        && bank.is_debited()
        && !bank.exceptions.contain(Exception::ReturnedAfterDebit);
    (open || !(success_ignored || failure_ignored)) && !return_ignored
}

fn first_cause_names_the_final_state(before: &State, next: &State) -> bool {
    let written_once = before.bank.cause.is_none() || before.bank.cause == next.bank.cause;
    match (&next.bank.cause, next.bank.state.end()) {
        (Some(cause), Some(end)) if end != FinalState::Settled => written_once && cause.end() == end,
        _ => written_once,
    }
}

fn books_agree(model: &Model, next: &State) -> bool {
    let Some(end) = next.bank.state.end() else { return true };
    let late_confirmation = next.bank.exceptions.contain(Exception::LateConfirmation);
    let corrected = end != FinalState::Settled && next.bank.journal.debits() > 0;
    next.bank.hold != Some(HoldStatus::Open)
        && (end == FinalState::Settled) == (next.bank.journal.debits() > 0 && !corrected)
        && (end == FinalState::Settled || corrected || late_confirmation || !next.switch.settled())
        // A release by decision is the operators' responsibility.
        && (end == FinalState::Settled || corrected || !next.may_settle(model) || harmless(model, next))
}

/// Whether the switch can no longer accept a request in transit, or the request was sent after nothing could settle.
fn harmless(model: &Model, next: &State) -> bool {
    let (profile, switch) = (model.profile(), &next.switch);
    let refused = switch.retention_expired
        || profile.honours_deadline
        || (profile.tombstones && switch.tombstone)
        || (profile.deduplicates && !switch.transfers.is_empty());
    !switch.pending() && (refused || next.bank.attempts == 0)
}

/// Whether a release after a submit follows a definite answer.
fn compensated_in_order(model: &Model, next: &State) -> bool {
    running(next).all(|running| releases_after_the_switch_answered(model, running))
}

/// The model refuses a release once; the world refuses it until operators have repaired the database. Repeated without an event, it would
/// fill the workflow's history.
fn refused_release_waits(model: &Model, before: &State, next: &State) -> bool {
    let call = |running: &RunningWorkflow| model.workflow_at(running.resume, &running.history);
    let needs_operator = PortCall::NeedsOperator(OperatorReason::CompensationFailed);
    // A reset, or a restored Temporal, repeats what came before.
    if next.budget.faults < before.budget.faults {
        return true;
    }
    running(before).filter(|running| *call(running) == Progress::Awaits(needs_operator.clone())).all(
        |waiting| {
            let mut same_run = running(next).filter(|running| running.run == waiting.run);
            !same_run.any(|running| matches!(&*call(running), Progress::Awaits(PortCall::Release(_))))
        },
    )
}

fn releases_after_the_switch_answered(model: &Model, running: &RunningWorkflow) -> bool {
    let progress = model.workflow_at(running.resume, &running.history);
    let Progress::Awaits(PortCall::Release(_)) = &*progress else { return true };
    let exchanges = model.exchanges_of(&running.history);
    let sent = running.resume > 0 || exchanges.iter().any(|exchange| exchange.call == PortCall::Submit);
    !sent
        || exchanges.iter().any(|exchange| {
            matches!(
                exchange.reply,
                PortReply::Cancel(CancelOutcome::Void)
                    | PortReply::Recall(RecallOutcome::Recalled)
                    | PortReply::Debit(DebitOutcome::Returned)
                    | PortReply::NeedsOperator(NeedsOperatorOutcome::FinalStatus(
                        FinalStatus::Void | FinalStatus::Returned
                    ))
                    | PortReply::ApplyDecision(DecisionOutcome::FinalStatus(
                        FinalStatus::Void | FinalStatus::Returned
                    ))
            )
        })
}

fn recall_follows_a_refused_debit(model: &Model, next: &State) -> bool {
    let recalls = |running: &RunningWorkflow| {
        let progress = model.workflow_at(running.resume, &running.history);
        matches!(&*progress, Progress::Awaits(PortCall::Recall))
    };
    let is_answered_at_once = model.profile().recall_answer_within_s == 0;
    let may_recall = is_answered_at_once && (next.bank.debit_refused || commit_was_lost(model, next));
    may_recall || !running(next).any(recalls)
}

/// The running workflows.
fn running(next: &State) -> impl Iterator<Item = &RunningWorkflow> {
    next.workflows().filter_map(|workflow| match workflow {
        WorkflowState::Running(running) => Some(running),
        WorkflowState::NotStarted | WorkflowState::Lost | WorkflowState::Closed(_) => None,
    })
}

fn workflow_agrees(model: &Model, next: &State) -> bool {
    next.workflows().all(|workflow| match workflow {
        // The commit of the end was lost; another run, or a late step, ends the payment again.
        WorkflowState::Closed(_) if commit_was_lost(model, next) => true,
        WorkflowState::Closed(Ok(())) => next.bank.state.end() == Some(FinalState::Settled),
        WorkflowState::Closed(Err(error)) => error.end.is_some() && next.bank.state.end() == error.end,
        WorkflowState::NotStarted | WorkflowState::Running(_) | WorkflowState::Lost => true,
    })
}

fn deterministic(model: &Model, next: &State) -> bool {
    let workflow = running(next)
        .all(|running| !matches!(&*model.workflow_at(running.resume, &running.history), Progress::Diverged));
    let attempt = next.current.as_ref().is_none_or(|attempt| {
        !matches!(&*model.attempt_at(attempt.activity, &attempt.history), Progress::Diverged)
    });
    workflow && attempt
}

/// A state whose commit was lost is missing in the sequence.
fn state_follows_the_table(model: &Model, before: &State, next: &State) -> bool {
    commit_was_lost(model, next)
        || before.bank.state == next.bank.state
        || before.bank.state.may_become(next.bank.state)
}

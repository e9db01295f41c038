//! Where the code stands: which histories of answers have led to the same place with the same locals.
//!
//! The locals cannot be seen, but what they do can. Two histories are at the same place where the code asks the
//! same question and, tried with every answer there is, [`DEPTH`] questions deep, goes on asking the same. So
//! the order of two things that were heard and changed nothing makes no two places. A depth too small would
//! merge what differs only later; the seeded bugs, each of which must still be found, are the proof that it is
//! not, and `--deep` walks some profiles with every history as a place of its own.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use foldhash::quality::FixedState;
use payment_protocol::Payment;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::decision::{Action, Decision, DecisionOutcome};
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, RecallOutcome,
    ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::rules::NotSent;
use payment_protocol::state::FinalState;

use crate::run::{self, Answer, Exchanges, Step};
use crate::script::{Came, Exchange, Number};

/// How many questions deep two histories are compared.
const DEPTH: u8 = 3;

/// What the code does from here on, in one number.
#[must_use]
pub fn behaviour(known: &Exchanges, past: &[Number], payment: &Payment) -> u64 {
    let mut hash = FixedState::default().build_hasher();
    let mut past = past.to_vec();
    try_all(known, &mut past, payment, DEPTH, &mut hash);
    hash.finish()
}

fn try_all(
    known: &Exchanges,
    past: &mut Vec<Number>,
    payment: &Payment,
    depth: u8,
    hash: &mut impl std::hash::Hasher,
) {
    match run::advance(known, past, payment) {
        Came::Ended(result) => result.map_err(crate::state::ClosedWith::from).hash(hash),
        Came::Strayed => 0_u8.hash(hash),
        Came::Asks(step) => {
            step.hash(hash);
            let Some(deeper) = depth.checked_sub(1) else { return };
            for heard in answers(&step) {
                past.push(known.number(Exchange { asked: step.clone(), heard }));
                try_all(known, past, payment, deeper, hash);
                past.pop();
            }
        }
    }
}

/// One answer of each kind that a question may get.
fn answers(step: &Step) -> Vec<Answer> {
    let refused = || "refused".to_owned();
    match step {
        Step::Reserve => [
            ReserveOutcome::Held,
            ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds),
            ReserveOutcome::AnotherRun,
            ReserveOutcome::Ended(FinalState::Failed),
            ReserveOutcome::Unknown,
        ]
        .map(Answer::Reserve)
        .into(),
        Step::Fence => [
            FenceOutcome::Open(None),
            FenceOutcome::Open(Some(Cause::SlaExpired)),
            FenceOutcome::Ended(FinalState::Settled),
        ]
        .map(Answer::Fence)
        .into(),
        Step::Submit => [
            SubmitOutcome::Accepted,
            SubmitOutcome::Refused { reason: refused() },
            SubmitOutcome::Settled,
            SubmitOutcome::NotSent(NotSent::AnotherRun),
            SubmitOutcome::NotSent(NotSent::SecondAttemptForbidden),
            SubmitOutcome::Unknown,
        ]
        .map(Answer::Submit)
        .into(),
        Step::Reconcile => [
            ReconcileOutcome::Settled,
            ReconcileOutcome::Failed { reason: refused() },
            ReconcileOutcome::Unknown,
        ]
        .map(Answer::Reconcile)
        .into(),
        Step::Lock => {
            [AccountLockOutcome::Held, AccountLockOutcome::NotGranted, AccountLockOutcome::CustomerCancel]
                .map(Answer::Lock)
                .into()
        }
        Step::Cancel(_) => [
            CancelOutcome::Void,
            CancelOutcome::Settled,
            CancelOutcome::SuccessReported,
            CancelOutcome::Differs,
            CancelOutcome::Undecidable(OperatorReason::NotFoundIsInconclusive),
            CancelOutcome::Undecidable(OperatorReason::SettledWithoutAttempt),
            CancelOutcome::Ended(FinalState::Failed),
        ]
        .map(Answer::Cancel)
        .into(),
        Step::Debit => [
            DebitOutcome::Done,
            DebitOutcome::Refused { reason: refused() },
            DebitOutcome::Differs,
            DebitOutcome::NotConfirmed,
        ]
        .map(Answer::Debit)
        .into(),
        Step::Recall => [RecallOutcome::Recalled, RecallOutcome::Refused, RecallOutcome::RecallUnsupported]
            .map(Answer::Recall)
            .into(),
        Step::Release(_) => [
            ReleaseOutcome::Done(Cause::SlaExpired),
            ReleaseOutcome::Ended(FinalState::Failed),
            ReleaseOutcome::Failed { detail: refused() },
        ]
        .map(Answer::Release)
        .into(),
        Step::WaitWithinSla | Step::WaitUntilEvent => events(),
        Step::ApplyDecision(..) => [
            DecisionOutcome::Settled,
            DecisionOutcome::Released(Cause::ReleasedByDecision),
            DecisionOutcome::RetryCancel,
            DecisionOutcome::Verdict(FinalStatus::Settled),
            DecisionOutcome::Verdict(FinalStatus::Void),
            DecisionOutcome::Refused { detail: refused() },
            DecisionOutcome::Ended(FinalState::Failed),
        ]
        .map(Answer::ApplyDecision)
        .into(),
        Step::NeedsOperator(_) => [
            NeedsOperatorOutcome::Stands,
            NeedsOperatorOutcome::Verdict(FinalStatus::Settled),
            NeedsOperatorOutcome::Verdict(FinalStatus::Void),
            NeedsOperatorOutcome::Ended(FinalState::Failed),
        ]
        .map(Answer::NeedsOperator)
        .into(),
        Step::Reject | Step::Unlock | Step::Alert => vec![Answer::Done],
    }
}

fn events() -> Vec<Answer> {
    let decided = DecisionId::new("tried")
        .ok()
        .map(|decision_id| WaitOutcome::Decided(Decision { decision_id, action: Action::RetryCancel }));
    [
        WaitOutcome::SuccessReported,
        WaitOutcome::FinalStatusRecorded,
        WaitOutcome::FailureReported { reason: "failure".into() },
        WaitOutcome::CustomerCancel,
        WaitOutcome::SlaExpired,
    ]
    .into_iter()
    .chain(decided)
    .map(Answer::Wait)
    .collect()
}

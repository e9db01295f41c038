//! Where the code stands: which histories of answers have led to the same place with the same locals.
//!
//! The locals cannot be seen, but what they do can. Two histories are at the same place where the code asks the
//! same question and, tried with every answer there is, [`DEPTH`] questions deep, goes on asking the same. So
//! the order of two things that were heard and changed nothing makes no two places. A depth too small would
//! merge what differs only later; the planted bugs, each of which must still be found, are the proof that it is
//! not, and `--deep` walks some profiles with every history as a place of its own.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use foldhash::quality::FixedState;
use payment_protocol::Payment;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::decision::{Action, CarriedOut, Decision};
use payment_protocol::facts::Verdict;
use payment_protocol::ids::DecisionId;
use payment_protocol::rules::NotSent;
use payment_protocol::state::End;
use payment_protocol::world::{
    AccountLock, Asked, Event, Fenced, Recalled, Reconciled, Released, Reserved, Settled, Standing, Submitted,
};

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
            Reserved::Held,
            Reserved::Refused(ReserveRefusal::InsufficientFunds),
            Reserved::AnotherRun,
            Reserved::Ended(End::Failed),
            Reserved::Unknown,
        ]
        .map(Answer::Reserved)
        .into(),
        Step::Fence => {
            [Fenced::Open(None), Fenced::Open(Some(Cause::SlaPassed)), Fenced::Ended(End::Settled)]
                .map(Answer::Fenced)
                .into()
        }
        Step::Submit => [
            Submitted::Accepted,
            Submitted::Refused { reason: refused() },
            Submitted::Settled,
            Submitted::NotSent(NotSent::AnotherRun),
            Submitted::NotSent(NotSent::OnlyOneAttempt),
            Submitted::Unknown,
        ]
        .map(Answer::Submitted)
        .into(),
        Step::Reconcile => {
            [Reconciled::Settled, Reconciled::Failed { reason: refused() }, Reconciled::Unknown]
                .map(Answer::Reconciled)
                .into()
        }
        Step::Lock => {
            [AccountLock::Held, AccountLock::NotGranted, AccountLock::CustomerCancel].map(Answer::Lock).into()
        }
        Step::AskToCancel(_) => [
            Asked::Dead,
            Asked::Settled,
            Asked::SuccessReported,
            Asked::Differs,
            Asked::Undecidable(OperatorReason::NothingProves),
            Asked::Undecidable(OperatorReason::SettledNotSent),
            Asked::Ended(End::Failed),
        ]
        .map(Answer::Asked)
        .into(),
        Step::Settle => {
            [Settled::Done, Settled::Refused { reason: refused() }, Settled::Differs, Settled::NotConfirmed]
                .map(Answer::Settled)
                .into()
        }
        Step::Recall => {
            [Recalled::Recalled, Recalled::Refused, Recalled::CannotRecall].map(Answer::Recalled).into()
        }
        Step::Release(_) => [
            Released::Done(Cause::SlaPassed),
            Released::Ended(End::Failed),
            Released::Failed { detail: refused() },
        ]
        .map(Answer::Released)
        .into(),
        Step::WaitWithinSla | Step::WaitWithoutEnd => events(),
        Step::CarryOut(..) => [
            CarriedOut::Settled,
            CarriedOut::Released(Cause::ReleasedByDecision),
            CarriedOut::AskAgain,
            CarriedOut::Verdict(Verdict::Settled),
            CarriedOut::Verdict(Verdict::Dead),
            CarriedOut::Refused { detail: refused() },
            CarriedOut::Ended(End::Failed),
        ]
        .map(Answer::CarriedOut)
        .into(),
        Step::NeedsOperator(_) => [
            Standing::Stands,
            Standing::Verdict(Verdict::Settled),
            Standing::Verdict(Verdict::Dead),
            Standing::Ended(End::Failed),
        ]
        .map(Answer::Standing)
        .into(),
        Step::Reject | Step::Unlock | Step::Alert => vec![Answer::Done],
    }
}

fn events() -> Vec<Answer> {
    let decided = DecisionId::new("tried")
        .ok()
        .map(|decision_id| Event::Decided(Decision { decision_id, action: Action::AskAgain }));
    [
        Event::SuccessReported,
        Event::VerdictWritten,
        Event::FailureReported { reason: "failure".into() },
        Event::CustomerCancel,
        Event::SlaPassed,
    ]
    .into_iter()
    .chain(decided)
    .map(Answer::Event)
    .collect()
}

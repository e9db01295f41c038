//! Equivalent histories: those that lead the code to the same position with the same local variables.
//!
//! The local variables cannot be read, but their effects can. Two histories are equivalent if the code awaits the
//! same call and, tried with every reply, keeps making the same calls, [`DEPTH`] calls deep. So the order of two
//! replies that changed nothing does not make two positions. A depth that is too small would merge positions
//! that differ only later; the seeded bugs, each of which must still be found, show that the depth suffices. The
//! option `--deep` also walks some profiles with every history as its own position.

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

use crate::replay::{Exchange, Index, Progress};
use crate::workflow::{self, Exchanges, PortCall, PortReply, WorkflowError};

/// How many calls deep two histories are compared.
const DEPTH: u8 = 3;

/// A hash of everything that the code does after this history.
#[must_use]
pub fn behaviour(exchanges: &Exchanges, history: &[Index], payment: &Payment) -> u64 {
    let mut hash = FixedState::default().build_hasher();
    let mut history = history.to_vec();
    hash_behaviour(exchanges, &mut history, payment, DEPTH, &mut hash);
    hash.finish()
}

fn hash_behaviour(
    exchanges: &Exchanges,
    history: &mut Vec<Index>,
    payment: &Payment,
    depth: u8,
    hash: &mut impl std::hash::Hasher,
) {
    match workflow::advance(exchanges, history, payment) {
        Progress::Completed(result) => result.map_err(|error| WorkflowError::from(&error)).hash(hash),
        Progress::Diverged => 0_u8.hash(hash),
        Progress::Awaits(call) => {
            call.hash(hash);
            let Some(depth) = depth.checked_sub(1) else { return };
            for reply in replies(&call) {
                history.push(exchanges.intern(Exchange { call: call.clone(), reply }));
                hash_behaviour(exchanges, history, payment, depth, hash);
                history.pop();
            }
        }
    }
}

/// One reply of each kind to a call.
fn replies(call: &PortCall) -> Vec<PortReply> {
    let refused = || "refused".to_owned();
    match call {
        PortCall::Reserve => reserve_replies(),
        PortCall::Fence => [
            FenceOutcome::Open(None),
            FenceOutcome::Open(Some(Cause::SlaExpired)),
            FenceOutcome::Ended(FinalState::Settled),
            FenceOutcome::Differs,
            FenceOutcome::Failed { detail: refused() },
        ]
        .map(PortReply::Fence)
        .into(),
        PortCall::Submit => submit_replies(),
        PortCall::Reconcile => [
            ReconcileOutcome::Settled,
            ReconcileOutcome::Failed { reason: refused() },
            ReconcileOutcome::Unknown,
        ]
        .map(PortReply::Reconcile)
        .into(),
        PortCall::Lock => {
            [AccountLockOutcome::Held, AccountLockOutcome::NotGranted, AccountLockOutcome::CustomerCancel]
                .map(PortReply::Lock)
                .into()
        }
        PortCall::Cancel(..) => cancel_replies(),
        PortCall::Debit => [
            DebitOutcome::Done,
            DebitOutcome::Refused { reason: refused() },
            DebitOutcome::Returned,
            DebitOutcome::NoHold,
            DebitOutcome::Failed { detail: refused() },
            DebitOutcome::Differs,
            DebitOutcome::NotConfirmed,
        ]
        .map(PortReply::Debit)
        .into(),
        PortCall::Recall => {
            [RecallOutcome::Recalled, RecallOutcome::Refused, RecallOutcome::RecallUnsupported]
                .map(PortReply::Recall)
                .into()
        }
        PortCall::Release(_) => [
            ReleaseOutcome::Done(Cause::SlaExpired),
            ReleaseOutcome::Ended(FinalState::Failed),
            ReleaseOutcome::Failed { detail: refused() },
        ]
        .map(PortReply::Release)
        .into(),
        PortCall::WaitWithinSla | PortCall::WaitUntilEvent => wait_replies(),
        PortCall::ApplyDecision(..) => decision_replies(),
        PortCall::NeedsOperator(_) => operator_replies(),
        PortCall::Reject | PortCall::Unlock | PortCall::Alert => vec![PortReply::Done],
    }
}

fn reserve_replies() -> Vec<PortReply> {
    [
        ReserveOutcome::Held,
        ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds),
        ReserveOutcome::AnotherRun,
        ReserveOutcome::Ended(FinalState::Failed),
        ReserveOutcome::Differs,
        ReserveOutcome::Unknown,
    ]
    .map(PortReply::Reserve)
    .into()
}

fn submit_replies() -> Vec<PortReply> {
    let refused = || "refused".to_owned();
    [
        SubmitOutcome::Accepted,
        SubmitOutcome::Refused { reason: refused() },
        SubmitOutcome::Settled,
        SubmitOutcome::NotSent(NotSent::AnotherRun),
        SubmitOutcome::NotSent(NotSent::SecondAttemptForbidden),
        SubmitOutcome::Unknown,
    ]
    .map(PortReply::Submit)
    .into()
}

fn cancel_replies() -> Vec<PortReply> {
    [
        CancelOutcome::Void,
        CancelOutcome::Settled,
        CancelOutcome::SuccessReported,
        CancelOutcome::Differs,
        CancelOutcome::Undecidable(OperatorReason::NotFoundIsInconclusive),
        CancelOutcome::Undecidable(OperatorReason::SettledWithoutAttempt),
        CancelOutcome::Ended(FinalState::Failed),
    ]
    .map(PortReply::Cancel)
    .into()
}

fn decision_replies() -> Vec<PortReply> {
    let refused = || "refused".to_owned();
    [
        DecisionOutcome::Settled,
        DecisionOutcome::Released(Cause::ReleasedByDecision),
        DecisionOutcome::RetryCancel,
        DecisionOutcome::FinalStatus(FinalStatus::Settled),
        DecisionOutcome::FinalStatus(FinalStatus::Void),
        DecisionOutcome::FinalStatus(FinalStatus::Returned),
        DecisionOutcome::Refused { detail: refused() },
        DecisionOutcome::Ended(FinalState::Failed),
    ]
    .map(PortReply::ApplyDecision)
    .into()
}

fn operator_replies() -> Vec<PortReply> {
    [
        NeedsOperatorOutcome::AwaitsOperator,
        NeedsOperatorOutcome::FinalStatus(FinalStatus::Settled),
        NeedsOperatorOutcome::FinalStatus(FinalStatus::Void),
        NeedsOperatorOutcome::FinalStatus(FinalStatus::Returned),
        NeedsOperatorOutcome::Ended(FinalState::Failed),
    ]
    .map(PortReply::NeedsOperator)
    .into()
}

fn wait_replies() -> Vec<PortReply> {
    let decided = DecisionId::new("tried")
        .ok()
        .map(|decision_id| WaitOutcome::Decided(Decision { decision_id, action: Action::RetryCancel }));
    [
        WaitOutcome::SuccessReported,
        WaitOutcome::FinalStatusRecorded,
        WaitOutcome::FailureReported { reason: "failure".into() },
        WaitOutcome::CustomerCancel,
        WaitOutcome::SlaExpired,
        WaitOutcome::OperatorCallDue,
    ]
    .into_iter()
    .chain(decided)
    .map(PortReply::Wait)
    .collect()
}

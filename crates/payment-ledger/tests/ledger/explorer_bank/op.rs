//! The operations of a payment, and random rounds of them.

use payment_protocol::action::{Action, Correction};
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::drift::Drift;
use payment_protocol::facts::RecallRecord;
use payment_protocol::reject::Reject;
use payment_protocol::submit::SendAnswer;
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::strategy::Union;

use super::ledger_side::DEAD;

/// One operation of the ledger, in the order of a payment's steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// The starter has started the workflow.
    Start,
    /// `valid_until` passes.
    Expire,
    RefuseUnreserved(ReserveRefusal),
    /// The workflow finds the payment invalid.
    Reject,
    /// The starter takes the workflow for lost.
    Resume,
    /// Reserves; the number is the run's.
    Reserve(u8),
    Fence,
    /// Records an attempt; the number is the run's.
    Attempt(u8),
    Answer(Answered, SendAnswer),
    FoundAtSwitch,
    /// The newest listed transfer, before an attempt is sent.
    Marker(Answered),
    /// A lookup found this transfer in the switch's listing; the number is its place there.
    TransferId(u8),
    Reconcile,
    /// The database may have lost commits: marks the open payments.
    MarkOpenPayments,
    BeginCancel(Cause),
    CustomerCancel,
    Message(Message),
    /// Counts a query.
    BeginQuery,
    QueriedSettled,
    QueriedReturned,
    /// A return by a message of its own, with this id.
    Return(u8),
    /// Restores the customer's account, where the switch's profile has it done.
    Restore,
    Void(VoidReason),
    Debit,
    /// Debits with the record of a SUCCESS that a query returned.
    DebitConfirmed,
    Release(Cause),
    BeginRecall,
    Recall(RecallRecord),
    NeedsOperator(OperatorReason),
    Propose(Action),
    Confirm,
    Withdraw,
    ApplyDecision,
    RefuseDecision,
    /// Reconciliation finds drift in an ended payment.
    Drift(Drift),
    /// Two operators correct the first exception that asks for it, and close the others.
    Correct(Correction),
    /// Freezes or unfreezes the account of both payments.
    Freeze(bool),
}

/// The attempt that an answer is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answered {
    /// The first one without an answer.
    Oldest,
    Last,
    /// One whose record is gone.
    Lost,
}

/// A callback of the switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Message {
    Success,
    OtherAmount,
    OtherSwitch,
    Returned,
    Failure,
    /// A FAILURE whose code means dead.
    FinalReject,
}

/// Operations that run at the same time, each with the number of its payment.
pub(crate) type Round = Vec<(usize, Op)>;

impl Op {
    /// Whether the operation consists of several transactions, so that it is not compared with others at the same time.
    fn is_several_transactions(&self) -> bool {
        matches!(self, Self::MarkOpenPayments | Self::Correct(_))
    }

    /// Whether this one excludes `other` of the same payment in a round: an attempt has one answer.
    fn excludes(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Answer(..), Self::Answer(..))) && self != other
    }
}

fn one_of<T: Clone + std::fmt::Debug + 'static>(values: &[T], op: fn(T) -> Op) -> BoxedStrategy<Op> {
    select(values.to_vec()).prop_map(op).boxed()
}

fn start_op() -> impl Strategy<Value = Op> {
    let run = || prop_oneof![5 => Just(1_u8), 1 => Just(2_u8)];
    let refusals = [ReserveRefusal::CustomerCancel, ReserveRefusal::StartedTooLate];
    let answers = [
        SendAnswer::Accepted,
        SendAnswer::Refused { reject: Reject::uncoded("no") },
        SendAnswer::Refused { reject: Reject { code: Some(DEAD.into()), reason: "closed".into() } },
        SendAnswer::Unknown { detail: "lost".into() },
    ];
    let attempt =
        prop_oneof![4 => Just(Answered::Last), 2 => Just(Answered::Oldest), 1 => Just(Answered::Lost)];
    prop_oneof![
        2 => Just(Op::Start),
        1 => Just(Op::Expire),
        1 => one_of(&refusals, Op::RefuseUnreserved),
        1 => Just(Op::Reject),
        2 => Just(Op::Resume),
        8 => run().prop_map(Op::Reserve),
        1 => Just(Op::Fence),
        8 => run().prop_map(Op::Attempt),
        6 => (attempt, select(answers.to_vec())).prop_map(|(attempt, answer)| Op::Answer(attempt, answer)),
        1 => Just(Op::FoundAtSwitch),
        2 => select(vec![Answered::Last, Answered::Lost]).prop_map(Op::Marker),
        1 => Just(Op::Reconcile),
        1 => Just(Op::MarkOpenPayments),
    ]
}

fn end_op() -> impl Strategy<Value = Op> {
    let causes = [Cause::SlaExpired, Cause::CustomerCancel, Cause::Interrupted];
    let messages = [
        Message::Success,
        Message::OtherAmount,
        Message::OtherSwitch,
        Message::Returned,
        Message::Failure,
        Message::FinalReject,
    ];
    let voids = [
        VoidReason::Cancelled,
        VoidReason::Tombstoned,
        VoidReason::DeadlinePassed,
        VoidReason::NeverSent,
        VoidReason::NotInClosedStatement,
    ];
    let recalls = [RecallRecord::Recalled, RecallRecord::Refused, RecallRecord::RecallUnsupported];
    prop_oneof![
        2 => one_of(&causes, Op::BeginCancel),
        1 => Just(Op::CustomerCancel),
        3 => Just(Op::Message(Message::Success)),
        3 => one_of(&messages, Op::Message),
        1 => Just(Op::BeginQuery),
        2 => (0..2_u8).prop_map(Op::TransferId),
        1 => Just(Op::QueriedSettled),
        1 => Just(Op::QueriedReturned),
        2 => Just(Op::Restore),
        2 => (0..2_u8).prop_map(Op::Return),
        3 => one_of(&voids, Op::Void),
        5 => Just(Op::Debit),
        2 => Just(Op::DebitConfirmed),
        2 => one_of(&causes, Op::Release),
        1 => Just(Op::BeginRecall),
        2 => one_of(&recalls, Op::Recall),
        2 => any::<bool>().prop_map(Op::Freeze),
    ]
}

fn operator_op() -> impl Strategy<Value = Op> {
    let reasons = [
        OperatorReason::SwitchRetentionExpired,
        OperatorReason::NotFoundIsInconclusive,
        OperatorReason::AcceptedThenUnknown,
        OperatorReason::RecallUnsupported,
    ];
    let drifts = [Drift::DebitedNotSettled, Drift::SettledNotDebited, Drift::ReleasedButSettled];
    prop_oneof![
        6 => one_of(&reasons, Op::NeedsOperator),
        6 => one_of(Action::ALL, Op::Propose),
        6 => Just(Op::Confirm),
        1 => Just(Op::Withdraw),
        7 => Just(Op::ApplyDecision),
        1 => Just(Op::RefuseDecision),
        2 => one_of(&drifts, Op::Drift),
        5 => one_of(Correction::ALL, Op::Correct),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![3 => start_op(), 3 => end_op(), 2 => operator_op()]
}

/// What both payments do one after the other before the random rounds: most orders of steps are reached only from there.
fn first_rounds() -> impl Strategy<Value = Vec<Round>> {
    let cancel = Op::BeginCancel(Cause::SlaExpired);
    let operator = Op::NeedsOperator(OperatorReason::NotFoundIsInconclusive);
    let stages: [&[Op]; 7] = [
        &[],
        &[Op::Start],
        &[Op::Reserve(1)],
        &[Op::Reserve(1), Op::Attempt(1)],
        &[Op::Reserve(1), Op::Attempt(1), cancel],
        &[Op::Reserve(1), Op::Attempt(1), Op::Restore],
        &[Op::Reserve(1), Op::Attempt(1), operator, Op::Propose(Action::Debit), Op::Confirm],
    ];
    let stage = select(stages.map(<[Op]>::to_vec).to_vec());
    (stage.clone(), stage).prop_map(|stages| {
        let of = |payment, stage: Vec<Op>| stage.into_iter().map(move |op| vec![(payment, op)]);
        of(0, stages.0).chain(of(1, stages.1)).collect()
    })
}

/// Rounds of one operation each.
pub(crate) fn one_by_one(rounds: usize) -> BoxedStrategy<Vec<Round>> {
    let round = (0..2_usize, op()).prop_map(|op| vec![op]);
    (first_rounds(), vec(round, rounds)).prop_map(|(first, then)| [first, then].concat()).boxed()
}

/// Whole payments whose every step runs at the same time for both, and twice for one.
pub(crate) fn contested() -> Vec<Vec<Round>> {
    let begun = || vec![Op::Start, Op::Reserve(1), Op::Attempt(1)];
    let accepted = Op::Answer(Answered::Last, SendAnswer::Accepted);
    let operator = Op::NeedsOperator(OperatorReason::NotFoundIsInconclusive);
    let debit = [Op::Propose(Action::Debit), Op::Confirm, Op::ApplyDecision];
    let release =
        [Op::Propose(Action::Release), Op::Confirm, Op::ApplyDecision, Op::Message(Message::Success)];
    let payments = [
        [begun(), vec![accepted.clone(), Op::Message(Message::Success), Op::Debit, Op::QueriedReturned]]
            .concat(),
        [begun(), vec![Op::BeginCancel(Cause::SlaExpired), Op::Void(VoidReason::Cancelled)]].concat(),
        [begun(), vec![accepted.clone(), Op::Message(Message::Success), Op::DebitConfirmed]].concat(),
        [begun(), vec![Op::Message(Message::Success), Op::Void(VoidReason::Cancelled), Op::DebitConfirmed]]
            .concat(),
        [begun(), vec![operator.clone()], debit.to_vec()].concat(),
        [begun(), vec![operator], release.to_vec()].concat(),
        [
            begun(),
            vec![accepted.clone(), Op::Return(0), Op::Message(Message::Success), Op::Debit, Op::Return(1)],
        ]
        .concat(),
        [begun(), vec![accepted.clone(), Op::Restore, Op::Message(Message::Success), Op::Debit]].concat(),
        [begun(), vec![Op::Restore, Op::Void(VoidReason::DeadlinePassed)]].concat(),
        [begun(), vec![Op::Message(Message::FinalReject), Op::Restore, Op::Restore]].concat(),
    ];
    let round = |op: Op| vec![(0, op.clone()), (1, op.clone()), (0, op)];
    let ends = [Op::Release(Cause::SlaExpired), Op::Resume];
    payments.map(|steps| steps.into_iter().chain(ends.clone()).map(round).collect()).to_vec()
}

/// Rounds of two or three operations at the same time: of both payments, or two copies of one operation.
pub(crate) fn at_the_same_time(rounds: usize) -> BoxedStrategy<Vec<Round>> {
    let one = || (0..2_usize, op());
    let round = Union::new([
        one().prop_map(|op| vec![op.clone(), op]).boxed(),
        op().prop_map(|op| vec![(0, op.clone()), (1, op)]).boxed(),
        (op(), op()).prop_map(|(first, second)| vec![(0, first), (1, second)]).boxed(),
        (one(), one(), one()).prop_map(|(first, second, third)| vec![first, second, third]).boxed(),
    ]);
    (first_rounds(), vec(round.prop_map(compatible), rounds))
        .prop_map(|(first, then)| [first, then].concat())
        .boxed()
}

/// The operations of a round that can run at the same time.
fn compatible(round: Round) -> Round {
    if let Some(alone) = round.iter().find(|(_, op)| op.is_several_transactions()) {
        return vec![alone.clone()];
    }
    let mut kept = Round::new();
    for (payment, op) in round {
        if !kept.iter().any(|(of, earlier)| *of == payment && op.excludes(earlier)) {
            kept.push((payment, op));
        }
    }
    kept
}

//! One payment, from the top to its end. Straight-line code over [`World`].
//!
//! ```text
//! validate -> reserve -> submit -> wait(confirmation | SLA | cancel request) -> settle -> settled
//!                |          |            |                                        |
//!                |          |            |                                        +- cannot debit -> recall -> release -> failed
//!                |          |            |                                                             +----> needs_operator
//!                |          +- refused / unknown -+- FAILURE / SLA / cancel -> ask to cancel -> settled there: settle
//!                |                                                                          -> dead there: release -> end
//!                +- refused (recorded) -> rejected
//! ```

use crate::cause::{Cause, OperatorReason, PaymentError};
use crate::decision::CarriedOut;
use crate::facts::Verdict;
use crate::payment::Payment;
use crate::rules::NotSent;
use crate::state::{End, PaymentState};
use crate::undo::{Undo, Undos};
use crate::world::{
    AccountLock, Alert, Asked, Event, Fenced, Recalled, Reconciled, Released, Reserved, Settled, Standing,
    Submitted, World,
};

/// Where a stretch of the way left the payment.
enum Course {
    /// Over, one way or the other.
    Ended(Result<(), PaymentError>),
    /// Turned round; what was done must be undone.
    TurnedRound(Cause),
    /// Stands before a person.
    Stands(OperatorReason),
}

/// Runs one payment to its end. `Ok` means debited once, and the money left.
///
/// # Errors
/// The original error: the first cause that turned the payment round, after everything it had done
/// was undone.
pub async fn pay<W: World>(world: &W, payment: &Payment) -> Result<(), PaymentError> {
    let mut undos = Undos::default();
    let course = if payment.resume == 0 {
        go_forward(world, payment, &mut undos).await
    } else {
        take_up_again(world, &mut undos).await
    };
    let result = end(world, &mut undos, course).await;
    if payment.profile.needs_account_lock() {
        world.unlock_account().await;
    }
    result
}

/// Brings a payment to its end from wherever a stretch of the way left it.
async fn end<W: World>(world: &W, undos: &mut Undos, mut course: Course) -> Result<(), PaymentError> {
    loop {
        course = match course {
            Course::Ended(result) => return result,
            Course::TurnedRound(cause) => undo_all(world, undos, cause).await,
            Course::Stands(reason) => stand(world, undos, reason).await,
        };
    }
}

/// The way forward, which a payment goes once.
async fn go_forward<W: World>(world: &W, payment: &Payment, undos: &mut Undos) -> Course {
    if let Err(invalid) = payment.validate() {
        world.reject(&invalid).await;
        return Course::Ended(Err(PaymentError::Invalid(invalid)));
    }

    // reserve. key {payment_id}:reserve. undo: release, {tx_id}:comp-reserve.
    // unknown: ask to cancel, then release, which fences the reserve if it has not landed.
    undos.register(Undo::Release);
    match world.reserve().await {
        Reserved::Held => world.show(PaymentState::Reserved, "the amount is held"),
        // The refusal is recorded under reserve's key: nothing is held and nothing ever will be.
        Reserved::Refused(refusal) => return Course::Ended(Err(PaymentError::ReserveRefused(refusal))),
        Reserved::Ended(end) => return already_ended(end),
        Reserved::AnotherRun => return take_up_again(world, undos).await,
        Reserved::Unknown => {
            // The one way round for all: it finds that nothing was sent, or asks.
            undos.register(Undo::AskToCancel);
            return Course::TurnedRound(Cause::ReserveUnknown);
        }
    }

    // Registered before anything of the switch's: the one way round for all finds that nothing was sent, or
    // asks.
    undos.register(Undo::AskToCancel);

    // A switch without references reads back what it has: the account must be this payment's alone.
    if payment.profile.needs_account_lock() {
        match world.lock_account().await {
            AccountLock::Held => {}
            AccountLock::CustomerCancel => return Course::TurnedRound(Cause::CustomerCancel),
            AccountLock::NotGranted => return Course::TurnedRound(not_sent(NotSent::AccountBusy)),
        }
    }

    // submit. key {tx_id}:submit. undo: ask to cancel, {tx_id}:comp-submit.
    // unknown: ask to cancel, and obey the answer.
    let confirmed = match world.submit().await {
        Submitted::Accepted => {
            world.show(PaymentState::Submitted, "the switch has the transfer");
            false
        }
        Submitted::Settled => true,
        Submitted::Refused { reason } => return Course::TurnedRound(Cause::SubmitRefused { reason }),
        // The one attempt may have arrived, and no other will be made: what comes in decides (S0.11, D).
        Submitted::Unknown | Submitted::NotSent(NotSent::OnlyOneAttempt)
            if payment.profile.strategy.reconciles() =>
        {
            match world.reconcile_submission().await {
                Reconciled::Settled => true,
                Reconciled::Failed { reason } => {
                    return Course::TurnedRound(Cause::FailureReported { reason });
                }
                Reconciled::Unknown => {
                    world.show(PaymentState::Submitted, "one attempt is out and has no answer");
                    false
                }
            }
        }
        Submitted::Unknown => return Course::TurnedRound(Cause::SubmitUnknown),
        Submitted::NotSent(reason) => return Course::TurnedRound(not_sent(reason)),
    };

    // settle. key {tx_id}:debit. undo: none; money that left is only ever recalled.
    // unknown: cannot be, the ledger is asked until it answers.
    let mut confirmed = confirmed;
    loop {
        if confirmed {
            match follow_the_switch(world, undos).await {
                Followed::Settled => return Course::Ended(Ok(())),
                Followed::TakenBack(cause) => return Course::TurnedRound(cause),
                Followed::Stands(reason) => return Course::Stands(reason),
                // Not this payment's SUCCESS: it changes nothing, the SLA runs on.
                Followed::NotConfirmed => {}
            }
        }
        confirmed = match world.wait_within_sla().await {
            Event::SuccessReported | Event::VerdictWritten => true,
            Event::FailureReported { reason } => {
                return Course::TurnedRound(Cause::FailureReported { reason });
            }
            Event::CustomerCancel => return Course::TurnedRound(Cause::CustomerCancel),
            Event::SlaPassed => return Course::TurnedRound(Cause::SlaPassed),
            // People are heard only where the payment stands before them.
            Event::Decided(_) => false,
        };
    }
}

/// The way of a run that finds the payment already begun: no reserve, no submit. Fence the reserve,
/// ask to cancel, obey.
async fn take_up_again<W: World>(world: &W, undos: &mut Undos) -> Course {
    *undos = Undos::whole();
    match world.fence_reserve().await {
        Fenced::Open(cause) => Course::TurnedRound(cause.unwrap_or(Cause::Interrupted)),
        Fenced::Ended(end) => already_ended(end),
    }
}

/// The payment had ended when this run looked.
fn already_ended(end: End) -> Course {
    Course::Ended(match end {
        End::Settled => Ok(()),
        end => Err(PaymentError::AlreadyEnded(end)),
    })
}

/// The cause that goes with an attempt that our own ledger did not let out.
fn not_sent(reason: NotSent) -> Cause {
    match reason {
        NotSent::CustomerCancel => Cause::CustomerCancel,
        NotSent::AnotherRun => Cause::Interrupted,
        // One attempt went out and its answer is not known.
        NotSent::OnlyOneAttempt => Cause::SubmitUnknown,
        NotSent::NoOpenHold
        | NotSent::CancelAsked
        | NotSent::ReportedUnsent
        | NotSent::AccountBusy
        | NotSent::RetentionPassed => Cause::NotSent { reason: reason.to_string() },
    }
}

/// Where following the switch's SUCCESS led.
enum Followed {
    Settled,
    /// There is no SUCCESS of this payment on record.
    NotConfirmed,
    /// Path C: the bank could not debit and the switch gave the money back.
    TakenBack(Cause),
    Stands(OperatorReason),
}

/// Debits, since the money left. Where the bank cannot, asks for the money back (Path C, S0.10).
async fn follow_the_switch<W: World>(world: &W, undos: &mut Undos) -> Followed {
    let reason = match world.settle().await {
        Settled::Done => {
            world.show(PaymentState::Settled, "debited; the money left");
            return Followed::Settled;
        }
        Settled::NotConfirmed => return Followed::NotConfirmed,
        Settled::Differs => return Followed::Stands(OperatorReason::ReportDiffers),
        Settled::Refused { reason } => reason,
    };
    // A cancel never undoes a settlement.
    undos.forget(Undo::AskToCancel);
    world.show(PaymentState::Confirmed, "the bank cannot debit; recalling");
    match world.recall().await {
        Recalled::Recalled => Followed::TakenBack(Cause::SettleRefused { reason }),
        Recalled::Refused => Followed::Stands(OperatorReason::RecallRefused),
        Recalled::CannotRecall => Followed::Stands(OperatorReason::CannotRecall),
    }
}

/// Undoes last-in first-out. An undo that fails for good is alerted and does not keep the others
/// from running; release alone depends on an answer, the switch's, and waits for it.
async fn undo_all<W: World>(world: &W, undos: &mut Undos, cause: Cause) -> Course {
    let mut first_cause = cause;
    let mut failed = false;
    while let Some(undo) = undos.next_undo() {
        match undo {
            Undo::AskToCancel => match ask_until_decided(world, undos, &first_cause).await {
                Decided::Dead => {}
                Decided::Ended(course) => return course,
            },
            Undo::Release => match world.release(&first_cause).await {
                Released::Done(recorded) => {
                    first_cause = recorded;
                    world.show(first_cause.end().into(), "released; nothing was charged");
                }
                Released::Ended(end) => return already_ended(end),
                Released::Failed { detail } => {
                    failed = true;
                    world.alert(Alert::UndoFailed { detail }).await;
                }
            },
        }
    }
    if failed {
        Course::Stands(OperatorReason::UndoFailed)
    } else {
        Course::Ended(Err(PaymentError::Undone(first_cause)))
    }
}

/// What came of asking to cancel.
enum Decided {
    /// Nothing can settle any more, or what settled came back: go on undoing.
    Dead,
    /// The switch's answer took the payment elsewhere.
    Ended(Course),
}

async fn ask_until_decided<W: World>(world: &W, undos: &mut Undos, cause: &Cause) -> Decided {
    world.show(PaymentState::Cancelling, cause.code());
    loop {
        match world.ask_to_cancel(cause).await {
            Asked::Dead => return Decided::Dead,
            Asked::Settled | Asked::SuccessReported => match follow_the_switch(world, undos).await {
                Followed::Settled => return Decided::Ended(Course::Ended(Ok(()))),
                Followed::TakenBack(_) => return Decided::Dead,
                Followed::Stands(reason) => return Decided::Ended(Course::Stands(reason)),
                // Not this payment's SUCCESS: go on asking.
                Followed::NotConfirmed => {}
            },
            Asked::Differs => return Decided::Ended(Course::Stands(OperatorReason::ReportDiffers)),
            Asked::Undecidable(reason) => return Decided::Ended(Course::Stands(reason)),
            Asked::Ended(end) => return Decided::Ended(already_ended(end)),
        }
    }
}

/// Stands before a person, and keeps listening: a definite matching answer still moves the payment,
/// unless the switch's last word is already known, and so does what people decide.
async fn stand<W: World>(world: &W, undos: &mut Undos, reason: OperatorReason) -> Course {
    world.show(PaymentState::NeedsOperator, reason.as_str());
    let mut verdict = match world.needs_operator(reason).await {
        Standing::Ended(end) => return already_ended(end),
        Standing::Verdict(verdict) if reason.listens() => Some(verdict),
        Standing::Verdict(_) | Standing::Stands => None,
    };
    loop {
        match verdict {
            Some(Verdict::Settled) => match follow_the_switch(world, undos).await {
                Followed::Settled => return Course::Ended(Ok(())),
                Followed::TakenBack(cause) => return taken_back(undos, cause),
                Followed::Stands(OperatorReason::ReportDiffers) | Followed::NotConfirmed => {}
                Followed::Stands(other) => return Course::Stands(other),
            },
            // Dead after all: what is held goes back, for the cause on record.
            Some(Verdict::Dead) => return taken_back(undos, Cause::Interrupted),
            None => {}
        }
        verdict = match world.wait_without_end().await {
            Event::SuccessReported if reason.listens() => Some(Verdict::Settled),
            // Look again at what is on record.
            Event::VerdictWritten => return Course::Stands(reason),
            Event::SuccessReported
            | Event::FailureReported { .. }
            | Event::CustomerCancel
            | Event::SlaPassed => None,
            Event::Decided(decision) => match world.carry_out(&decision, reason).await {
                CarriedOut::Settled => {
                    world.show(PaymentState::Settled, "debited by a decision");
                    return Course::Ended(Ok(()));
                }
                CarriedOut::Released(cause) => {
                    world.show(cause.end().into(), "released by a decision");
                    return Course::Ended(Err(PaymentError::Undone(cause)));
                }
                CarriedOut::Ended(end) => return already_ended(end),
                CarriedOut::AskAgain => {
                    *undos = Undos::whole();
                    return Course::TurnedRound(Cause::AskedByDecision);
                }
                CarriedOut::Verdict(verdict) => Some(verdict),
                // Asking for it may have moved the payment: it stands again.
                CarriedOut::Refused { .. } => return Course::Stands(reason),
            },
        };
    }
}

/// The money will not leave, or came back: there is nothing to ask the switch any more. The undos that were
/// begun are all run again, which their keys allow.
fn taken_back(undos: &mut Undos, cause: Cause) -> Course {
    *undos = Undos::whole();
    undos.forget(Undo::AskToCancel);
    Course::TurnedRound(cause)
}

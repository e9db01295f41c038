//! One payment, from the top to its end. Straight-line code over [`PaymentPort`].
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
use crate::compensation::{Compensation, Compensations};
use crate::decision::DecisionOutcome;
use crate::facts::FinalStatus;
use crate::payment::Payment;
use crate::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, OperatorAlert,
    PaymentPort, RecallOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use crate::rules::NotSent;
use crate::state::{FinalState, PaymentState};

/// What to do next with the payment.
enum NextStep {
    /// The payment is in a final state.
    Finished(Result<(), PaymentError>),
    /// Run the compensations, for this cause.
    Compensate(Cause),
    /// Wait for an operator, for this reason.
    AwaitOperator(OperatorReason),
}

/// Runs one payment to its end. `Ok` means debited once, and the money left.
///
/// # Errors
/// The original error: the first cause that turned the payment round, after everything it had done
/// was undone.
pub async fn pay<W: PaymentPort>(port: &W, payment: &Payment) -> Result<(), PaymentError> {
    let mut compensations = Compensations::default();
    let step = if payment.resume == 0 {
        run_forward(port, payment, &mut compensations).await
    } else {
        run_recovery(port, &mut compensations).await
    };
    let result = end(port, &mut compensations, step).await;
    if payment.profile.needs_account_lock() {
        port.unlock_account().await;
    }
    result
}

/// Brings a payment to its end from wherever a stretch of the way left it.
async fn end<W: PaymentPort>(
    port: &W,
    compensations: &mut Compensations,
    mut step: NextStep,
) -> Result<(), PaymentError> {
    loop {
        step = match step {
            NextStep::Finished(result) => return result,
            NextStep::Compensate(cause) => compensate(port, compensations, cause).await,
            NextStep::AwaitOperator(reason) => await_operator(port, compensations, reason).await,
        };
    }
}

/// The way forward, which a payment goes once.
async fn run_forward<W: PaymentPort>(
    port: &W,
    payment: &Payment,
    compensations: &mut Compensations,
) -> NextStep {
    if let Err(invalid) = payment.validate() {
        port.reject(&invalid).await;
        return NextStep::Finished(Err(PaymentError::Invalid(invalid)));
    }

    // reserve. key {payment_id}:reserve. compensation: release, {tx_id}:comp-reserve.
    // unknown: ask to cancel, then release, which fences the reserve if it has not landed.
    compensations.register(Compensation::Release);
    match port.reserve().await {
        ReserveOutcome::Held => port.show(PaymentState::Reserved, "the amount is held"),
        // The refusal is recorded under reserve's key: nothing is held and nothing ever will be.
        ReserveOutcome::Refused(refusal) => {
            return NextStep::Finished(Err(PaymentError::ReserveRefused(refusal)));
        }
        ReserveOutcome::Ended(end) => return already_final(end),
        ReserveOutcome::AnotherRun => return run_recovery(port, compensations).await,
        ReserveOutcome::Unknown => {
            // The one way round for all: it finds that nothing was sent, or asks.
            compensations.register(Compensation::Cancel);
            return NextStep::Compensate(Cause::ReserveUnknown);
        }
    }

    // Registered before anything of the switch's: the one way round for all finds that nothing was sent, or
    // asks.
    compensations.register(Compensation::Cancel);

    // A switch without references reads back what it has: the account must be this payment's alone.
    if payment.profile.needs_account_lock() {
        match port.lock_account().await {
            AccountLockOutcome::Held => {}
            AccountLockOutcome::CustomerCancel => return NextStep::Compensate(Cause::CustomerCancel),
            AccountLockOutcome::NotGranted => return NextStep::Compensate(not_sent(NotSent::AccountBusy)),
        }
    }

    // submit. key {tx_id}:submit. compensation: ask to cancel, {tx_id}:comp-submit.
    // unknown: ask to cancel, and obey the answer.
    let confirmed = match port.submit().await {
        SubmitOutcome::Accepted => {
            port.show(PaymentState::Submitted, "the switch has the transfer");
            false
        }
        SubmitOutcome::Settled => true,
        SubmitOutcome::Refused { reason } => return NextStep::Compensate(Cause::SubmitRefused { reason }),
        // The one attempt may have arrived, and no other will be made: what comes in decides (S0.11, D).
        SubmitOutcome::Unknown | SubmitOutcome::NotSent(NotSent::SecondAttemptForbidden)
            if payment.profile.strategy.reconciles() =>
        {
            match port.reconcile_submission().await {
                ReconcileOutcome::Settled => true,
                ReconcileOutcome::Failed { reason } => {
                    return NextStep::Compensate(Cause::FailureReported { reason });
                }
                ReconcileOutcome::Unknown => {
                    port.show(PaymentState::Submitted, "one attempt is out and has no answer");
                    false
                }
            }
        }
        SubmitOutcome::Unknown => return NextStep::Compensate(Cause::SubmitUnknown),
        SubmitOutcome::NotSent(reason) => return NextStep::Compensate(not_sent(reason)),
    };

    // settle. key {tx_id}:debit. compensation: none; money that left is only ever recalled.
    // unknown: cannot be, the ledger is asked until it answers.
    let mut confirmed = confirmed;
    loop {
        if confirmed {
            match debit_or_recall(port, compensations).await {
                DebitOrRecall::Debited => return NextStep::Finished(Ok(())),
                DebitOrRecall::Returned(cause) => return NextStep::Compensate(cause),
                DebitOrRecall::AwaitOperator(reason) => return NextStep::AwaitOperator(reason),
                // Not this payment's SUCCESS: it changes nothing, the SLA runs on.
                DebitOrRecall::NotConfirmed => {}
            }
        }
        confirmed = match port.wait_within_sla().await {
            WaitOutcome::SuccessReported | WaitOutcome::FinalStatusRecorded => true,
            WaitOutcome::FailureReported { reason } => {
                return NextStep::Compensate(Cause::FailureReported { reason });
            }
            WaitOutcome::CustomerCancel => return NextStep::Compensate(Cause::CustomerCancel),
            WaitOutcome::SlaExpired => return NextStep::Compensate(Cause::SlaExpired),
            // People are heard only where the payment stands before them.
            WaitOutcome::Decided(_) => false,
        };
    }
}

/// The way of a run that finds the payment already begun: no reserve, no submit. Fence the reserve,
/// ask to cancel, obey.
async fn run_recovery<W: PaymentPort>(port: &W, compensations: &mut Compensations) -> NextStep {
    *compensations = Compensations::whole();
    match port.fence_reserve().await {
        FenceOutcome::Open(cause) => NextStep::Compensate(cause.unwrap_or(Cause::Interrupted)),
        FenceOutcome::Ended(end) => already_final(end),
    }
}

/// The payment had ended when this run looked.
fn already_final(end: FinalState) -> NextStep {
    NextStep::Finished(match end {
        FinalState::Settled => Ok(()),
        end => Err(PaymentError::AlreadyEnded(end)),
    })
}

/// The cause that goes with an attempt that our own ledger did not let out.
fn not_sent(reason: NotSent) -> Cause {
    match reason {
        NotSent::CustomerCancel => Cause::CustomerCancel,
        NotSent::AnotherRun => Cause::Interrupted,
        // One attempt went out and its answer is not known.
        NotSent::SecondAttemptForbidden => Cause::SubmitUnknown,
        NotSent::NoOpenHold
        | NotSent::CancelStarted
        | NotSent::ReportedWithoutAttempt
        | NotSent::AccountBusy
        | NotSent::SwitchRetentionExpired => Cause::NotSent { reason: reason.to_string() },
    }
}

/// Where following the switch's SUCCESS led.
enum DebitOrRecall {
    Debited,
    /// There is no SUCCESS of this payment on record.
    NotConfirmed,
    /// Path C: the bank could not debit and the switch gave the money back.
    Returned(Cause),
    AwaitOperator(OperatorReason),
}

/// Debits, since the money left. Where the bank cannot, asks for the money back (Path C, S0.10).
async fn debit_or_recall<W: PaymentPort>(port: &W, compensations: &mut Compensations) -> DebitOrRecall {
    let reason = match port.debit().await {
        DebitOutcome::Done => {
            port.show(PaymentState::Settled, "debited; the money left");
            return DebitOrRecall::Debited;
        }
        DebitOutcome::NotConfirmed => return DebitOrRecall::NotConfirmed,
        DebitOutcome::Differs => return DebitOrRecall::AwaitOperator(OperatorReason::ConfirmationMismatch),
        DebitOutcome::Refused { reason } => reason,
    };
    // A cancel never undoes a settlement.
    compensations.forget(Compensation::Cancel);
    port.show(PaymentState::Confirmed, "the bank cannot debit; recalling");
    match port.recall().await {
        RecallOutcome::Recalled => DebitOrRecall::Returned(Cause::DebitRefused { reason }),
        RecallOutcome::Refused => DebitOrRecall::AwaitOperator(OperatorReason::RecallRefused),
        RecallOutcome::RecallUnsupported => DebitOrRecall::AwaitOperator(OperatorReason::RecallUnsupported),
    }
}

/// Undoes last-in first-out. An compensation that fails for good is alerted and does not keep the others
/// from running; release alone depends on an answer, the switch's, and waits for it.
async fn compensate<W: PaymentPort>(port: &W, compensations: &mut Compensations, cause: Cause) -> NextStep {
    let mut first_cause = cause;
    let mut failed = false;
    while let Some(compensation) = compensations.next() {
        match compensation {
            Compensation::Cancel => match cancel_until_decided(port, compensations, &first_cause).await {
                CancelDecision::Void => {}
                CancelDecision::Ended(step) => return step,
            },
            Compensation::Release => match port.release(&first_cause).await {
                ReleaseOutcome::Done(recorded) => {
                    first_cause = recorded;
                    port.show(first_cause.end().into(), "released; nothing was charged");
                }
                ReleaseOutcome::Ended(end) => return already_final(end),
                ReleaseOutcome::Failed { detail } => {
                    failed = true;
                    port.alert(OperatorAlert::CompensationFailed { detail }).await;
                }
            },
        }
    }
    if failed {
        NextStep::AwaitOperator(OperatorReason::CompensationFailed)
    } else {
        NextStep::Finished(Err(PaymentError::Compensated(first_cause)))
    }
}

/// What came of asking to cancel.
enum CancelDecision {
    /// Nothing can settle any more, or what settled came back: go on undoing.
    Void,
    /// The switch's answer took the payment elsewhere.
    Ended(NextStep),
}

async fn cancel_until_decided<W: PaymentPort>(
    port: &W,
    compensations: &mut Compensations,
    cause: &Cause,
) -> CancelDecision {
    port.show(PaymentState::Cancelling, cause.code());
    loop {
        match port.cancel(cause).await {
            CancelOutcome::Void => return CancelDecision::Void,
            CancelOutcome::Settled | CancelOutcome::SuccessReported => {
                match debit_or_recall(port, compensations).await {
                    DebitOrRecall::Debited => return CancelDecision::Ended(NextStep::Finished(Ok(()))),
                    DebitOrRecall::Returned(_) => return CancelDecision::Void,
                    DebitOrRecall::AwaitOperator(reason) => {
                        return CancelDecision::Ended(NextStep::AwaitOperator(reason));
                    }
                    // Not this payment's SUCCESS: go on asking.
                    DebitOrRecall::NotConfirmed => {}
                }
            }
            CancelOutcome::Differs => {
                return CancelDecision::Ended(NextStep::AwaitOperator(OperatorReason::ConfirmationMismatch));
            }
            CancelOutcome::Undecidable(reason) => {
                return CancelDecision::Ended(NextStep::AwaitOperator(reason));
            }
            CancelOutcome::Ended(end) => return CancelDecision::Ended(already_final(end)),
        }
    }
}

/// Stands before a person, and keeps listening: a definite matching answer still moves the payment,
/// unless the switch's last word is already known, and so does what people decide.
async fn await_operator<W: PaymentPort>(
    port: &W,
    compensations: &mut Compensations,
    reason: OperatorReason,
) -> NextStep {
    port.show(PaymentState::NeedsOperator, reason.as_str());
    let mut final_status = match port.needs_operator(reason).await {
        NeedsOperatorOutcome::Ended(end) => return already_final(end),
        NeedsOperatorOutcome::Verdict(final_status) if reason.follows_switch() => Some(final_status),
        NeedsOperatorOutcome::Verdict(_) | NeedsOperatorOutcome::Stands => None,
    };
    loop {
        match final_status {
            Some(FinalStatus::Settled) => match debit_or_recall(port, compensations).await {
                DebitOrRecall::Debited => return NextStep::Finished(Ok(())),
                DebitOrRecall::Returned(cause) => return release_after_return(compensations, cause),
                DebitOrRecall::AwaitOperator(OperatorReason::ConfirmationMismatch)
                | DebitOrRecall::NotConfirmed => {}
                DebitOrRecall::AwaitOperator(other) => return NextStep::AwaitOperator(other),
            },
            // Void after all: what is held goes back, for the cause on record.
            Some(FinalStatus::Void) => return release_after_return(compensations, Cause::Interrupted),
            None => {}
        }
        final_status = match port.wait_until_event().await {
            WaitOutcome::SuccessReported if reason.follows_switch() => Some(FinalStatus::Settled),
            // Look again at what is on record.
            WaitOutcome::FinalStatusRecorded => return NextStep::AwaitOperator(reason),
            WaitOutcome::SuccessReported
            | WaitOutcome::FailureReported { .. }
            | WaitOutcome::CustomerCancel
            | WaitOutcome::SlaExpired => None,
            WaitOutcome::Decided(decision) => match port.apply_decision(&decision, reason).await {
                DecisionOutcome::Settled => {
                    port.show(PaymentState::Settled, "debited by a decision");
                    return NextStep::Finished(Ok(()));
                }
                DecisionOutcome::Released(cause) => {
                    port.show(cause.end().into(), "released by a decision");
                    return NextStep::Finished(Err(PaymentError::Compensated(cause)));
                }
                DecisionOutcome::Ended(end) => return already_final(end),
                DecisionOutcome::RetryCancel => {
                    *compensations = Compensations::whole();
                    return NextStep::Compensate(Cause::CancelRetriedByDecision);
                }
                DecisionOutcome::Verdict(final_status) => Some(final_status),
                // Asking for it may have moved the payment: it stands again.
                DecisionOutcome::Refused { .. } => return NextStep::AwaitOperator(reason),
            },
        };
    }
}

/// The money will not leave, or came back: there is nothing to ask the switch any more. The compensations that were
/// begun are all run again, which their keys allow.
fn release_after_return(compensations: &mut Compensations, cause: Cause) -> NextStep {
    *compensations = Compensations::whole();
    compensations.forget(Compensation::Cancel);
    NextStep::Compensate(cause)
}

//! One payment, from its start to its final state. Straight-line code over [`PaymentPort`].
//!
//! ```text
//! validate -> reserve -> submit -> wait(confirmation | SLA | cancel request) -> debit -> settled
//!                |          |            |                                        |
//!                |          |            |                                        +- refused -> recall -> release -> failed
//!                |          |            |                                                         +----> needs_operator
//!                |          +- refused / unknown -+- FAILURE / SLA / cancel request -> cancel -> settled: debit
//!                |                                                                           -> void: release -> final state
//!                +- refused (recorded) -> rejected
//! ```

use crate::cause::{Cause, OperatorReason, PaymentError};
use crate::compensation::{Compensation, Compensations};
use crate::decision::{Decision, DecisionOutcome};
use crate::facts::FinalStatus;
use crate::payment::Payment;
use crate::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, OperatorAlert,
    PaymentPort, RecallOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use crate::rules::NotSent;
use crate::state::{FinalState, PaymentState};

/// The next step of the payment.
enum NextStep {
    /// No next step: the payment is in a final state.
    Finished(Result<(), PaymentError>),
    /// Run the compensations, for this cause.
    Compensate(Cause),
    /// Wait for an operator, for this reason.
    AwaitOperator(OperatorReason),
}

/// Runs one payment to its final state. `Ok` means that the customer was debited once and the money left.
///
/// # Errors
/// The first cause for which the payment was compensated, after every compensation has run.
pub async fn pay<P: PaymentPort>(port: &P, payment: &Payment) -> Result<(), PaymentError> {
    let mut compensations = Compensations::default();
    let step = if payment.resume == 0 {
        run_forward(port, payment, &mut compensations).await
    } else {
        run_recovery(port, &mut compensations).await
    };
    let result = finish(port, &mut compensations, step).await;
    // An invalid payment is rejected without an external call (S0.2), so it has requested no lock. Neither has one that is not
    // the ledger's.
    if payment.profile.needs_account_lock()
        && !matches!(result, Err(PaymentError::Invalid(_) | PaymentError::InputDiffers))
    {
        port.unlock_account().await;
    }
    result
}

/// Executes the next step until the payment is in a final state.
async fn finish<P: PaymentPort>(
    port: &P,
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

/// Runs the forward steps, which a payment runs once.
async fn run_forward<P: PaymentPort>(
    port: &P,
    payment: &Payment,
    compensations: &mut Compensations,
) -> NextStep {
    if let Err(invalid) = payment.validate() {
        port.reject(&invalid).await;
        return NextStep::Finished(Err(PaymentError::Invalid(invalid)));
    }
    if let Err(step) = reserve(port, payment, compensations).await {
        return step;
    }

    // Registered before the first step that involves the switch: cancel finds that nothing was sent, or cancels.
    compensations.register(Compensation::Cancel);

    // A transfer read back at a switch without references belongs to this payment only if no other payment uses
    // the account.
    if payment.profile.needs_account_lock() {
        match port.lock_account().await {
            AccountLockOutcome::Held => {}
            AccountLockOutcome::CustomerCancel => return NextStep::Compensate(Cause::CustomerCancel),
            AccountLockOutcome::NotGranted => return NextStep::Compensate(not_sent(NotSent::AccountBusy)),
        }
    }

    compensations.schedule_submit();
    match submit(port, payment, compensations).await {
        Ok(confirmed) => confirm_and_debit(port, compensations, confirmed).await,
        Err(step) => step,
    }
}

/// Runs the step reserve. Key `{payment_id}:reserve`; compensation: release, key `{tx_id}:comp-reserve`.
/// Unknown outcome: cancel, then release, which fences a reserve that has not reached the ledger.
async fn reserve<P: PaymentPort>(
    port: &P,
    payment: &Payment,
    compensations: &mut Compensations,
) -> Result<(), NextStep> {
    compensations.register(Compensation::Release);
    match port.reserve().await {
        ReserveOutcome::Held => {
            port.report_status(PaymentState::Reserved, "the amount is held");
            Ok(())
        }
        // The refusal is recorded under reserve's key: nothing is held and nothing ever will be.
        ReserveOutcome::Refused(refusal) => {
            Err(NextStep::Finished(Err(PaymentError::ReserveRefused(refusal))))
        }
        ReserveOutcome::Ended(end) => Err(already_ended(end)),
        ReserveOutcome::AnotherRun => Err(run_recovery(port, compensations).await),
        ReserveOutcome::Differs => Err(NextStep::Finished(Err(PaymentError::InputDiffers))),
        ReserveOutcome::Unknown => {
            // The first attempt may be sent together with reserve, by a worker that died before it could report.
            if !payment.profile.forbids_second_attempt() {
                compensations.schedule_submit();
            }
            compensations.register(Compensation::Cancel);
            Err(NextStep::Compensate(Cause::ReserveUnknown))
        }
    }
}

/// Runs the step submit. Key `{tx_id}:submit`; compensation: cancel, key `{tx_id}:comp-submit`.
/// Unknown outcome: cancel, and follow the answer. Returns whether the switch has already reported SUCCESS.
async fn submit<P: PaymentPort>(
    port: &P,
    payment: &Payment,
    compensations: &mut Compensations,
) -> Result<bool, NextStep> {
    match port.submit().await {
        SubmitOutcome::Accepted => {
            compensations.accept_submit();
            port.report_status(PaymentState::Submitted, "the switch accepted the transfer");
            Ok(false)
        }
        SubmitOutcome::Settled => {
            compensations.accept_submit();
            Ok(true)
        }
        SubmitOutcome::Refused { reason } => Err(NextStep::Compensate(Cause::SubmitRefused { reason })),
        // The single attempt may have arrived, and no other will be sent: the recorded reports decide (S0.11, D).
        SubmitOutcome::Unknown | SubmitOutcome::NotSent(NotSent::SecondAttemptForbidden)
            if payment.profile.strategy.reconciles() =>
        {
            match port.reconcile_submission().await {
                ReconcileOutcome::Settled => {
                    compensations.accept_submit();
                    Ok(true)
                }
                ReconcileOutcome::Failed { reason } => {
                    Err(NextStep::Compensate(Cause::FailureReported { reason }))
                }
                ReconcileOutcome::Unknown => {
                    port.report_status(PaymentState::Submitted, "the single attempt got no answer");
                    Ok(false)
                }
            }
        }
        SubmitOutcome::Unknown => Err(NextStep::Compensate(Cause::SubmitUnknown)),
        SubmitOutcome::NotSent(reason) => Err(NextStep::Compensate(not_sent(reason))),
    }
}

/// Waits for the confirmation, then debits. Key `{tx_id}:debit`; no compensation, because money that left is
/// only ever recalled. An unknown outcome is impossible: the adapter repeats the debit until the ledger answers.
async fn confirm_and_debit<P: PaymentPort>(
    port: &P,
    compensations: &mut Compensations,
    mut confirmed: bool,
) -> NextStep {
    loop {
        if confirmed {
            match debit_or_recall(port, compensations).await {
                DebitOrRecall::Debited => return NextStep::Finished(Ok(())),
                DebitOrRecall::Returned(cause) => return release_without_cancel(compensations, cause),
                DebitOrRecall::AwaitOperator(reason) => return NextStep::AwaitOperator(reason),
                // The SUCCESS does not belong to this payment: nothing changes, and the SLA continues.
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
            // Only a payment that needs an operator calls one, and only to such a payment a decision applies.
            WaitOutcome::Decided(_) | WaitOutcome::OperatorCallDue => false,
        };
    }
}

/// Runs the steps of a recovery workflow: no reserve, no submit. Fence the reserve, cancel, follow the answer.
async fn run_recovery<P: PaymentPort>(port: &P, compensations: &mut Compensations) -> NextStep {
    compensations.register_all();
    match port.fence_reserve().await {
        FenceOutcome::Open(cause) => NextStep::Compensate(cause.unwrap_or(Cause::Interrupted)),
        FenceOutcome::Ended(end) => already_ended(end),
        FenceOutcome::Differs => NextStep::Finished(Err(PaymentError::InputDiffers)),
        FenceOutcome::Failed { detail } => {
            port.alert(OperatorAlert::CompensationFailed { detail }).await;
            NextStep::AwaitOperator(OperatorReason::CompensationFailed)
        }
    }
}

/// The next step of a payment that had ended when this run read it.
fn already_ended(end: FinalState) -> NextStep {
    NextStep::Finished(match end {
        FinalState::Settled => Ok(()),
        end => Err(PaymentError::AlreadyEnded(end)),
    })
}

/// The cause of a submit that our own ledger refused.
fn not_sent(reason: NotSent) -> Cause {
    match reason {
        NotSent::CustomerCancel => Cause::CustomerCancel,
        NotSent::AnotherRun => Cause::Interrupted,
        // One attempt was sent, and its answer is unknown.
        NotSent::SecondAttemptForbidden => Cause::SubmitUnknown,
        NotSent::Rejected => {
            Cause::SubmitRefused { reason: "the switch rejected the transfer for good".into() }
        }
        NotSent::NoOpenHold
        | NotSent::CancelStarted
        | NotSent::ReportedWithoutAttempt
        | NotSent::AccountBusy
        | NotSent::SwitchRetentionExpired => Cause::NotSent { reason: reason.to_string() },
    }
}

/// Outcome of following a SUCCESS of the switch.
enum DebitOrRecall {
    Debited,
    /// No SUCCESS of this payment is recorded.
    NotConfirmed,
    /// The money came back: by itself, or because the bank could not debit and recalled it (Path C).
    Returned(Cause),
    AwaitOperator(OperatorReason),
}

/// Debits the customer, because the money left. If the bank cannot debit, recalls the money (Path C, S0.10).
async fn debit_or_recall<P: PaymentPort>(port: &P, compensations: &mut Compensations) -> DebitOrRecall {
    let reason = match port.debit().await {
        DebitOutcome::Done => {
            port.report_status(PaymentState::Settled, "the customer was debited; the money left");
            return DebitOrRecall::Debited;
        }
        DebitOutcome::NotConfirmed => return DebitOrRecall::NotConfirmed,
        DebitOutcome::Differs => return DebitOrRecall::AwaitOperator(OperatorReason::ConfirmationMismatch),
        DebitOutcome::Returned => return DebitOrRecall::Returned(Cause::Returned),
        DebitOutcome::NoHold => return DebitOrRecall::AwaitOperator(OperatorReason::SettledWithoutHold),
        DebitOutcome::Failed { detail } => {
            port.alert(OperatorAlert::DebitFailed { detail }).await;
            return DebitOrRecall::AwaitOperator(OperatorReason::DebitFailed);
        }
        DebitOutcome::Refused { reason } => reason,
    };
    // A cancel never reverses a settled transfer.
    compensations.remove(Compensation::Cancel);
    port.report_status(PaymentState::Confirmed, "the bank cannot debit the account; recall under way");
    match port.recall().await {
        RecallOutcome::Recalled => DebitOrRecall::Returned(Cause::DebitRefused { reason }),
        RecallOutcome::Refused => DebitOrRecall::AwaitOperator(OperatorReason::RecallRefused),
        RecallOutcome::RecallUnsupported => DebitOrRecall::AwaitOperator(OperatorReason::RecallUnsupported),
    }
}

/// Runs the compensations last-in first-out. A compensation that fails permanently raises an alert and does not
/// stop the others; release alone depends on an answer, the switch's, and waits for it.
async fn compensate<P: PaymentPort>(port: &P, compensations: &mut Compensations, cause: Cause) -> NextStep {
    let mut first_cause = cause;
    let mut failed = false;
    while let Some(compensation) = compensations.take_last() {
        match compensation {
            Compensation::Cancel => match cancel_until_decided(port, compensations, &first_cause).await {
                CancelDecision::Void => {}
                CancelDecision::Next(step) => return step,
            },
            Compensation::Release => match port.release(&first_cause).await {
                ReleaseOutcome::Done(recorded) => {
                    first_cause = recorded;
                    port.report_status(first_cause.end().into(), "released; nothing was charged");
                }
                ReleaseOutcome::Ended(end) => return already_ended(end),
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

/// Outcome of the compensation cancel.
enum CancelDecision {
    /// The transfer will never settle, or the switch returned the money: run the next compensation.
    Void,
    /// The switch's answer requires another next step.
    Next(NextStep),
}

async fn cancel_until_decided<P: PaymentPort>(
    port: &P,
    compensations: &mut Compensations,
    cause: &Cause,
) -> CancelDecision {
    port.report_status(PaymentState::Cancelling, cause.code());
    loop {
        let outcome = port.cancel(cause, compensations.submit_progress()).await;
        if outcome.shows_acceptance() {
            compensations.accept_submit();
        }
        match outcome {
            CancelOutcome::Void => return CancelDecision::Void,
            CancelOutcome::Settled | CancelOutcome::SuccessReported => {
                match debit_or_recall(port, compensations).await {
                    DebitOrRecall::Debited => return CancelDecision::Next(NextStep::Finished(Ok(()))),
                    DebitOrRecall::Returned(_) => return CancelDecision::Void,
                    DebitOrRecall::AwaitOperator(reason) => {
                        return CancelDecision::Next(NextStep::AwaitOperator(reason));
                    }
                    // The SUCCESS does not belong to this payment: cancel again.
                    DebitOrRecall::NotConfirmed => {}
                }
            }
            CancelOutcome::Differs => {
                return CancelDecision::Next(NextStep::AwaitOperator(OperatorReason::ConfirmationMismatch));
            }
            CancelOutcome::Undecidable(reason) => {
                return CancelDecision::Next(NextStep::AwaitOperator(reason));
            }
            CancelOutcome::Ended(end) => return CancelDecision::Next(already_ended(end)),
        }
    }
}

/// Waits for an operator decision. A definite matching answer of the switch also moves the payment, unless the
/// switch's final answer is already known.
async fn await_operator<P: PaymentPort>(
    port: &P,
    compensations: &mut Compensations,
    reason: OperatorReason,
) -> NextStep {
    port.report_status(PaymentState::NeedsOperator, reason.as_str());
    let mut final_status = match port.needs_operator(reason).await {
        NeedsOperatorOutcome::Ended(end) => return already_ended(end),
        NeedsOperatorOutcome::FinalStatus(final_status) if reason.follows(final_status) => Some(final_status),
        NeedsOperatorOutcome::FinalStatus(_) | NeedsOperatorOutcome::AwaitsOperator => None,
    };
    loop {
        match final_status {
            Some(FinalStatus::Settled) => match debit_or_recall(port, compensations).await {
                DebitOrRecall::Debited => return NextStep::Finished(Ok(())),
                DebitOrRecall::Returned(cause) => return release_without_cancel(compensations, cause),
                DebitOrRecall::AwaitOperator(OperatorReason::ConfirmationMismatch)
                | DebitOrRecall::NotConfirmed => {}
                DebitOrRecall::AwaitOperator(other) => return NextStep::AwaitOperator(other),
            },
            // Release the hold, for the recorded cause.
            Some(FinalStatus::Void) => return release_without_cancel(compensations, Cause::Interrupted),
            Some(FinalStatus::Returned) => return release_without_cancel(compensations, Cause::Returned),
            None => {}
        }
        final_status = match port.wait_until_event().await {
            WaitOutcome::SuccessReported if reason.follows_switch() => Some(FinalStatus::Settled),
            // Call an operator again, and read the recorded final status.
            WaitOutcome::FinalStatusRecorded | WaitOutcome::OperatorCallDue => {
                return NextStep::AwaitOperator(reason);
            }
            WaitOutcome::SuccessReported
            | WaitOutcome::FailureReported { .. }
            | WaitOutcome::CustomerCancel
            | WaitOutcome::SlaExpired => None,
            WaitOutcome::Decided(decision) => {
                match apply_decision(port, compensations, &decision, reason).await {
                    Ok(final_status) => {
                        if final_status == FinalStatus::Settled {
                            compensations.accept_submit();
                        }
                        Some(final_status)
                    }
                    Err(step) => return step,
                }
            }
        };
    }
}

/// Applies an operator decision. `Ok` is the definite answer that the switch gave when the decision was applied.
async fn apply_decision<P: PaymentPort>(
    port: &P,
    compensations: &mut Compensations,
    decision: &Decision,
    reason: OperatorReason,
) -> Result<FinalStatus, NextStep> {
    Err(match port.apply_decision(decision, reason, compensations.submit_progress()).await {
        DecisionOutcome::FinalStatus(final_status) => return Ok(final_status),
        DecisionOutcome::Settled => {
            port.report_status(PaymentState::Settled, "debited by an operator decision");
            NextStep::Finished(Ok(()))
        }
        DecisionOutcome::Released(cause) => {
            port.report_status(cause.end().into(), "released by an operator decision");
            NextStep::Finished(Err(PaymentError::Compensated(cause)))
        }
        DecisionOutcome::Ended(end) => already_ended(end),
        DecisionOutcome::RetryCancel => {
            compensations.register_all();
            NextStep::Compensate(Cause::CancelRetriedByDecision)
        }
        // Applying the decision may have changed the state: record again that an operator is needed.
        DecisionOutcome::Refused { .. } => NextStep::AwaitOperator(reason),
    })
}

/// The money will not leave, or the switch returned it: no cancel is needed. Every other compensation runs
/// again, which its key allows.
fn release_without_cancel(compensations: &mut Compensations, cause: Cause) -> NextStep {
    compensations.register_all();
    compensations.remove(Compensation::Cancel);
    NextStep::Compensate(cause)
}

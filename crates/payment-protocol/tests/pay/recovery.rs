//! Recovery workflows.

use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::port::{CancelOutcome, FenceOutcome};
use payment_protocol::state::FinalState;

use crate::script::*;

/// A recovery workflow calls neither reserve nor submit: it fences, cancels, and follows the answer.
#[test]
fn a_recovery_workflow_fences_cancels_and_follows_the_cancel_answer() {
    let open = |cause| Reply::Fence(FenceOutcome::Open(Some(cause)));
    let ended = |end| vec![Reply::Fence(FenceOutcome::Ended(end))];
    let undecidable = vec![OPEN, cancel(CancelOutcome::Undecidable(OperatorReason::NotFoundIsInconclusive))];
    #[rustfmt::skip]
    check(2, vec![
        (vec![OPEN, VOID, released(Cause::Interrupted)],                   "compensated:interrupted", "fence cancel:interrupted release:interrupted"),
        (vec![open(Cause::SlaExpired), VOID, released(Cause::SlaExpired)], "compensated:sla_expired", "fence cancel:sla_expired release:sla_expired"),
        (vec![OPEN, cancel(CancelOutcome::Settled), DEBITED],              "settled",                 "fence cancel:interrupted debit"),
        (vec![OPEN, cancel(CancelOutcome::Settled), debit_refused(), RECALLED, released(Cause::Interrupted)],
                                                                               "compensated:interrupted",  "fence cancel:interrupted debit recall release:interrupted"),
        (undecidable,                                                      "waits",                   "fence cancel:interrupted operator:not_found_is_inconclusive"),
        (ended(FinalState::Settled),                                       "settled",                 "fence"),
        (ended(FinalState::TimedOut),                                      "ended:timed_out",         "fence"),
        (ended(FinalState::Rejected),                                      "ended:rejected",          "fence"),
        (vec![Reply::Fence(FenceOutcome::Differs)],                        "differs",                 "fence"),
    ]);
}

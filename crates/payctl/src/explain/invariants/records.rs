//! I5 to I11: final status, operation keys, attempts, runs, final state, callbacks and cause.

use payment_ledger::reads::explain::PaymentExplanation as LedgerExplanation;
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::state::FinalState;

use super::{Finding, Records, holds_if};

impl Records<'_> {
    /// Checks invariant I5.
    pub(super) fn first_final_status_is_kept(&self) -> Finding {
        let LedgerExplanation { payment, callbacks, exceptions, .. } = self.explained;
        let contradicted = payment.final_status.as_deref() == Some("void")
            && callbacks.iter().any(|callback| {
                callback.status == CallbackStatus::Success.as_str() && callback.switch == self.view.switch
            });
        let final_status = payment.final_status.as_deref().unwrap_or("none");
        match (contradicted, exceptions.is_empty()) {
            (true, true) => holds_if(
                false,
                "a SUCCESS callback contradicts the final status void, and no exception exists",
            ),
            (true, false) => holds_if(true, "final status: void; the contradicting callback is an exception"),
            (false, _) => holds_if(true, format!("final status: {final_status}")),
        }
    }

    /// Checks invariant I6.
    pub(super) fn one_effect_per_key(&self) -> Finding {
        let journal = &self.explained.journal;
        let repeated = journal.iter().enumerate().find(|(index, entry)| {
            journal[..*index].iter().any(|earlier| earlier.operation_key == entry.operation_key)
        });
        let unrecorded = journal.iter().find(|entry| !self.is_operation_done(&entry.operation_key));
        match (repeated, unrecorded) {
            (Some((_, entry)), _) => {
                holds_if(false, format!("operation {} has two entries", entry.operation_key))
            }
            (None, Some(entry)) => {
                holds_if(false, format!("operation {} has an entry and no record", entry.operation_key))
            }
            (None, None) => holds_if(true, format!("entries: {}, each with its operation", journal.len())),
        }
    }

    /// Checks invariant I7.
    pub(super) fn attempts_are_recorded(&self) -> Finding {
        let (counted, rows) = (self.explained.payment.attempts, &self.explained.submissions);
        let in_order = rows.iter().zip(1..).all(|(row, number)| row.attempt == number);
        let complete = in_order && usize::try_from(counted).is_ok_and(|counted| counted == rows.len());
        let forbidden = self.explained.payment.profile.forbids_second_attempt() && rows.len() > 1;
        holds_if(
            complete && !forbidden,
            format!("recorded attempts: {}, counted attempts: {counted}", rows.len()),
        )
    }

    /// Checks invariant I8.
    pub(super) fn one_run_reserves(&self) -> Finding {
        let run = self.explained.payment.run_id.as_deref();
        match (self.hold_status(), run) {
            (Some(_), None) => holds_if(false, "a hold exists, but no run is recorded"),
            (_, Some(run)) => holds_if(true, format!("reserved by run {run}")),
            (None, None) => holds_if(true, "not reserved"),
        }
    }

    /// Checks invariant I9.
    pub(super) fn final_state_is_complete(&self) -> Finding {
        match (self.final_state(), self.hold_status()) {
            (Some(end), Some("open")) => {
                holds_if(false, format!("final state: {end}, but the hold is still open"))
            }
            (Some(FinalState::Settled), _) if self.debits() == 0 => {
                holds_if(false, "final state: settled, but nothing was debited")
            }
            (Some(end), _) => holds_if(self.view.ended_at.is_some(), format!("final state: {end}")),
            (None, _) => holds_if(self.view.ended_at.is_none(), "the payment is open"),
        }
    }

    /// Checks invariant I10.
    pub(super) fn callbacks_are_kept(&self) -> Finding {
        let LedgerExplanation { callbacks, inbox, exceptions, .. } = self.explained;
        let in_inbox = |event: &str| inbox.iter().any(|message| message.event_id.as_deref() == Some(event));
        let lost = callbacks.iter().find(|callback| {
            self.final_state().is_none()
                && callback.switch == self.view.switch
                && !in_inbox(&callback.event_id)
                && exceptions.is_empty()
        });
        let undelivered = inbox.iter().filter(|message| message.delivered_at.is_none()).count();
        match lost {
            Some(lost) => holds_if(
                false,
                format!("callback {} is in neither the inbox nor an exception", lost.event_id),
            ),
            None => holds_if(
                true,
                format!("stored callbacks: {}, undelivered inbox messages: {undelivered}", callbacks.len()),
            ),
        }
    }

    /// Checks invariant I11.
    pub(super) fn first_cause_names_the_final_state(&self) -> Finding {
        let cause = self.explained.payment.cause.as_ref();
        match (self.final_state(), cause) {
            (None | Some(FinalState::Settled | FinalState::Rejected), _) => {
                holds_if(true, "the payment was not compensated")
            }
            (Some(end), Some(cause)) => {
                holds_if(cause.end() == end, format!("final state: {end}; first cause: {cause}"))
            }
            (Some(end), None) => holds_if(
                self.view.reason.is_some(),
                format!("final state: {end}, refused before anything was sent"),
            ),
        }
    }
}

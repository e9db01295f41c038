//! The first steps of a payment in one transaction: reserve, and the record of the first submit attempt.

use jiff::Timestamp;
use payment_protocol::Payment;
use payment_protocol::ids::RunId;
use payment_protocol::port::ReserveOutcome;
use uuid::Uuid;

use crate::accounts::LockedAccount;
use crate::group_commit::changes::Changes;
use crate::group_commit::{GroupStep, Target};
use crate::row_lock::LockedPayment;
use crate::steps::reserve::ReserveStep;
use crate::steps::submit::{AttemptStep, OutgoingTransfer};
use crate::{Ledger, LedgerError};

impl Ledger {
    /// Reserves for `run` and records its first attempt, in one transaction; returns the transfer to send. `switch_now` and `marker` as
    /// in [`Ledger::record_attempt`]. Only in the plain case: `None` says nothing about the payment, and the caller calls
    /// [`Ledger::reserve`] and then [`Ledger::record_attempt`], which find what was recorded.
    pub async fn reserve_with_attempt(
        &self,
        payment: &Payment,
        run: &RunId,
        switch_now: Timestamp,
        marker: Option<&str>,
    ) -> Option<OutgoingTransfer> {
        let reserve = ReserveStep { payment: payment.clone(), run: run.clone() };
        let attempt = AttemptStep {
            payment_id: payment.payment_id.clone(),
            run: run.clone(),
            switch_now,
            tried_before: false,
            token: Uuid::new_v4(),
            marker: marker.map(str::to_owned),
        };
        self.group.run(FirstSteps { reserve, attempt }).await
    }
}

/// Both steps in a group.
struct FirstSteps {
    reserve: ReserveStep,
    attempt: AttemptStep,
}

impl GroupStep for FirstSteps {
    type Outcome = OutgoingTransfer;

    fn target(&self) -> Target {
        self.reserve.target()
    }

    fn reads_account(&self) -> bool {
        true
    }

    fn decide(
        &self,
        locked: &LockedPayment,
        account: Option<&LockedAccount>,
    ) -> Result<Option<(Changes, OutgoingTransfer)>, LedgerError> {
        // Not the first attempt, or not one that is safe to repeat.
        if locked.facts.attempts > 0 || locked.profile.forbids_second_attempt() {
            return Ok(None);
        }
        let Some((reserved, ReserveOutcome::Held)) = self.reserve.decide(locked, account)? else {
            return Ok(None);
        };
        let held = locked.facts.held(&self.attempt.run);
        let Some((changes, transfer)) = self.attempt.rule(locked, &held)?.1 else { return Ok(None) };
        Ok(Some((Changes { attempt: changes.attempt, ..reserved }, transfer)))
    }
}

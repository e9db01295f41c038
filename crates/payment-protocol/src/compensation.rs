//! The compensations of a payment: registered before the step they reverse, run last-in first-out (S0.14).

use crate::port::SubmitProgress;

/// The action that reverses a completed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compensation {
    /// Reverses reserve: release the hold, or fence a reserve that has not reached the ledger.
    Release,
    /// Reverses submit: cancel at the switch, and follow its answer.
    Cancel,
}

/// The stack of registered compensations.
#[derive(Debug, Default)]
pub struct Compensations {
    registered: Vec<Compensation>,
    submit: SubmitProgress,
}

impl Compensations {
    /// Registers every compensation, for a payment of which the completed steps are not known. What is known of submit stays known.
    pub fn register_all(&mut self) {
        self.registered = vec![Compensation::Release, Compensation::Cancel];
        self.submit = self.submit.max(SubmitProgress::Scheduled);
    }

    /// Registers a compensation; called before its step.
    pub fn register(&mut self, compensation: Compensation) {
        debug_assert!(!self.registered.contains(&compensation), "{compensation:?} is registered twice");
        self.registered.push(compensation);
    }

    /// Remembers that submit is scheduled; called before it.
    pub fn schedule_submit(&mut self) {
        self.submit = SubmitProgress::Scheduled;
    }

    /// Remembers that the switch has the transfer.
    pub fn accept_submit(&mut self) {
        self.submit = SubmitProgress::Accepted;
    }

    /// How far submit got.
    #[must_use]
    pub fn submit_progress(&self) -> SubmitProgress {
        self.submit
    }

    /// Takes the compensation that was registered last; `None` if all have been taken.
    pub fn take_last(&mut self) -> Option<Compensation> {
        self.registered.pop()
    }

    /// Removes a compensation that no longer applies: a cancel never reverses a settled transfer.
    pub fn remove(&mut self, compensation: Compensation) {
        self.registered.retain(|registered| *registered != compensation);
        debug_assert!(!self.registered.contains(&compensation), "{compensation:?} is still registered");
    }
}

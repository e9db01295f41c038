//! The compensations of a payment: registered before the step they reverse, run last-in first-out (S0.14).

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
pub struct Compensations(Vec<Compensation>);

impl Compensations {
    /// Every compensation, for a payment of which the completed steps are not known.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![Compensation::Release, Compensation::Cancel])
    }

    /// Registers a compensation; called before its step.
    pub fn register(&mut self, compensation: Compensation) {
        debug_assert!(!self.0.contains(&compensation), "{compensation:?} is registered twice");
        self.0.push(compensation);
    }

    /// Takes the compensation that was registered last; `None` if all have been taken.
    pub fn take_last(&mut self) -> Option<Compensation> {
        self.0.pop()
    }

    /// Removes a compensation that no longer applies: a cancel never reverses a settled transfer.
    pub fn remove(&mut self, compensation: Compensation) {
        self.0.retain(|registered| *registered != compensation);
        debug_assert!(!self.0.contains(&compensation), "{compensation:?} is still registered");
    }
}

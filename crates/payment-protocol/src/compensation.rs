//! The compensations of a payment: registered before the step they compensation, run last-in first-out (S0.14).

/// What takes a step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compensation {
    /// Undoes reserve: give the hold back, or fence a reserve that has not landed.
    Release,
    /// Undoes submit: ask the switch to cancel, and obey its answer.
    Cancel,
}

/// The stack.
#[derive(Debug, Default)]
pub struct Compensations(Vec<Compensation>);

impl Compensations {
    /// All compensations there are, for a payment that is not known to have gone less far.
    #[must_use]
    pub fn whole() -> Self {
        Self(vec![Compensation::Release, Compensation::Cancel])
    }

    /// Registers an compensation; called before its step.
    pub fn register(&mut self, compensation: Compensation) {
        self.0.push(compensation);
    }

    /// The last registered compensation that has not been run.
    pub fn next(&mut self) -> Option<Compensation> {
        self.0.pop()
    }

    /// Takes an compensation out that no longer applies: a cancel never undoes a settlement.
    pub fn forget(&mut self, compensation: Compensation) {
        self.0.retain(|registered| *registered != compensation);
    }
}

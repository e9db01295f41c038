//! The undos of a payment: registered before the step they undo, run last-in first-out (S0.14).

/// What takes a step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Undoes reserve: give the hold back, or fence a reserve that has not landed.
    Release,
    /// Undoes submit: ask the switch to cancel, and obey its answer.
    AskToCancel,
}

/// The stack.
#[derive(Debug, Default)]
pub struct Undos(Vec<Undo>);

impl Undos {
    /// All undos there are, for a payment that is not known to have gone less far.
    #[must_use]
    pub fn whole() -> Self {
        Self(vec![Undo::Release, Undo::AskToCancel])
    }

    /// Registers an undo; called before its step.
    pub fn register(&mut self, undo: Undo) {
        self.0.push(undo);
    }

    /// The last registered undo that has not been run.
    pub fn next_undo(&mut self) -> Option<Undo> {
        self.0.pop()
    }

    /// Takes an undo out that no longer applies: a cancel never undoes a settlement.
    pub fn forget(&mut self, undo: Undo) {
        self.0.retain(|registered| *registered != undo);
    }
}

//! The open exceptions of one payment.

/// A contradiction between the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exception {
    /// A SUCCESS after the payment had ended without one.
    LateConfirmation,
    /// Two definite reports that contradict each other.
    ContradictoryFinalStatus,
    /// The money came back after the debit.
    ReturnedAfterDebit,
    /// A return that does not fit the payment.
    ReturnDiffers,
    /// A SUCCESS with another amount.
    ConfirmationMismatch,
    /// A SUCCESS without a recorded attempt.
    SettledWithoutAttempt,
    /// The answer to an attempt whose record is gone.
    AttemptRecordLost,
    /// The switch accepted the transfer and says now that it does not know it.
    AcceptedThenUnknown,
    /// A callback of another switch.
    CallbackFromOtherSwitch,
    /// A debit charged to the claims account.
    DebitedToClaims,
    /// Reconciliation: debited, and the switch has no settlement.
    DebitedNotSettled,
    /// Reconciliation: the money left, and nobody was debited.
    SettledNotDebited,
}

impl Exception {
    const ALL: [Self; 12] = [
        Self::LateConfirmation,
        Self::ContradictoryFinalStatus,
        Self::ReturnedAfterDebit,
        Self::ReturnDiffers,
        Self::ConfirmationMismatch,
        Self::SettledWithoutAttempt,
        Self::AttemptRecordLost,
        Self::AcceptedThenUnknown,
        Self::CallbackFromOtherSwitch,
        Self::DebitedToClaims,
        Self::DebitedNotSettled,
        Self::SettledNotDebited,
    ];
}

/// The kinds of exceptions that are open for the payment, as a bit set.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Exceptions(u16);

impl Exceptions {
    /// Whether an exception of this kind is open.
    #[must_use]
    pub fn contain(self, exception: Exception) -> bool {
        self.0 & (1 << exception as u8) != 0
    }

    pub(super) fn open(&mut self, exception: Exception) {
        self.0 |= 1 << exception as u8;
    }

    pub(super) fn close(&mut self, exception: Exception) {
        self.0 &= !(1 << exception as u8);
    }
}

impl std::fmt::Debug for Exceptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(Exception::ALL.iter().filter(|exception| self.contain(**exception))).finish()
    }
}

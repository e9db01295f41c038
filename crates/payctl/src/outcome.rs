//! What a script learns from the exit code. What could not be carried out is an error, not one of
//! these.

use std::process::ExitCode;

use payment_protocol::PaymentState;

/// Shown below `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done (pay --watch: settled), 1 done, and not as it should be (pay --watch: ended otherwise; show: an
invariant does not hold; ledger: history was changed or the books disagree; decide: refused by the switch or
the books; switch: the profile is not safe or not true; reconcile: the books do not agree; events parked: something is;
webhooks deliveries: one has failed), 2 wrong arguments, no connection or refused, 3 unknown, not failed (pay --watch,
decide: still open; switch probe: could not be seen; reconcile: a book could not be read).";

/// How a command that was carried out came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As asked; a payment that was watched has settled.
    Done,
    /// The payment ended, and the money stayed.
    EndedOtherwise,
    /// What was looked at is not as it should be.
    NotAsItShouldBe,
    /// The payment or decision had not ended when the time was over, or what was looked for could not be seen.
    StillOpen,
}

impl Outcome {
    /// What a payment's state means to somebody who waited for its end.
    pub(crate) fn of(state: PaymentState) -> Self {
        match state {
            PaymentState::Settled => Self::Done,
            state if state.end().is_some() => Self::EndedOtherwise,
            _ => Self::StillOpen,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::EndedOtherwise | Self::NotAsItShouldBe => 1,
            Self::StillOpen => 3,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        outcome.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_exit_code() {
        for state in PaymentState::ALL {
            let code = match state.as_str() {
                "settled" => 0,
                "rejected" | "failed" | "timed_out" | "cancelled" => 1,
                _ => 3,
            };
            assert_eq!(Outcome::of(*state).code(), code, "{state}");
        }
    }
}

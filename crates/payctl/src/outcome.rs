//! What a script learns from the exit code. What could not be carried out is an error, not one of
//! these.

use std::process::ExitCode;

use payment_protocol::PaymentState;

/// Shown below `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done (pay --watch: settled), 1 the payment ended otherwise, 2 wrong arguments, no connection or
refused, 3 the payment is still open: unknown, not failed.";

/// How a command that was carried out came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As asked; a payment that was watched has settled.
    Done,
    /// The payment ended, and the money stayed.
    EndedOtherwise,
    /// The payment had not ended when the time was over.
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
            Self::EndedOtherwise => 1,
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

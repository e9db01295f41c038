//! Exit codes. A command that could not be carried out returns an error instead of an outcome.

use std::process::ExitCode;

use payment_protocol::PaymentState;

/// The exit codes, shown below `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success (pay --watch: the payment settled)
  1  carried out, with a negative result:
     pay --watch: the payment ended without settling; show: an invariant is violated;
     ledger verify: the journal was changed or the books disagree; ledger trial-balance: the sum is not zero;
     decide: the switch or the ledger refused the decision; reconcile, restore-check: drift was found;
     switch list, switch probe: a profile is unsafe or wrong, or a probe transfer may settle;
     events parked: an event is parked; webhooks deliveries: a delivery failed;
     trigger: a case ended otherwise than expected, or the receiver refused the event
  2  not carried out: invalid arguments, no connection, or refused
  3  result unknown, not failed:
     pay --watch, decide, trigger: still open at the timeout; switch probe: a capability could not be measured;
     reconcile, restore-check: a statement or the workflows could not be read, or a listed return is not recorded yet";

/// Outcome of a command that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// Success; a watched payment has settled. Exit code 0.
    Success,
    /// A watched payment ended without settling. Exit code 1.
    NotSettled,
    /// The check found a problem. Exit code 1.
    CheckFailed,
    /// The payment or decision was still open at the timeout, or a check could not be made. Exit code 3.
    Unknown,
}

impl CommandOutcome {
    /// Outcome of watching a payment that was last read in `state`.
    pub(crate) fn of(state: PaymentState) -> Self {
        match state {
            PaymentState::Settled => Self::Success,
            state if state.end().is_some() => Self::NotSettled,
            _ => Self::Unknown,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::NotSettled | Self::CheckFailed => 1,
            Self::Unknown => 3,
        }
    }
}

impl From<CommandOutcome> for ExitCode {
    fn from(outcome: CommandOutcome) -> Self {
        outcome.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payment_state_maps_to_its_payctl_exit_code() {
        for state in PaymentState::ALL {
            let code = match state.as_str() {
                "settled" => 0,
                "rejected" | "failed" | "timed_out" | "cancelled" => 1,
                _ => 3,
            };
            assert_eq!(CommandOutcome::of(*state).code(), code, "{state}");
        }
    }
}

//! Amounts that misbehave, so that every path can be reached with a payment form alone. A test checks that the README has
//! the same table.

use crate::behaviour::{
    Behaviour, CallbackBehaviour, CancelFault, Contradiction, HttpFault, Outcome, RecallFault, Script,
    SubmitFault,
};

/// The last four digits of an amount in minor units choose the entry.
const MODULUS: i64 = 10_000;

/// An amount that misbehaves.
#[derive(Debug, Clone, Copy)]
pub struct SandboxAmount {
    /// The value of `amount_minor % 10_000`.
    pub code: i64,
    /// The behaviour in words, as in the README.
    pub summary: &'static str,
    /// The behaviour of the switch.
    pub(crate) behaviour: fn() -> Behaviour,
}

/// The entry of an amount; `None` if it does not misbehave.
pub(crate) fn find(amount_minor: i64) -> Option<&'static SandboxAmount> {
    TABLE.iter().find(|entry| entry.code == amount_minor % MODULUS)
}

/// All entries, by code.
pub const TABLE: &[SandboxAmount] = &[
    SandboxAmount {
        code: 9001,
        summary: "accepted, then rejected with a FAILURE callback",
        behaviour: || Behaviour {
            reject_reason: Some("account_closed".into()),
            ..with_outcome(Outcome::Reject)
        },
    },
    SandboxAmount {
        code: 9002,
        summary: "accepted, but the first answer is dropped",
        behaviour: || with_submit(Script::times(SubmitFault::AcceptDropAnswer, 1)),
    },
    SandboxAmount {
        code: 9003,
        summary: "settles, the callback is lost",
        behaviour: || with_callback(CallbackBehaviour { lose: true, ..Default::default() }),
    },
    SandboxAmount {
        code: 9004,
        summary: "never settles by itself; can be cancelled",
        behaviour: || with_outcome(Outcome::Hold),
    },
    SandboxAmount {
        code: 9005,
        summary: "settles, the callback comes three times",
        behaviour: || with_callback(CallbackBehaviour { copies: Some(3), ..Default::default() }),
    },
    SandboxAmount {
        code: 9006,
        summary: "refused at submit",
        behaviour: || Behaviour {
            reject_reason: Some("creditor_unknown".into()),
            ..with_submit(Script::always(SubmitFault::Refuse))
        },
    },
    SandboxAmount {
        code: 9007,
        summary: "the first submit is dropped before it is recorded",
        behaviour: || with_submit(Script::times(SubmitFault::Http(HttpFault::DropRequest), 1)),
    },
    SandboxAmount {
        code: 9008,
        summary: "settles, but a FAILURE callback comes before the SUCCESS",
        behaviour: || with_contradiction(Contradiction::FailureFirst),
    },
    SandboxAmount {
        code: 9009,
        summary: "never settles by itself; the first two cancels are in process",
        behaviour: || Behaviour {
            cancel: Some(Script::times(CancelFault::InProcess, 2)),
            ..with_outcome(Outcome::Hold)
        },
    },
    SandboxAmount {
        code: 9010,
        summary: "settles after 10 s, refuses every cancel",
        behaviour: || Behaviour {
            settle_after_ms: Some(10_000),
            cancel: Some(Script::always(CancelFault::Refuse)),
            ..Default::default()
        },
    },
    SandboxAmount {
        code: 9011,
        summary: "the first two submits are answered 503, unrecorded",
        behaviour: || with_submit(Script::times(SubmitFault::Http(HttpFault::Error503), 2)),
    },
    SandboxAmount {
        code: 9012,
        summary: "the first submit is answered 429, unrecorded",
        behaviour: || with_submit(Script::times(SubmitFault::Http(HttpFault::TooManyRequests), 1)),
    },
    SandboxAmount {
        code: 9013,
        summary: "settles, the callback comes 10 s late",
        behaviour: || with_callback(CallbackBehaviour { delay_ms: 10_000, ..Default::default() }),
    },
    SandboxAmount {
        code: 9014,
        summary: "settles, the callback names another amount",
        behaviour: || with_callback(CallbackBehaviour { amount_minor: Some(1), ..Default::default() }),
    },
    SandboxAmount {
        code: 9015,
        summary: "settles, but a FAILURE callback comes after the SUCCESS",
        behaviour: || with_contradiction(Contradiction::FailureAfter),
    },
    SandboxAmount {
        code: 9016,
        summary: "settles, and refuses to be recalled",
        behaviour: || Behaviour { recall: Some(Script::always(RecallFault::Refuse)), ..Default::default() },
    },
    SandboxAmount {
        code: 9017,
        summary: "no submit ever arrives",
        behaviour: || with_submit(Script::always(SubmitFault::Http(HttpFault::DropRequest))),
    },
    SandboxAmount {
        code: 9018,
        summary: "never settles by itself; the answer to the first cancel is dropped",
        behaviour: || Behaviour {
            cancel: Some(Script::times(CancelFault::ApplyDropAnswer, 1)),
            ..with_outcome(Outcome::Hold)
        },
    },
    SandboxAmount {
        code: 9019,
        summary: "settles after 10 s",
        behaviour: || Behaviour { settle_after_ms: Some(10_000), ..Default::default() },
    },
];

fn with_outcome(outcome: Outcome) -> Behaviour {
    Behaviour { outcome: Some(outcome), ..Default::default() }
}

fn with_submit(script: Script<SubmitFault>) -> Behaviour {
    Behaviour { submit: Some(script), ..Default::default() }
}

fn with_callback(callback: CallbackBehaviour) -> Behaviour {
    Behaviour { callback: Some(callback), ..Default::default() }
}

fn with_contradiction(contradiction: Contradiction) -> Behaviour {
    with_callback(CallbackBehaviour { contradict: Some(contradiction), ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mock_switch_readme_has_the_table_of_sandbox_amounts() {
        let readme = include_str!("../README.md");
        let lines: Vec<_> = readme.lines().filter(|line| line.starts_with("| 90")).collect();
        let expected: Vec<_> =
            TABLE.iter().map(|entry| format!("| {} | {} |", entry.code, entry.summary)).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_sandbox_amount_is_found_by_its_last_four_digits() {
        assert_eq!(find(129_006).map(|entry| entry.code), Some(9006));
        assert!(find(906).is_none() && find(1_250).is_none());
        for entry in TABLE {
            assert!((entry.behaviour)().check().is_ok(), "{}", entry.code);
        }
    }
}

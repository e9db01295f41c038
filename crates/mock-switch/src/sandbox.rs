//! Amounts that misbehave, so that a person with nothing but a payment form can
//! see every path. The README's table is checked against this one.

use crate::behaviour::{
    Behaviour, CallbackBehaviour, CancelFault, Contradiction, HttpFault, Outcome, RecallFault, Script,
    SubmitFault,
};

/// The last four digits of an amount in minor units choose the entry.
const MODULUS: i64 = 10_000;

/// One amount that misbehaves.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What `amount_minor % 10_000` must be.
    pub code: i64,
    /// What happens, for people.
    pub summary: &'static str,
    /// What happens, for the switch.
    pub(crate) behaviour: fn() -> Behaviour,
}

/// The entry of an amount, if it has one.
pub(crate) fn find(amount_minor: i64) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.code == amount_minor % MODULUS)
}

/// All of them, by code.
pub const TABLE: &[Entry] = &[
    Entry {
        code: 9001,
        summary: "accepted, then rejected with a FAILURE callback",
        behaviour: || Behaviour { reject_reason: Some("account_closed".into()), ..ends(Outcome::Reject) },
    },
    Entry {
        code: 9002,
        summary: "accepted, but the first answer is dropped",
        behaviour: || submits(Script::times(SubmitFault::AcceptDropAnswer, 1)),
    },
    Entry {
        code: 9003,
        summary: "settles, the callback is lost",
        behaviour: || calls(CallbackBehaviour { lose: true, ..Default::default() }),
    },
    Entry {
        code: 9004,
        summary: "never settles by itself; can be cancelled",
        behaviour: || ends(Outcome::Hold),
    },
    Entry {
        code: 9005,
        summary: "settles, the callback comes three times",
        behaviour: || calls(CallbackBehaviour { copies: Some(3), ..Default::default() }),
    },
    Entry {
        code: 9006,
        summary: "refused at submit",
        behaviour: || Behaviour {
            reject_reason: Some("creditor_unknown".into()),
            ..submits(Script::always(SubmitFault::Refuse))
        },
    },
    Entry {
        code: 9007,
        summary: "the first submit is dropped before it is recorded",
        behaviour: || submits(Script::times(SubmitFault::Http(HttpFault::DropRequest), 1)),
    },
    Entry {
        code: 9008,
        summary: "settles, but a FAILURE callback comes before the SUCCESS",
        behaviour: || contradicts(Contradiction::FailureFirst),
    },
    Entry {
        code: 9009,
        summary: "never settles by itself; the first two cancels are in process",
        behaviour: || Behaviour {
            cancel: Some(Script::times(CancelFault::InProcess, 2)),
            ..ends(Outcome::Hold)
        },
    },
    Entry {
        code: 9010,
        summary: "settles after 10 s, refuses the first three cancels",
        behaviour: || Behaviour {
            settle_after_ms: Some(10_000),
            cancel: Some(Script::times(CancelFault::Refuse, 3)),
            ..Default::default()
        },
    },
    Entry {
        code: 9011,
        summary: "the first two submits are answered 503, unrecorded",
        behaviour: || submits(Script::times(SubmitFault::Http(HttpFault::Error503), 2)),
    },
    Entry {
        code: 9012,
        summary: "the first submit is answered 429, unrecorded",
        behaviour: || submits(Script::times(SubmitFault::Http(HttpFault::TooManyRequests), 1)),
    },
    Entry {
        code: 9013,
        summary: "settles, the callback comes 10 s late",
        behaviour: || calls(CallbackBehaviour { delay_ms: 10_000, ..Default::default() }),
    },
    Entry {
        code: 9014,
        summary: "settles, the callback names another amount",
        behaviour: || calls(CallbackBehaviour { amount_minor: Some(1), ..Default::default() }),
    },
    Entry {
        code: 9015,
        summary: "settles, but a FAILURE callback comes after the SUCCESS",
        behaviour: || contradicts(Contradiction::FailureAfter),
    },
    Entry {
        code: 9016,
        summary: "settles, and refuses to be recalled",
        behaviour: || Behaviour { recall: Some(Script::always(RecallFault::Refuse)), ..Default::default() },
    },
    Entry {
        code: 9017,
        summary: "no submit ever arrives",
        behaviour: || submits(Script::always(SubmitFault::Http(HttpFault::DropRequest))),
    },
    Entry {
        code: 9018,
        summary: "never settles by itself; the answer to the first cancel is dropped",
        behaviour: || Behaviour {
            cancel: Some(Script::times(CancelFault::ApplyDropAnswer, 1)),
            ..ends(Outcome::Hold)
        },
    },
    Entry {
        code: 9019,
        summary: "settles after 10 s",
        behaviour: || Behaviour { settle_after_ms: Some(10_000), ..Default::default() },
    },
];

fn ends(outcome: Outcome) -> Behaviour {
    Behaviour { outcome: Some(outcome), ..Default::default() }
}

fn submits(script: Script<SubmitFault>) -> Behaviour {
    Behaviour { submit: Some(script), ..Default::default() }
}

fn calls(callback: CallbackBehaviour) -> Behaviour {
    Behaviour { callback: Some(callback), ..Default::default() }
}

fn contradicts(contradiction: Contradiction) -> Behaviour {
    calls(CallbackBehaviour { contradict: Some(contradiction), ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_has_this_table_and_no_other() {
        let readme = include_str!("../README.md");
        let lines: Vec<_> = readme.lines().filter(|line| line.starts_with("| 90")).collect();
        let expected: Vec<_> =
            TABLE.iter().map(|entry| format!("| {} | {} |", entry.code, entry.summary)).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn codes_are_found_by_the_last_digits() {
        assert_eq!(find(129_006).map(|entry| entry.code), Some(9006));
        assert!(find(906).is_none() && find(1_250).is_none());
        for entry in TABLE {
            assert!((entry.behaviour)().check().is_ok(), "{}", entry.code);
        }
    }
}

//! Nine guided lessons: the six rows of the failure table (S0.17), then Paths A, B and C. Each is a schedule, what it teaches, and the
//! figures that both engines must show.

use serde::Serialize;

/// What a side must show at the end of a lesson, in units of the payment's amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// The last answer to the customer.
    pub answer: &'static str,
    /// How often the customer is charged.
    pub charged: i64,
    /// How often the money leaves.
    pub left: i64,
}

/// One lesson.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lesson {
    /// Its word in a link.
    pub name: &'static str,
    /// The row of the failure table, or the path.
    pub source: &'static str,
    /// The title.
    pub title: &'static str,
    /// What to look at.
    pub text: &'static str,
    /// The schedule, as in its link.
    pub schedule: &'static str,
    /// With keys.
    pub with_keys: Expected,
    /// Without keys.
    pub without_keys: Expected,
}

const fn expected(answer: &'static str, charged: i64, left: i64) -> Expected {
    Expected { answer, charged, left }
}

/// The lessons, in order.
pub const LESSONS: &[Lesson] = &[
    Lesson {
        name: "crash-after-accepted",
        source: "Failure table, row 1",
        title: "The worker dies after the switch accepted",
        text: "Temporal runs the submit again. It asks the switch under the payment's reference first, finds the transfer, and sends nothing. The naive client remembers nothing and sends again.",
        schedule: "submit-answered:crash",
        with_keys: expected("settled", 1, 1),
        without_keys: expected("settled", 2, 2),
    },
    Lesson {
        name: "sla-expires",
        source: "Failure table, row 2",
        title: "The SLA expires",
        text: "The switch has not decided in time. The service cancels at the switch and obeys the answer: cancelled, so the hold is released. The naive client takes silence for a failure and sends again; the slow transfer settles too.",
        schedule: "waiting:expire",
        with_keys: expected("timed_out", 0, 0),
        without_keys: expected("settled", 2, 2),
    },
    Lesson {
        name: "crash-between-attempts",
        source: "Failure table, row 3",
        title: "The worker dies after reserve, between two attempts",
        text: "The answer to the first attempt is lost, then the worker dies. The hold and the reference are in the database: the next worker asks for the same reference. The naive client starts from the beginning.",
        schedule: "submit-answered:lose,retry:crash",
        with_keys: expected("settled", 1, 1),
        without_keys: expected("settled", 2, 2),
    },
    Lesson {
        name: "customer-submits-twice",
        source: "Failure table, row 4",
        title: "The customer presses the button twice",
        text: "The second request carries the same Idempotency-Key and gets the stored answer of the first one. The naive client has no key: two requests are two payments.",
        schedule: "order:repeat",
        with_keys: expected("settled", 1, 1),
        without_keys: expected("settled", 2, 2),
    },
    Lesson {
        name: "another-worker",
        source: "Failure table, row 5",
        title: "Another worker picks the payment up",
        text: "The worker is stopped in the middle of the submit and wakes up later. Another worker has carried the payment on; what the first one still does meets the same keys and changes nothing. A second naive client finds the order open and sends it, and so does the first one when it wakes up.",
        schedule: "submit-sent:stop",
        with_keys: expected("settled", 1, 1),
        without_keys: expected("settled", 2, 2),
    },
    Lesson {
        name: "debit-fails",
        source: "Failure table, row 6",
        title: "The debit fails after the confirmation",
        text: "The account is frozen while the switch settles. The service recalls the money and releases the hold only when the switch has returned it. The naive client cannot charge a frozen account: the bank pays.",
        schedule: "waiting:freeze",
        with_keys: expected("failed", 0, 0),
        without_keys: expected("settled", 0, 1),
    },
    Lesson {
        name: "path-a",
        source: "Path A",
        title: "The submit fails, and arrives late",
        text: "No submit gets through. The service cancels at the switch before it releases the hold: the cancel leaves a tombstone, and the late submit is refused. The naive client reports to the customer that the payment failed; then the late submit settles.",
        schedule: "submit-sent:stall",
        with_keys: expected("failed", 0, 0),
        without_keys: expected("failed", 1, 1),
    },
    Lesson {
        name: "path-b",
        source: "Path B",
        title: "The confirmation never arrives",
        text: "The transfer settled and its callback is lost. After the SLA the service cancels; the switch answers that it has settled, so the customer is debited, once. The naive client sends again: the money leaves twice.",
        schedule: "confirmation:lose",
        with_keys: expected("settled", 1, 1),
        without_keys: expected("settled", 1, 2),
    },
    Lesson {
        name: "path-c",
        source: "Path C",
        title: "The debit fails, and the switch keeps the money",
        text: "The account is frozen and the switch refuses the recall. No answer can decide any more: the payment waits for an operator, and two operators debit it when the account is free. The naive client lost the money.",
        schedule: "waiting:freeze,recall:refuse",
        with_keys: expected("settled", 1, 1),
        without_keys: expected("settled", 0, 1),
    },
];

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::schedule::Schedule;

    #[test]
    fn s0_17_each_lesson_has_a_schedule_and_a_name_of_its_own() {
        assert_eq!(LESSONS.len(), 9);
        let names: BTreeSet<_> = LESSONS.iter().map(|lesson| lesson.name).collect();
        let schedules: BTreeSet<_> = LESSONS.iter().map(|lesson| lesson.schedule).collect();
        assert_eq!((names.len(), schedules.len()), (9, 9));
        for lesson in LESSONS {
            assert_eq!(lesson.schedule.parse::<Schedule>().unwrap().to_string(), lesson.schedule);
        }
    }
}

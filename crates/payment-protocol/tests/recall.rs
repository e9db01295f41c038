//! Path C: the outcome of each answer to a recall.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::cancel::SwitchResponse;
use payment_protocol::facts::RecallRecord;
use payment_protocol::keys::{self, Reference, StepKey};
use payment_protocol::port::RecallOutcome;
use payment_protocol::recall::{RecallAnswer, RecallAttemptOutcome, RecallPort, RecallStatus, attempt};
use payment_protocol::{Payment, SwitchProfile};
use support::{RETENTION_MS, full_profile, payment};

struct ScriptedPort {
    recorded: Option<RecallRecord>,
    answer: RecallAnswer,
    /// The record under the key when this attempt writes; another attempt may have been first.
    first_record: Option<RecallRecord>,
    /// Age of the first submit attempt, in milliseconds.
    age_ms: u64,
    calls: RefCell<Vec<String>>,
}

impl RecallPort for ScriptedPort {
    type Error = std::convert::Infallible;

    async fn recorded(&self) -> Result<Option<RecallRecord>, Self::Error> {
        self.calls.borrow_mut().push("recorded".into());
        Ok(self.recorded)
    }

    async fn recall(
        &self,
        reference: &Reference,
        key: &StepKey,
    ) -> Result<SwitchResponse<RecallAnswer>, Self::Error> {
        assert_eq!(reference, &payment(0).reference());
        assert_eq!(key, &keys::recall(&payment(0).tx_id));
        self.calls.borrow_mut().push("recall".into());
        let (answer, first_attempt_age_ms) = (self.answer.clone(), Some(self.age_ms));
        Ok(SwitchResponse { answer, switch_now_ms: None, first_attempt_age_ms })
    }

    async fn record(&self, record: RecallRecord, reason: &str) -> Result<RecallRecord, Self::Error> {
        self.calls.borrow_mut().push(format!("record:{record}:{reason}"));
        Ok(self.first_record.unwrap_or(record))
    }
}

#[test]
fn each_recall_answer_leads_to_its_outcome() {
    let recalled = || RecallAnswer::Recalled;
    let refused = || RecallAnswer::Refused { reason: "kept".into() };
    let unsupported = || RecallAnswer::RecallUnsupported;
    let unknown = || RecallAnswer::Unknown { detail: "503".into() };
    let waiting = |detail: &str| RecallAttemptOutcome::Retry { detail: detail.into() };
    const RECALLED: Option<RecallRecord> = Some(RecallRecord::Recalled);
    const REFUSED: Option<RecallRecord> = Some(RecallRecord::Refused);
    const UNSUPPORTED: Option<RecallRecord> = Some(RecallRecord::RecallUnsupported);
    let able = full_profile();
    let unable = SwitchProfile { can_recall: false, ..full_profile() };
    let decided = RecallAttemptOutcome::Decided;
    let retry = || RecallAttemptOutcome::Retry { detail: "503".into() };
    #[rustfmt::skip]
    let table = [
        // recorded   answer         first_record  profile  outcome                                    calls
        (None,        recalled(),    None,         &able,   decided(RecallOutcome::Recalled),          "recorded recall record:recalled:"),
        (None,        refused(),     None,         &able,   decided(RecallOutcome::Refused),           "recorded recall record:refused:kept"),
        (None,        unsupported(), None,         &able,   decided(RecallOutcome::RecallUnsupported), "recorded recall record:recall_unsupported:the switch does not support recalls"),
        (None,        unknown(),     None,         &able,   retry(),                                   "recorded recall"),
        // Neither an agreement nor an acknowledgement returns the money.
        (None, RecallAnswer::Promised, None,       &able,   waiting("the receiving bank agreed, and the money is not back"), "recorded recall"),
        (None, RecallAnswer::Pending, None,        &able,   waiting("the receiving bank has not answered the recall"), "recorded recall"),
        // The first_record under the key is used, without another request.
        (RECALLED,    refused(),     None,         &able,   decided(RecallOutcome::Recalled),          "recorded"),
        (REFUSED,     recalled(),    None,         &able,   decided(RecallOutcome::Refused),           "recorded"),
        (RECALLED,    refused(),     None,         &unable, decided(RecallOutcome::Recalled),          "recorded"),
        (None,        recalled(),    REFUSED,      &able,   decided(RecallOutcome::Refused),           "recorded recall record:recalled:"),
        (None,        refused(),     RECALLED,     &able,   decided(RecallOutcome::Recalled),          "recorded recall record:refused:kept"),
        (UNSUPPORTED, recalled(),    None,         &able,   decided(RecallOutcome::RecallUnsupported), "recorded"),
        // A switch without recall gets no request.
        (None,        recalled(),    None,         &unable, decided(RecallOutcome::RecallUnsupported), "recorded record:recall_unsupported:the switch does not support recalls"),
    ];
    for (n, (recorded, answer, first_record, profile, outcome, calls)) in table.into_iter().enumerate() {
        let port = ScriptedPort { recorded, answer, first_record, age_ms: 0, calls: RefCell::default() };
        let Ok(attempted) = block_on(attempt(&port, &Payment { profile: profile.clone(), ..payment(0) }));
        assert_eq!((attempted, port.calls.take().join(" ").as_str()), (outcome, calls), "row {n}");
    }
}

#[test]
fn a_recall_ends_when_the_switchs_retention_has_expired() {
    let unknown = RecallAnswer::Unknown { detail: "503".into() };
    let unsupported = RecallAttemptOutcome::Decided(RecallOutcome::RecallUnsupported);
    for (answer, age_ms, outcome) in [
        (&unknown, RETENTION_MS - 1, RecallAttemptOutcome::Retry { detail: "503".into() }),
        (&unknown, RETENTION_MS, unsupported.clone()),
        (&RecallAnswer::Promised, RETENTION_MS, unsupported.clone()),
        (&RecallAnswer::Pending, RETENTION_MS, unsupported),
    ] {
        let port = ScriptedPort {
            recorded: None,
            answer: answer.clone(),
            first_record: None,
            age_ms,
            calls: RefCell::default(),
        };
        let Ok(attempted) = block_on(attempt(&port, &payment(0)));
        assert_eq!(attempted, outcome);
    }
}

#[test]
fn the_last_decision_about_a_recall_counts_and_no_acknowledgement_takes_one_back() {
    use RecallStatus::{Closed, Due, Pending, Promised, Refused, Sent, Unsupported};
    let refused = RecallAnswer::Refused { reason: "kept".into() };
    let unknown = RecallAnswer::Unknown { detail: "503".into() };
    #[rustfmt::skip]
    let table = [
        // answer                         due          sent         pending      promised  refused   unsupported  closed
        (&RecallAnswer::Recalled,          [Promised,    Promised,    Promised,    Promised, Promised, Promised,    Closed]),
        (&RecallAnswer::Promised,          [Promised,    Promised,    Promised,    Promised, Promised, Promised,    Closed]),
        (&refused,                         [Refused,     Refused,     Refused,     Refused,  Refused,  Refused,     Closed]),
        (&RecallAnswer::RecallUnsupported, [Unsupported, Unsupported, Unsupported, Promised, Refused,  Unsupported, Closed]),
        (&RecallAnswer::Pending,           [Pending,     Pending,     Pending,     Promised, Refused,  Unsupported, Closed]),
        (&unknown,                         [Due,         Sent,        Pending,     Promised, Refused,  Unsupported, Closed]),
    ];
    for (answer, expected) in table {
        let after: Vec<_> = RecallStatus::ALL.iter().map(|status| status.after(answer)).collect();
        assert_eq!(after, expected, "{answer:?}");
    }
}

#[test]
fn a_recall_is_sent_until_the_switch_has_it_and_ends_when_nothing_more_is_awaited() {
    for (status, may_be_sent, is_finished) in [
        (RecallStatus::Due, true, false),
        (RecallStatus::Sent, true, false),
        (RecallStatus::Pending, false, false),
        (RecallStatus::Promised, false, false),
        (RecallStatus::Refused, false, true),
        (RecallStatus::Unsupported, false, true),
        (RecallStatus::Closed, false, true),
    ] {
        assert_eq!((status.may_be_sent(), status.is_finished()), (may_be_sent, is_finished), "{status}");
    }
}

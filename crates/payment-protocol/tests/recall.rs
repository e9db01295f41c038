//! Path C: what an asking for money back concludes, and what it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::cancel::SwitchResponse;
use payment_protocol::facts::RecallRecord;
use payment_protocol::keys::{self, Reference, StepKey};
use payment_protocol::port::RecallOutcome;
use payment_protocol::recall::{RecallAnswer, RecallAttemptOutcome, RecallPort, ask};
use payment_protocol::{Payment, SwitchProfile};
use support::{RETENTION_MS, payment, whole};

struct ScriptedPort {
    recorded: Option<RecallRecord>,
    answer: RecallAnswer,
    /// What stands under the key when a record is written: another asking may have been quicker.
    stands: Option<RecallRecord>,
    /// Age of the first attempt.
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
        Ok(self.stands.unwrap_or(record))
    }
}

#[test]
fn the_whole_table_of_recall_answers() {
    let yes = || RecallAnswer::Recalled;
    let no = || RecallAnswer::Refused { reason: "kept".into() };
    let cannot = || RecallAnswer::RecallUnsupported;
    let unknown = || RecallAnswer::Unknown { detail: "503".into() };
    const YES: Option<RecallRecord> = Some(RecallRecord::Recalled);
    const NO: Option<RecallRecord> = Some(RecallRecord::Refused);
    const CANNOT: Option<RecallRecord> = Some(RecallRecord::RecallUnsupported);
    let able = whole();
    let unable = SwitchProfile { can_recall: false, ..whole() };
    let is = RecallAttemptOutcome::Decided;
    let again = || RecallAttemptOutcome::Again { detail: "503".into() };
    #[rustfmt::skip]
    let table = [
        // on record  answer     stands  profile  outcome                       calls
        (None,        yes(),     None,   &able,   is(RecallOutcome::Recalled),       "recorded recall record:recalled:"),
        (None,        no(),      None,   &able,   is(RecallOutcome::Refused),        "recorded recall record:refused:kept"),
        (None,        cannot(),  None,   &able,   is(RecallOutcome::RecallUnsupported),   "recorded recall record:recall_unsupported:it has no recall"),
        (None,        unknown(), None,   &able,   again(),                      "recorded recall"),
        // The first answer under the key stands and is not asked for again.
        (YES,         no(),      None,   &able,   is(RecallOutcome::Recalled),       "recorded"),
        (NO,          yes(),     None,   &able,   is(RecallOutcome::Refused),        "recorded"),
        (YES,         no(),      None,   &unable, is(RecallOutcome::Recalled),       "recorded"),
        (None,        yes(),     NO,     &able,   is(RecallOutcome::Refused),        "recorded recall record:recalled:"),
        (None,        no(),      YES,    &able,   is(RecallOutcome::Recalled),       "recorded recall record:refused:kept"),
        (CANNOT,      yes(),     None,   &able,   is(RecallOutcome::RecallUnsupported),   "recorded"),
        // A switch without recall is not asked.
        (None,        yes(),     None,   &unable, is(RecallOutcome::RecallUnsupported),   "recorded record:recall_unsupported:it has no recall"),
    ];
    for (n, (recorded, answer, stands, profile, outcome, calls)) in table.into_iter().enumerate() {
        let port = ScriptedPort { recorded, answer, stands, age_ms: 0, calls: RefCell::default() };
        let Ok(asked) = block_on(ask(&port, &Payment { profile: profile.clone(), ..payment(0) }));
        assert_eq!((asked, port.calls.take().join(" ").as_str()), (outcome, calls), "row {n}");
    }
}

#[test]
fn what_the_switch_has_forgotten_is_not_asked_for_for_ever() {
    let unknown = RecallAnswer::Unknown { detail: "503".into() };
    for (age_ms, outcome) in [
        (RETENTION_MS - 1, RecallAttemptOutcome::Again { detail: "503".into() }),
        (RETENTION_MS, RecallAttemptOutcome::Decided(RecallOutcome::RecallUnsupported)),
    ] {
        let port = ScriptedPort {
            recorded: None,
            answer: unknown.clone(),
            stands: None,
            age_ms,
            calls: RefCell::default(),
        };
        let Ok(asked) = block_on(ask(&port, &payment(0)));
        assert_eq!(asked, outcome);
    }
}

//! Path C: what an asking for money back concludes, and what it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::cancel::Heard;
use payment_protocol::facts::RecallRecord;
use payment_protocol::keys::{self, Reference, StepKey};
use payment_protocol::recall::{RecallAnswer, RecallDoor, Recalling, ask};
use payment_protocol::world::Recalled;
use payment_protocol::{Payment, SwitchProfile};
use support::{RETENTION_MS, payment, whole};

struct Door {
    recorded: Option<RecallRecord>,
    answer: RecallAnswer,
    /// What stands under the key when a record is written: another asking may have been quicker.
    stands: Option<RecallRecord>,
    /// Age of the first attempt.
    age_ms: u64,
    calls: RefCell<Vec<String>>,
}

impl RecallDoor for Door {
    type Error = std::convert::Infallible;

    async fn recorded(&self) -> Result<Option<RecallRecord>, Self::Error> {
        self.calls.borrow_mut().push("recorded".into());
        Ok(self.recorded)
    }

    async fn recall(&self, reference: &Reference, key: &StepKey) -> Result<Heard<RecallAnswer>, Self::Error> {
        assert_eq!(reference, &payment(0).reference());
        assert_eq!(key, &keys::recall(&payment(0).tx_id));
        self.calls.borrow_mut().push("recall".into());
        let (answer, first_attempt_age_ms) = (self.answer.clone(), Some(self.age_ms));
        Ok(Heard { answer, switch_now_ms: None, first_attempt_age_ms })
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
    let cannot = || RecallAnswer::CannotRecall;
    let unknown = || RecallAnswer::Unknown { detail: "503".into() };
    const YES: Option<RecallRecord> = Some(RecallRecord::Recalled);
    const NO: Option<RecallRecord> = Some(RecallRecord::Refused);
    const CANNOT: Option<RecallRecord> = Some(RecallRecord::CannotRecall);
    let able = whole();
    let unable = SwitchProfile { can_recall: false, ..whole() };
    let is = Recalling::Decided;
    let again = || Recalling::Again { detail: "503".into() };
    #[rustfmt::skip]
    let table = [
        // on record  answer     stands  profile  outcome                       calls
        (None,        yes(),     None,   &able,   is(Recalled::Recalled),       "recorded recall record:recalled:"),
        (None,        no(),      None,   &able,   is(Recalled::Refused),        "recorded recall record:refused:kept"),
        (None,        cannot(),  None,   &able,   is(Recalled::CannotRecall),   "recorded recall record:cannot_recall:it has no recall"),
        (None,        unknown(), None,   &able,   again(),                      "recorded recall"),
        // The first answer under the key stands and is not asked for again.
        (YES,         no(),      None,   &able,   is(Recalled::Recalled),       "recorded"),
        (NO,          yes(),     None,   &able,   is(Recalled::Refused),        "recorded"),
        (YES,         no(),      None,   &unable, is(Recalled::Recalled),       "recorded"),
        (None,        yes(),     NO,     &able,   is(Recalled::Refused),        "recorded recall record:recalled:"),
        (None,        no(),      YES,    &able,   is(Recalled::Recalled),       "recorded recall record:refused:kept"),
        (CANNOT,      yes(),     None,   &able,   is(Recalled::CannotRecall),   "recorded"),
        // A switch without recall is not asked.
        (None,        yes(),     None,   &unable, is(Recalled::CannotRecall),   "recorded record:cannot_recall:it has no recall"),
    ];
    for (n, (recorded, answer, stands, profile, outcome, calls)) in table.into_iter().enumerate() {
        let door = Door { recorded, answer, stands, age_ms: 0, calls: RefCell::default() };
        let Ok(asked) = block_on(ask(&door, &Payment { profile: profile.clone(), ..payment(0) }));
        assert_eq!((asked, door.calls.take().join(" ").as_str()), (outcome, calls), "row {n}");
    }
}

#[test]
fn what_the_switch_has_forgotten_is_not_asked_for_for_ever() {
    let unknown = RecallAnswer::Unknown { detail: "503".into() };
    for (age_ms, outcome) in [
        (RETENTION_MS - 1, Recalling::Again { detail: "503".into() }),
        (RETENTION_MS, Recalling::Decided(Recalled::CannotRecall)),
    ] {
        let door =
            Door { recorded: None, answer: unknown.clone(), stands: None, age_ms, calls: RefCell::default() };
        let Ok(asked) = block_on(ask(&door, &payment(0)));
        assert_eq!(asked, outcome);
    }
}

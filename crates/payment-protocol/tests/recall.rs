//! Path C: what an asking for money back concludes, and what it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::SwitchProfile;
use payment_protocol::facts::RecallRecord;
use payment_protocol::recall::{RecallAnswer, RecallDoor, Recalling, ask};
use payment_protocol::world::Recalled;
use support::whole;

struct Door {
    recorded: Option<RecallRecord>,
    answer: RecallAnswer,
    /// What stands under the key when a record is written: another asking may have been quicker.
    stands: Option<RecallRecord>,
    calls: RefCell<Vec<String>>,
}

impl RecallDoor for Door {
    type Error = std::convert::Infallible;

    async fn recorded(&self) -> Result<Option<RecallRecord>, Self::Error> {
        self.calls.borrow_mut().push("recorded".into());
        Ok(self.recorded)
    }

    async fn recall(&self) -> RecallAnswer {
        self.calls.borrow_mut().push("recall".into());
        self.answer.clone()
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
    let able = whole();
    let unable = SwitchProfile { can_recall: false, ..whole() };
    let is = Recalling::Decided;
    let again = || Recalling::Again { detail: "503".into() };
    #[rustfmt::skip]
    let table = [
        // on record  answer     stands  profile  outcome                       calls
        (None,        yes(),     None,   &able,   is(Recalled::Recalled),       "recorded recall record:recalled:"),
        (None,        no(),      None,   &able,   is(Recalled::Refused),        "recorded recall record:refused:kept"),
        (None,        cannot(),  None,   &able,   is(Recalled::CannotRecall),   "recorded recall"),
        (None,        unknown(), None,   &able,   again(),                      "recorded recall"),
        // The first answer under the key stands and is not asked for again.
        (YES,         no(),      None,   &able,   is(Recalled::Recalled),       "recorded"),
        (NO,          yes(),     None,   &able,   is(Recalled::Refused),        "recorded"),
        (YES,         no(),      None,   &unable, is(Recalled::Recalled),       "recorded"),
        (None,        yes(),     NO,     &able,   is(Recalled::Refused),        "recorded recall record:recalled:"),
        (None,        no(),      YES,    &able,   is(Recalled::Recalled),       "recorded recall record:refused:kept"),
        // A switch without recall is not asked.
        (None,        yes(),     None,   &unable, is(Recalled::CannotRecall),   "recorded"),
    ];
    for (n, (recorded, answer, stands, profile, outcome, calls)) in table.into_iter().enumerate() {
        let door = Door { recorded, answer, stands, calls: RefCell::default() };
        let Ok(asked) = block_on(ask(&door, profile));
        assert_eq!((asked, door.calls.take().join(" ").as_str()), (outcome, calls), "row {n}");
    }
}

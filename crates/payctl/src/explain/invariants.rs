//! Which invariants hold for one payment now, computed from what was read. The numbers are those of
//! ARCHITECTURE.md; those that only a whole database could show are not here.

use payment_ledger::reads::explain::PaymentExplanation;
use payment_ledger::reads::view::PaymentView;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::rules::retention_expired;
use payment_protocol::state::FinalState;
use payment_protocol::submit::QueryAnswer;
use payment_protocol::{PaymentState, keys};
use serde::Serialize;

use super::switch::{Means, SwitchSays};
use Holds::{No, NotSeen, Yes};

/// Whether an invariant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Holds {
    /// By all that was read.
    Yes,
    /// It is violated.
    No,
    /// What was read does not tell.
    NotSeen,
}

/// One invariant, for one payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Invariant {
    /// `I1` to `I11`.
    pub(crate) number: &'static str,
    /// Whether it holds.
    pub(crate) holds: Holds,
    /// What it says, and what was seen.
    pub(crate) detail: String,
}

/// What our books say, in short.
struct Books<'a> {
    explained: &'a PaymentExplanation,
    view: &'a PaymentView,
    tx_id: Option<TxId>,
}

/// Checks all that one payment can show.
pub(super) fn check(explained: &PaymentExplanation, switch: Option<&SwitchSays>) -> Vec<Invariant> {
    let view = &explained.payment.view;
    let tx_id = PaymentId::new(view.payment_id.as_str()).ok().map(|id| TxId::derive(&id));
    let books = Books { explained, view, tx_id };
    let all = [
        ("I1", books.adds_up()),
        ("I2", books.closed_once()),
        ("I3", books.debited_only_if_settled(switch)),
        ("I4", books.released_only_if_dead(switch)),
        ("I5", books.first_answer_stands()),
        ("I6", books.one_effect_per_key()),
        ("I7", books.attempts_are_on_record()),
        ("I8", books.one_run_reserved()),
        ("I9", books.an_end_is_an_end()),
        ("I10", books.callbacks_are_kept()),
        ("I11", books.first_cause_names_the_end()),
    ];
    all.into_iter().map(|(number, (holds, detail))| Invariant { number, holds, detail }).collect()
}

type Seen = (Holds, String);

fn seen(holds: bool, detail: impl Into<String>) -> Seen {
    (if holds { Yes } else { No }, detail.into())
}

impl Books<'_> {
    fn posted(&self, kind: &str) -> usize {
        self.explained.journal.iter().filter(|entry| entry.kind == kind).count()
    }

    /// What the payment's entries left in an internal account, in minor units.
    fn left_in(&self, account: &str) -> i64 {
        let account = format!("internal:{account}:{}", self.view.currency);
        let signed = self.explained.journal.iter().map(|entry| {
            i64::from(entry.credit_account == account) * entry.amount_minor
                - i64::from(entry.debit_account == account) * entry.amount_minor
        });
        signed.sum()
    }

    fn debited(&self) -> bool {
        self.posted("debit") + self.posted("late_debit") > 0 && self.posted("return_credit") == 0
    }

    fn end(&self) -> Option<FinalState> {
        self.view.state.end()
    }

    fn hold(&self) -> Option<&str> {
        self.explained.hold.as_ref().map(|hold| hold.status.as_str())
    }

    fn by_decision(&self) -> bool {
        self.explained.payment.final_status_source.as_deref() == Some("decision")
    }

    fn is_done(&self, key: &str) -> bool {
        self.explained.operations.iter().any(|done| done.operation_key == key && done.outcome == "done")
    }

    fn recalled(&self) -> bool {
        self.tx_id.as_ref().is_some_and(|tx_id| self.is_done(keys::recall(tx_id).as_str()))
    }

    fn adds_up(&self) -> Seen {
        let PaymentView { amount_minor, currency, .. } = self.view;
        let odd = self.explained.journal.iter().find(|entry| {
            entry.amount_minor != *amount_minor
                || entry.currency != *currency
                || entry.debit_account == entry.credit_account
        });
        if let Some(entry) = odd {
            return seen(
                false,
                format!("{} was posted otherwise than the payment says", entry.operation_key),
            );
        }
        let (held, left) = (self.left_in("holding"), self.left_in("escrow"));
        let expected_held = if self.hold() == Some("open") { *amount_minor } else { 0 };
        let expected_left = if self.debited() { *amount_minor } else { 0 };
        let adds_up = (held, left) == (expected_held, expected_left);
        seen(
            adds_up,
            format!("every entry moves its amount; {held} is held and {left} has left, in minor units"),
        )
    }

    fn closed_once(&self) -> Seen {
        let (settled, released) = (self.posted("debit"), self.posted("release"));
        let agrees = match self.hold() {
            None => (self.posted("reserve"), settled, released) == (0, 0, 0),
            Some("open") => (settled, released) == (0, 0),
            Some("debited") => (settled, released) == (1, 0),
            Some(_) => (settled, released) == (0, 1),
        };
        let hold = self.hold().unwrap_or("never made");
        seen(
            agrees,
            format!(
                "settled or released, never both: {settled} settled, {released} released, the hold is {hold}"
            ),
        )
    }

    fn debited_only_if_settled(&self, switch: Option<&SwitchSays>) -> Seen {
        if self.posted("return_credit") > 0 {
            return seen(true, "it was debited, and given back by a correction");
        }
        if !self.debited() {
            return seen(self.view.state != PaymentState::Settled, "not debited");
        }
        if self.explained.payment.final_status.as_deref() == Some("void") && self.posted("late_debit") == 0 {
            return seen(false, "debited, and on record the switch had said it is dead");
        }
        if self.explained.payment.final_status.is_none() {
            return seen(false, "debited, and no word of the switch is on record");
        }
        match switch.map(|says| (&says.answer, says.means)) {
            Some((QueryAnswer::Settled(_), _)) => seen(true, "debited, and the switch says it settled"),
            Some((QueryAnswer::Pending, _)) => {
                seen(false, "debited, and the switch says it is still pending")
            }
            Some((QueryAnswer::Void { reason }, _)) => {
                seen(false, format!("debited, and the switch says it is dead: {reason}"))
            }
            // It may forget, its statement may come later, and people may have known more than it.
            Some((QueryAnswer::NotFound, Means::Query | Means::ReadBack))
                if !self.by_decision() && !self.may_be_forgotten() =>
            {
                seen(false, "debited, and the switch knows nothing of it")
            }
            _ if self.by_decision() => {
                (NotSeen, "debited by a decision of two people; the switch does not tell".into())
            }
            _ => (NotSeen, "debited on the switch's word, which is on record; it does not tell now".into()),
        }
    }

    fn released_only_if_dead(&self, switch: Option<&SwitchSays>) -> Seen {
        if self.posted("return_credit") > 0 {
            return match switch.map(|says| &says.answer) {
                Some(QueryAnswer::Settled(_)) => {
                    seen(false, "given back by a correction, and the switch says it settled")
                }
                Some(QueryAnswer::Pending) => {
                    seen(false, "given back by a correction, and it may still settle at the switch")
                }
                Some(QueryAnswer::Void { .. }) => {
                    seen(true, "given back by a correction, and the switch says it is dead")
                }
                _ => (NotSeen, "given back by a correction of two people; the switch does not tell".into()),
            };
        }
        let gave_back = self.posted("release") > 0;
        let over = self.end().is_some_and(|end| end != FinalState::Settled);
        if !(gave_back || over) || self.debited() {
            return seen(true, "it is debited, or nothing was given back");
        }
        let row = &self.explained.payment;
        let dead = row.final_status.as_deref() == Some("void");
        if !(dead || self.recalled() || row.attempts == 0) {
            return seen(false, "given back, and nothing on record says that it cannot settle any more");
        }
        if self.recalled() {
            return seen(true, "given back after the switch had given the money back");
        }
        match switch.map(|says| &says.answer) {
            Some(QueryAnswer::Settled(_)) => {
                seen(false, "nothing is charged, and the switch says it settled")
            }
            Some(QueryAnswer::Pending) => {
                seen(false, "nothing is charged, and it may still settle at the switch")
            }
            Some(QueryAnswer::Void { .. } | QueryAnswer::NotFound) => {
                seen(true, "nothing is charged, and the switch says the same")
            }
            _ => (NotSeen, "nothing is charged, on what is on record; the switch does not tell now".into()),
        }
    }

    fn first_answer_stands(&self) -> Seen {
        let PaymentExplanation { payment, callbacks, exceptions, .. } = self.explained;
        let contradicted = payment.final_status.as_deref() == Some("void")
            && callbacks.iter().any(|said| said.status == "SUCCESS" && said.switch == self.view.switch);
        let final_status = payment.final_status.as_deref().unwrap_or("none yet");
        match (contradicted, exceptions.is_empty()) {
            (true, true) => {
                seen(false, "a SUCCESS contradicts the first answer (dead), and no exception tells")
            }
            (true, false) => {
                seen(true, "the first answer stands (dead); what contradicts it is an exception")
            }
            (false, _) => seen(true, format!("the switch's first definite answer: {final_status}")),
        }
    }

    fn one_effect_per_key(&self) -> Seen {
        let journal = &self.explained.journal;
        let twice = journal.iter().enumerate().find(|(place, entry)| {
            journal[..*place].iter().any(|earlier| earlier.operation_key == entry.operation_key)
        });
        let unrecorded = journal.iter().find(|entry| !self.is_done(&entry.operation_key));
        match (twice, unrecorded) {
            (Some((_, entry)), _) => seen(false, format!("{} was posted twice", entry.operation_key)),
            (None, Some(entry)) => {
                seen(false, format!("{} was posted and is not recorded as done", entry.operation_key))
            }
            (None, None) => seen(true, format!("{} postings, each recorded under its key", journal.len())),
        }
    }

    fn attempts_are_on_record(&self) -> Seen {
        let (counted, rows) = (self.explained.payment.attempts, &self.explained.submissions);
        let in_order = rows.iter().zip(1..).all(|(row, number)| row.attempt == number);
        let whole = in_order && usize::try_from(counted).is_ok_and(|counted| counted == rows.len());
        let one_only = self.explained.payment.profile.forbids_second_attempt() && rows.len() > 1;
        seen(whole && !one_only, format!("{} attempts on record, {counted} counted", rows.len()))
    }

    fn one_run_reserved(&self) -> Seen {
        let run = self.explained.payment.run_id.as_deref();
        match (self.hold(), run) {
            (Some(_), None) => seen(false, "held, and no run is on record"),
            (_, Some(run)) => seen(true, format!("run {run} reserved from the top")),
            (None, None) => seen(true, "no run has reserved"),
        }
    }

    fn an_end_is_an_end(&self) -> Seen {
        match (self.end(), self.hold()) {
            (Some(end), Some("open")) => {
                seen(false, format!("it ended ({end}), and the amount is still held"))
            }
            (Some(FinalState::Settled), _) if self.posted("debit") + self.posted("late_debit") == 0 => {
                seen(false, "it ended as settled, and nothing was debited")
            }
            (Some(end), _) => seen(self.view.ended_at.is_some(), format!("it ended: {end}")),
            (None, _) => seen(self.view.ended_at.is_none(), "it has not ended"),
        }
    }

    fn callbacks_are_kept(&self) -> Seen {
        let PaymentExplanation { callbacks, inbox, exceptions, .. } = self.explained;
        let told = |event: &str| inbox.iter().any(|message| message.event_id.as_deref() == Some(event));
        let lost = callbacks.iter().find(|said| {
            self.end().is_none()
                && said.switch == self.view.switch
                && !told(&said.event_id)
                && exceptions.is_empty()
        });
        let waiting = inbox.iter().filter(|message| message.delivered_at.is_none()).count();
        match lost {
            Some(lost) => {
                seen(false, format!("callback {} is neither in the inbox nor an exception", lost.event_id))
            }
            None => seen(
                true,
                format!("{} callbacks stored, {waiting} messages not delivered yet", callbacks.len()),
            ),
        }
    }

    fn first_cause_names_the_end(&self) -> Seen {
        let cause = self.explained.payment.cause.as_ref();
        match (self.end(), cause) {
            (None | Some(FinalState::Settled | FinalState::Rejected), _) => {
                seen(true, "it did not end undone")
            }
            (Some(end), Some(cause)) => seen(cause.end() == end, format!("it ended {end} for: {cause}")),
            (Some(end), None) => {
                let named = self.view.reason.is_some();
                seen(named, format!("it ended {end}, refused before anything was sent"))
            }
        }
    }

    fn may_be_forgotten(&self) -> bool {
        let row = &self.explained.payment;
        let age_ms = row.first_attempt_at.map(|at| jiff::Timestamp::now().duration_since(at).as_millis());
        retention_expired(age_ms.and_then(|age_ms| u64::try_from(age_ms).ok()), &row.profile)
    }
}

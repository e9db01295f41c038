//! The probe itself. Each step shows one thing; a step without an answer shows nothing and the next one is
//! taken all the same.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};

use super::book::{Entry, Said};
use super::findings::{Ability, Clock, Findings, Left, Measured};
use super::wire::{Name, Reply, Wire};

use Measured::{No, Unknown, Yes};

/// How long one transfer may take to settle, when one is let settle.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two askings meanwhile.
const PAUSE: Duration = Duration::from_millis(250);
/// How far in the past the deadline is that must be refused.
const LATE_BY: SignedDuration = SignedDuration::from_secs(60);

/// One probe of one switch.
#[derive(Debug)]
pub(crate) struct Probe {
    wire: Wire,
    /// In every reference.
    run: String,
    book: Vec<Entry>,
    findings: Findings,
    clock: Option<Clock>,
    /// The switch's time and ours when it was heard.
    heard: Option<(Timestamp, Timestamp)>,
    /// Transfers to the probe's account before the first was sent.
    listed_before: Option<BTreeSet<String>>,
}

impl Probe {
    /// Nothing is sent yet. `run` must be of letters and digits, and new each time.
    pub(crate) fn new(wire: Wire, run: String) -> Self {
        let mut findings = Findings::default();
        findings.note(Ability::Callback, Unknown, "callbacks cannot be seen from here");
        for ability in Ability::ALL {
            if ability != Ability::Callback {
                findings.note(ability, Unknown, "not tried");
            }
        }
        Self { wire, run, book: Vec::new(), findings, clock: None, heard: None, listed_before: None }
    }

    /// What was found so far.
    pub(crate) fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The switch's clock, once it was heard.
    pub(crate) fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// What is in the switch's book because of this probe.
    pub(crate) fn left(&self) -> Vec<Left> {
        self.book.iter().map(Entry::left).collect()
    }

    /// Takes every step. It may be dropped at any moment; then [`Self::tidy`] is still to be called.
    ///
    /// # Errors
    /// When the switch does not answer at all; nothing was sent then.
    pub(crate) async fn measure(&mut self, let_one_settle: bool) -> anyhow::Result<()> {
        self.look_at_clock().await?;
        self.read_lists().await;
        if let Some(first) = self.send_first().await {
            self.query(first).await;
            self.repeat(first).await;
            self.cancel(first).await;
            self.recall_word(first).await;
            self.tombstone().await;
            self.deadline().await;
            if let_one_settle {
                self.settle_one().await;
            }
        }
        Ok(())
    }

    /// Cancels what still may settle, and asks back what did.
    pub(crate) async fn tidy(&mut self) {
        for entry in 0..self.book.len() {
            if !self.book[entry].may_leave {
                continue;
            }
            for name in self.book[entry].names() {
                let reply = self.wire.cancel(&name, &self.key(entry, "undo", &name)).await;
                self.stands_after_cancel(entry, &reply);
                if matches!(&reply, Ok(reply) if reply.text("answer") == Some("ALREADY_SETTLED")) {
                    self.recall(entry, &name).await;
                }
            }
        }
    }

    async fn look_at_clock(&mut self) -> anyhow::Result<()> {
        let reply =
            self.wire.health().await.map_err(anyhow::Error::msg).context("the switch does not answer")?;
        self.clock = Some(clock(&reply));
        self.heard = reply.date.map(|date| (date, reply.heard_at));
        Ok(())
    }

    async fn read_lists(&mut self) {
        let listing = self.wire.listing().await;
        self.listed_before = listing.as_ref().ok().and_then(transfer_ids);
        self.offered(Ability::Listing, &listing, "transfers");
        let statement = self.wire.statement().await;
        self.offered(Ability::Statement, &statement, "entries");
    }

    fn offered(&mut self, ability: Ability, reply: &Result<Reply, String>, field: &str) {
        let (measured, detail) = match reply {
            Ok(reply) if reply.status == 200 && reply.list(field).is_some() => {
                (Yes, "a page of it was read".to_owned())
            }
            Ok(reply) if is_missing(reply) => (No, reply.excerpt()),
            Ok(reply) => (Unknown, reply.excerpt()),
            Err(detail) => (Unknown, detail.clone()),
        };
        self.findings.note(ability, measured, detail);
    }

    /// The transfer that most is tried on. None when the switch takes none: then nothing else can be seen.
    async fn send_first(&mut self) -> Option<usize> {
        let entry = self.enter("first");
        match self.submit(entry, None).await.0 {
            Said::Accepted => {}
            Said::Refused(detail) | Said::Unknown(detail) => {
                use Ability::{Cancel, Deadline, Dedup, Query, Recall, References, Tombstone};
                for ability in [References, Query, Dedup, Tombstone, Deadline, Cancel, Recall] {
                    self.findings.note(ability, Unknown, format!("no probe transfer was taken: {detail}"));
                }
                return None;
            }
        }
        if self.book[entry].keyless {
            let detail = "the answer has an id of its own and not our reference";
            self.findings.note(Ability::References, No, detail);
            self.findings.note(Ability::Callback, No, "a callback could not name our reference");
        } else {
            self.findings.note(Ability::References, Yes, "the answer names our reference");
        }
        Some(entry)
    }

    async fn query(&mut self, first: usize) {
        // By our own reference, whatever the switch calls it: that is what the bank asks by.
        let reference = Name::Reference(self.book[first].reference.clone());
        let (measured, detail) = match self.wire.query(&reference).await {
            Ok(reply) if reply.status == 200 && reply.text("status").is_some() => (Yes, reply.excerpt()),
            Ok(reply) if reply.status == 404 => {
                (No, format!("does not find what it took: {}", reply.excerpt()))
            }
            Ok(reply) if is_missing(&reply) => (No, reply.excerpt()),
            Ok(reply) => (Unknown, reply.excerpt()),
            Err(detail) => (Unknown, detail),
        };
        self.findings.note(Ability::Query, measured, detail);
    }

    async fn repeat(&mut self, first: usize) {
        let before = self.book[first].ids.len();
        let (said, reply) = self.submit(first, None).await;
        let several = before > 0 && self.book[first].ids.len() > before;
        let (measured, detail) = match (said, reply.as_ref().ok().and_then(|reply| reply.flag("duplicate"))) {
            _ if several => (No, "the repeat got an id of its own: two transfers".to_owned()),
            (Said::Accepted, _) if self.newly_listed().await.is_some_and(|new| new > 1) => {
                (No, "the listing has two transfers".to_owned())
            }
            (Said::Accepted, Some(false)) => {
                (No, "the repeat was no duplicate to it: two transfers".to_owned())
            }
            (Said::Accepted, Some(true)) => (Yes, "the repeat was answered as a duplicate".to_owned()),
            (Said::Accepted, None) if before > 0 => (Yes, "the repeat got the same id".to_owned()),
            (Said::Accepted, None) => {
                (Unknown, "nothing in the answer tells one transfer from two".to_owned())
            }
            // The bank would take that for the outcome of the transfer.
            (Said::Refused(detail), _) => (No, format!("refuses the repeat of what it took: {detail}")),
            (Said::Unknown(detail), _) => (Unknown, detail),
        };
        self.findings.note(Ability::Dedup, measured, detail);
    }

    async fn newly_listed(&self) -> Option<usize> {
        let before = self.listed_before.as_ref()?;
        let now = transfer_ids(&self.wire.listing().await.ok()?)?;
        Some(now.difference(before).count())
    }

    async fn cancel(&mut self, first: usize) {
        let mut found = (Unknown, "not tried".to_owned());
        for name in self.book[first].names() {
            let reply = self.wire.cancel(&name, &self.key(first, "cancel", &name)).await;
            self.stands_after_cancel(first, &reply);
            found = match &reply {
                Ok(reply) => match reply.text("answer") {
                    Some("CANCELLED") => self.cancelled_truly(&name, reply).await,
                    Some("ALREADY_SETTLED" | "ALREADY_REJECTED") => (Yes, reply.excerpt()),
                    Some("CANNOT_CANCEL") => (No, reply.excerpt()),
                    Some("NOT_FOUND") => (No, format!("does not find what it took: {}", reply.excerpt())),
                    None if is_missing(reply) => (No, reply.excerpt()),
                    _ => (Unknown, reply.excerpt()),
                },
                Err(detail) => (Unknown, detail.clone()),
            };
        }
        self.findings.note(Ability::Cancel, found.0, found.1);
    }

    /// What is called cancelled must not go on.
    async fn cancelled_truly(&self, name: &Name, cancelled: &Reply) -> (Measured, String) {
        match self.wire.query(name).await {
            Ok(reply) if matches!(reply.text("status"), Some("PENDING" | "SETTLED")) => {
                (No, format!("{}, and then {}", cancelled.excerpt(), reply.excerpt()))
            }
            _ => (Yes, cancelled.excerpt()),
        }
    }

    /// What is said to a recall of what did not settle: only a switch without any recall can be told by that.
    async fn recall_word(&mut self, first: usize) {
        let Some(name) = self.book[first].names().into_iter().next() else { return };
        self.recall(first, &name).await;
    }

    /// Asks for money back, and notes what that shows. Returns whether the answer was definite.
    async fn recall(&mut self, entry: usize, name: &Name) -> bool {
        let reply = self.wire.recall(name, &self.key(entry, "recall", name)).await;
        let unproven =
            |said: String| format!("{said}; it shows only with a transfer that settled: --let-one-settle");
        let (measured, detail) = match &reply {
            Ok(reply) => match reply.text("answer") {
                Some("RECALLED") => {
                    self.book[entry].stand("recalled", false);
                    (Yes, reply.excerpt())
                }
                Some("REFUSED") => {
                    self.book[entry].stand("settled; its recall was refused", true);
                    (Yes, format!("has one, and refused it: {}", reply.excerpt()))
                }
                Some("CANNOT_RECALL") => (No, reply.excerpt()),
                None if is_missing(reply) => (No, reply.excerpt()),
                _ => (Unknown, unproven(reply.excerpt())),
            },
            Err(detail) => (Unknown, detail.clone()),
        };
        // One that was seen is not unseen by a later answer.
        if self.findings.measured(Ability::Recall) != Yes {
            self.findings.note(Ability::Recall, measured, detail);
        }
        measured != Unknown
    }

    async fn tombstone(&mut self) {
        if self.findings.measured(Ability::References) == No {
            return self.findings.note(Ability::Tombstone, No, "there are no references to leave one for");
        }
        let entry = self.enter("tombstone");
        let name = Name::Reference(self.book[entry].reference.clone());
        let reply = self.wire.cancel(&name, &self.key(entry, "cancel", &name)).await;
        let (measured, detail) = match &reply {
            Ok(reply) if reply.text("answer") == Some("CANCELLED") => {
                match self.submit(entry, None).await.0 {
                    Said::Accepted => (No, "took a transfer that it had cancelled before".to_owned()),
                    Said::Refused(detail) => (Yes, detail),
                    Said::Unknown(detail) => (Unknown, detail),
                }
            }
            reply => {
                // Nothing was sent under it, and nothing is.
                self.book.pop();
                match reply {
                    Ok(reply) if reply.text("answer").is_some() || is_missing(reply) => {
                        (No, format!("leaves none: {}", reply.excerpt()))
                    }
                    Ok(reply) => (Unknown, reply.excerpt()),
                    Err(detail) => (Unknown, detail.clone()),
                }
            }
        };
        self.findings.note(Ability::Tombstone, measured, detail);
    }

    async fn deadline(&mut self) {
        let ours = Timestamp::now();
        let now = self.heard.map_or(ours, |(theirs, heard_at)| {
            theirs.saturating_add(ours.duration_since(heard_at)).unwrap_or(ours)
        });
        let late = now.saturating_sub(LATE_BY).unwrap_or(now);
        let entry = self.enter("deadline");
        let (measured, detail) = match self.submit(entry, Some(late)).await.0 {
            Said::Accepted => (No, "took a transfer a minute after its deadline".to_owned()),
            Said::Refused(detail) => (Yes, detail),
            Said::Unknown(detail) => (Unknown, detail),
        };
        self.findings.note(Ability::Deadline, measured, detail);
    }

    async fn settle_one(&mut self) {
        let entry = self.enter("settle");
        if self.submit(entry, None).await.0 != Said::Accepted {
            return;
        }
        let deadline = Instant::now() + SETTLE_WITHIN;
        let Some(name) = self.book[entry].names().into_iter().next() else { return };
        while !self.recall(entry, &name).await && Instant::now() < deadline {
            sleep(PAUSE).await;
        }
    }

    /// On record first.
    fn enter(&mut self, word: &str) -> usize {
        self.book.push(Entry::new(format!("probe_{}_{word}", self.run)));
        self.book.len() - 1
    }

    async fn submit(&mut self, entry: usize, deadline: Option<Timestamp>) -> (Said, Result<Reply, String>) {
        let reply = self.wire.submit(&self.book[entry].reference, deadline).await;
        (self.book[entry].answered(&reply), reply)
    }

    fn stands_after_cancel(&mut self, entry: usize, reply: &Result<Reply, String>) {
        let entry = &mut self.book[entry];
        match reply {
            Ok(reply) => match reply.text("answer") {
                Some("CANCELLED") => entry.stand("cancelled", false),
                Some("ALREADY_REJECTED") => entry.stand("rejected", false),
                Some("ALREADY_SETTLED") => entry.stand("settled", true),
                _ => entry.stand(format!("not cancelled: {}", reply.excerpt()), true),
            },
            Err(detail) => entry.stand(format!("not cancelled: {detail}"), true),
        }
    }

    /// One key per operation and transfer: what is asked again is answered again.
    fn key(&self, entry: usize, word: &str, name: &Name) -> String {
        let reference = &self.book[entry].reference;
        match name {
            Name::Reference(_) => format!("{reference}:{word}"),
            Name::Id(id) => format!("{reference}:{id}:{word}"),
        }
    }
}

/// Ways to say that there is no such call. 404 alone is also said of an unknown transfer.
fn is_missing(reply: &Reply) -> bool {
    matches!(reply.status, 404 | 405 | 501)
}

fn transfer_ids(listing: &Reply) -> Option<BTreeSet<String>> {
    let listed = listing.list("transfers")?;
    Some(
        listed
            .iter()
            .filter_map(|transfer| Some(transfer.get("transfer_id")?.as_str()?.to_owned()))
            .collect(),
    )
}

fn clock(reply: &Reply) -> Clock {
    let took_ms = i64::try_from(reply.took.as_millis()).unwrap_or(i64::MAX);
    // The header is rounded down to whole seconds: half a second is what it is short of on average.
    let ahead_ms = reply.date.map(|date| date.as_millisecond() + 500 - reply.heard_at.as_millisecond());
    Clock { has_date: reply.date.is_some(), ahead_ms, give_or_take_ms: ahead_ms.map(|_| 500 + took_ms / 2) }
}

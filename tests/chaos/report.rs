//! What the chaos run prints: the faults by kind, what was reached, everything that is wrong, and one line of totals.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::books::Books;
use crate::customers::Customers;
use crate::schedule::{self, Fault, Step};

/// Items of a list that are printed.
const PRINTED: usize = 20;

/// The results of a run.
pub(crate) struct Report<'a> {
    /// The faults of the schedule.
    pub(crate) planned: &'a [Step],
    /// Those that happened.
    pub(crate) made: &'a [Fault],
    pub(crate) books: &'a Books,
    /// Samples of the ledger without a violation.
    pub(crate) samples: usize,
    /// Processes that exited by themselves and were started again.
    pub(crate) exits: usize,
    /// How long the payments took to their ends once the last fault was healed; `None`: longer than they may.
    pub(crate) ended_after: Option<Duration>,
}

impl Report<'_> {
    /// Whether nothing is wrong.
    pub(crate) fn is_sound(&self) -> bool {
        let Books { lost, doubled, stuck, violations, .. } = self.books;
        self.ended_after.is_some() && [lost, doubled, stuck, violations].into_iter().all(Vec::is_empty)
    }

    /// How often each kind of fault happened.
    fn faults(&self) -> BTreeMap<&'static str, i64> {
        let mut kinds: BTreeMap<_, i64> = schedule::kinds().into_iter().map(|kind| (kind, 0)).collect();
        for fault in self.made {
            *kinds.entry(fault.kind()).or_default() += 1;
        }
        kinds
    }

    /// How often each kind of fault, each end and each race was reached. A long run must reach all of them.
    pub(crate) fn counts(&self) -> Vec<(&'static str, i64)> {
        let reached = self.books.reached.iter().map(|(name, count)| (*name, *count));
        self.faults().into_iter().chain(reached).collect()
    }

    /// Prints everything; the last line has the totals.
    pub(crate) fn print(&self, customers: &Customers) {
        println!("\nfaults");
        for (kind, count) in self.faults() {
            println!("  {count:>6}  {kind}");
        }
        println!("  {:>6}  of {} that were planned", self.made.len(), self.planned.len());
        println!("  {:>6}  processes that exited by themselves, started again", self.exits);
        customers.with_answers(|answers| {
            println!("  {:>6}  requests of customers without an answer", answers.without_answer);
            println!("  {:>6}  requests of customers refused for now", answers.refused_for_now);
        });
        println!("\nreached");
        let Books { payments, lost, doubled, stuck, violations, reached } = self.books;
        for (name, count) in reached {
            println!("  {count:>6}  {name}");
        }
        match self.ended_after {
            Some(after) => {
                println!("\nevery payment had ended {} s after the last fault was healed", after.as_secs())
            }
            None => println!("\nsome payments had not ended a minute after the last fault was healed"),
        }
        for (name, items) in
            [("lost", lost), ("doubled", doubled), ("stuck", stuck), ("violation", violations)]
        {
            for item in items.iter().take(PRINTED) {
                println!("{name}: {item}");
            }
        }
        println!(
            "payments {payments} lost {} doubled {} stuck {} violations {} samples {}",
            lost.len(),
            doubled.len(),
            stuck.len(),
            violations.len(),
            self.samples
        );
    }
}

//! A model of the naive client (`real/naive.rs` describes the process): a transfer with a fresh reference for each attempt, no record
//! between the steps, a charge for each SUCCESS, signed or not, and however often it comes.
//!
//! It sends again whenever it does not know: no answer, a restart, a FAILURE, the end of the SLA; after three sends it says "failed".

use crate::run::{AMOUNT_MINOR, Actor, Entry, Outcome, Side, Step};
use crate::schedule::{Fault, Instant, Schedule};

/// The naive client's world.
#[derive(Default)]
struct Naive {
    steps: Vec<Step>,
    transfers: usize,
    charges: usize,
    frozen: bool,
}

/// Runs the schedule.
pub(super) fn run(schedule: &Schedule) -> (Vec<Step>, Outcome) {
    let mut naive = Naive::default();
    naive.step(Instant::Order, Actor::Customer, "The customer orders 42.00 USD, without a key.", None);
    let answer = naive.carry(schedule);
    if schedule.has(Instant::Order, Fault::Repeat) {
        naive.step(
            Instant::Order,
            Actor::Customer,
            "The customer orders again: another order, another transfer.",
            Some(Fault::Repeat),
        );
        naive.carry(&Schedule::default());
    }
    let entries: Vec<Entry> =
        (0..naive.charges).map(|_| Entry { text: "Payment".into(), amount_minor: -AMOUNT_MINOR }).collect();
    let times = |count: usize| AMOUNT_MINOR.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX));
    let outcome = Outcome {
        answer: answer.into(),
        charged_minor: times(naive.charges),
        claimed_minor: 0,
        left_minor: times(naive.transfers),
        entries,
    };
    (naive.steps, outcome)
}

impl Naive {
    fn step(&mut self, at: Instant, actor: Actor, text: &str, fault: Option<Fault>) {
        self.steps.push(Step::simulated(Side::WithoutKeys, at, actor, text.to_owned(), fault));
    }

    /// Carries one order to the last answer to the customer.
    fn carry(&mut self, schedule: &Schedule) -> &'static str {
        use Instant::{Reserve, SubmitAnswered, SubmitSent};
        match schedule.at(Reserve) {
            Some(fault @ Fault::Crash) => {
                self.step(
                    Reserve,
                    Actor::Worker,
                    "The client dies before it sends, and is started again.",
                    Some(fault),
                );
            }
            Some(fault) => self.overtaken(Reserve, fault),
            None => {}
        }
        match schedule.at(SubmitSent) {
            Some(fault @ Fault::Refuse) => {
                self.step(
                    SubmitSent,
                    Actor::Switch,
                    "The switch refuses. The client says: failed.",
                    Some(fault),
                );
                return "failed";
            }
            Some(fault @ Fault::Stall) => {
                self.step(
                    SubmitSent,
                    Actor::Network,
                    "Three transfers, three references, no answer. The client says: failed.",
                    Some(fault),
                );
                self.step(SubmitSent, Actor::Switch, "The first transfer arrives and settles.", None);
                self.settle();
                self.confirm(Instant::Confirmation, "SUCCESS: the client charges the account.");
                return "failed";
            }
            Some(fault @ Fault::Lose) => {
                self.step(
                    SubmitSent,
                    Actor::Network,
                    "The transfer is lost. No answer: the client sends again, with a new reference.",
                    Some(fault),
                );
            }
            Some(fault @ (Fault::Delay | Fault::Crash)) => {
                self.step(
                    SubmitSent,
                    Actor::Network,
                    "The transfer is late. The client does not know, and sends again, with a new reference.",
                    Some(fault),
                );
                self.settle();
                self.confirm(
                    Instant::Confirmation,
                    "The late transfer arrives and settles. SUCCESS: the client charges the account.",
                );
            }
            Some(fault) => self.overtaken(SubmitSent, fault),
            None => {}
        }
        let answered = schedule.at(SubmitAnswered);
        if let Some(fault) = answered {
            self.step(
                SubmitAnswered,
                Actor::Switch,
                match fault {
                    Fault::Crash => {
                        "The switch accepts. The client dies before it notes that, and is started again."
                    }
                    Fault::Stop => {
                        "The switch accepts. The client is stopped; another one finds the order open."
                    }
                    _ => "The switch accepts; its answer is lost.",
                },
                Some(fault),
            );
            self.settle();
            self.confirm(
                Instant::Confirmation,
                "The first transfer settles. SUCCESS: the client charges the account.",
            );
            if schedule.has(Instant::Retry, Fault::Crash) {
                self.step(
                    Instant::Retry,
                    Actor::Worker,
                    "The client dies, and is started again.",
                    Some(Fault::Crash),
                );
            }
            self.step(
                Instant::Retry,
                Actor::Worker,
                "The order is open: the client sends again, with a new reference.",
                None,
            );
        }
        self.accepted(schedule);
        "settled"
    }

    /// From the acceptance of the last transfer on.
    fn accepted(&mut self, schedule: &Schedule) {
        use Instant::{Confirmation, Debit, Waiting};
        self.step(Instant::SubmitAnswered, Actor::Switch, "The switch accepts.", None);
        match schedule.at(Waiting) {
            Some(fault @ Fault::Freeze) => {
                self.frozen = true;
                self.step(Waiting, Actor::Customer, "A court freezes the account.", Some(fault));
            }
            Some(fault) => {
                self.step(
                    Waiting,
                    Actor::Worker,
                    match fault {
                        Fault::Expire => "The SLA has ended. The client takes silence for a failure and sends again; the slow transfer settles too.",
                        Fault::FalseFailure => "FAILURE: the client believes it and sends again; the first transfer settles.",
                        Fault::Stop => "The client is stopped; another one finds the order open and sends again.",
                        _ => "The client dies, is started again, finds the order open and sends again.",
                    },
                    Some(fault),
                );
                self.settle();
                self.confirm(
                    Confirmation,
                    "The first transfer settles. SUCCESS: the client charges the account.",
                );
            }
            None => {}
        }
        self.settle();
        self.step(Waiting, Actor::Switch, "The transfer settles.", None);
        match schedule.at(Confirmation) {
            Some(fault @ (Fault::Lose | Fault::Delay)) => {
                self.step(
                    Confirmation,
                    Actor::Network,
                    "The SUCCESS does not come. After the SLA the client sends again, with a new reference.",
                    Some(fault),
                );
                self.settle();
                self.step(Waiting, Actor::Switch, "The second transfer settles.", None);
                if fault == Fault::Delay {
                    self.confirm(Confirmation, "The late SUCCESS arrives: the client charges the account.");
                }
            }
            Some(fault @ Fault::Repeat) => {
                self.step(Confirmation, Actor::Switch, "The SUCCESS comes twice.", Some(fault));
                self.confirm(Confirmation, "SUCCESS: the client charges the account.");
            }
            Some(fault) => {
                self.step(
                    Confirmation,
                    Actor::Network,
                    "A stranger posts a SUCCESS. The client checks no signature.",
                    Some(fault),
                );
                self.confirm(Confirmation, "SUCCESS: the client charges the account.");
            }
            None => {}
        }
        match schedule.at(Debit) {
            Some(fault @ Fault::Crash) => {
                self.step(
                    Debit,
                    Actor::Worker,
                    "The client dies before it charges the account, is started again, and sends again.",
                    Some(fault),
                );
                self.settle();
            }
            Some(fault) => {
                self.step(Debit, Actor::Worker, "The client is stopped before it charges the account. Another one finds the order open and sends again.", Some(fault));
                self.settle();
                self.confirm(Confirmation, "SUCCESS: the other client charges the account.");
            }
            None => {}
        }
        self.confirm(Debit, "SUCCESS: the client charges the account.");
    }

    /// The client is stopped; another one finds the order open and carries it to its end.
    fn overtaken(&mut self, at: Instant, fault: Fault) {
        self.step(
            at,
            Actor::Worker,
            "The client is stopped. Another one finds the order open and sends it.",
            Some(fault),
        );
        self.settle();
        self.confirm(Instant::Confirmation, "SUCCESS: the other client charges the account.");
        self.step(at, Actor::Worker, "The first client wakes up and sends the order too.", None);
    }

    fn settle(&mut self) {
        self.transfers += 1;
    }

    fn confirm(&mut self, at: Instant, text: &str) {
        if self.frozen {
            self.step(
                at,
                Actor::Ledger,
                "The account is frozen: the client cannot charge it. The bank pays.",
                None,
            );
        } else {
            self.charges += 1;
            self.step(at, Actor::Ledger, text, None);
        }
    }
}

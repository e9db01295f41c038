//! Which of the explorer's moves comes next: the schedule's fault at its instant, else what happens when nothing goes wrong.

use std::collections::HashSet;

use payment_explorer::model::Model;
use payment_explorer::moves::Move;
use payment_explorer::replay::Progress;
use payment_explorer::state::{State, WorkflowState};
use payment_explorer::switch::TransferStatus;
use payment_explorer::workflow::PortCall;

use crate::schedule::{Drop, Fault, Instant, Schedule};

/// What happens next.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// The number of the move; `None` if nothing happens that the explorer knows of.
    pub(super) taken: Option<usize>,
    /// The instant, if this says which.
    pub(super) at: Option<Instant>,
    /// The fault, if this is one.
    pub(super) fault: Option<Fault>,
    /// What a reader should know before the move.
    pub(super) remarks: Vec<&'static str>,
}

/// The choices along one run.
pub(super) struct Choice<'s> {
    schedule: &'s Schedule,
    used: HashSet<Instant>,
    /// Submits that were sent and not answered.
    unanswered: usize,
}

/// The moves of one state, which were not tried before.
struct Offer<'m> {
    moves: &'m [Move],
    visited: &'m HashSet<State>,
}

impl Offer<'_> {
    fn position(&self, matches: impl Fn(&Move) -> bool) -> Option<usize> {
        self.moves.iter().position(|one| matches(one) && !self.visited.contains(&one.next))
    }

    fn exactly(&self, text: &str) -> Option<usize> {
        self.position(|one| one.description == text)
    }

    /// The first benign move that begins with `prefix`.
    fn benign(&self, prefix: &str) -> Option<usize> {
        self.position(|one| one.benign && one.description.starts_with(prefix))
    }

    fn has(&self, prefix: &str) -> bool {
        self.moves.iter().any(|one| one.description.starts_with(prefix))
    }
}

const IN_TRANSIT: &str = "submit: send: no answer in time; the submit is still in transit";
const NEEDS_QUERY: &str = "debit: read whether the debit needs a query";
const CONFIRMS: &str = "debit: query: the switch reports settled";
pub(super) const RECORDS_AND_DEBITS: &str = "debit: record that the transfer settled, and debit";
const HANGS_BEFORE_DEBIT: &str = "debit hangs before it can record that the transfer settled, and debit";
const LOST: &str = "submit: send: the request is lost";

impl<'s> Choice<'s> {
    pub(super) fn new(schedule: &'s Schedule) -> Self {
        // The order is narrated before the first move.
        let used = HashSet::from([Instant::Order]);
        Self { schedule, used, unanswered: 0 }
    }

    /// A fault of the schedule that did not happen.
    pub(super) fn unused(&self) -> Option<Drop> {
        self.schedule.drops().iter().find(|drop| !self.used.contains(&drop.at)).copied()
    }

    /// The fault of an instant, once.
    fn due(&self, at: Instant) -> Option<Fault> {
        self.schedule.at(at).filter(|_| !self.used.contains(&at))
    }

    fn fault(&mut self, at: Instant, fault: Fault, taken: Option<usize>) -> Option<Chosen> {
        let taken = taken?;
        self.used.insert(at);
        Some(Chosen { taken: Some(taken), at: Some(at), fault: Some(fault), remarks: Vec::new() })
    }

    fn remark(&mut self, at: Instant, fault: Fault, text: &'static str) -> Chosen {
        self.used.insert(at);
        Chosen { taken: None, at: Some(at), fault: Some(fault), remarks: vec![text] }
    }

    /// What happens next; `None` if nothing does any more.
    pub(super) fn next(
        &mut self,
        model: &Model,
        state: &State,
        moves: &[Move],
        visited: &HashSet<State>,
    ) -> Option<Chosen> {
        let offer = Offer { moves, visited };
        let call = match &state.workflow {
            WorkflowState::NotStarted => {
                return normal(Instant::Order, offer.exactly("the starter starts the workflow"));
            }
            WorkflowState::Lost | WorkflowState::Closed(_) => return self.afterwards(&offer),
            WorkflowState::Running(running) => match &*model.workflow_at(running.resume, &running.history) {
                Progress::Awaits(call) => call.clone(),
                Progress::Completed(_) | Progress::Diverged => return None,
            },
        };
        let chosen = match call {
            PortCall::Reserve => self.reserve(&offer),
            PortCall::Submit => self.submit(&offer),
            PortCall::WaitWithinSla => self.wait(model, state, &offer),
            PortCall::WaitUntilEvent => operators(state, &offer),
            PortCall::ApplyDecision(..) => normal(
                Instant::Recall,
                offer.exactly("the account is unfrozen").or(offer.benign("apply decision: ")),
            ),
            PortCall::Debit => self.debit(&offer),
            PortCall::Recall => self.recall(&offer),
            PortCall::Cancel(..) => {
                normal_here(offer.benign("the workflow handles: ").or(offer.benign("cancel: ")))
            }
            PortCall::Lock => normal_here(offer.benign("the account is locked")),
            _ => normal_here(offer.benign("ledger: ")),
        };
        chosen.or_else(|| {
            // An attempt that is repeated meets states that it has met; time passes only while it asks the switch.
            let again = Offer { moves, visited: &HashSet::new() }.position(|one| one.benign);
            normal_here(
                offer.benign("the clock reaches").or(offer.benign("signal: ")).or(offer.benign("")).or(again),
            )
        })
    }

    fn reserve(&mut self, offer: &Offer<'_>) -> Option<Chosen> {
        let at = Instant::Reserve;
        match self.due(at) {
            Some(Fault::Stop) => {
                self.fault(at, Fault::Stop, offer.exactly("ledger: reserve hangs, and is retried elsewhere"))
            }
            Some(fault) => self.fault(
                at,
                fault,
                offer.exactly("ledger: reserve commits, and the worker crashes before it can reply"),
            ),
            None => normal(at, offer.benign("ledger: reserve")),
        }
    }

    fn submit(&mut self, offer: &Offer<'_>) -> Option<Chosen> {
        let (sent, answered) = (Instant::SubmitSent, Instant::SubmitAnswered);
        if self.unanswered > 0
            && let Some(Fault::Crash) = self.due(Instant::Retry)
        {
            let text = "The worker dies between the two attempts; Temporal starts the second attempt on another worker.";
            return Some(self.remark(Instant::Retry, Fault::Crash, text));
        }
        if offer.has("submit: record the answer")
            && let Some(Fault::Stop) = self.due(answered)
        {
            let hangs =
                offer.exactly("submit hangs before it can record the answer, and is retried elsewhere");
            return self.fault(answered, Fault::Stop, hangs);
        }
        if !offer.has("submit: send: ") {
            let is_repeated =
                self.unanswered > 0 || self.used.contains(&sent) || self.used.contains(&answered);
            let at = if is_repeated { Instant::Retry } else { sent };
            return normal(at, offer.benign("submit: "));
        }
        if self.schedule.has(sent, Fault::Stall) {
            self.unanswered += 1;
            return match self.unanswered {
                1 => self.fault(sent, Fault::Stall, offer.exactly(IN_TRANSIT)),
                2 => self.fault(
                    sent,
                    Fault::Stall,
                    offer.exactly(LOST).or(offer.exactly("submit's time budget is used up")),
                ),
                _ => normal(sent, offer.exactly("submit's time budget is used up")),
            };
        }
        let (at, due) = match self.due(sent) {
            Some(fault) => (sent, Some(fault)),
            None => (answered, self.due(answered)),
        };
        let Some(fault) = due else {
            return normal(
                answered,
                offer.exactly("submit: send: the switch accepts").or(offer.benign("submit: ")),
            );
        };
        self.unanswered += usize::from(fault == Fault::Lose);
        let taken = match (at, fault) {
            (Instant::SubmitSent, Fault::Lose) => offer.exactly(LOST),
            (Instant::SubmitSent, Fault::Delay) => offer.exactly(IN_TRANSIT),
            (Instant::SubmitSent, Fault::Refuse) => offer.exactly("submit: send: the switch refuses"),
            (Instant::SubmitSent, Fault::Crash) => {
                offer.exactly(&format!("{IN_TRANSIT}, and the worker crashes"))
            }
            (Instant::SubmitSent, _) => {
                offer.exactly("submit hangs before it can send, and is retried elsewhere")
            }
            (_, Fault::Crash) => offer.exactly("submit: send: the switch accepts, and the worker crashes"),
            (_, Fault::Lose) => offer.exactly("submit: send: the submit arrives, its answer is lost"),
            // A stop: the answer is not recorded.
            _ => return normal(answered, offer.exactly("submit: send: the switch accepts")),
        };
        self.fault(at, fault, taken)
    }

    fn wait(&mut self, model: &Model, state: &State, offer: &Offer<'_>) -> Option<Chosen> {
        let (waiting, confirmation) = (Instant::Waiting, Instant::Confirmation);
        // A submit that was late arrives now.
        if let Some(arrives) = offer.benign("late: the submit arrives: ") {
            return normal(Instant::SubmitSent, Some(arrives));
        }
        if let Some(handled) = offer.benign("the workflow handles: ") {
            return normal(confirmation, Some(handled));
        }
        let settled = state.switch.settled();
        match self.due(waiting) {
            Some(fault @ Fault::Crash) => {
                return Some(self.remark(
                    waiting,
                    fault,
                    "The worker dies. No process carries the payment now: it waits at Temporal.",
                ));
            }
            Some(fault @ Fault::Stop) => {
                return Some(self.remark(
                    waiting,
                    fault,
                    "The worker is stopped. No process carries the payment now: it waits at Temporal.",
                ));
            }
            Some(fault @ Fault::Expire) => {
                return self.fault(waiting, fault, offer.exactly("the SLA expires"));
            }
            Some(fault @ Fault::FalseFailure) if settled => {
                return self.fault(waiting, fault, offer.exactly("callback FAILURE, false"));
            }
            _ => {}
        }
        if !settled && state.switch.transfers.contains(&TransferStatus::Pending) {
            return normal(waiting, offer.exactly("the switch settles the transfer"));
        }
        if !model.profile().has_callback {
            return normal(waiting, offer.benign("poll: ").or(offer.exactly("the SLA expires")));
        }
        match self.due(confirmation) {
            Some(fault @ Fault::Forge) => {
                let text = "A stranger posts a SUCCESS; payments-api refuses it, because the signature is not the switch's.";
                return Some(self.remark(confirmation, fault, text));
            }
            Some(fault @ Fault::Repeat) if state.bank.success_stored => {
                return self.fault(
                    confirmation,
                    fault,
                    offer.exactly("signal, delivered again later: the switch reported SUCCESS"),
                );
            }
            Some(Fault::Lose) => {
                return self
                    .fault(confirmation, Fault::Lose, offer.exactly("the SLA expires"))
                    .map(|chosen| Chosen { remarks: vec!["The callback of the switch is lost."], ..chosen });
            }
            Some(Fault::Delay) => {
                // It arrives after the end: see `afterwards`.
                return normal(waiting, offer.exactly("the SLA expires"));
            }
            _ => {}
        }
        normal(
            confirmation,
            offer
                .exactly("callback SUCCESS")
                .or(offer.benign("signal: "))
                .or(offer.exactly("the SLA expires")),
        )
    }

    fn debit(&mut self, offer: &Offer<'_>) -> Option<Chosen> {
        if let Some(freeze @ Fault::Freeze) = self.due(Instant::Waiting)
            && let Some(chosen) = self.fault(Instant::Waiting, freeze, offer.exactly("the account is frozen"))
        {
            return Some(chosen);
        }
        // Where a query confirms callbacks, it comes first: the answer is recorded with the debit.
        let asks = offer.exactly(NEEDS_QUERY).or(offer.exactly(CONFIRMS));
        if asks.is_some() {
            return normal(Instant::Debit, asks);
        }
        let debits = if offer.has(RECORDS_AND_DEBITS) { RECORDS_AND_DEBITS } else { "ledger: debit" };
        match self.due(Instant::Debit) {
            Some(fault @ Fault::Stop) => {
                let hangs = offer.position(|one| {
                    one.description.starts_with(HANGS_BEFORE_DEBIT)
                        || one.description == "ledger: debit hangs, and is retried elsewhere"
                });
                self.fault(Instant::Debit, fault, hangs)
            }
            Some(fault) => {
                let crash = offer
                    .exactly(&format!("{RECORDS_AND_DEBITS}, and the worker crashes"))
                    .or(offer.exactly("ledger: debit commits, and the worker crashes before it can reply"));
                self.fault(Instant::Debit, fault, crash)
            }
            None => normal(Instant::Debit, offer.benign(debits).or(offer.benign("debit: debit"))),
        }
    }

    fn recall(&mut self, offer: &Offer<'_>) -> Option<Chosen> {
        let refused = offer.exactly("recall: recall: the switch refuses to return the money");
        match self.due(Instant::Recall) {
            Some(fault) if refused.is_some() => self.fault(Instant::Recall, fault, refused),
            _ => normal(Instant::Recall, offer.benign("recall: ")),
        }
    }

    /// What still happens after the workflow has closed: late messages and attempts.
    fn afterwards(&mut self, offer: &Offer<'_>) -> Option<Chosen> {
        if let Some(fault @ Fault::Delay) = self.due(Instant::Confirmation)
            && let Some(chosen) = self.fault(Instant::Confirmation, fault, offer.exactly("callback SUCCESS"))
        {
            return Some(chosen);
        }
        normal_here(offer.benign("late: ").or(offer.benign("the starter starts a recovery workflow")))
    }
}

/// Operators wait for what is still under way, then decide what the switch's book says.
fn operators(state: &State, offer: &Offer<'_>) -> Option<Chosen> {
    let decision =
        if state.switch.settled() { "operators decide: debit" } else { "operators decide: release" };
    let first = [
        "the workflow handles: ",
        "signal: ",
        "late: ",
        "the switch settles",
        decision,
        "operators decide: ",
    ];
    normal_here(first.iter().find_map(|prefix| offer.benign(prefix)))
}

fn normal(at: Instant, taken: Option<usize>) -> Option<Chosen> {
    taken.map(|taken| Chosen { taken: Some(taken), at: Some(at), ..Chosen::default() })
}

fn normal_here(taken: Option<usize>) -> Option<Chosen> {
    taken.map(|taken| Chosen { taken: Some(taken), ..Chosen::default() })
}

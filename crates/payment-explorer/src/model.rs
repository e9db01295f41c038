//! The subject of one exploration: a payment, its switch's profile, the bounds, and every exchange met so far.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use foldhash::quality::FixedState;
use iso_currency::Currency;
use payment_protocol::cancel::SwitchResponse;
use payment_protocol::cause::OperatorReason;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::{AccountId, DecisionId, PaymentId, SwitchName, TxId};
use payment_protocol::money::Money;
use payment_protocol::reject::{Reject, RejectMeaning};
use payment_protocol::report::SettledReport;
use payment_protocol::submit::QueryAnswer;
use payment_protocol::{Payment, PaymentError, SwitchProfile};

use crate::attempt::{self, ActiveAttempt, Activity, AttemptCall, AttemptOutcome};
use crate::bank::Bank;
use crate::equivalence;
use crate::replay::{Exchange, Index, Interner, Progress};
use crate::switch::{ClockPhase, Switch};
use crate::workflow::{self, PortCall};

/// How far an exploration goes. Everything without a bound here is walked in every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkBounds {
    /// Faults of our machines and of the network in one sequence.
    pub faults: u8,
    /// False, misdirected and mismatching messages of the switch in one sequence.
    pub switch_faults: u8,
    /// Confirmed commits of our ledger that are lost in one sequence.
    pub lost_commits: u8,
    /// Failovers to a standby of our ledger that has fallen behind, in one sequence: all commits since are lost together.
    pub failovers: u8,
    /// Runs that go on beside a restored Temporal, or beside a recovery, in one sequence.
    pub second_runs: u8,
    /// Other payments of this bank to the same account at a switch without references, in one sequence.
    pub second_payments: u8,
    /// Decisions on false evidence in one sequence.
    pub false_decisions: u8,
    /// Operator decisions in one sequence.
    pub decisions: u8,
    /// How many of these may happen in one sequence: a customer's cancel, a freeze of the account, a start after `valid_until`.
    pub events: u8,
    /// Recovery workflows in one sequence.
    pub recoveries: u8,
    /// Whether every history is its own position (see [`crate::equivalence`]).
    pub every_history: bool,
}

impl WalkBounds {
    /// The number of events that [`WalkBounds::events`] counts.
    pub const EVENTS: u8 = 3;

    /// How many kinds of trouble may come together in one sequence.
    #[must_use]
    pub fn kinds_of_trouble(&self) -> usize {
        let Self {
            faults,
            switch_faults,
            lost_commits,
            failovers,
            second_runs,
            second_payments,
            false_decisions,
            ..
        } = *self;
        let kinds =
            [faults, switch_faults, lost_commits, failovers, second_runs, second_payments, false_decisions];
        kinds.into_iter().filter(|bound| *bound > 0).count()
    }
}

/// The bounds as the arguments of the command that walks within them; a bound of zero is left out, except the faults and decisions,
/// which are one by default.
impl std::fmt::Display for WalkBounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--faults {} --decisions {}", self.faults, self.decisions)?;
        for (name, bound) in [
            ("switch-faults", self.switch_faults),
            ("lost-commits", self.lost_commits),
            ("failovers", self.failovers),
            ("second-runs", self.second_runs),
            ("second-payments", self.second_payments),
            ("false-decisions", self.false_decisions),
        ] {
            if bound > 0 {
                write!(f, " --{name} {bound}")?;
            }
        }
        if self.events < Self::EVENTS {
            write!(f, " --events {}", self.events)?;
        }
        Ok(())
    }
}

/// The position of code after each history.
type ProgressByHistory<C, T> = RefCell<HashMap<Vec<Index>, Rc<Progress<C, T>>, FixedState>>;

/// The first equivalent history that was met, for each history.
type CanonicalHistories = RefCell<HashMap<Vec<Index>, Vec<Index>, FixedState>>;

/// One payment at one switch. Arrays have two elements: the forward workflow and the recovery workflow.
#[derive(Debug)]
pub struct Model {
    payments: [Payment; 2],
    /// The bounds.
    pub bounds: WalkBounds,
    /// The switch's report that the transfer settled.
    pub report: SettledReport,
    /// A switch that the payment was not routed to.
    pub other_switch: SwitchName,
    workflow_exchanges: workflow::Exchanges,
    /// The exchanges that a workflow had in a reached state, not only when its history was compared.
    reached_exchanges: RefCell<HashSet<Index>>,
    attempt_exchanges: attempt::Exchanges,
    activities: Interner<Activity>,
    workflow_progress: [ProgressByHistory<PortCall, Result<(), PaymentError>>; 2],
    history_by_behaviour: [RefCell<HashMap<u64, Vec<Index>, FixedState>>; 2],
    canonical_histories: [CanonicalHistories; 2],
    attempt_progress: RefCell<Vec<Rc<ProgressByHistory<AttemptCall, AttemptOutcome>>>>,
}

/// Submit's deadline on the switch's clock, in milliseconds since the epoch.
pub const DEADLINE_MS: i64 = 60_000;

impl Model {
    /// A payment of 10.00 EUR at the switch of `profile`.
    ///
    /// # Errors
    /// One of the model's own ids is invalid, which does not occur.
    pub fn new(profile: SwitchProfile, bounds: WalkBounds) -> anyhow::Result<Self> {
        let payment_id = PaymentId::new("pay_1")?;
        let forward = Payment {
            tx_id: TxId::derive(&payment_id),
            payment_id,
            money: Money::from_minor(1_000, Currency::EUR)?,
            source_account: AccountId::new("alice")?,
            profile,
            resume: 0,
        };
        let report = SettledReport {
            switch: forward.profile.switch.clone(),
            reference: forward.reference().to_string(),
            amount_minor: 1_000,
            currency: "EUR".into(),
        };
        let recovery = Payment { resume: 1, ..forward.clone() };
        Ok(Self {
            payments: [forward, recovery],
            bounds,
            report,
            other_switch: SwitchName::new("other")?,
            workflow_exchanges: workflow::Exchanges::default(),
            reached_exchanges: RefCell::default(),
            attempt_exchanges: attempt::Exchanges::default(),
            activities: Interner::default(),
            workflow_progress: Default::default(),
            history_by_behaviour: Default::default(),
            canonical_histories: Default::default(),
            attempt_progress: RefCell::default(),
        })
    }

    /// The payment, as the forward workflow receives it.
    #[must_use]
    pub fn payment(&self) -> &Payment {
        &self.payments[0]
    }

    /// The switch's profile.
    #[must_use]
    pub fn profile(&self) -> &SwitchProfile {
        &self.payments[0].profile
    }

    /// A reject with a code of this meaning; without a code if the switch's rejects have none.
    #[must_use]
    pub fn reject(&self, meaning: RejectMeaning) -> Reject {
        let mut codes = self.profile().reject_codes.iter();
        let code = codes.find(|(_, listed)| **listed == meaning).map(|(code, _)| code.clone());
        Reject { code, reason: "refused".into() }
    }

    /// From which phase on the statement is complete beyond the time at which the transfer could settle; `None` if the statement does
    /// not say. From then on the transfer does not settle any more.
    #[must_use]
    pub fn statement_closes(&self) -> Option<ClockPhase> {
        self.profile().settled_within_ms.map(|_| {
            if self.profile().honours_deadline {
                ClockPhase::AfterDeadline
            } else {
                ClockPhase::AfterRetention
            }
        })
    }

    /// Until when the statement is complete in a phase, in milliseconds since the epoch; `None` if it does not say.
    #[must_use]
    pub fn complete_until_ms(&self, phase: ClockPhase) -> Option<i64> {
        let closes = self.statement_closes()?;
        Some(if phase >= closes { i64::MAX } else { 0 })
    }

    /// The id of the n-th decision.
    #[must_use]
    pub fn decision_id(n: u8) -> Option<DecisionId> {
        DecisionId::new(format!("decision-{n}")).ok()
    }

    /// The position of a workflow after this history; `resume` 0 is the forward workflow.
    #[must_use]
    pub fn workflow_at(
        &self,
        resume: u8,
        history: &[Index],
    ) -> Rc<Progress<PortCall, Result<(), PaymentError>>> {
        let kind = usize::from(resume > 0);
        if let Some(progress) = self.workflow_progress[kind].borrow().get(history) {
            return progress.clone();
        }
        let progress = Rc::new(workflow::advance(&self.workflow_exchanges, history, &self.payments[kind]));
        self.workflow_progress[kind].borrow_mut().insert(history.to_vec(), progress.clone());
        progress
    }

    /// The first equivalent history that was met.
    #[must_use]
    pub fn canonical_history(&self, resume: u8, history: Vec<Index>) -> Vec<Index> {
        if self.bounds.every_history {
            return history;
        }
        let kind = usize::from(resume > 0);
        if let Some(canonical) = self.canonical_histories[kind].borrow().get(&history) {
            return canonical.clone();
        }
        let behaviour = equivalence::behaviour(&self.workflow_exchanges, &history, &self.payments[kind]);
        let canonical = self.history_by_behaviour[kind]
            .borrow_mut()
            .entry(behaviour)
            .or_insert_with(|| history.clone())
            .clone();
        self.canonical_histories[kind].borrow_mut().insert(history, canonical.clone());
        canonical
    }

    /// The index of an activity.
    #[must_use]
    pub fn intern_activity(&self, activity: Activity) -> Index {
        let index = self.activities.intern(activity);
        let mut progress = self.attempt_progress.borrow_mut();
        while progress.len() <= usize::from(index) {
            progress.push(Rc::default());
        }
        index
    }

    /// The activity of an index.
    #[must_use]
    pub fn activity(&self, index: Index) -> Rc<Activity> {
        self.activities.value(index).unwrap_or_else(|| Rc::new(Activity::Submit))
    }

    /// Whether a callback about the payment moves no money until a query confirms it.
    #[must_use]
    pub fn confirms_by_query(&self) -> bool {
        self.profile().confirms_by_query(self.payment().money)
    }

    /// Whether the bank knows that the money came back. What a callback alone says is no knowledge where a query must confirm it: if the
    /// answer says that the transfer settled, it is debited, and the return corrected.
    #[must_use]
    pub fn knows_of_return(&self, bank: &Bank) -> bool {
        let is_confirmed = bank.final_status == Some(FinalStatus::Returned) || bank.returned_unexpectedly;
        bank.knows_of_return() && (is_confirmed || !self.confirms_by_query())
    }

    /// Whether the waiting payment polls the switch: one that does not call back, or whose callbacks a query must confirm, once there is
    /// one, and always while the payment awaits an operator, unless no answer can move it.
    #[must_use]
    pub fn is_polled(&self, bank: &Bank, wait: &PortCall) -> bool {
        let with_operator = *wait == PortCall::WaitUntilEvent;
        let is_moved = !with_operator || bank.operator_reason.is_none_or(OperatorReason::follows_return);
        let awaits_answer = bank.report_to_confirm || with_operator;
        is_moved && (self.profile().must_be_polled() || self.confirms_by_query() && awaits_answer)
    }

    /// Whether an attempt's next call sends the transfer, for the first time or as a repeat.
    #[must_use]
    pub fn is_about_to_send(&self, attempt: &ActiveAttempt) -> bool {
        match &*self.attempt_at(attempt.activity, &attempt.history) {
            Progress::Awaits(AttemptCall::Send(_)) => true,
            Progress::Awaits(AttemptCall::Query(_)) => self.profile().query_is_repeat,
            Progress::Awaits(_) | Progress::Completed(_) | Progress::Diverged => false,
        }
    }

    /// The position of an attempt after this history.
    #[must_use]
    pub fn attempt_at(
        &self,
        activity: Index,
        history: &[Index],
    ) -> Rc<Progress<AttemptCall, AttemptOutcome>> {
        let known = self.attempt_progress.borrow().get(usize::from(activity)).cloned().unwrap_or_default();
        if let Some(progress) = known.borrow().get(history) {
            return progress.clone();
        }
        let activity = self.activity(activity);
        let progress = Rc::new(attempt::advance(&self.attempt_exchanges, history, self.payment(), &activity));
        known.borrow_mut().insert(history.to_vec(), progress.clone());
        progress
    }

    /// The index of a workflow's exchange, which counts as reached.
    #[must_use]
    pub fn workflow_exchange(&self, call: PortCall, reply: workflow::PortReply) -> Index {
        let index = self.workflow_exchanges.intern(Exchange { call, reply });
        self.reached_exchanges.borrow_mut().insert(index);
        index
    }

    /// The index of an attempt's exchange.
    #[must_use]
    pub fn attempt_exchange(&self, call: AttemptCall, reply: attempt::AttemptReply) -> Index {
        self.attempt_exchanges.intern(Exchange { call, reply })
    }

    /// The report that the money came back, as the switch makes it.
    #[must_use]
    pub fn returned_report(&self, switch: &Switch) -> SettledReport {
        let amount_minor = if switch.returned_other_amount { 1 } else { self.report.amount_minor };
        SettledReport { amount_minor, ..self.report.clone() }
    }

    /// The answers to an attempt's queries, and the contents of the statement that it read.
    pub fn answers_to(&self, attempt: &ActiveAttempt) -> Vec<SwitchResponse<QueryAnswer>> {
        let exchanges = attempt.history.iter().filter_map(|index| self.attempt_exchanges.value(*index));
        exchanges
            .filter_map(|exchange| match &exchange.reply {
                attempt::AttemptReply::QueryAnswer(response) => Some(response.clone()),
                _ => None,
            })
            .collect()
    }

    /// Every exchange of workflows that was reached.
    #[must_use]
    pub fn reached_workflow_exchanges(&self) -> Vec<Rc<Exchange<PortCall, workflow::PortReply>>> {
        let reached = self.reached_exchanges.borrow();
        reached.iter().filter_map(|index| self.workflow_exchanges.value(*index)).collect()
    }

    /// Every exchange of attempts with ledger and switch that was reached.
    #[must_use]
    pub fn reached_attempt_exchanges(&self) -> Vec<Rc<Exchange<AttemptCall, attempt::AttemptReply>>> {
        self.attempt_exchanges.values()
    }

    /// The exchanges of a workflow's history.
    #[must_use]
    pub fn exchanges_of(&self, history: &[Index]) -> Vec<Rc<Exchange<PortCall, workflow::PortReply>>> {
        history.iter().filter_map(|index| self.workflow_exchanges.value(*index)).collect()
    }

    /// Every outcome of an attempt that was reached.
    #[must_use]
    pub fn reached_outcomes(&self) -> Vec<AttemptOutcome> {
        let mut reached = Vec::new();
        for known in self.attempt_progress.borrow().iter() {
            for progress in known.borrow().values() {
                if let Progress::Completed(outcome) = &**progress {
                    reached.push(outcome.clone());
                }
            }
        }
        reached
    }

    /// The switch's `Date` in a phase, in milliseconds since the epoch.
    #[must_use]
    pub fn date_ms(&self, phase: ClockPhase) -> i64 {
        let skew_ms = i64::try_from(self.profile().max_skew_ms).unwrap_or(i64::MAX);
        match phase {
            ClockPhase::BeforeDeadline => 1_000,
            ClockPhase::WithinSkew => DEADLINE_MS + skew_ms / 2,
            ClockPhase::AfterDeadline | ClockPhase::AfterRetention => DEADLINE_MS + skew_ms + 1,
        }
    }

    /// The first attempt's age in a phase, by our database's clock, in milliseconds.
    #[must_use]
    pub fn age_ms(&self, phase: ClockPhase) -> u64 {
        match phase {
            ClockPhase::BeforeDeadline | ClockPhase::WithinSkew => 5_000,
            // The first query is due once the switch's own clock has ended.
            ClockPhase::AfterDeadline => self.profile().first_ask_after_ms.max(5_000),
            ClockPhase::AfterRetention => {
                self.profile().retention_s.max(self.profile().ask_window_s).saturating_mul(1_000)
            }
        }
    }
}

//! What one exploration is about: a payment, its switch's profile, the bounds, and what was met so far.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use foldhash::quality::FixedState;
use iso_currency::Currency;
use payment_protocol::ids::{AccountId, DecisionId, PaymentId, SwitchName, TxId};
use payment_protocol::money::Money;
use payment_protocol::report::SettledReport;
use payment_protocol::{Payment, PaymentError, SwitchProfile};

use crate::attempt::{self, Call, Job, Outcome};
use crate::place;
use crate::run::{self, Step};
use crate::script::{Came, Exchange, Interned, Number};
use crate::state::AttemptInFlight;
use crate::switch::Moment;

/// How far an exploration goes. Everything that is not bounded here is walked in every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Faults of our machines and of the wire in one sequence.
    pub faults: u8,
    /// Words of the switch that are false, foreign or of another amount in one sequence.
    pub words: u8,
    /// Decisions of people in one sequence.
    pub decisions: u8,
    /// How often the payment is taken up again.
    pub resumes: u8,
    /// Whether every history is a place of its own (see [`crate::place`]).
    pub every_history: bool,
}

/// Where code stands after the answers it has had.
type Places<Q, R> = RefCell<HashMap<Vec<Number>, Rc<Came<Q, R>>, FixedState>>;

/// The first history met that leads to where each leads.
type Twins = RefCell<HashMap<Vec<Number>, Vec<Number>, FixedState>>;

/// One payment at one switch.
#[derive(Debug)]
pub struct Model {
    /// From the top, and taken up again.
    payments: [Payment; 2],
    /// The bounds.
    pub bounds: Bounds,
    /// What the switch says when it settled.
    pub report: SettledReport,
    /// A switch that the payment was not routed to.
    pub callback_from_other_switch: SwitchName,
    runs: run::Exchanges,
    /// Those that a run had in a state, and was not only tried with.
    answered: RefCell<HashSet<Number>>,
    attempts: attempt::Exchanges,
    jobs: Interned<Job>,
    run_places: [Places<Step, Result<(), PaymentError>>; 2],
    places: [RefCell<HashMap<u64, Vec<Number>, FixedState>>; 2],
    known_places: [Twins; 2],
    attempt_places: RefCell<Vec<Rc<Places<Call, Outcome>>>>,
}

/// Submit's deadline on the switch's clock, in milliseconds since the epoch.
pub const DEADLINE_MS: i64 = 60_000;

impl Model {
    /// A payment of 10.00 EUR at the switch of `profile`.
    ///
    /// # Errors
    /// An id of ours that is none, which cannot be.
    pub fn new(profile: SwitchProfile, bounds: Bounds) -> anyhow::Result<Self> {
        let payment_id = PaymentId::new("pay_1")?;
        let from_the_top = Payment {
            tx_id: TxId::derive(&payment_id),
            payment_id,
            money: Money::from_minor(1_000, Currency::EUR)?,
            source_account: AccountId::new("alice")?,
            profile,
            resume: 0,
        };
        let report = SettledReport {
            switch: from_the_top.profile.switch.clone(),
            reference: from_the_top.reference().to_string(),
            amount_minor: 1_000,
            currency: "EUR".into(),
        };
        let again = Payment { resume: 1, ..from_the_top.clone() };
        Ok(Self {
            payments: [from_the_top, again],
            bounds,
            report,
            callback_from_other_switch: SwitchName::new("other")?,
            runs: run::Exchanges::default(),
            answered: RefCell::default(),
            attempts: attempt::Exchanges::default(),
            jobs: Interned::default(),
            run_places: Default::default(),
            places: Default::default(),
            known_places: Default::default(),
            attempt_places: RefCell::default(),
        })
    }

    /// The payment, as a run from the top is given it.
    #[must_use]
    pub fn payment(&self) -> &Payment {
        &self.payments[0]
    }

    /// The switch's profile.
    #[must_use]
    pub fn profile(&self) -> &SwitchProfile {
        &self.payments[0].profile
    }

    /// Name of a decision.
    #[must_use]
    pub fn decision_id(n: u8) -> Option<DecisionId> {
        DecisionId::new(format!("decision-{n}")).ok()
    }

    /// Where a run stands after these answers.
    #[must_use]
    pub fn run_at(&self, resume: u8, past: &[Number]) -> Rc<Came<Step, Result<(), PaymentError>>> {
        let taken_up = usize::from(resume > 0);
        if let Some(came) = self.run_places[taken_up].borrow().get(past) {
            return came.clone();
        }
        let came = Rc::new(run::advance(&self.runs, past, &self.payments[taken_up]));
        self.run_places[taken_up].borrow_mut().insert(past.to_vec(), came.clone());
        came
    }

    /// The first history met that leads to where this one leads.
    #[must_use]
    pub fn place(&self, resume: u8, past: Vec<Number>) -> Vec<Number> {
        if self.bounds.every_history {
            return past;
        }
        let taken_up = usize::from(resume > 0);
        if let Some(place) = self.known_places[taken_up].borrow().get(&past) {
            return place.clone();
        }
        let behaviour = place::behaviour(&self.runs, &past, &self.payments[taken_up]);
        let place =
            self.places[taken_up].borrow_mut().entry(behaviour).or_insert_with(|| past.clone()).clone();
        self.known_places[taken_up].borrow_mut().insert(past, place.clone());
        place
    }

    /// The number of a job.
    #[must_use]
    pub fn job(&self, job: Job) -> Number {
        let number = self.jobs.number(job);
        let mut places = self.attempt_places.borrow_mut();
        while places.len() <= usize::from(number) {
            places.push(Rc::default());
        }
        number
    }

    /// The job of a number.
    #[must_use]
    pub fn job_of(&self, number: Number) -> Rc<Job> {
        self.jobs.value(number).unwrap_or_else(|| Rc::new(Job::Submit))
    }

    /// Whether an attempt's next question sends the transfer.
    #[must_use]
    pub fn is_about_to_send(&self, attempt: &AttemptInFlight) -> bool {
        matches!(&*self.attempt_at(attempt.job, &attempt.past), Came::Asks(Call::Send(_)))
    }

    /// Where an attempt stands after these replies.
    #[must_use]
    pub fn attempt_at(&self, job: Number, past: &[Number]) -> Rc<Came<Call, Outcome>> {
        let places = self.attempt_places.borrow().get(usize::from(job)).cloned().unwrap_or_default();
        if let Some(came) = places.borrow().get(past) {
            return came.clone();
        }
        let came = Rc::new(attempt::advance(&self.attempts, past, self.payment(), &self.job_of(job)));
        places.borrow_mut().insert(past.to_vec(), came.clone());
        came
    }

    /// The number of a run's exchange.
    #[must_use]
    pub fn answered(&self, asked: Step, heard: run::Answer) -> Number {
        let number = self.runs.number(Exchange { asked, heard });
        self.answered.borrow_mut().insert(number);
        number
    }

    /// The number of an attempt's exchange.
    #[must_use]
    pub fn replied(&self, asked: Call, heard: attempt::Reply) -> Number {
        self.attempts.number(Exchange { asked, heard })
    }

    /// Every exchange of runs with their world that was met.
    #[must_use]
    pub fn met_by_runs(&self) -> Vec<Rc<Exchange<Step, run::Answer>>> {
        self.answered.borrow().iter().filter_map(|number| self.runs.value(*number)).collect()
    }

    /// Every exchange of attempts with ledger and switch that was met.
    #[must_use]
    pub fn met_by_attempts(&self) -> Vec<Rc<Exchange<Call, attempt::Reply>>> {
        self.attempts.values()
    }

    /// The exchanges behind a run's place.
    #[must_use]
    pub fn past_of(&self, past: &[Number]) -> Vec<Rc<Exchange<Step, run::Answer>>> {
        past.iter().filter_map(|number| self.runs.value(*number)).collect()
    }

    /// Every way an attempt ended.
    #[must_use]
    pub fn outcomes_met(&self) -> Vec<Outcome> {
        let mut met = Vec::new();
        for places in self.attempt_places.borrow().iter() {
            for came in places.borrow().values() {
                if let Came::Ended(outcome) = &**came {
                    met.push(outcome.clone());
                }
            }
        }
        met
    }

    /// The switch's `Date` at a moment, in milliseconds since the epoch.
    #[must_use]
    pub fn date_ms(&self, now: Moment) -> i64 {
        let skew_ms = i64::try_from(self.profile().max_skew_ms).unwrap_or(i64::MAX);
        match now {
            Moment::Before => 1_000,
            Moment::Skew => DEADLINE_MS + skew_ms / 2,
            Moment::Past | Moment::Retired => DEADLINE_MS + skew_ms + 1,
        }
    }

    /// The first attempt's age at a moment, by our database's clock, in milliseconds.
    #[must_use]
    pub fn age_ms(&self, now: Moment) -> u64 {
        match now {
            Moment::Before | Moment::Skew | Moment::Past => 5_000,
            Moment::Retired => self.profile().retention_s.saturating_mul(1_000),
        }
    }
}

//! R10: random operations on a handful of payments, side by side with a model of a page. The model
//! knows the design, not the ledger's code or its rules.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::Cell;

use iso_currency::Currency;
use payment_ledger::Ledger;
use payment_ledger::accounts::{AccountStatus, InternalAccount, internal_balance};
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::Cause;
use payment_protocol::facts::RecallRecord;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sqlx::PgPool;
use support::{AMOUNT_MINOR, Bank, SWITCH_NOW_MS, Sample, account_id, at, eur, failure, run, success};

const OPERATIONS: usize = 200;
const CASES: u32 = 8;
const PAYMENTS: usize = 6;
const ACCOUNTS: usize = 2;
/// Two of an account's three payments can be held, the third cannot.
const OPENING_MINOR: i64 = 2_500;
const CAUSES: [Cause; 3] = [Cause::SlaExpired, Cause::CustomerCancel, Cause::Interrupted];

/// One operation; numbers are of payments, accounts, runs and causes.
#[derive(Clone, Copy, Debug)]
enum Op {
    Reserve(usize, usize),
    Fence(usize),
    Attempt(usize, usize),
    BeginCancel(usize, usize),
    CustomerCancel(usize),
    Success(usize),
    OtherAmount(usize),
    Failure(usize),
    Void(usize),
    Debit(usize),
    Release(usize, usize),
    Recall(usize, bool),
    Freeze(usize, bool),
    PayIn(usize),
    Seal(i64),
}

fn op() -> impl Strategy<Value = Op> {
    let p = || 0..PAYMENTS;
    // Mostly the same run, so that payments come far.
    let run = || prop_oneof![4 => Just(0_usize), 1 => Just(1_usize)];
    prop_oneof![
        5 => (p(), run()).prop_map(|(p, run)| Op::Reserve(p, run)),
        1 => p().prop_map(Op::Fence),
        5 => (p(), run()).prop_map(|(p, run)| Op::Attempt(p, run)),
        1 => (p(), 0..3_usize).prop_map(|(p, cause)| Op::BeginCancel(p, cause)),
        1 => p().prop_map(Op::CustomerCancel),
        2 => p().prop_map(Op::Success),
        2 => p().prop_map(Op::OtherAmount),
        1 => p().prop_map(Op::Failure),
        1 => p().prop_map(Op::Void),
        4 => p().prop_map(Op::Debit),
        2 => (p(), 0..3_usize).prop_map(|(p, cause)| Op::Release(p, cause)),
        2 => (p(), any::<bool>()).prop_map(|(p, yes)| Op::Recall(p, yes)),
        2 => (0..ACCOUNTS, prop_oneof![2 => Just(false), 1 => Just(true)]).prop_map(|(a, frozen)| Op::Freeze(a, frozen)),
        1 => (0..ACCOUNTS).prop_map(Op::PayIn),
        2 => (1..4_i64).prop_map(Op::Seal),
    ]
}

/// A payment as the design tells it.
#[derive(Clone, Debug, Default)]
struct Modelled {
    run: Option<usize>,
    refused: Option<&'static str>,
    hold: Option<&'static str>,
    attempts: u32,
    reported_without_attempt: bool,
    cause: Option<Cause>,
    final_status: Option<&'static str>,
    differs: bool,
    barred: bool,
    recall: Option<bool>,
    cancel_started: bool,
    end: Option<&'static str>,
}

/// An account: what can be spent, and whether it is frozen.
type Purse = (i64, bool);

impl Modelled {
    fn refuse(&mut self, refusal: &'static str, end: &'static str) -> String {
        (self.refused, self.end) = (Some(refusal), Some(end));
        format!("Refused({refusal})")
    }

    fn reserve(&mut self, run: usize, purse: &mut Purse) -> String {
        if let Some(refusal) = self.refused {
            return format!("Refused({refusal})");
        }
        if let Some(end) = self.end {
            return format!("Ended({end})");
        }
        if self.run.is_some_and(|first| first != run) {
            return "AnotherRun".into();
        }
        if self.hold.is_some() {
            return "Held".into();
        }
        if self.cause.is_some() {
            return "AnotherRun".into();
        }
        self.run = Some(run);
        if self.cancel_started {
            return self.refuse("CustomerCancel", "Cancelled");
        }
        if purse.1 {
            return self.refuse("FrozenAccount", "Rejected");
        }
        if purse.0 < AMOUNT_MINOR {
            return self.refuse("InsufficientFunds", "Rejected");
        }
        purse.0 -= AMOUNT_MINOR;
        self.hold = Some("open");
        "Held".into()
    }

    fn fence(&mut self) -> String {
        if let Some(end) = self.end {
            return format!("Ended({end})");
        }
        if self.hold.is_none() {
            self.refused.get_or_insert("Fenced");
        }
        format!("Open({:?})", self.cause)
    }

    fn attempt(&mut self, run: usize) -> String {
        if self.final_status == Some("Settled") {
            return "Settled".into();
        }
        let fence = if self.run != Some(run) {
            "AnotherRun"
        } else if self.hold != Some("open") {
            "NoOpenHold"
        } else if self.cause.is_some() || self.final_status.is_some() {
            "CancelStarted"
        } else if self.cancel_started {
            "CustomerCancel"
        } else if self.attempts == 0 && self.reported_without_attempt {
            "ReportedWithoutAttempt"
        } else {
            self.attempts += 1;
            return format!("Send({})", self.attempts);
        };
        format!("NotSent({fence})")
    }

    fn begin_cancel(&mut self, cause: &Cause) -> String {
        if self.end.is_none() && self.final_status.is_none() {
            self.cause.get_or_insert_with(|| cause.clone());
        }
        format!("{:?} {:?} {}", self.end, self.final_status, self.never_sent())
    }

    fn never_sent(&self) -> bool {
        self.attempts == 0 && !self.reported_without_attempt
    }

    fn success(&mut self) -> bool {
        self.reported_without_attempt |= self.attempts == 0;
        let believed = self.attempts > 0 && self.final_status != Some("Void");
        if believed {
            assert!(self.final_status.is_some() || self.end.is_none(), "no end without an answer: {self:?}");
            self.final_status = Some("Settled");
        }
        believed && self.end.is_none()
    }

    fn amount_mismatch(&mut self) -> bool {
        self.differs |= self.attempts > 0;
        self.reported_without_attempt |= self.attempts == 0;
        self.attempts > 0 && self.end.is_none()
    }

    fn dead(&mut self) -> &'static str {
        match self.final_status.replace("Void") {
            None => "First",
            Some("Void") => "Same",
            first => {
                self.final_status = first;
                "Contradicts"
            }
        }
    }

    fn debit(&mut self, purse: &Purse) -> &'static str {
        match (self.hold, self.final_status) {
            (Some("settled"), _) => "Done",
            (Some("open"), Some("Settled")) if self.barred || purse.1 => {
                self.barred = true;
                "Refused"
            }
            (Some("open"), Some("Settled")) => {
                (self.hold, self.end) = (Some("debited"), Some("Settled"));
                "Done"
            }
            (_, None) if self.differs => "Differs",
            _ => "NotConfirmed",
        }
    }

    fn release(&mut self, cause: &Cause, purse: &mut Purse) -> String {
        let first = self.cause.clone().unwrap_or_else(|| cause.clone());
        if self.hold == Some("debited") {
            return "Refused(HoldSettled)".into();
        }
        match self.end {
            Some(end) if self.cause.is_none() && self.hold.is_none() => return format!("Ended({end})"),
            Some(_) => return format!("Done({first:?})"),
            None => {}
        }
        if !self.never_sent() && self.final_status != Some("Void") && self.recall != Some(true) {
            return "Refused(MayStillSettle)".into();
        }
        match self.hold {
            Some(_) => {
                purse.0 += AMOUNT_MINOR;
                self.hold = Some("released");
            }
            None => {
                self.refused.get_or_insert("Fenced");
            }
        }
        self.end = Some(match first {
            Cause::SlaExpired => "TimedOut",
            Cause::CustomerCancel => "Cancelled",
            _ => "Failed",
        });
        self.cause = Some(first.clone());
        format!("Done({first:?})")
    }
}

/// Holding, escrow and funding, sealed or not.
async fn internal_balances(bank: &Bank) -> [i64; 3] {
    let mut connection = bank.pool.acquire().await.unwrap();
    let mut balances = [0; 3];
    for (balance, account) in
        balances.iter_mut().zip([InternalAccount::Holding, InternalAccount::Escrow, InternalAccount::Funding])
    {
        *balance = internal_balance(&mut connection, account, Currency::EUR).await.unwrap();
    }
    balances
}

/// The bank and its model, side by side.
struct Both {
    bank: Bank,
    samples: Vec<Sample>,
    modelled: Vec<Modelled>,
    purses: [Purse; ACCOUNTS],
    /// What was paid in.
    deposits: Vec<i64>,
    /// Entries that are sealed.
    sealed: usize,
    /// What the internal accounts held before.
    before: [i64; 3],
    accounts: [String; ACCOUNTS],
    step: usize,
}

impl Both {
    async fn open(bank: Bank, case: usize) -> Self {
        while bank.ledger.seal(BatchSize::new(BatchSize::MAX)).await.unwrap() != SealOutcome::NothingToSeal {}
        let before = internal_balances(&bank).await;
        let accounts = [0, 1].map(|a| format!("case-{case}-account-{a}"));
        for account in &accounts {
            bank.open(account, OPENING_MINOR).await;
        }
        let mut samples = vec![];
        for p in 0..PAYMENTS {
            let source_account = account_id(&accounts[p % ACCOUNTS]);
            let order = bank.order(&format!("case {case} payment {p}"));
            samples.push(
                bank.take(&payment_ledger::steps::accept::NewPayment { source_account, ..order }).await,
            );
        }
        let modelled = vec![Modelled::default(); PAYMENTS];
        let purses = [(OPENING_MINOR, false); ACCOUNTS];
        let deposits = vec![OPENING_MINOR; ACCOUNTS];
        Self { bank, samples, modelled, purses, deposits, sealed: 0, before, accounts, step: 0 }
    }

    /// Entries that the journal must have.
    fn entries(&self) -> usize {
        let of = |modelled: &Modelled| match modelled.hold {
            None => 0,
            Some("open") => 1,
            Some(_) => 2,
        };
        self.deposits.len() + self.modelled.iter().map(of).sum::<usize>()
    }

    /// Payments whose hold is `status`.
    fn holds(&self, status: &str) -> i64 {
        self.modelled.iter().filter(|modelled| modelled.hold == Some(status)).map(|_| 1).sum()
    }

    /// Carries one operation out on both; what each said.
    async fn apply_decision(&mut self, op: Op) -> (String, String) {
        let (bank, samples) = (&self.bank, &self.samples);
        let ledger: &Ledger = &bank.ledger;
        let purse = |p: usize| p % ACCOUNTS;
        let runs = [run("run-1"), run("run-2")];
        let event = |p: usize| format!("step-{}-{}", self.step, &samples[p].tx.as_str()[..16]);
        let told = async |callback: Callback| match ledger.store_callback(&callback).await.unwrap() {
            StoreCallbackOutcome::New(message) => format!("told {}", message.is_some()),
            other => format!("{other:?}"),
        };
        match op {
            Op::Reserve(p, n) => (
                format!("{:?}", ledger.reserve(&samples[p].id, &runs[n]).await.unwrap()),
                self.modelled[p].reserve(n, &mut self.purses[purse(p)]),
            ),
            Op::Fence(p) => (
                format!("{:?}", ledger.fence_reserve(&samples[p].id).await.unwrap()),
                self.modelled[p].fence(),
            ),
            Op::Attempt(p, n) => {
                let ruling =
                    ledger.record_attempt(&samples[p].id, &runs[n], at(SWITCH_NOW_MS), None).await.unwrap().0;
                (format!("{ruling:?}"), self.modelled[p].attempt(n))
            }
            Op::BeginCancel(p, c) => {
                let begun = ledger.begin_cancel(&samples[p].id, &CAUSES[c]).await.unwrap();
                let end = begun.end.map(|end| format!("{end:?}"));
                let final_status = begun.final_status.map(|final_status| format!("{final_status:?}"));
                (
                    format!("{end:?} {final_status:?} {}", begun.never_sent),
                    self.modelled[p].begin_cancel(&CAUSES[c]),
                )
            }
            Op::CustomerCancel(p) => {
                let ended = matches!(
                    bank.customer_cancel(&samples[p]).await,
                    payment_ledger::switch::inbox::CancelRequestOutcome::Ended(_)
                );
                let modelled = &mut self.modelled[p];
                modelled.cancel_started |= modelled.end.is_none();
                (format!("ended {ended}"), format!("ended {}", modelled.end.is_some()))
            }
            Op::Success(p) => {
                (told(success(&samples[p], &event(p))).await, format!("told {}", self.modelled[p].success()))
            }
            Op::OtherAmount(p) => {
                let callback = Callback { amount_minor: 7, ..success(&samples[p], &event(p)) };
                (told(callback).await, format!("told {}", self.modelled[p].amount_mismatch()))
            }
            Op::Failure(p) => {
                let modelled = &self.modelled[p];
                let follows_switch = modelled.end.is_none() && modelled.final_status != Some("Settled");
                (told(failure(&samples[p], &event(p))).await, format!("told {follows_switch}"))
            }
            Op::Void(p) => (
                format!("{:?}", ledger.record_void(&samples[p].id, VoidReason::Cancelled).await.unwrap()),
                self.modelled[p].dead().into(),
            ),
            Op::Debit(p) => {
                let said = format!("{:?}", bank.debit(&samples[p]).await);
                let said = said.split(' ').next().unwrap_or_default().to_owned();
                (said, self.modelled[p].debit(&self.purses[purse(p)]).into())
            }
            Op::Release(p, c) => (
                format!("{:?}", ledger.release(&samples[p].id, &CAUSES[c]).await.unwrap()),
                self.modelled[p].release(&CAUSES[c], &mut self.purses[purse(p)]),
            ),
            // Asked only when the bank cannot debit.
            Op::Recall(p, _) if !self.modelled[p].barred => (String::new(), String::new()),
            Op::Recall(p, yes) => {
                let answer = if yes { RecallRecord::Recalled } else { RecallRecord::Refused };
                let stands = ledger.record_recall(&samples[p].id, answer, "kept").await.unwrap();
                let modelled = *self.modelled[p].recall.get_or_insert(yes);
                (format!("{}", stands == RecallRecord::Recalled), format!("{modelled}"))
            }
            Op::Freeze(a, frozen) => {
                let status = if frozen { AccountStatus::Frozen } else { AccountStatus::Active };
                let known = ledger.set_account_status(&account_id(&self.accounts[a]), status).await.unwrap();
                self.purses[a].1 = frozen;
                (format!("{known}"), "true".into())
            }
            Op::PayIn(a) => {
                let key = format!("{}:{}", self.accounts[a], self.step);
                let new = ledger.fund(&account_id(&self.accounts[a]), eur(500), &key).await.unwrap();
                self.purses[a].0 += 500;
                self.deposits.push(500);
                (format!("{new}"), "true".into())
            }
            Op::Seal(size) => {
                let sealed = match ledger.seal(BatchSize::new(size)).await.unwrap() {
                    SealOutcome::Batch { entries, .. } => entries,
                    SealOutcome::NothingToSeal => 0,
                    SealOutcome::Busy => panic!("nobody else seals"),
                };
                let waiting = self.entries() - self.sealed;
                let modelled = waiting.min(usize::try_from(size).unwrap());
                self.sealed += modelled;
                (sealed.to_string(), modelled.to_string())
            }
        }
    }

    /// What both hold now: holds, ends and balances.
    async fn look(&self) -> (Vec<String>, Vec<String>) {
        let (mut seen, mut modelled) = (vec![], vec![]);
        for (p, model) in self.samples.iter().zip(&self.modelled) {
            let state = self.bank.state(p).await;
            let end = payment_protocol::PaymentState::parse(&state).unwrap().end();
            seen.push(format!("{} {:?}", self.bank.hold(p).await, end.map(|end| format!("{end:?}"))));
            modelled.push(format!("{} {:?}", model.hold.unwrap_or("none"), model.end));
        }
        for (a, purse) in self.purses.iter().enumerate() {
            seen.push(self.bank.available(&self.samples[a]).await.to_string());
            modelled.push(purse.0.to_string());
        }
        let after = internal_balances(&self.bank).await;
        let moved: Vec<_> = after.iter().zip(self.before).map(|(after, before)| after - before).collect();
        seen.push(format!("{moved:?}"));
        let [held, debited] = ["open", "debited"].map(|status| self.holds(status) * AMOUNT_MINOR);
        modelled.push(format!("{:?}", [held, debited, -self.deposits.iter().sum::<i64>()]));
        (seen, modelled)
    }
}

async fn side_by_side(bank: Bank, case: usize, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut both = Both::open(bank, case).await;
    for op in ops {
        both.step += 1;
        let (said, modelled) = both.apply_decision(op).await;
        proptest::prop_assert_eq!(said, modelled, "step {}: {:?}", both.step, op);
        let (seen, modelled) = both.look().await;
        proptest::prop_assert_eq!(seen, modelled, "after step {}: {:?}", both.step, op);
        both.bank.audit().await;
    }
    proptest::prop_assert_eq!(both.bank.ledger.verify(None).await.unwrap().findings, []);
    Ok(())
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_two_hundred_random_operations_match_the_model(pool: PgPool) {
    let runtime = tokio::runtime::Handle::current();
    let walk = move || {
        let config =
            Config { cases: CASES, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
        let case = Cell::new(0);
        TestRunner::new(config).run(&vec(op(), OPERATIONS), |ops| {
            case.set(case.get() + 1);
            runtime.block_on(side_by_side(Bank::new(pool.clone()), case.get(), ops))
        })
    };
    // The property runs outside the runtime that drives its connections.
    if let Err(differs) = tokio::task::spawn_blocking(walk).await.unwrap() {
        panic!("{differs}");
    }
}

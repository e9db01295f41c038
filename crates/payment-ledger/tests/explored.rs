//! The bank that `payment-explorer` walks is this ledger: random operations on both, side by side. After each
//! one both must have answered the same and have written the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::Cell;

use payment_explorer::bank::{self, Exception, OpenDecision};
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::Payment;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::{FinalStatus, RecallRecord};
use payment_protocol::port::ReleaseOutcome;
use payment_protocol::report::SettledReport;
use payment_protocol::submit::SendAnswer;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sqlx::PgPool;
use support::{
    AMOUNT_MINOR, Bank, FUNDS_MINOR, SWITCH_NOW_MS, Sample, at, eur, failure, profile, report, run, success,
};

const OPERATIONS: usize = 24;
const CASES: u32 = 160;

/// One operation of the ledger; numbers are of runs.
#[derive(Clone, Debug)]
enum Op {
    Reserve(u8),
    Fence,
    Attempt(u8),
    Answer(SendAnswer),
    Found,
    Reconcile,
    BeginCancel(Cause),
    CustomerCancel,
    Success,
    OtherAmount,
    Failure,
    AskedSettled,
    Void(VoidReason),
    Debit,
    Release(Cause),
    Recall(RecallRecord),
    Stand(OperatorReason),
    Decide(Action),
    CarryOut,
    Freeze(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let run = || prop_oneof![5 => Just(1_u8), 1 => Just(2_u8)];
    let cause = || prop_oneof![Just(Cause::SlaExpired), Just(Cause::CustomerCancel)];
    let reason = prop_oneof![
        Just(OperatorReason::SwitchRetentionExpired),
        Just(OperatorReason::NotFoundIsInconclusive),
        Just(OperatorReason::RecallUnsupported),
    ];
    let answer = prop_oneof![
        Just(SendAnswer::Accepted),
        Just(SendAnswer::Refused { reason: "no".into() }),
        Just(SendAnswer::Unknown { detail: "lost".into() }),
    ];
    let recall = prop_oneof![
        Just(RecallRecord::Recalled),
        Just(RecallRecord::Refused),
        Just(RecallRecord::RecallUnsupported),
    ];
    prop_oneof![
        6 => run().prop_map(Op::Reserve),
        1 => Just(Op::Fence),
        5 => run().prop_map(Op::Attempt),
        3 => answer.prop_map(Op::Answer),
        1 => Just(Op::Found),
        1 => Just(Op::Reconcile),
        2 => cause().prop_map(Op::BeginCancel),
        1 => Just(Op::CustomerCancel),
        2 => Just(Op::Success),
        1 => Just(Op::OtherAmount),
        2 => Just(Op::Failure),
        1 => Just(Op::AskedSettled),
        2 => prop_oneof![Just(VoidReason::Cancelled), Just(VoidReason::NeverSent)].prop_map(Op::Void),
        4 => Just(Op::Debit),
        2 => cause().prop_map(Op::Release),
        2 => recall.prop_map(Op::Recall),
        4 => reason.prop_map(Op::Stand),
        4 => prop_oneof![Just(Action::Debit), Just(Action::Release)].prop_map(Op::Decide),
        4 => Just(Op::CarryOut),
        2 => any::<bool>().prop_map(Op::Freeze),
    ]
}

/// The ledger and the bank, with one payment each.
struct Both {
    ledger: Bank,
    sample: Sample,
    bank: bank::Bank,
    payment: Payment,
    decided: Option<payment_protocol::ids::DecisionId>,
    /// The last attempt that has its answer: each has one.
    answered: u32,
    step: usize,
}

impl Both {
    async fn open(ledger: Bank, case: usize, funds: bool) -> Self {
        let order = ledger.order(&format!("explored {case}"));
        let account = order.source_account.clone();
        ledger.open(account.as_str(), if funds { FUNDS_MINOR } else { 0 }).await;
        let sample = ledger.take(&order).await;
        let payment = Payment {
            payment_id: sample.id.clone(),
            tx_id: sample.tx.clone(),
            money: eur(AMOUNT_MINOR),
            source_account: account,
            profile: profile(),
            resume: 0,
        };
        Self {
            ledger,
            sample,
            bank: bank::Bank::accepted(funds),
            payment,
            decided: None,
            answered: 0,
            step: 0,
        }
    }

    /// Carries one operation out on both: what each said.
    async fn apply_decision(&mut self, op: &Op) -> (String, String) {
        self.step += 1;
        let (ledger, id, bank) = (&self.ledger.ledger, &self.sample.id, &mut self.bank);
        let event = format!("explored-{}-{}", self.step, &self.sample.tx.as_str()[..16]);
        match op {
            Op::Reserve(n) => {
                (said(&ledger.reserve(id, &run(&format!("run-{n}"))).await.unwrap()), said(&bank.reserve(*n)))
            }
            Op::Fence => (said(&ledger.fence_reserve(id).await.unwrap()), said(&bank.fence_reserve())),
            Op::Attempt(n) => {
                let run = run(&format!("run-{n}"));
                let ruling = ledger.record_attempt(id, &run, at(SWITCH_NOW_MS), None).await.unwrap().0;
                (said(&ruling), said(&bank.record_attempt(*n, &self.payment, 0, false)))
            }
            Op::Answer(answer) => {
                let n = u32::from(bank.attempts);
                if n > self.answered {
                    self.answered = n;
                    ledger.record_answer(id, n, answer, None).await.unwrap();
                    bank.record_answer(n, answer);
                }
                (said(&ledger.last_submission(id).await.unwrap()), said(&bank.log))
            }
            Op::Found => (said(&ledger.record_transfer_found(id).await.unwrap()), said(&bank.record_found())),
            // The words of a FAILURE are not compared.
            Op::Reconcile => {
                let reconciled = said(&ledger.reconcile_submission(id).await.unwrap());
                (first_word(&reconciled), first_word(&said(&bank.reconcile_submission())))
            }
            Op::BeginCancel(cause) => {
                let begun = ledger.begin_cancel(id, cause).await.unwrap();
                let simulated = bank.begin_cancel(cause, 0);
                let kept = |begun: &payment_protocol::cancel::CancelContext| {
                    format!("{:?} {:?} {}", begun.end, begun.final_status, begun.never_sent)
                };
                (kept(&begun), kept(&simulated))
            }
            Op::CustomerCancel => {
                let ended = bank.ended();
                let request = self.ledger.customer_cancel(&self.sample).await;
                bank.cancel_requested |= !ended;
                let told = matches!(request, payment_ledger::switch::inbox::CancelRequestOutcome::Ended(_));
                (format!("ended {told}"), format!("ended {ended}"))
            }
            Op::Success => {
                let told = self.store(success(&self.sample, &event)).await;
                (told, format!("told {}", self.bank.store_success(&self.payment, &report(&self.sample))))
            }
            Op::OtherAmount => {
                let told = self.store(Callback { amount_minor: 7, ..success(&self.sample, &event) }).await;
                let other = SettledReport { amount_minor: 7, ..report(&self.sample) };
                (told, format!("told {}", self.bank.store_success(&self.payment, &other)))
            }
            Op::Failure => {
                let told = self.store(failure(&self.sample, &event)).await;
                (told, format!("told {}", self.bank.store_failure()))
            }
            Op::AskedSettled => {
                let report = report(&self.sample);
                let ruling = ledger.record_settled(id, &report, FinalStatusSource::Cancel).await.unwrap();
                (said(&ruling), said(&bank.write_settled(&self.payment, &report)))
            }
            Op::Void(death) => {
                let ruling = ledger.record_void(id, *death).await.unwrap();
                (said(&ruling), said(&bank.write_dead(*death == VoidReason::NeverSent)))
            }
            Op::Debit => (said(&ledger.debit(id).await.unwrap()), said(&bank.debit())),
            Op::Release(cause) => {
                let released = match ledger.release(id, cause).await.unwrap() {
                    ReleaseStepOutcome::Done(cause) => ReleaseOutcome::Done(cause),
                    ReleaseStepOutcome::Ended(end) => ReleaseOutcome::Ended(end),
                    ReleaseStepOutcome::Refused(refusal) => {
                        ReleaseOutcome::Failed { detail: refusal.to_string() }
                    }
                };
                (said(&released), said(&bank.release(cause)))
            }
            // Nothing is asked back that is not known to have left.
            Op::Recall(_) if bank.final_status != Some(FinalStatus::Settled) => {
                (String::new(), String::new())
            }
            Op::Recall(answer) => {
                let stands = ledger.record_recall(id, *answer, "words").await.unwrap();
                (said(&stands), said(&bank.record_recall(*answer)))
            }
            Op::Stand(reason) => (
                said(&ledger.needs_operator(id, *reason).await.unwrap()),
                said(&bank.needs_operator(*reason)),
            ),
            Op::Decide(action) => self.decide(*action).await,
            Op::CarryOut => self.carry_out_decision().await,
            Op::Freeze(frozen) => {
                if *frozen {
                    self.ledger.freeze(&self.sample).await;
                } else {
                    self.ledger.unfreeze(&self.sample).await;
                }
                bank.frozen = *frozen;
                (String::new(), String::new())
            }
        }
    }

    async fn store(&self, callback: Callback) -> String {
        match self.ledger.ledger.store_callback(&callback).await.unwrap() {
            StoreCallbackOutcome::New(message) => format!("told {}", message.is_some()),
            other => format!("{other:?}"),
        }
    }

    /// Two people decide, where the bank would let them.
    async fn decide(&mut self, action: Action) -> (String, String) {
        let open = self.bank.decision.as_ref().is_some_and(|decision| decision.came.is_none());
        let may = self.bank.operator_reason.is_some_and(|reason| reason.allowed().contains(&action))
            && !self.bank.ended()
            && !open;
        let ledger = &self.ledger.ledger;
        let proposed = ledger.propose(&self.sample.id, action, "Ann", "it stands", Some("letter 7")).await;
        // The same proposal again is the first one.
        let taken = proposed.is_ok() && !open;
        if may && let Ok(proposed) = proposed {
            ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.unwrap();
            let id = self.bank.decision.as_ref().map_or(0, |decision| decision.id + 1);
            self.bank.decision = Some(OpenDecision { id, action, came: None });
            self.decided = Some(proposed.decision_id);
        }
        (format!("taken {taken}"), format!("taken {may}"))
    }

    /// Carries the last decision out, again and again.
    async fn carry_out_decision(&mut self) -> (String, String) {
        let (Some(decided), Some(open)) = (&self.decided, self.bank.decision.clone()) else {
            return (String::new(), String::new());
        };
        let (ledger, id) = (&self.ledger.ledger, &self.sample.id);
        if open.action == Action::Debit {
            let ruling = ledger.debit_by_decision(id, decided).await.unwrap();
            let simulated = self.bank.debit_by_decision(open.id);
            if let payment_protocol::rules::DebitByDecisionRuling::Ended(end) = simulated {
                self.bank.close_decision(open.id, DecisionOutcome::Ended(end));
            }
            (said(&ruling), said(&simulated))
        } else {
            let ruling = ledger.release_by_decision(id, decided).await.unwrap();
            let simulated = self.bank.release_by_decision(open.id);
            if let payment_protocol::rules::ReleaseByDecisionRuling::Ended(end) = simulated.0 {
                self.bank.close_decision(open.id, DecisionOutcome::Ended(end));
            }
            (said(&ruling), said(&simulated))
        }
    }

    /// What is written, on either side, in the same words.
    async fn written(&self) -> (String, String) {
        let (ledger, sample, bank) = (&self.ledger, &self.sample, &self.bank);
        let posted = ledger
            .words(&format!(
                "SELECT kind || CASE WHEN debit_account LIKE 'internal:claims:%' THEN ' claims' ELSE '' END
                 FROM journal WHERE payment_id = '{}' ORDER BY 1",
                sample.id
            ))
            .await;
        let mut exceptions = ledger.exceptions(sample).await;
        exceptions.sort();
        exceptions.dedup();
        let cause = ledger.column(sample, "cause->>'code'").await;
        let real = format!(
            "{} hold {} attempts {} final_status {:?} cause {cause:?} stood {:?} posted {posted:?} exceptions {exceptions:?}",
            ledger.state(sample).await,
            ledger.hold(sample).await,
            ledger.column(sample, "attempts").await.unwrap(),
            ledger.column(sample, "final_status").await,
            ledger.column(sample, "operator_reason").await,
        );
        let journal = bank.journal;
        let mut posted = Vec::new();
        for (times, kind) in [
            (journal.debit, "debit"),
            (journal.late_debit, "late_debit"),
            (journal.claim, "late_debit claims"),
            (journal.release, "release"),
            (journal.reserve, "reserve"),
        ] {
            posted.extend(std::iter::repeat_n(kind.to_owned(), usize::from(times)));
        }
        let mut exceptions: Vec<&str> = [
            (Exception::LateConfirmation, "late_confirmation"),
            (Exception::ContradictoryFinalStatus, "contradictory_final_status"),
            (Exception::ConfirmationMismatch, "confirmation_mismatch"),
            (Exception::SettledWithoutAttempt, "settled_without_attempt"),
            (Exception::CallbackFromOtherSwitch, "callback_from_other_switch"),
            (Exception::DebitedToClaims, "debited_to_claims"),
        ]
        .into_iter()
        .filter(|(kind, _)| bank.exceptions.contain(*kind))
        .map(|(_, word)| word)
        .collect();
        exceptions.sort_unstable();
        let simulated = format!(
            "{} hold {} attempts {} final_status {:?} cause {:?} stood {:?} posted {posted:?} exceptions {exceptions:?}",
            bank.state,
            bank.hold.map_or("none", |hold| hold.as_str()),
            bank.attempts,
            bank.final_status.map(|final_status| final_status.to_string()),
            bank.cause.as_deref().map(|cause| cause.code().to_owned()),
            bank.operator_reason.map(|reason| reason.to_string()),
        );
        (real, simulated)
    }
}

fn said(what: &impl std::fmt::Debug) -> String {
    format!("{what:?}")
}

fn first_word(text: &str) -> String {
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r38_the_explored_bank_is_this_ledger(pool: PgPool) {
    let runtime = tokio::runtime::Handle::current();
    let walk = move || {
        let case = Cell::new(0);
        let mut runner =
            TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
        runner.run(&(any::<bool>(), vec(op(), OPERATIONS)), |(funds, ops)| {
            case.set(case.get() + 1);
            runtime.block_on(side_by_side(Bank::new(pool.clone()), case.get(), funds, ops))
        })
    };
    if let Err(differs) = tokio::task::spawn_blocking(walk).await.unwrap() {
        panic!("{differs}");
    }
}

async fn side_by_side(ledger: Bank, case: usize, funds: bool, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut both = Both::open(ledger, case, funds).await;
    for (n, op) in ops.iter().enumerate() {
        let (real, simulated) = both.apply_decision(op).await;
        if real != simulated {
            return Err(TestCaseError::fail(format!("{n} {op:?}: {real} / {simulated}")));
        }
        let (real, simulated) = both.written().await;
        if real != simulated {
            return Err(TestCaseError::fail(format!("{n} {op:?} wrote\n{real}\n{simulated}")));
        }
    }
    Ok(())
}

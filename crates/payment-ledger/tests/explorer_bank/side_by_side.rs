//! Applies each operation to the ledger and to the explorer's bank.

use payment_explorer::bank::{self, Exception, OpenDecision};
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_ledger::switch::inbox::CancelRequestOutcome;
use payment_protocol::Payment;
use payment_protocol::cancel::CancelContext;
use payment_protocol::cause::Cause;
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::port::ReleaseOutcome;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{DebitByDecisionRuling, ReleaseByDecisionRuling};

use crate::Op;
use crate::support::{
    AMOUNT_MINOR, Bank, FUNDS_MINOR, SWITCH_NOW_MS, Sample, at, eur, failure, profile, report, returned, run,
    success,
};

/// The ledger and the explorer's bank, each with one payment.
pub(crate) struct SideBySide {
    ledger: Bank,
    sample: Sample,
    bank: bank::Bank,
    payment: Payment,
    decided: Option<DecisionId>,
    /// The last attempt with a recorded answer.
    answered: u32,
    step: usize,
}

impl SideBySide {
    pub(crate) async fn open(ledger: Bank, case: usize, funds: bool) -> Self {
        let order = ledger.order(&format!("explored {case}"));
        let account = order.source_account.clone();
        ledger.open(account.as_str(), if funds { FUNDS_MINOR } else { 0 }).await;
        let sample = ledger.accept(&order).await;
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

    /// Applies one operation to both; returns what each returned.
    pub(crate) async fn apply(&mut self, op: &Op) -> (String, String) {
        self.step += 1;
        match op {
            Op::Reserve(_)
            | Op::Fence
            | Op::Attempt(_)
            | Op::Answer(_)
            | Op::FoundAtSwitch
            | Op::Reconcile => self.apply_submission(op).await,
            Op::CustomerCancel | Op::Success | Op::OtherAmount | Op::Returned | Op::Failure => {
                self.apply_message(op).await
            }
            Op::Decide(action) => self.decide(*action).await,
            Op::ApplyDecision => self.apply_decision().await,
            Op::Freeze(frozen) => {
                if *frozen {
                    self.ledger.freeze(&self.sample).await;
                } else {
                    self.ledger.unfreeze(&self.sample).await;
                }
                self.bank.frozen = *frozen;
                (String::new(), String::new())
            }
            _ => self.apply_end(op).await,
        }
    }

    /// Applies a step up to the submission.
    async fn apply_submission(&mut self, op: &Op) -> (String, String) {
        let (ledger, id, bank) = (&self.ledger.ledger, &self.sample.id, &mut self.bank);
        match op {
            Op::Reserve(n) => {
                let reserved = ledger
                    .reserve(&ledger.accepted_payment(id).await.unwrap(), &run(&format!("run-{n}")))
                    .await
                    .unwrap();
                (debug(&reserved), debug(&bank.reserve(*n)))
            }
            Op::Fence => (
                debug(&ledger.fence_reserve(&ledger.accepted_payment(id).await.unwrap()).await.unwrap()),
                debug(&bank.fence_reserve()),
            ),
            Op::Attempt(n) => {
                let run = run(&format!("run-{n}"));
                let ruling =
                    ledger.record_attempt(id, &run, at(SWITCH_NOW_MS), *n == 2, None).await.unwrap().0;
                (debug(&ruling), debug(&bank.record_attempt(*n, &self.payment, 0, false, *n == 2)))
            }
            Op::Answer(answer) => {
                let n = u32::from(bank.attempts);
                if n > self.answered {
                    self.answered = n;
                    ledger.record_answer(id, n, answer, None, at(SWITCH_NOW_MS)).await.unwrap();
                    bank.record_answer(n, answer);
                }
                (debug(&ledger.last_submission(id).await.unwrap()), debug(&bank.log))
            }
            Op::FoundAtSwitch => {
                (debug(&ledger.record_transfer_found(id).await.unwrap()), debug(&bank.record_found()))
            }
            Op::Reconcile => {
                // The reason of a FAILURE is not compared.
                let reconciled = debug(&ledger.reconcile_submission(id).await.unwrap());
                (variant(&reconciled), variant(&debug(&bank.reconcile_submission())))
            }
            _ => unreachable!("not a step up to the submission: {op:?}"),
        }
    }

    /// Stores a callback or a customer's cancel.
    async fn apply_message(&mut self, op: &Op) -> (String, String) {
        let event = format!("explored-{}-{}", self.step, &self.sample.tx.as_str()[..16]);
        match op {
            Op::CustomerCancel => {
                let has_ended = self.bank.ended();
                let request = self.ledger.customer_cancel(&self.sample).await;
                self.bank.cancel_requested |= !has_ended;
                let is_refused = matches!(request, CancelRequestOutcome::Ended(_));
                (format!("ended {is_refused}"), format!("ended {has_ended}"))
            }
            Op::Success => {
                let actual = self.store(success(&self.sample, &event)).await;
                let is_notified = self.bank.store_success(&self.payment, &report(&self.sample));
                (actual, format!("notified {is_notified}"))
            }
            Op::OtherAmount => {
                let actual = self.store(Callback { amount_minor: 7, ..success(&self.sample, &event) }).await;
                let other = SettledReport { amount_minor: 7, ..report(&self.sample) };
                (actual, format!("notified {}", self.bank.store_success(&self.payment, &other)))
            }
            Op::Returned => {
                let actual = self.store(returned(&self.sample, &event)).await;
                let is_notified = self.bank.store_returned(&self.payment, &report(&self.sample));
                (actual, format!("notified {is_notified}"))
            }
            Op::Failure => {
                let actual = self.store(failure(&self.sample, &event)).await;
                (actual, format!("notified {}", self.bank.store_failure()))
            }
            _ => unreachable!("not a message: {op:?}"),
        }
    }

    /// Applies a step after the submission.
    async fn apply_end(&mut self, op: &Op) -> (String, String) {
        let (ledger, id, bank) = (&self.ledger.ledger, &self.sample.id, &mut self.bank);
        match op {
            Op::BeginCancel(cause) => {
                // A customer's cancel arrives after the submit was scheduled, an expired SLA in this test before.
                let submit_scheduled = *cause == Cause::CustomerCancel;
                let begun = ledger.begin_cancel(id, cause, submit_scheduled).await.unwrap();
                let simulated = bank.begin_cancel(cause, 0, submit_scheduled);
                let compared = |begun: &CancelContext| {
                    format!(
                        "{:?} {:?} {} {}",
                        begun.end, begun.final_status, begun.never_sent, begun.accepted
                    )
                };
                (compared(&begun), compared(&simulated))
            }
            Op::QueriedSettled => {
                let report = report(&self.sample);
                let ruling = ledger.record_settled(id, &report, FinalStatusSource::Cancel).await.unwrap();
                (debug(&ruling), debug(&bank.record_settled(&self.payment, &report)))
            }
            Op::Void(reason) => {
                let ruling = ledger.record_void(id, *reason).await.unwrap();
                (debug(&ruling), debug(&bank.record_void(*reason)))
            }
            Op::Debit => (debug(&ledger.debit(id).await.unwrap()), debug(&bank.debit())),
            Op::Release(cause) => {
                let released = match ledger.release(id, cause).await.unwrap() {
                    ReleaseStepOutcome::Done(cause) => ReleaseOutcome::Done(cause),
                    ReleaseStepOutcome::Ended(end) => ReleaseOutcome::Ended(end),
                    ReleaseStepOutcome::Refused(refusal) => {
                        ReleaseOutcome::Failed { detail: refusal.to_string() }
                    }
                };
                (debug(&released), debug(&bank.release(cause)))
            }
            // A recall is requested only for a settled transfer.
            Op::Recall(answer) if bank.final_status == Some(FinalStatus::Settled) => {
                let recorded = ledger.record_recall(id, *answer, "words").await.unwrap();
                (debug(&recorded), debug(&bank.record_recall(*answer)))
            }
            Op::NeedsOperator(reason) => {
                let outcome = ledger.needs_operator(id, *reason).await.unwrap();
                (debug(&outcome), debug(&bank.needs_operator(*reason)))
            }
            Op::Recall(_) => (String::new(), String::new()),
            _ => unreachable!("not a step after the submission: {op:?}"),
        }
    }

    async fn store(&self, callback: Callback) -> String {
        match self.ledger.ledger.store_callback(&callback).await.unwrap() {
            StoreCallbackOutcome::New(message) => format!("notified {}", message.is_some()),
            other => format!("{other:?}"),
        }
    }

    /// Proposes and confirms a decision if the explorer's bank allows it.
    async fn decide(&mut self, action: Action) -> (String, String) {
        let open = self.bank.decision.as_ref().is_some_and(|decision| decision.outcome.is_none());
        let is_allowed = self.bank.operator_reason.is_some_and(|reason| reason.allowed().contains(&action))
            && !self.bank.ended()
            && !open;
        let ledger = &self.ledger.ledger;
        let proposed = ledger.propose(&self.sample.id, action, "Ann", "undecided", Some("letter 7")).await;
        // A repeated proposal returns the first one.
        let is_accepted = proposed.is_ok() && !open;
        if is_allowed && let Ok(proposed) = proposed {
            ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.unwrap();
            let id = self.bank.decision.as_ref().map_or(0, |decision| decision.id + 1);
            self.bank.decision = Some(OpenDecision { id, action, outcome: None });
            self.decided = Some(proposed.decision_id);
        }
        (format!("accepted {is_accepted}"), format!("accepted {is_allowed}"))
    }

    /// Applies the last decision, which may be applied already.
    async fn apply_decision(&mut self) -> (String, String) {
        let (Some(decided), Some(open)) = (&self.decided, self.bank.decision.clone()) else {
            return (String::new(), String::new());
        };
        let (ledger, id) = (&self.ledger.ledger, &self.sample.id);
        if open.action == Action::Debit {
            let ruling = ledger.debit_by_decision(id, decided).await.unwrap();
            let simulated = self.bank.debit_by_decision(open.id);
            if let DebitByDecisionRuling::Ended(end) = simulated {
                self.bank.close_decision(open.id, DecisionOutcome::Ended(end));
            }
            (debug(&ruling), debug(&simulated))
        } else {
            let ruling = ledger.release_by_decision(id, decided).await.unwrap();
            let simulated = self.bank.release_by_decision(open.id);
            if let ReleaseByDecisionRuling::Ended(end) = simulated.0 {
                self.bank.close_decision(open.id, DecisionOutcome::Ended(end));
            }
            (debug(&ruling), debug(&simulated))
        }
    }

    /// The recorded state of both, in the same notation.
    pub(crate) async fn recorded(&self) -> (String, String) {
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
        let actual = format!(
            "{} hold {} attempts {} final_status {:?} cause {cause:?} operator reason {:?} posted {posted:?} exceptions {exceptions:?}",
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
            (Exception::ReturnedAfterDebit, "returned_after_debit"),
            (Exception::AttemptRecordLost, "attempt_record_lost"),
            (Exception::AcceptedThenUnknown, "accepted_then_unknown"),
            (Exception::ConfirmationMismatch, "confirmation_mismatch"),
            (Exception::SettledWithoutAttempt, "settled_without_attempt"),
            (Exception::CallbackFromOtherSwitch, "callback_from_other_switch"),
            (Exception::DebitedToClaims, "debited_to_claims"),
        ]
        .into_iter()
        .filter(|(kind, _)| bank.exceptions.contain(*kind))
        .map(|(_, name)| name)
        .collect();
        exceptions.sort_unstable();
        let simulated = format!(
            "{} hold {} attempts {} final_status {:?} cause {:?} operator reason {:?} posted {posted:?} exceptions {exceptions:?}",
            bank.state,
            bank.hold.map_or("none", |hold| hold.as_str()),
            bank.attempts,
            bank.final_status.map(|final_status| final_status.to_string()),
            bank.cause.as_deref().map(|cause| cause.code().to_owned()),
            bank.operator_reason.map(|reason| reason.to_string()),
        );
        (actual, simulated)
    }
}

fn debug(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

/// The variant's name in a debug text.
fn variant(text: &str) -> String {
    text.split(' ').next().unwrap_or_default().to_owned()
}

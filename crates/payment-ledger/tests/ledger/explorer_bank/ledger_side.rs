//! An operation on the ledger.

use payment_ledger::audit::reconcile::findings::Finding;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_ledger::switch::inbox::CancelRequestOutcome;
use payment_protocol::action::{Action, Correction, OperatorAction};
use payment_protocol::cancel::CancelContext;
use payment_protocol::cause::Cause;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::{DecisionId, EventId, SwitchName, TxId};
use payment_protocol::port::{ReleaseOutcome, SubmitProgress};
use payment_protocol::profile::{ConfirmByQuery, Strategy};
use payment_protocol::reject::RejectMeaning;
use payment_protocol::report::SettledReport;
use payment_protocol::{Payment, SwitchProfile, drift};

use super::op::{Answered, Message, Op};
use crate::support::{
    AMOUNT_MINOR, Bank, OTHER_SWITCH, SWITCH_NOW_MS, Sample, at, eur, failure, profile, report,
    return_report, returned, run, success,
};

/// The amount of a SUCCESS with another amount.
pub(crate) const OTHER_AMOUNT_MINOR: i64 = 7;

/// The code of a final reject, at a switch whose rejects are final.
pub(crate) const DEAD: &str = "AC04";

/// The ledger with two payments from one account to one account.
pub(crate) struct LedgerSide<'a> {
    pub(crate) bank: &'a Bank,
    pub(crate) samples: [Sample; 2],
    pub(crate) profile: SwitchProfile,
    /// What a caller knows when a round begins.
    pub(crate) known: Known,
}

/// What the callers of the operations know of both payments.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) round: usize,
    pub(crate) payments: [KnownPayment; 2],
}

#[derive(Default)]
pub(crate) struct KnownPayment {
    /// Recorded attempts; the first and the last of them without an answer.
    attempts: (u32, Option<u32>, Option<u32>),
    pub(crate) is_settled: bool,
    pub(crate) workflow_id: String,
    pub(crate) resumes: u8,
    /// The newest decision about the open payment, its number and its action.
    pub(crate) decision: Option<(DecisionId, u8, Action)>,
}

impl KnownPayment {
    /// The number of the attempt that an answer is about.
    pub(crate) fn answered(&self, which: Answered) -> Option<u32> {
        let (attempts, oldest, last) = self.attempts;
        match which {
            Answered::Oldest => oldest,
            Answered::Last => last.filter(|last| *last == attempts),
            Answered::Lost => Some(attempts + 1),
        }
    }
}

impl<'a> LedgerSide<'a> {
    pub(crate) async fn open(bank: &'a Bank, case: &str, (funds, strategy): super::Setting) -> Self {
        let profile = profile_of(strategy);
        let name = format!("explored-{case}");
        let account = bank.open(&format!("from-{name}"), i64::from(funds) * AMOUNT_MINOR).await;
        let mut samples = Vec::new();
        for n in 0..2 {
            let mut order = bank.order(&format!("{name}-{n}"));
            order.source_account = account.clone();
            order.destination_account = crate::support::account_id(&format!("to-{name}"));
            order.profile = profile.clone();
            samples.push(bank.accept(&order).await);
        }
        Self { bank, samples: samples.try_into().unwrap(), profile, known: Known::default() }
    }

    /// The payment as the workflow knows it.
    pub(crate) fn payment(&self, payment: usize) -> Payment {
        let Sample { id, tx, account } = self.samples[payment].clone();
        let money = eur(AMOUNT_MINOR);
        Payment {
            payment_id: id,
            tx_id: tx,
            money,
            source_account: account,
            profile: self.profile.clone(),
            resume: 0,
        }
    }

    /// Reads what the callers of the round's operations know.
    pub(crate) async fn begin_round(&mut self, round: usize) {
        self.known.round = round;
        for (sample, known) in self.samples.iter().zip(&mut self.known.payments) {
            let row: (i32, Option<i32>, Option<i32>, bool, String, i32) =
                sqlx::query_as(
                    "SELECT attempts, (SELECT min(attempt) FROM submissions s WHERE s.payment_id = p.payment_id AND outcome IS NULL),
                            (SELECT max(attempt) FROM submissions s WHERE s.payment_id = p.payment_id AND outcome IS NULL),
                            coalesce(final_status = 'settled', false), workflow_id, resume_count
                     FROM payments p WHERE payment_id = $1",
                )
                .bind(sample.id.as_str())
                .fetch_one(&self.bank.pool)
                .await
                .unwrap();
            let (attempts, oldest, last, is_settled, workflow_id, resumes) = row;
            let number = |n: i32| u32::try_from(n).unwrap();
            let decisions = self.bank.ledger.decisions(&sample.id).await.unwrap();
            let decisions = decisions.into_iter().filter_map(|row| match row.action {
                OperatorAction::OpenPayment(action) => Some((row.decision_id, action)),
                OperatorAction::Correction(_) | OperatorAction::Close => None,
            });
            *known = KnownPayment {
                attempts: (number(attempts), oldest.map(number), last.map(number)),
                is_settled,
                workflow_id,
                resumes: u8::try_from(resumes).unwrap(),
                decision: (0..).zip(decisions).last().map(|(n, (id, action))| (id, n, action)),
            };
        }
    }

    /// Applies one operation to a payment; returns what it returned.
    pub(crate) async fn apply(&self, payment: usize, op: &Op) -> String {
        let (ledger, sample) = (&self.bank.ledger, &self.samples[payment]);
        let (id, known) = (&sample.id, &self.known.payments[payment]);
        match op {
            Op::Message(message) => self.store(payment, *message).await,
            Op::Expire => {
                let past = format!("UPDATE payments SET valid_until = accepted_at WHERE payment_id = '{id}'");
                self.bank.damage(past).await;
                String::new()
            }
            Op::MarkOpenPayments => {
                ledger.mark_open_payments(jiff::Timestamp::now()).await.unwrap();
                String::new()
            }
            Op::CustomerCancel => match self.bank.customer_cancel(sample).await {
                CancelRequestOutcome::Ended(end) => format!("ended {end:?}"),
                CancelRequestOutcome::Requested(message) => format!("new {}", message.is_some()),
            },
            Op::Freeze(true) => debug(&self.bank.freeze(sample).await),
            Op::Freeze(false) => debug(&self.bank.unfreeze(sample).await),
            Op::Drift(drift) => self.open_finding(payment, *drift).await,
            Op::Correct(correction) => self.correct(payment, *correction).await,
            Op::Propose(action) => {
                let proposed = ledger.propose(id, *action, "Ann", "undecided", Some("letter 7")).await;
                format!("accepted {}", proposed.is_ok())
            }
            Op::Confirm | Op::Withdraw | Op::ApplyDecision | Op::RefuseDecision => match &known.decision {
                Some((decision, _, action)) => self.decide(payment, op, decision, *action).await,
                None => String::new(),
            },
            Op::Start
            | Op::RefuseUnreserved(_)
            | Op::Reject
            | Op::Resume
            | Op::Reserve(_)
            | Op::Fence
            | Op::Attempt(_)
            | Op::Answer(..)
            | Op::FoundAtSwitch
            | Op::Marker(_)
            | Op::Reconcile => self.start(payment, op).await,
            _ => self.end(payment, op).await,
        }
    }

    /// Applies a step up to the submission.
    async fn start(&self, payment: usize, op: &Op) -> String {
        let (ledger, known) = (&self.bank.ledger, &self.known.payments[payment]);
        let id = &self.samples[payment].id;
        match op {
            Op::Start => debug(&ledger.mark_started(id).await.unwrap()),
            Op::RefuseUnreserved(refusal) => debug(&ledger.refuse_unreserved(id, *refusal).await.unwrap()),
            Op::Reject => debug(&ledger.reject(&self.payment(payment)).await.unwrap()),
            Op::Resume => {
                let resumed = ledger.resume(id, &known.workflow_id).await.unwrap();
                debug(&resumed.map(|startable| startable.payment.resume == 0))
            }
            Op::Reserve(n) => {
                debug(&ledger.reserve(&self.payment(payment), &run(&format!("run-{n}"))).await.unwrap())
            }
            Op::Fence => debug(&ledger.fence_reserve(&self.payment(payment)).await.unwrap()),
            Op::Attempt(n) => {
                let run = run(&format!("run-{n}"));
                debug(&ledger.record_attempt(id, &run, at(SWITCH_NOW_MS), *n == 2, None).await.unwrap().0)
            }
            Op::Answer(which, answer) => {
                if let Some(n) = known.answered(*which) {
                    ledger.record_answer(id, n, answer, None, at(SWITCH_NOW_MS)).await.unwrap();
                }
                String::new()
            }
            Op::FoundAtSwitch => debug(&ledger.record_transfer_found(id).await.unwrap()),
            Op::Marker(which) => match known.answered(*which) {
                Some(n) => debug(&ledger.record_marker(id, n, "the newest").await.unwrap()),
                None => String::new(),
            },
            // The reason of a FAILURE is not compared.
            Op::Reconcile => variant(&ledger.reconcile_submission(id).await.unwrap()),
            _ => unreachable!("not a step up to the submission: {op:?}"),
        }
    }

    /// Applies a step after the submission.
    async fn end(&self, payment: usize, op: &Op) -> String {
        let (ledger, known) = (&self.bank.ledger, &self.known.payments[payment]);
        let sample = &self.samples[payment];
        let id = &sample.id;
        match op {
            Op::BeginCancel(cause) => {
                begun(&ledger.begin_cancel(id, cause, submit_progress(cause)).await.unwrap())
            }
            Op::TransferId(at) => {
                debug(&ledger.record_transfer_id(id, &format!("transfer {at}")).await.unwrap())
            }
            Op::BeginQuery => debug(&ledger.begin_query(id, None).await.unwrap()),
            Op::QueriedSettled => {
                debug(&ledger.record_settled(id, &report(sample), FinalStatusSource::Cancel).await.unwrap())
            }
            Op::QueriedReturned => {
                debug(&ledger.record_returned(id, &report(sample), FinalStatusSource::Cancel).await.unwrap())
            }
            Op::Return(n) => {
                let event =
                    EventId::new(format!("{}-return-{n}-{}", self.known.round, &sample.tx.as_str()[..16]));
                let report = return_report(sample, &n.to_string(), AMOUNT_MINOR);
                ledger.store_return(&event.unwrap(), &report, b"return").await.unwrap();
                String::new()
            }
            Op::Restore => debug(&ledger.restore(id).await.unwrap()),
            Op::Void(reason) => debug(&ledger.record_void(id, *reason).await.unwrap()),
            // The reason of a refusal is not compared.
            Op::Debit => variant(&ledger.debit(id).await.unwrap()),
            Op::DebitConfirmed => variant(&ledger.debit_confirmed(id, &report(sample)).await.unwrap()),
            Op::Release(cause) => debug(&match ledger.release(id, cause).await.unwrap() {
                ReleaseStepOutcome::Done(cause) => ReleaseOutcome::Done(cause),
                ReleaseStepOutcome::Ended(end) => ReleaseOutcome::Ended(end),
                ReleaseStepOutcome::Refused(refusal) => {
                    ReleaseOutcome::Failed { detail: refusal.to_string() }
                }
            }),
            Op::BeginRecall => debug(&ledger.begin_recall(id).await.unwrap()),
            // A recall is requested only for a settled transfer.
            Op::Recall(answer) if known.is_settled => {
                debug(&ledger.record_recall(id, *answer, "words").await.unwrap())
            }
            Op::Recall(_) => String::new(),
            Op::NeedsOperator(reason) => debug(&ledger.needs_operator(id, *reason).await.unwrap()),
            _ => unreachable!("not a step after the submission: {op:?}"),
        }
    }

    async fn decide(&self, payment: usize, op: &Op, decision: &DecisionId, action: Action) -> String {
        let (ledger, id) = (&self.bank.ledger, &self.samples[payment].id);
        match op {
            Op::Confirm => format!("accepted {}", ledger.confirm(decision, "Bob", "I agree").await.is_ok()),
            Op::Withdraw => format!("accepted {}", ledger.withdraw(decision, "Bob", "no").await.is_ok()),
            Op::RefuseDecision => debug(&ledger.close_decision(decision, &refused(), "no").await.unwrap()),
            _ => match action {
                Action::Debit => debug(&ledger.debit_by_decision(id, decision).await.unwrap()),
                Action::Release => debug(&ledger.release_by_decision(id, decision).await.unwrap()),
                Action::RetryCancel => {
                    let outcome = DecisionOutcome::RetryCancel;
                    debug(&ledger.close_decision(decision, &outcome, "again").await.unwrap())
                }
            },
        }
    }

    async fn store(&self, payment: usize, message: Message) -> String {
        let sample = &self.samples[payment];
        let event = event(self.known.round, message, &sample.tx);
        let success = success(sample, &event);
        let callback = match message {
            Message::Success => success,
            Message::OtherAmount => Callback { amount_minor: OTHER_AMOUNT_MINOR, ..success },
            Message::OtherSwitch => Callback { switch: SwitchName::new(OTHER_SWITCH).unwrap(), ..success },
            Message::Returned => returned(sample, &event),
            Message::Failure => failure(sample, &event),
            Message::FinalReject => Callback { reason_code: Some(DEAD.into()), ..failure(sample, &event) },
        };
        match self.bank.ledger.store_callback(&callback).await.unwrap() {
            StoreCallbackOutcome::New(message) => format!("notified {}", message.is_some()),
            other => debug(&other),
        }
    }

    /// Reconciliation looks for drift in ended payments.
    async fn open_finding(&self, payment: usize, drift: drift::Drift) -> String {
        let id = &self.samples[payment].id;
        if self.bank.ledger.final_state_of(id).await.unwrap().is_some() {
            // A finding that operators closed is opened again only with another detail.
            let detail = format!("found in round {}", self.known.round);
            let finding = Finding {
                drift,
                payment_id: Some(id.clone()),
                origin: format!("{drift}:{id}"),
                detail,
                allowed: Vec::new(),
            };
            self.bank.ledger.open_findings(&[finding]).await.unwrap();
        }
        String::new()
    }

    async fn correct(&self, payment: usize, correction: Correction) -> String {
        let ledger = &self.bank.ledger;
        let kinds = match correction {
            Correction::LateDebit => {
                "'late_confirmation', 'settled_not_debited', 'released_but_settled', 'debited_to_claims'"
            }
            Correction::ReturnCredit => "'returned_after_debit', 'debited_not_settled'",
            Correction::WriteOff => "'debited_to_claims'",
        };
        let open = format!(
            "SELECT exception_id::text FROM exceptions
             WHERE payment_id = '{}' AND kind IN ({kinds}) AND closed_at IS NULL ORDER BY exception_id",
            self.samples[payment].id
        );
        let exceptions = self.bank.words(&open).await;
        let mut exceptions = exceptions.iter().map(|id| id.parse::<i64>().unwrap());
        let Some(first) = exceptions.next() else { return "corrected false".into() };
        let proposed =
            ledger.propose_correction(first, correction, "Ann", "the truth", Some("letter 8")).await;
        let Ok(proposed) = proposed else { return "corrected false".into() };
        ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.unwrap();
        for other in exceptions {
            ledger.close_exception(other, "Ann", "corrected").await.unwrap();
        }
        "corrected true".into()
    }
}

/// A switch with this strategy. See `STRATEGIES`.
fn profile_of(strategy: Strategy) -> SwitchProfile {
    let profile = SwitchProfile { strategy, ..profile() };
    let believed = SwitchProfile {
        reject_is_final: true,
        burns_reference: true,
        reject_codes: [(DEAD.into(), RejectMeaning::Dead)].into(),
        ..profile.clone()
    };
    match strategy {
        // Recalls that are answered days later: a barred debit charges the bank. Callbacks that a query must confirm.
        Strategy::Query => SwitchProfile {
            can_recall: true,
            recall_answer_within_s: 1_000,
            confirm_by_query: ConfirmByQuery::Always,
            ..believed
        },
        Strategy::AtMostOnce => SwitchProfile { asks_max: 2, restore_customer_after_ms: Some(0), ..believed },
        Strategy::Reference | Strategy::WriteAhead | Strategy::Validate => profile,
    }
}

/// In this test a customer's cancel arrives after the submit was scheduled, an interruption after the switch accepted, and an expired SLA
/// before.
pub(crate) fn submit_progress(cause: &Cause) -> SubmitProgress {
    match cause {
        Cause::CustomerCancel => SubmitProgress::Scheduled,
        Cause::Interrupted => SubmitProgress::Accepted,
        _ => SubmitProgress::NotScheduled,
    }
}

/// The outcome of a decision that its workflow did not apply.
pub(crate) fn refused() -> DecisionOutcome {
    DecisionOutcome::Refused { detail: "not now".into() }
}

/// The switch's event id; two copies of a callback have the same.
pub(crate) fn event(round: usize, message: Message, tx: &TxId) -> String {
    format!("{round}-{message:?}-{}", &tx.as_str()[..16])
}

/// What is compared of a begun cancel.
pub(crate) fn begun(begun: &CancelContext) -> String {
    format!("{:?} {:?} {} {}", begun.end, begun.final_status, begun.never_sent, begun.accepted)
}

/// A report of another amount.
pub(crate) fn other_amount(report: &SettledReport) -> SettledReport {
    SettledReport { amount_minor: OTHER_AMOUNT_MINOR, ..report.clone() }
}

/// A report of another switch.
pub(crate) fn other_switch(report: &SettledReport) -> SettledReport {
    SettledReport { switch: SwitchName::new(OTHER_SWITCH).unwrap(), ..report.clone() }
}

pub(crate) fn debug(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

/// The variant's name of a value.
pub(crate) fn variant(value: &impl std::fmt::Debug) -> String {
    debug(value).split(' ').next().unwrap_or_default().to_owned()
}

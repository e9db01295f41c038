//! Applies each operation to the ledger and to the model.

use iso_currency::Currency;
use payment_ledger::accounts::{AccountStatus, InternalAccount, internal_balance};
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_ledger::switch::inbox::CancelRequestOutcome;
use payment_protocol::PaymentState;
use payment_protocol::cancel::VoidReason;
use payment_protocol::facts::RecallRecord;
use payment_protocol::port::SubmitProgress;
use postgres_kit::Pool;

use super::model::{Modelled, ModelledAccount};
use super::{ACCOUNTS, CAUSES, OPENING_MINOR, Op, PAYMENTS};
use crate::support::{
    AMOUNT_MINOR, Bank, SWITCH_NOW_MS, Sample, account_id, at, eur, failure, returned, run, success,
};

/// The amount of each [`Op::Fund`].
const FUND_MINOR: i64 = 500;

/// Balances of the holding, escrow and funding accounts, from sealed and unsealed entries.
async fn internal_balances(bank: &Bank) -> [i64; 3] {
    let mut connection = Pool::from(bank.pool.clone()).acquire().await.unwrap();
    let mut balances = [0; 3];
    for (balance, account) in
        balances.iter_mut().zip([InternalAccount::Holding, InternalAccount::Escrow, InternalAccount::Funding])
    {
        *balance = internal_balance(&mut connection, account, Currency::EUR).await.unwrap();
    }
    balances
}

/// The bank and its model.
pub(crate) struct SideBySide {
    pub(crate) bank: Bank,
    samples: Vec<Sample>,
    payments: Vec<Modelled>,
    accounts: [ModelledAccount; ACCOUNTS],
    account_names: [String; ACCOUNTS],
    /// Amounts of all fund entries.
    deposits: Vec<i64>,
    /// Number of sealed entries.
    sealed: usize,
    /// Internal balances at the start of the case.
    initial_balances: [i64; 3],
    pub(crate) step: usize,
}

impl SideBySide {
    pub(crate) async fn open(bank: Bank, case: usize) -> Self {
        while bank.ledger.seal(BatchSize::new(BatchSize::MAX)).await.unwrap() != SealOutcome::NothingToSeal {}
        let initial_balances = internal_balances(&bank).await;
        let account_names = [0, 1].map(|a| format!("case-{case}-account-{a}"));
        for name in &account_names {
            bank.open(name, OPENING_MINOR).await;
        }
        let mut samples = vec![];
        for p in 0..PAYMENTS {
            let source_account = account_id(&account_names[p % ACCOUNTS]);
            let order = bank.order(&format!("case {case} payment {p}"));
            samples.push(
                bank.accept(&payment_ledger::steps::accept::NewPayment { source_account, ..order }).await,
            );
        }
        Self {
            bank,
            samples,
            payments: vec![Modelled::default(); PAYMENTS],
            accounts: [ModelledAccount { available_minor: OPENING_MINOR, is_frozen: false }; ACCOUNTS],
            account_names,
            deposits: vec![OPENING_MINOR; ACCOUNTS],
            sealed: 0,
            initial_balances,
            step: 0,
        }
    }

    /// Number of entries that the journal must have.
    fn entry_count(&self) -> usize {
        let of_payment = |modelled: &Modelled| match modelled.hold {
            None => 0,
            Some("open") => 1,
            Some(_) => 2,
        };
        self.deposits.len() + self.payments.iter().map(of_payment).sum::<usize>()
    }

    /// Number of payments whose hold has this status.
    fn hold_count(&self, status: &str) -> i64 {
        self.payments.iter().filter(|modelled| modelled.hold == Some(status)).map(|_| 1).sum()
    }

    /// Applies one operation to both; returns what the ledger and the model returned.
    pub(crate) async fn apply(&mut self, op: Op) -> (String, String) {
        match op {
            Op::CustomerCancel(_)
            | Op::Success(_)
            | Op::Returned(_)
            | Op::OtherAmount(_)
            | Op::Failure(_) => self.apply_message(op).await,
            Op::Freeze(..) | Op::Fund(_) | Op::Seal(_) => self.apply_to_accounts(op).await,
            _ => self.apply_step(op).await,
        }
    }

    /// Applies a step of a payment.
    async fn apply_step(&mut self, op: Op) -> (String, String) {
        let (ledger, samples, payments) = (&self.bank.ledger, &self.samples, &mut self.payments);
        let account = |p: usize| p % ACCOUNTS;
        let runs = [run("run-1"), run("run-2")];
        match op {
            Op::Reserve(p, n) => (
                format!(
                    "{:?}",
                    ledger
                        .reserve(&ledger.accepted_payment(&samples[p].id).await.unwrap(), &runs[n])
                        .await
                        .unwrap()
                ),
                payments[p].reserve(n, &mut self.accounts[account(p)]),
            ),
            Op::Fence(p) => (
                format!(
                    "{:?}",
                    ledger
                        .fence_reserve(&ledger.accepted_payment(&samples[p].id).await.unwrap())
                        .await
                        .unwrap()
                ),
                payments[p].fence(),
            ),
            Op::Attempt(p, n) => {
                let ruling = ledger
                    .record_attempt(&samples[p].id, &runs[n], at(SWITCH_NOW_MS), false, None)
                    .await
                    .unwrap()
                    .0;
                (format!("{ruling:?}"), payments[p].attempt(n))
            }
            Op::BeginCancel(p, c) => {
                let begun = ledger
                    .begin_cancel(&samples[p].id, &CAUSES[c], SubmitProgress::NotScheduled)
                    .await
                    .unwrap();
                let end = begun.end.map(|end| format!("{end:?}"));
                let final_status = begun.final_status.map(|final_status| format!("{final_status:?}"));
                let actual = format!("{end:?} {final_status:?} {}", begun.never_sent);
                (actual, payments[p].begin_cancel(&CAUSES[c]))
            }
            Op::Void(p) => (
                format!("{:?}", ledger.record_void(&samples[p].id, VoidReason::Cancelled).await.unwrap()),
                payments[p].void().into(),
            ),
            Op::Debit(p) => {
                let outcome = format!("{:?}", self.bank.debit(&samples[p]).await);
                let variant = outcome.split(' ').next().unwrap_or_default().to_owned();
                (variant, payments[p].debit(&self.accounts[account(p)]).into())
            }
            Op::Release(p, c) => (
                format!("{:?}", ledger.release(&samples[p].id, &CAUSES[c]).await.unwrap()),
                payments[p].release(&CAUSES[c], &mut self.accounts[account(p)]),
            ),
            // A recall is requested only after a refused debit.
            Op::Recall(p, yes) if payments[p].debit_refused => {
                let answer = if yes { RecallRecord::Recalled } else { RecallRecord::Refused };
                let recorded = ledger.record_recall(&samples[p].id, answer, "kept").await.unwrap();
                let modelled = payments[p].record_recall(yes);
                (format!("{}", recorded == RecallRecord::Recalled), format!("{modelled}"))
            }
            Op::Recall(..) => (String::new(), String::new()),
            _ => unreachable!("not a step: {op:?}"),
        }
    }

    /// Stores a callback or a customer's cancel.
    async fn apply_message(&mut self, op: Op) -> (String, String) {
        let (bank, samples, payments) = (&self.bank, &self.samples, &mut self.payments);
        let event = |p: usize| format!("step-{}-{}", self.step, &samples[p].tx.as_str()[..16]);
        let store = async |callback: Callback| match bank.ledger.store_callback(&callback).await.unwrap() {
            StoreCallbackOutcome::New(message) => format!("notified {}", message.is_some()),
            other => format!("{other:?}"),
        };
        match op {
            Op::CustomerCancel(p) => {
                let request = bank.customer_cancel(&samples[p]).await;
                let has_ended = matches!(request, CancelRequestOutcome::Ended(_));
                let modelled = &mut payments[p];
                modelled.cancel_requested |= modelled.end.is_none();
                (format!("ended {has_ended}"), format!("ended {}", modelled.end.is_some()))
            }
            Op::Success(p) => {
                let actual = store(success(&samples[p], &event(p))).await;
                (actual, format!("notified {}", payments[p].success()))
            }
            Op::Returned(p) => {
                let actual = store(returned(&samples[p], &event(p))).await;
                (actual, format!("notified {}", payments[p].returned()))
            }
            Op::OtherAmount(p) => {
                let callback = Callback { amount_minor: 7, ..success(&samples[p], &event(p)) };
                (store(callback).await, format!("notified {}", payments[p].amount_mismatch()))
            }
            Op::Failure(p) => {
                let modelled = &payments[p];
                let is_notified =
                    modelled.end.is_none() && !matches!(modelled.final_status, Some("Settled" | "Returned"));
                (store(failure(&samples[p], &event(p))).await, format!("notified {is_notified}"))
            }
            _ => unreachable!("not a message: {op:?}"),
        }
    }

    /// Freezes or funds an account, or seals entries.
    async fn apply_to_accounts(&mut self, op: Op) -> (String, String) {
        let ledger = &self.bank.ledger;
        match op {
            Op::Freeze(a, frozen) => {
                let status = if frozen { AccountStatus::Frozen } else { AccountStatus::Active };
                let exists =
                    ledger.set_account_status(&account_id(&self.account_names[a]), status).await.unwrap();
                self.accounts[a].is_frozen = frozen;
                (format!("{exists}"), "true".into())
            }
            Op::Fund(a) => {
                let key = format!("{}:{}", self.account_names[a], self.step);
                let account = account_id(&self.account_names[a]);
                let is_new = ledger.fund(&account, eur(FUND_MINOR), &key).await.unwrap();
                self.accounts[a].available_minor += FUND_MINOR;
                self.deposits.push(FUND_MINOR);
                (format!("{is_new}"), "true".into())
            }
            Op::Seal(size) => {
                let sealed = match ledger.seal(BatchSize::new(size)).await.unwrap() {
                    SealOutcome::Batch { entries, .. } => entries,
                    SealOutcome::NothingToSeal => 0,
                    SealOutcome::Busy => panic!("another sealer is running"),
                };
                let waiting = self.entry_count() - self.sealed;
                let modelled = waiting.min(usize::try_from(size).unwrap());
                self.sealed += modelled;
                (sealed.to_string(), modelled.to_string())
            }
            _ => unreachable!("not an operation on accounts: {op:?}"),
        }
    }

    /// The state of both: holds, final states and balances.
    pub(crate) async fn state(&self) -> (Vec<String>, Vec<String>) {
        let (mut actual, mut modelled) = (vec![], vec![]);
        for (p, model) in self.samples.iter().zip(&self.payments) {
            let state = self.bank.state(p).await;
            let end = PaymentState::parse(&state).unwrap().end();
            actual.push(format!("{} {:?}", self.bank.hold(p).await, end.map(|end| format!("{end:?}"))));
            modelled.push(format!("{} {:?}", model.hold.unwrap_or("none"), model.end));
        }
        for (a, account) in self.accounts.iter().enumerate() {
            actual.push(self.bank.available(&self.samples[a]).await.to_string());
            modelled.push(account.available_minor.to_string());
        }
        let balances = internal_balances(&self.bank).await;
        let moved: Vec<_> =
            balances.iter().zip(self.initial_balances).map(|(now, initial)| now - initial).collect();
        actual.push(format!("{moved:?}"));
        let [held, debited] = ["open", "debited"].map(|status| self.hold_count(status) * AMOUNT_MINOR);
        modelled.push(format!("{:?}", [held, debited, -self.deposits.iter().sum::<i64>()]));
        (actual, modelled)
    }
}

//! A small bank on a database of its own: accounts, payments brought to a stage, looks at the
//! tables in plain SQL, and the [`auditor`].

#![allow(dead_code, reason = "each test file is a binary of its own and uses a part of this")]

mod auditor;
mod people;

use std::slice;

use iso_currency::Currency;
use payment_ledger::Ledger;
use payment_ledger::accounts::AccountStatus;
use payment_ledger::steps::accept::{AcceptOutcome, NewPayment, accept};
use payment_ledger::switch::callbacks::{Callback, CallbackStatus};
use payment_ledger::switch::inbox::{CancelRequestOutcome, request_cancel};
use payment_protocol::SwitchProfile;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::facts::RecallRecord;
use payment_protocol::ids::{AccountId, ClientId, EventId, PaymentId, RunId, SwitchName, TenantId, TxId};
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::keys;
use payment_protocol::money::Money;
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use payment_protocol::profile::Strategy;
use payment_protocol::report::SettledReport;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

/// What every account is opened with.
pub(crate) const FUNDS_MINOR: i64 = 10_000;
/// What every payment sends.
pub(crate) const AMOUNT_MINOR: i64 = 1_000;
/// The switch that payments are routed to.
pub(crate) const SWITCH: &str = "northern";
/// Another switch that the bank has to do with.
pub(crate) const OTHER_SWITCH: &str = "southern";

pub(crate) fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub(crate) fn account_id(name: &str) -> AccountId {
    AccountId::new(name).unwrap()
}

pub(crate) fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// The run that goes from the top.
pub(crate) fn first_run() -> RunId {
    run("run-1")
}

pub(crate) fn eur(amount_minor: i64) -> Money {
    Money::from_minor(amount_minor, Currency::EUR).unwrap()
}

pub(crate) fn at(ms: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(ms).unwrap()
}

/// The switch's clock before every first attempt.
pub(crate) const SWITCH_NOW_MS: i64 = 1_700_000_000_000;

/// A switch that can do everything.
pub(crate) fn profile() -> SwitchProfile {
    SwitchProfile {
        has_query: true,
        deduplicates: true,
        tombstones: true,
        honours_deadline: true,
        can_cancel: true,
        can_recall: true,
        has_callback: true,
        amount_limit_minor: 1_000_000_000,
        ..SwitchProfile::minimal(SwitchName::new(SWITCH).unwrap(), Strategy::Reference)
    }
}

/// A payment of the bank, with an account of its own.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) id: PaymentId,
    pub(crate) tx: TxId,
    pub(crate) account: AccountId,
}

/// How far a payment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// StoreCallbackOutcome by the API.
    Accepted,
    /// A run that took it up again fenced its reserve.
    Fenced,
    /// The amount is held.
    Reserved,
    /// One attempt at the switch is on record.
    Sent,
    /// The switch is being asked to cancel, because the SLA has passed.
    Cancelling,
    /// A SUCCESS of another amount came in.
    Differing,
    /// A matching SUCCESS came in.
    Confirmed,
    /// The switch cancelled it; still held.
    Void,
    /// Confirmed, and settle was refused for good; the account is active again.
    Barred,
    /// Barred, and the switch gave the money back.
    Recalled,
    /// Barred, and the switch refused to give the money back.
    RecallRefused,
    /// End: debited.
    Settled,
    /// End: dead and released.
    Released,
    /// End: released before it was reserved.
    ReleasedUnreserved,
    /// End: its reserve was refused.
    Rejected,
}

/// A bank over a database of its own.
pub(crate) struct Bank {
    pub(crate) ledger: Ledger,
    pub(crate) pool: PgPool,
}

impl Bank {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { ledger: Ledger::new(pool.clone()), pool }
    }

    /// A bank with `connections`, for tests in which as many steps run at once. To be closed.
    pub(crate) async fn crowded(options: PgPoolOptions, connect: PgConnectOptions, connections: u32) -> Self {
        // The pool that the test harness offers is bounded for all tests together.
        drop(options);
        Self::new(PgPoolOptions::new().max_connections(connections).connect_with(connect).await.unwrap())
    }

    pub(crate) async fn close(self) {
        self.pool.close().await;
    }

    /// Waits until midnight (UTC) is over where it is near: what a test counts by the day must all be of one.
    pub(crate) async fn clear_of_midnight(&self) {
        self.sql(
            "SELECT pg_sleep(left_s + 1)
             FROM (SELECT 86400 - extract(epoch FROM clock_timestamp()) % 86400 AS left_s) AS today
             WHERE left_s < 60",
        )
        .await;
    }

    /// Opens an account and pays `minor` in.
    pub(crate) async fn open(&self, name: &str, minor: i64) -> AccountId {
        let account = account_id(name);
        self.ledger.open_account(&tenant(), &account, Currency::EUR).await.unwrap();
        if minor > 0 {
            assert!(self.ledger.fund(&account, eur(minor), &format!("fund:{name}")).await.unwrap());
        }
        account
    }

    /// A payment as the API takes it, to be changed before [`Bank::take`].
    pub(crate) fn order(&self, key: &str) -> NewPayment {
        let client = ClientId::new("shop").unwrap();
        NewPayment {
            payment_id: PaymentId::derive(&tenant(), &client, key),
            tenant: tenant(),
            client,
            source_account: account_id(&format!("from-{}", key.replace(' ', "-"))),
            destination_account: account_id("DE-far-away"),
            end_to_end_id: Some(format!("invoice {key}")),
            money: eur(AMOUNT_MINOR),
            profile: profile(),
            request_hash: vec![7],
            response_body: format!("{{\"key\":\"{key}\"}}").into_bytes(),
            accepted_at: jiff::Timestamp::now(),
        }
    }

    /// Stores an order.
    pub(crate) async fn take(&self, order: &NewPayment) -> Sample {
        let mut tx = self.pool.begin().await.unwrap();
        assert_eq!(accept(&mut tx, slice::from_ref(order)).await.unwrap(), [AcceptOutcome::New]);
        tx.commit().await.unwrap();
        Sample {
            id: order.payment_id.clone(),
            tx: TxId::derive(&order.payment_id),
            account: order.source_account.clone(),
        }
    }

    /// A new payment from an account of its own, brought to `stage`.
    pub(crate) async fn payment_at(&self, stage: Stage, key: &str) -> Sample {
        self.order_at(stage, self.order(key)).await
    }

    /// As [`Bank::payment_at`], for an order of the test's own making.
    pub(crate) async fn order_at(&self, stage: Stage, order: NewPayment) -> Sample {
        self.open(order.source_account.as_str(), FUNDS_MINOR).await;
        let sample = self.take(&order).await;
        self.bring(&sample, stage).await;
        sample
    }

    /// Brings a freshly accepted payment to `stage`.
    pub(crate) async fn bring(&self, p: &Sample, stage: Stage) {
        match stage {
            Stage::Accepted => {}
            Stage::Fenced => {
                self.ledger.fence_reserve(&p.id).await.unwrap();
            }
            Stage::Rejected => {
                self.freeze(p).await;
                assert_eq!(self.reserve(p).await, ReserveOutcome::Refused(ReserveRefusal::FrozenAccount));
                self.unfreeze(p).await;
            }
            Stage::ReleasedUnreserved => {
                self.ledger.release(&p.id, &Cause::ReserveUnknown).await.unwrap();
            }
            Stage::Reserved => assert_eq!(self.reserve(p).await, ReserveOutcome::Held),
            Stage::Sent => {
                Box::pin(self.bring(p, Stage::Reserved)).await;
                self.attempt(p).await;
            }
            Stage::Cancelling => {
                Box::pin(self.bring(p, Stage::Sent)).await;
                self.ledger.begin_cancel(&p.id, &Cause::SlaExpired).await.unwrap();
            }
            Stage::Differing => {
                Box::pin(self.bring(p, Stage::Sent)).await;
                let differing =
                    Callback { amount_minor: AMOUNT_MINOR + 1, ..success(p, &event(p, "differs")) };
                self.ledger.store_callback(&differing).await.unwrap();
            }
            Stage::Confirmed => {
                Box::pin(self.bring(p, Stage::Sent)).await;
                self.ledger.store_callback(&success(p, &event(p, "confirms"))).await.unwrap();
            }
            Stage::Void => {
                Box::pin(self.bring(p, Stage::Cancelling)).await;
                self.ledger.record_void(&p.id, VoidReason::Cancelled).await.unwrap();
            }
            Stage::Barred => {
                Box::pin(self.bring(p, Stage::Confirmed)).await;
                self.freeze(p).await;
                assert!(matches!(self.debit(p).await, DebitOutcome::Refused { .. }));
                self.unfreeze(p).await;
            }
            Stage::Recalled | Stage::RecallRefused => {
                Box::pin(self.bring(p, Stage::Barred)).await;
                let answer = match stage {
                    Stage::Recalled => RecallRecord::Recalled,
                    _ => RecallRecord::Refused,
                };
                self.ledger.record_recall(&p.id, answer, "the payee keeps it").await.unwrap();
            }
            Stage::Settled => {
                Box::pin(self.bring(p, Stage::Confirmed)).await;
                assert_eq!(self.debit(p).await, DebitOutcome::Done);
            }
            Stage::Released => {
                Box::pin(self.bring(p, Stage::Void)).await;
                self.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap();
            }
        }
    }

    pub(crate) async fn reserve(&self, p: &Sample) -> ReserveOutcome {
        self.ledger.reserve(&p.id, &first_run()).await.unwrap()
    }

    pub(crate) async fn debit(&self, p: &Sample) -> DebitOutcome {
        self.ledger.debit(&p.id).await.unwrap()
    }

    pub(crate) async fn attempt(&self, p: &Sample) -> payment_protocol::rules::AttemptRuling {
        self.ledger.record_attempt(&p.id, &first_run(), at(SWITCH_NOW_MS), None).await.unwrap().0
    }

    pub(crate) async fn freeze(&self, p: &Sample) {
        assert!(self.ledger.set_account_status(&p.account, AccountStatus::Frozen).await.unwrap());
    }

    pub(crate) async fn unfreeze(&self, p: &Sample) {
        assert!(self.ledger.set_account_status(&p.account, AccountStatus::Active).await.unwrap());
    }

    pub(crate) async fn customer_cancel(&self, p: &Sample) -> CancelRequestOutcome {
        let mut tx = self.pool.begin().await.unwrap();
        let request = request_cancel(&mut tx, &p.id).await.unwrap();
        tx.commit().await.unwrap();
        request
    }

    /// What the payment's account can spend, by its balance row.
    pub(crate) async fn available(&self, p: &Sample) -> i64 {
        self.number(&format!("SELECT available_minor FROM accounts WHERE account_id = '{}'", p.account)).await
    }

    /// One column of the payment's row, as text.
    pub(crate) async fn column(&self, p: &Sample, column: &str) -> Option<String> {
        let sql = format!("SELECT {column}::text FROM payments WHERE payment_id = '{}'", p.id);
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn state(&self, p: &Sample) -> String {
        self.column(p, "state").await.unwrap()
    }

    pub(crate) async fn hold(&self, p: &Sample) -> String {
        let sql = format!("SELECT status FROM holds WHERE payment_id = '{}'", p.id);
        self.words(&sql).await.pop().unwrap_or_else(|| "none".into())
    }

    /// Kinds of the payment's exceptions, in the order they were opened.
    pub(crate) async fn exceptions(&self, p: &Sample) -> Vec<String> {
        let sql = format!("SELECT kind FROM exceptions WHERE payment_id = '{}' ORDER BY exception_id", p.id);
        self.words(&sql).await
    }

    /// What is recorded under an operation key: the outcome, and the reason of a refusal.
    pub(crate) async fn operation(&self, key: &str) -> Vec<String> {
        let sql =
            format!("SELECT concat_ws(' ', outcome, reason) FROM operations WHERE operation_key = '{key}'");
        self.words(&sql).await
    }

    /// The single text column of any query.
    pub(crate) async fn words(&self, sql: &str) -> Vec<String> {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_all(&self.pool).await.unwrap()
    }

    /// The single number of any query.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.unwrap()
    }

    /// Runs SQL that must succeed.
    pub(crate) async fn sql(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.unwrap();
    }

    /// Damage that the database would not let anybody do.
    pub(crate) async fn damage(&self, sql: String) {
        let mut tx = self.pool.begin().await.unwrap();
        sqlx::raw_sql("SET LOCAL session_replication_role = replica").execute(&mut *tx).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Runs SQL that the database must refuse; the SQLSTATE and the constraint or message.
    pub(crate) async fn refused(&self, sql: &str) -> (String, String) {
        let error = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.unwrap_err();
        let error = error.into_database_error().expect("the database's own refusal");
        let told = error.constraint().map_or_else(|| error.message().to_owned(), str::to_owned);
        (error.code().unwrap_or_default().into_owned(), told)
    }

    /// Asserts that the books agree.
    pub(crate) async fn audit(&self) {
        auditor::audit(&self.pool).await;
    }
}

/// An event id that no other payment uses.
pub(crate) fn event(p: &Sample, name: &str) -> String {
    format!("{name}-{}", &p.tx.as_str()[..16])
}

/// The SUCCESS that is the payment's.
pub(crate) fn success(p: &Sample, event: &str) -> Callback {
    Callback {
        switch: SwitchName::new(SWITCH).unwrap(),
        event_id: EventId::new(event).unwrap(),
        reference: keys::submit(&p.tx).to_string(),
        status: CallbackStatus::Success,
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
        reason: None,
        body: format!("SUCCESS {event}").into_bytes(),
    }
}

/// A FAILURE that names the payment.
pub(crate) fn failure(p: &Sample, event: &str) -> Callback {
    Callback {
        status: CallbackStatus::Failure,
        reason: Some("account closed".into()),
        body: format!("FAILURE {event}").into_bytes(),
        ..success(p, event)
    }
}

/// The SUCCESS that is the payment's, as an answer to a query or a cancel.
pub(crate) fn report(p: &Sample) -> SettledReport {
    SettledReport {
        switch: SwitchName::new(SWITCH).unwrap(),
        reference: keys::submit(&p.tx).to_string(),
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
    }
}

//! A small bank with its own database: accounts, payments advanced to a stage, plain SQL queries, and the [`auditor`].

mod auditor;
mod logins;
mod operators;
mod samples;
mod stages;

use std::slice;

use iso_currency::Currency;
use payment_ledger::Ledger;
use payment_ledger::accounts::AccountStatus;
use payment_ledger::admission::limits::{LimitBounds, LimitScope};
use payment_ledger::steps::accept::{AcceptOutcome, NewPayment, accept};
use payment_ledger::switch::inbox::{CancelRequestOutcome, request_cancel};
use payment_protocol::ids::{AccountId, ClientId, PaymentId, TxId};
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use payment_protocol::{Payment, SwitchProfile};
use postgres_kit::Pool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

pub(crate) use logins::{PASSWORD, log_in, operator_api};
pub(crate) use samples::{
    AMOUNT_MINOR, FUNDS_MINOR, OTHER_SWITCH, SWITCH, SWITCH_NOW_MS, account_id, at, eur, event, failure,
    first_run, profile, report, return_part, return_report, returned, run, success, tenant,
};
pub(crate) use stages::Stage;

/// A payment and its source account.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) id: PaymentId,
    pub(crate) tx: TxId,
    pub(crate) account: AccountId,
}

/// A bank with its own database.
pub(crate) struct Bank {
    pub(crate) ledger: Ledger,
    pub(crate) pool: PgPool,
}

impl Bank {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { ledger: Ledger::new(pool.clone()), pool }
    }

    /// A bank with a pool of `connections`, for tests with as many concurrent steps. Must be closed by [`Bank::close`].
    pub(crate) async fn with_connections(
        options: PgPoolOptions,
        connect: PgConnectOptions,
        connections: u32,
    ) -> Self {
        // The pool of the test harness is limited for all tests together.
        drop(options);
        Self::new(PgPoolOptions::new().max_connections(connections).connect_with(connect).await.unwrap())
    }

    pub(crate) async fn close(self) {
        self.pool.close().await;
    }

    /// Waits until after midnight (UTC) if it is less than a minute away, so that a test that counts per day runs within one day.
    pub(crate) async fn avoid_midnight(&self) {
        self.sql(
            "SELECT pg_sleep(left_s + 1)
             FROM (SELECT 86400 - extract(epoch FROM clock_timestamp()) % 86400 AS left_s) AS today
             WHERE left_s < 60",
        )
        .await;
    }

    /// Opens an account with a balance of `minor`.
    pub(crate) async fn open(&self, name: &str, minor: i64) -> AccountId {
        let account = account_id(name);
        self.ledger.open_account(&tenant(), &account, Currency::EUR).await.unwrap();
        if minor > 0 {
            assert!(self.ledger.fund(&account, eur(minor), &format!("fund:{name}")).await.unwrap());
        }
        account
    }

    /// A payment request from an account named after `key`, for [`Bank::accept`].
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
            trace_parent: None,
        }
    }

    /// Accepts a payment.
    pub(crate) async fn accept(&self, order: &NewPayment) -> Sample {
        let mut tx = Pool::from(self.pool.clone()).begin().await.unwrap();
        assert_eq!(accept(&mut tx, slice::from_ref(order)).await.unwrap(), [AcceptOutcome::New]);
        tx.commit().await.unwrap();
        Sample {
            id: order.payment_id.clone(),
            tx: TxId::derive(&order.payment_id),
            account: order.source_account.clone(),
        }
    }

    /// A new payment from its own funded account, advanced to `stage`.
    pub(crate) async fn payment_at(&self, stage: Stage, key: &str) -> Sample {
        self.order_at(stage, self.order(key)).await
    }

    /// As [`Bank::payment_at`], for a given request.
    pub(crate) async fn order_at(&self, stage: Stage, order: NewPayment) -> Sample {
        self.open(order.source_account.as_str(), FUNDS_MINOR).await;
        let sample = self.accept(&order).await;
        self.advance(&sample, stage).await;
        sample
    }

    pub(crate) async fn reserve(&self, p: &Sample) -> ReserveOutcome {
        self.ledger.reserve(&self.payment(p).await, &first_run()).await.unwrap()
    }

    /// The payment, as its workflow has it.
    pub(crate) async fn payment(&self, p: &Sample) -> Payment {
        self.ledger.accepted_payment(&p.id).await.unwrap()
    }

    pub(crate) async fn debit(&self, p: &Sample) -> DebitOutcome {
        self.ledger.debit(&p.id).await.unwrap()
    }

    pub(crate) async fn attempt(&self, p: &Sample) -> payment_protocol::rules::AttemptRuling {
        self.ledger.record_attempt(&p.id, &first_run(), at(SWITCH_NOW_MS), false, None).await.unwrap().0
    }

    pub(crate) async fn freeze(&self, p: &Sample) {
        assert!(self.ledger.set_account_status(&p.account, AccountStatus::Frozen).await.unwrap());
    }

    pub(crate) async fn unfreeze(&self, p: &Sample) {
        assert!(self.ledger.set_account_status(&p.account, AccountStatus::Active).await.unwrap());
    }

    pub(crate) async fn customer_cancel(&self, p: &Sample) -> CancelRequestOutcome {
        let mut tx = Pool::from(self.pool.clone()).begin().await.unwrap();
        let request = request_cancel(&mut tx, &p.id).await.unwrap();
        tx.commit().await.unwrap();
        request
    }

    /// Available balance of the payment's source account.
    pub(crate) async fn available(&self, p: &Sample) -> i64 {
        self.number(&format!("SELECT available_minor FROM accounts WHERE account_id = '{}'", p.account)).await
    }

    /// A column of the payment's row as text; `None` if it is NULL.
    pub(crate) async fn column(&self, p: &Sample, column: &str) -> Option<String> {
        let sql = format!("SELECT {column}::text FROM payments WHERE payment_id = '{}'", p.id);
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn state(&self, p: &Sample) -> String {
        self.column(p, "state").await.unwrap()
    }

    /// Status of the payment's hold, or `none`.
    pub(crate) async fn hold(&self, p: &Sample) -> String {
        let sql = format!("SELECT status FROM holds WHERE payment_id = '{}'", p.id);
        self.words(&sql).await.pop().unwrap_or_else(|| "none".into())
    }

    /// Kinds of the payment's exceptions in the order of their opening.
    pub(crate) async fn exceptions(&self, p: &Sample) -> Vec<String> {
        let sql = format!("SELECT kind FROM exceptions WHERE payment_id = '{}' ORDER BY exception_id", p.id);
        self.words(&sql).await
    }

    /// Outcome and refusal reason under an operation key; empty if nothing is recorded.
    pub(crate) async fn operation(&self, key: &str) -> Vec<String> {
        let sql =
            format!("SELECT concat_ws(' ', outcome, reason) FROM operations WHERE operation_key = '{key}'");
        self.words(&sql).await
    }

    /// All values of a query with one text column.
    pub(crate) async fn words(&self, sql: &str) -> Vec<String> {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_all(&self.pool).await.unwrap()
    }

    /// The value of a query with one integer.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.unwrap()
    }

    /// Executes SQL that must succeed.
    pub(crate) async fn sql(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.unwrap();
    }

    /// Sets a limit, as the operator Ann.
    pub(crate) async fn set_limit(
        &self,
        scope: &LimitScope,
        currency: Currency,
        bounds: LimitBounds,
        reason: &str,
    ) {
        let (scope, id) = match scope {
            LimitScope::Account(account) => ("account", account.as_str()),
            LimitScope::Tenant(tenant) => ("tenant", tenant.as_str()),
        };
        sqlx::query(
            "INSERT INTO limits (scope, scope_id, currency, per_payment_minor, per_day_minor, per_day_count, set_by, reason)
             VALUES ($1, $2, $3, $4, $5, $6, 'Ann', $7)",
        )
        .bind(scope)
        .bind(id)
        .bind(currency.code())
        .bind(bounds.per_payment_minor)
        .bind(bounds.per_day_minor)
        .bind(bounds.per_day_count)
        .bind(reason)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// Stores a switch profile, which may be of a later release; returns its hash, as SQL.
    pub(crate) async fn store_profile(&self, profile: &serde_json::Value) -> String {
        let hash = format!("switch_profile_hash('{profile}')");
        self.sql(&format!("INSERT INTO switch_profiles VALUES ({hash}, '{profile}') ON CONFLICT DO NOTHING"))
            .await;
        hash
    }

    /// Replaces the profile that a payment was accepted with.
    pub(crate) async fn give_profile(&self, p: &Sample, profile: &SwitchProfile) {
        let hash = self.store_profile(&serde_json::to_value(profile).unwrap()).await;
        self.damage(format!("UPDATE payments SET profile_hash = {hash} WHERE payment_id = '{}'", p.id)).await;
    }

    /// Executes SQL without triggers, to write what the database does not allow.
    pub(crate) async fn damage(&self, sql: String) {
        let mut tx = Pool::from(self.pool.clone()).begin().await.unwrap();
        sqlx::raw_sql("SET LOCAL session_replication_role = replica").execute(&mut *tx).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Executes SQL that the database must refuse; returns the SQLSTATE, and the constraint or message.
    pub(crate) async fn refused(&self, sql: &str) -> (String, String) {
        let error = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.unwrap_err();
        let error = error.into_database_error().expect("an error reported by the database");
        let reason = error.constraint().map_or_else(|| error.message().to_owned(), str::to_owned);
        (error.code().unwrap_or_default().into_owned(), reason)
    }

    /// Makes the database refuse each new row of `table` for which `condition` holds, with this SQLSTATE.
    pub(crate) async fn refuse_rows(&self, table: &str, condition: &str, sqlstate: &str) {
        self.sql(&format!(
            "CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE 'refused by the test' USING ERRCODE = '{sqlstate}'; END $$;
             CREATE TRIGGER refuse_row BEFORE INSERT ON {table} FOR EACH ROW WHEN ({condition})
             EXECUTE FUNCTION refuse_row()"
        ))
        .await;
    }

    /// Ends [`Bank::refuse_rows`].
    pub(crate) async fn allow_rows(&self, table: &str) {
        self.sql(&format!("DROP TRIGGER refuse_row ON {table}")).await;
    }

    /// Asserts that the ledger is consistent.
    pub(crate) async fn audit(&self) {
        auditor::audit(&self.pool).await;
    }
}

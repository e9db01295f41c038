//! A bank without Temporal: a migrated database, payments brought to a state through the ledger's own steps,
//! and a switch if the test starts one.

use std::slice;

use std::time::Duration;

use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::access::operators::OperatorRole;
use payment_ledger::operator::decisions::DecisionStatus;
use payment_ledger::steps::accept::{NewPayment, accept};
use payment_ledger::switch::callbacks::Callback;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::ids::{
    AccountId, ClientId, DecisionId, EventId, PaymentId, RunId, SwitchName, TenantId, TxId,
};
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::keys;
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::port::{DebitOutcome, ReserveOutcome, SubmitProgress};
use payment_protocol::submit::SendAnswer;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::run::{CommandResult, command, payctl};
use crate::scratch_database::ScratchDatabase;
use crate::staff::Operators;

/// The configuration of `./dev up`; tests override addresses in the environment.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/demo.toml");
/// Every payment's amount, in minor units.
pub(crate) const AMOUNT_MINOR: i64 = 1_250;

pub(crate) struct Bank {
    pub(crate) ledger: Ledger,
    scratch: ScratchDatabase,
    switch_url: String,
    /// Started with the first decision.
    operators: OnceCell<Operators>,
}

/// The operators; each may propose and confirm.
const OPERATORS: [&str; 3] = ["Ann", "Bob", "Carl"];

/// A payment's id and reference.
#[derive(Clone, Debug)]
pub(crate) struct SamplePayment {
    pub(crate) id: PaymentId,
    pub(crate) reference: String,
}

impl Bank {
    /// A bank whose switch is unreachable.
    pub(crate) async fn open() -> Self {
        Self::with_switch("http://127.0.0.1:1").await
    }

    pub(crate) async fn with_switch(url: &str) -> Self {
        let scratch = ScratchDatabase::new();
        payctl(&["migrate", "--database-url", scratch.url()]).await.success();
        let ledger = Ledger::new(PgPool::connect(scratch.url()).await.unwrap());
        Self { ledger, scratch, switch_url: url.to_owned(), operators: OnceCell::new() }
    }

    /// The binary with this bank's configuration, and the rights that the command needs: the owner's, or those of one of payctl's roles.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let url = match args.first() {
            Some(&"trigger") => self.scratch.url().to_owned(),
            Some(&("reconcile" | "restore-check")) => self.scratch.reconciling_url(),
            _ => self.scratch.reading_url(),
        };
        let mut command = command(args);
        command.envs([
            ("PAYMENTS_CONFIG", CONFIG),
            ("PAYMENTS_DATABASE__URL", url.as_str()),
            ("PAYMENTS_TEMPORAL__ADDRESS", "http://127.0.0.1:1"),
            ("PAYMENTS_SWITCHES__MOCK__BASE_URL", &self.switch_url),
        ]);
        command
    }

    pub(crate) async fn payctl(&self, args: &[&str]) -> CommandResult {
        CommandResult::of(self.command(args).output().await.unwrap())
    }

    /// The binary, acting in an operator's session.
    pub(crate) async fn command_by(&self, name: &str, args: &[&str]) -> Command {
        let roles = [OperatorRole::Operator, OperatorRole::Approver];
        let all = OPERATORS.map(|name| (name, &roles[..]));
        let operators = self
            .operators
            .get_or_init(|| Operators::log_in_all(self.scratch.url(), &self.switch_url, &all))
            .await;
        operators.command(name, args)
    }

    /// What an operator does.
    pub(crate) async fn by(&self, name: &str, args: &[&str]) -> CommandResult {
        CommandResult::of(self.command_by(name, args).await.output().await.unwrap())
    }

    /// Runs a command with --json, expects success and returns the printed document.
    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let output = self.payctl(&[args, &["--json"]].concat()).await.success();
        serde_json::from_str(&output).unwrap()
    }

    /// Makes every attempt older than what a switch remembers.
    pub(crate) async fn age_attempts(&self) {
        sqlx::query("UPDATE payments SET first_attempt_at = first_attempt_at - interval '10 years'")
            .execute(self.ledger.pool())
            .await
            .unwrap();
    }

    /// Executes SQL statements.
    pub(crate) async fn sql(&self, statements: &'static str) {
        sqlx::raw_sql(statements).execute(self.ledger.pool()).await.unwrap();
    }

    /// A reserved payment whose one submit attempt was accepted.
    pub(crate) async fn submitted(&self, key: &str) -> SamplePayment {
        let sample = self.reserved(key).await;
        self.ledger.record_attempt(&sample.id, &run(), Timestamp::now(), false, None).await.unwrap();
        self.ledger
            .record_answer(&sample.id, 1, &SendAnswer::Accepted, None, Timestamp::now())
            .await
            .unwrap();
        sample
    }

    /// A reserved payment.
    pub(crate) async fn reserved(&self, key: &str) -> SamplePayment {
        let sample = self.accepted(key).await;
        assert_eq!(
            self.ledger
                .reserve(&self.ledger.accepted_payment(&sample.id).await.unwrap(), &run())
                .await
                .unwrap(),
            ReserveOutcome::Held
        );
        sample
    }

    /// A payment that its customer cancelled before it was reserved.
    pub(crate) async fn unreserved_end(&self, key: &str) -> SamplePayment {
        let sample = self.accepted(key).await;
        self.ledger.refuse_unreserved(&sample.id, ReserveRefusal::CustomerCancel).await.unwrap();
        sample
    }

    async fn accepted(&self, key: &str) -> SamplePayment {
        let (tenant, client) = (TenantId::new("acme").unwrap(), ClientId::new("shop").unwrap());
        let eur = parse_currency("EUR").unwrap();
        let source = AccountId::new(format!("DE-{key}")).unwrap();
        self.ledger.open_account(&tenant, &source, eur).await.unwrap();
        self.ledger
            .fund(&source, Money::from_minor(10_000, eur).unwrap(), &format!("fund:{key}"))
            .await
            .unwrap();
        let id = PaymentId::derive(&tenant, &client, key);
        let order = NewPayment {
            payment_id: id.clone(),
            tenant,
            client,
            source_account: source,
            destination_account: AccountId::new("FR-CAROL-EUR").unwrap(),
            end_to_end_id: Some(format!("invoice {key}")),
            money: Money::from_minor(AMOUNT_MINOR, eur).unwrap(),
            profile: serde_json::from_value(json!({
                "switch": "mock", "strategy": "query", "has_query": true, "deduplicates": true,
                "retention_s": 86_400, "tombstones": true, "honours_deadline": true, "max_skew_ms": 1_000,
                "can_cancel": true, "can_recall": true, "has_callback": true,
            }))
            .unwrap(),
            request_hash: vec![7],
            response_body: b"{}".to_vec(),
            accepted_at: Timestamp::now(),
            trace_parent: None,
        };
        #[expect(clippy::disallowed_methods, reason = "the test accepts a payment as the API does")]
        let mut tx = self.ledger.pool().begin().await.unwrap();
        accept(&mut tx, slice::from_ref(&order)).await.unwrap();
        tx.commit().await.unwrap();
        let reference = keys::submit(&TxId::derive(&id)).to_string();
        SamplePayment { id, reference }
    }

    /// A submitted payment that needs an operator.
    pub(crate) async fn needs_operator(&self, key: &str, reason: OperatorReason) -> SamplePayment {
        let sample = self.submitted(key).await;
        self.ledger.needs_operator(&sample.id, reason).await.unwrap();
        sample
    }

    /// A submitted payment that became void and was released.
    pub(crate) async fn released(&self, key: &str) -> SamplePayment {
        let sample = self.submitted(key).await;
        self.ledger.begin_cancel(&sample.id, &Cause::SlaExpired, SubmitProgress::NotScheduled).await.unwrap();
        self.ledger.record_void(&sample.id, VoidReason::Cancelled).await.unwrap();
        self.ledger.release(&sample.id, &Cause::SlaExpired).await.unwrap();
        sample
    }

    /// A submitted payment that was confirmed and debited.
    pub(crate) async fn settled(&self, key: &str) -> SamplePayment {
        let sample = self.submitted(key).await;
        self.success(&sample).await;
        assert_eq!(self.ledger.debit(&sample.id).await.unwrap(), DebitOutcome::Done);
        sample
    }

    /// Stores a SUCCESS callback.
    pub(crate) async fn success(&self, sample: &SamplePayment) {
        self.store_callback(sample, CallbackStatus::Success).await;
    }

    /// Stores a FAILURE callback.
    pub(crate) async fn failure(&self, sample: &SamplePayment) {
        self.store_callback(sample, CallbackStatus::Failure).await;
    }

    async fn store_callback(&self, sample: &SamplePayment, status: CallbackStatus) {
        let callback = Callback {
            switch: SwitchName::new("mock").unwrap(),
            event_id: EventId::new(format!("evt-{}-{}", status.as_str(), &sample.reference[..10])).unwrap(),
            reference: sample.reference.clone(),
            status,
            amount_minor: AMOUNT_MINOR,
            currency: "EUR".into(),
            reason: None,
            reason_code: None,
            posting: None,
            body: status.as_str().into(),
        };
        self.ledger.store_callback(&callback).await.unwrap();
    }

    /// Waits until a decision is confirmed.
    pub(crate) async fn wait_confirmed(&self, id: &DecisionId) {
        let poll = || async {
            let decision = self.ledger.decision(id).await?.unwrap();
            Ok((decision.status == DecisionStatus::Confirmed).then_some(()))
        };
        testkit::wait::until("the confirmation", Duration::from_secs(20), poll).await.unwrap();
    }

    /// Available amount of the payment's source account, in minor units.
    pub(crate) async fn available(&self, key: &str) -> i64 {
        let (tenant, account) =
            (TenantId::new("acme").unwrap(), AccountId::new(format!("DE-{key}")).unwrap());
        self.ledger.account(&tenant, &account).await.unwrap().unwrap().available_minor
    }
}

fn run() -> RunId {
    RunId::new("run-1").unwrap()
}

/// The decision id in a document.
pub(crate) fn decision_id(document: &Value) -> DecisionId {
    DecisionId::new(document["decision_id"].as_str().unwrap()).unwrap()
}

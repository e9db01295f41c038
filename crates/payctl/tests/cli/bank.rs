//! A bank for operators: a migrated database, payments brought to a stage through the ledger's own steps,
//! no Temporal, and a switch if the test gives one.

use std::slice;

use std::time::Duration;

use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::operator::decisions::DecisionStatus;
use payment_ledger::steps::accept::{NewPayment, accept};
use payment_ledger::switch::inbox::Callback;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::ids::{
    AccountId, ClientId, DecisionId, EventId, PaymentId, RunId, SwitchName, TenantId, TxId,
};
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::keys;
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use payment_protocol::submit::SendAnswer;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::process::Command;

use crate::run::{Ran, command, payctl};
use crate::scratch::Scratch;

/// The configuration that `./dev up` runs; what is local to a test goes over it.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/demo.toml");
/// What every payment sends.
pub(crate) const AMOUNT_MINOR: i64 = 1_250;

pub(crate) struct Bank {
    pub(crate) ledger: Ledger,
    scratch: Scratch,
    switch_url: String,
}

/// A payment's two ids.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) id: PaymentId,
    pub(crate) reference: String,
}

impl Bank {
    /// Nobody follows_switch where the switch should be.
    pub(crate) async fn open() -> Self {
        Self::with_switch("http://127.0.0.1:1").await
    }

    pub(crate) async fn with_switch(url: &str) -> Self {
        let scratch = Scratch::new();
        payctl(&["migrate", "--database-url", scratch.url()]).await.done();
        let ledger = Ledger::new(PgPool::connect(scratch.url()).await.unwrap());
        Self { ledger, scratch, switch_url: url.to_owned() }
    }

    /// The program in this bank's surroundings.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.envs([
            ("PAYMENTS_CONFIG", CONFIG),
            ("PAYMENTS_DATABASE__URL", self.scratch.url()),
            ("PAYMENTS_TEMPORAL__ADDRESS", "http://127.0.0.1:1"),
            ("PAYMENTS_SWITCHES__MOCK__BASE_URL", &self.switch_url),
        ]);
        command
    }

    pub(crate) async fn payctl(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().await.unwrap())
    }

    /// What a run that succeeded printed with --json.
    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let said = self.payctl(&[args, &["--json"]].concat()).await.done();
        serde_json::from_str(&said).unwrap()
    }

    /// A payment that is held, with one attempt that was accepted.
    pub(crate) async fn sent(&self, key: &str) -> Sample {
        let sample = self.held(key).await;
        self.ledger.record_attempt(&sample.id, &run(), Timestamp::now(), None).await.unwrap();
        self.ledger.record_answer(&sample.id, 1, &SendAnswer::Accepted, None).await.unwrap();
        sample
    }

    /// A payment that is held.
    pub(crate) async fn held(&self, key: &str) -> Sample {
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
        };
        let mut tx = self.ledger.pool().begin().await.unwrap();
        accept(&mut tx, slice::from_ref(&order)).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(self.ledger.reserve(&id, &run()).await.unwrap(), ReserveOutcome::Held);
        let reference = keys::submit(&TxId::derive(&id)).to_string();
        Sample { id, reference }
    }

    /// Sent, and it stands before a person.
    pub(crate) async fn standing(&self, key: &str, reason: OperatorReason) -> Sample {
        let sample = self.sent(key).await;
        self.ledger.needs_operator(&sample.id, reason).await.unwrap();
        sample
    }

    /// Sent, dead and given back.
    pub(crate) async fn released(&self, key: &str) -> Sample {
        let sample = self.sent(key).await;
        self.ledger.begin_cancel(&sample.id, &Cause::SlaExpired).await.unwrap();
        self.ledger.record_void(&sample.id, VoidReason::Cancelled).await.unwrap();
        self.ledger.release(&sample.id, &Cause::SlaExpired).await.unwrap();
        sample
    }

    /// Sent, confirmed and debited.
    pub(crate) async fn settled(&self, key: &str) -> Sample {
        let sample = self.sent(key).await;
        self.success(&sample).await;
        assert_eq!(self.ledger.debit(&sample.id).await.unwrap(), DebitOutcome::Done);
        sample
    }

    /// The switch calls back.
    pub(crate) async fn success(&self, sample: &Sample) {
        self.call_back(sample, CallbackStatus::Success).await;
    }

    /// A FAILURE callback.
    pub(crate) async fn failure(&self, sample: &Sample) {
        self.call_back(sample, CallbackStatus::Failure).await;
    }

    async fn call_back(&self, sample: &Sample, status: CallbackStatus) {
        let callback = Callback {
            switch: SwitchName::new("mock").unwrap(),
            event_id: EventId::new(format!("evt-{}-{}", status.as_str(), &sample.reference[..10])).unwrap(),
            reference: sample.reference.clone(),
            status,
            amount_minor: AMOUNT_MINOR,
            currency: "EUR".into(),
            reason: None,
            body: status.as_str().into(),
        };
        self.ledger.store_callback(&callback).await.unwrap();
    }

    /// Waits until a decision is confirmed, as the payment's worker would see it.
    pub(crate) async fn confirmed(&self, id: &DecisionId) {
        let look = || async {
            let decision = self.ledger.decision(id).await?.unwrap();
            Ok((decision.status == DecisionStatus::Confirmed).then_some(()))
        };
        testkit::wait::until("the confirmation", Duration::from_secs(20), look).await.unwrap();
    }

    /// What an account of the tenant can spend, in minor units.
    pub(crate) async fn available(&self, key: &str) -> i64 {
        let (tenant, account) =
            (TenantId::new("acme").unwrap(), AccountId::new(format!("DE-{key}")).unwrap());
        self.ledger.account(&tenant, &account).await.unwrap().unwrap().available_minor
    }
}

fn run() -> RunId {
    RunId::new("run-1").unwrap()
}

/// The decision that a run named.
pub(crate) fn decision(document: &Value) -> DecisionId {
    DecisionId::new(document["decision_id"].as_str().unwrap()).unwrap()
}

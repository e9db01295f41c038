//! The contract against a model: random sequences of operations on a few keys, on a real database.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

mod support;

use std::collections::HashMap;

use idempotency::token_claim::{self, Holder, TokenClaimOutcome};
use idempotency::{
    BatchOptions, Batcher, ClaimOutcome, IdempotencyKey, IdempotencyOptions, KeyScope, Lease, MIGRATOR,
    RequestOutcome, StoredResponse, claim, maintenance,
};
use postgres_kit::{Pool, Transaction};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use sqlx::PgPool;
use support::{Note, Notes, batcher, body, create_table, fingerprint};

/// Number of sequences, and of operations in each.
const SEQUENCES: usize = 120;
const LENGTH: usize = 24;

/// One operation on the key of this number.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A request with this text through the batcher.
    Post(usize, &'static str),
    /// A transaction claims the key and stays open.
    Hold(usize, &'static str),
    /// The open transaction that holds the key stores its response and commits.
    Complete(usize),
    /// The open transaction that holds the key is rolled back.
    RollBack(usize),
    /// A claim with a token.
    TokenClaim(usize, &'static str),
    /// The holder stores its response.
    TokenComplete(usize),
    /// The holder releases the key.
    TokenRelease(usize),
    /// The holder's lease expires.
    ExpireLease(usize),
    /// The holder's lease expired over a minute ago, and maintenance runs.
    Reap(usize),
    /// A stored response expires.
    Expire(usize),
    /// A stored response is deleted.
    Prune(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..3_usize;
    let text = || prop::sample::select(vec!["a", "a", "b", "refuse", "fail"]);
    prop_oneof![
        8 => (key(), text()).prop_map(|(key, text)| Op::Post(key, text)),
        2 => (key(), text()).prop_map(|(key, text)| Op::Hold(key, text)),
        2 => key().prop_map(Op::Complete),
        1 => key().prop_map(Op::RollBack),
        2 => (key(), text()).prop_map(|(key, text)| Op::TokenClaim(key, text)),
        2 => key().prop_map(Op::TokenComplete),
        1 => key().prop_map(Op::TokenRelease),
        1 => key().prop_map(Op::ExpireLease),
        1 => key().prop_map(Op::Reap),
        1 => key().prop_map(Op::Expire),
        1 => key().prop_map(Op::Prune),
    ]
}

/// The model of one key.
#[derive(Default)]
struct KeyModel {
    /// The row: its text, and its response unless in progress.
    row: Option<(&'static str, Option<StoredResponse>)>,
    is_lease_expired: bool,
    /// The text of the open transaction that holds the key.
    held: Option<&'static str>,
    /// The note that outlives the key.
    note: Option<&'static str>,
}

impl KeyModel {
    /// The outcome of a claim for `text`; `None` if the key is unused.
    fn claim(&mut self, text: &'static str) -> Option<RequestOutcome<String>> {
        if self.held.is_some() {
            return Some(RequestOutcome::InProgress);
        }
        match &self.row {
            Some((first, _)) if *first != text => Some(RequestOutcome::Mismatch),
            Some((_, Some(response))) => Some(RequestOutcome::Replayed(response.clone())),
            Some((_, None)) if !self.is_lease_expired => Some(RequestOutcome::InProgress),
            Some((_, None)) | None => None,
        }
    }

    fn post(&mut self, text: &'static str) -> RequestOutcome<String> {
        if let Some(outcome) = self.claim(text) {
            return outcome;
        }
        let response = match (self.note, text) {
            (Some(note), text) if note != text => return RequestOutcome::Mismatch,
            (Some(note), _) => return RequestOutcome::Replayed(StoredResponse::new(201, body(note))),
            (None, "refuse") => return RequestOutcome::Refused("refuse".into()),
            (None, "fail") => StoredResponse::new(410, r#"{"failed":"for good"}"#),
            (None, text) => {
                self.note = Some(text);
                StoredResponse::new(201, body(text))
            }
        };
        self.row = Some((text, Some(response.clone())));
        RequestOutcome::Executed(response)
    }
}

/// The service, with its open transactions and holders.
struct System {
    pool: PgPool,
    batcher: Batcher<Notes>,
    held: HashMap<usize, (Transaction, Lease)>,
    holders: HashMap<usize, Holder>,
    sequence: usize,
}

impl System {
    fn key(&self, key: usize) -> IdempotencyKey {
        support::key(&format!("model-{}-{key}", self.sequence))
    }

    async fn sql(&self, key: usize, sql: &'static str) {
        sqlx::query(sql).bind(self.key(key).as_str()).execute(&self.pool).await.unwrap();
    }

    /// Executes one operation on the system and the model; returns both outcomes as text.
    async fn execute(&mut self, op: Op, model: &mut [KeyModel]) -> (String, String) {
        match op {
            Op::Post(key, text) => self.post(key, text, &mut model[key]).await,
            Op::Hold(key, text) => self.hold(key, text, &mut model[key]).await,
            Op::Complete(key) => self.complete(key, &mut model[key]).await,
            Op::RollBack(key) => {
                if let Some((tx, _)) = self.held.remove(&key) {
                    tx.rollback().await.unwrap();
                    model[key].held = None;
                }
                Default::default()
            }
            Op::TokenClaim(key, text) => self.token_claim(key, text, &mut model[key]).await,
            Op::TokenComplete(key) => self.token_complete(key, &mut model[key]).await,
            Op::TokenRelease(key) => self.token_release(key, &mut model[key]).await,
            Op::ExpireLease(_) | Op::Reap(_) | Op::Expire(_) | Op::Prune(_) => {
                self.change_row(op, model).await
            }
        }
    }

    async fn post(&self, key: usize, text: &'static str, model: &mut KeyModel) -> (String, String) {
        let named = self.key(key);
        let scope = KeyScope { tenant: "t", client: "c", key: &named };
        let id = format!("t/c/{named}");
        let note = Note { id, hash: fingerprint(text).as_bytes().to_vec(), text: text.to_owned() };
        let outcome = self.batcher.execute(&scope, &fingerprint(text), note).await.unwrap();
        let expected = model.post(text);
        // An expired holder is replaced by the new response.
        if matches!(expected, RequestOutcome::Executed(_)) {
            model.is_lease_expired = false;
        }
        (text_of(&outcome), text_of(&expected))
    }

    async fn hold(&mut self, key: usize, text: &'static str, model: &mut KeyModel) -> (String, String) {
        let expected = model.claim(text).as_ref().map_or_else(|| "claimed".into(), text_of);
        let named = self.key(key);
        let mut tx = Pool::from(self.pool.clone()).begin().await.unwrap();
        let scope = KeyScope { tenant: "t", client: "c", key: &named };
        let options = IdempotencyOptions::default();
        let outcome = match claim(&mut tx, &scope, &fingerprint(text), &options).await.unwrap() {
            ClaimOutcome::Claimed(lease) => {
                self.held.insert(key, (tx, lease));
                model.held = Some(text);
                return ("claimed".into(), expected);
            }
            ClaimOutcome::Replay(response) => text_of(&RequestOutcome::Replayed(response)),
            ClaimOutcome::InProgress => text_of(&RequestOutcome::InProgress),
            ClaimOutcome::Mismatch => text_of(&RequestOutcome::Mismatch),
        };
        tx.rollback().await.unwrap();
        (outcome, expected)
    }

    async fn complete(&mut self, key: usize, model: &mut KeyModel) -> (String, String) {
        if let Some((mut tx, lease)) = self.held.remove(&key) {
            let response = StoredResponse::new(202, "by hand");
            lease.complete(&mut tx, &response).await.unwrap();
            tx.commit().await.unwrap();
            let text = model.held.take().unwrap();
            model.row = Some((text, Some(response)));
            model.is_lease_expired = false;
        }
        Default::default()
    }

    async fn token_claim(
        &mut self,
        key: usize,
        text: &'static str,
        model: &mut KeyModel,
    ) -> (String, String) {
        let expected = match model.claim(text) {
            Some(outcome) => text_of(&outcome),
            None => {
                model.row = Some((text, None));
                model.is_lease_expired = false;
                "claimed".into()
            }
        };
        let named = self.key(key);
        let scope = KeyScope { tenant: "t", client: "c", key: &named };
        let options = IdempotencyOptions::default();
        let outcome =
            match token_claim::claim(&self.pool.clone().into(), &scope, &fingerprint(text), &options)
                .await
                .unwrap()
            {
                TokenClaimOutcome::Claimed(holder) => {
                    self.holders.insert(key, holder);
                    "claimed".into()
                }
                TokenClaimOutcome::Replay(response) => text_of(&RequestOutcome::Replayed(response)),
                TokenClaimOutcome::InProgress => text_of(&RequestOutcome::InProgress),
                TokenClaimOutcome::Mismatch => text_of(&RequestOutcome::Mismatch),
            };
        (outcome, expected)
    }

    async fn token_complete(&mut self, key: usize, model: &mut KeyModel) -> (String, String) {
        let Some(holder) = self.holders.remove(&key) else { return Default::default() };
        let is_ok = holder.complete(&StoredResponse::new(200, "with a token")).await.is_ok();
        let mut expected = false;
        // A transaction that holds the key has removed the row of an expired holder.
        if let Some((_, response @ None)) = &mut model.row {
            *response = Some(StoredResponse::new(200, "with a token"));
            expected = true;
        }
        (is_ok.to_string(), expected.to_string())
    }

    async fn token_release(&mut self, key: usize, model: &mut KeyModel) -> (String, String) {
        let Some(holder) = self.holders.remove(&key) else { return Default::default() };
        let is_ok = holder.release().await.is_ok();
        let expected = matches!(model.row, Some((_, None)));
        if expected {
            model.row = None;
        }
        (is_ok.to_string(), expected.to_string())
    }

    /// Changes a row by SQL to what it becomes after a lease or a retention has expired.
    async fn change_row(&self, op: Op, model: &mut [KeyModel]) -> (String, String) {
        match op {
            Op::ExpireLease(key) => {
                self.sql(key, "UPDATE idempotency.keys SET lease_until = now() - interval '1 s' WHERE key = $1 AND lease_until IS NOT NULL").await;
                model[key].is_lease_expired = true;
            }
            Op::Reap(key) => {
                self.sql(key, "UPDATE idempotency.keys SET lease_until = now() - interval '2 min' WHERE key = $1 AND lease_until IS NOT NULL").await;
                maintenance::maintain(&self.pool.clone().into()).await.unwrap();
                model[key].row.take_if(|row| row.1.is_none());
            }
            Op::Expire(key) => {
                self.sql(
                    key,
                    "UPDATE idempotency.keys SET created_at = created_at - interval '2 days', expires_at = now()
                     WHERE key = $1 AND lease_until IS NULL",
                )
                .await;
                self.sql(key, "DELETE FROM idempotency.keys WHERE key = $1 AND lease_until IS NULL AND expires_at <= now()").await;
                model[key].row.take_if(|row| row.1.is_some());
            }
            Op::Prune(key) => {
                self.sql(key, "DELETE FROM idempotency.keys WHERE key = $1 AND lease_until IS NULL").await;
                model[key].row.take_if(|row| row.1.is_some());
            }
            other => unreachable!("{other:?} changes no row"),
        }
        Default::default()
    }
}

fn text_of(outcome: &RequestOutcome<String>) -> String {
    format!("{outcome:?}")
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_random_idempotent_request_sequences_match_the_model(pool: PgPool) {
    create_table(&pool).await;
    let mut runner = TestRunner::default();
    for sequence in 0..SEQUENCES {
        let ops = prop::collection::vec(op(), LENGTH).new_tree(&mut runner).unwrap().current();
        let mut model: Vec<KeyModel> = (0..3).map(|_| KeyModel::default()).collect();
        let mut system = System {
            pool: pool.clone(),
            batcher: batcher(&pool, BatchOptions::default()),
            held: HashMap::new(),
            holders: HashMap::new(),
            sequence,
        };
        for (n, op) in ops.iter().enumerate() {
            // Rows of a key held by an open transaction are not changed by hand.
            let changed = match *op {
                Op::TokenComplete(key)
                | Op::TokenRelease(key)
                | Op::ExpireLease(key)
                | Op::Reap(key)
                | Op::Expire(key)
                | Op::Prune(key) => Some(key),
                _ => None,
            };
            if changed.is_some_and(|key| system.held.contains_key(&key)) {
                continue;
            }
            let (outcome, expected) = system.execute(*op, &mut model).await;
            assert_eq!(outcome, expected, "operation {n} of {:?}", &ops[..=n]);
        }
        for (_, (tx, _)) in system.held.drain() {
            tx.rollback().await.unwrap();
        }
    }
}

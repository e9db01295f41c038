//! The contract against a model: random sequences of everything that may happen to a few keys, on a real database.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::HashMap;

use idempotency::outside::{self, Begun, Holder};
use idempotency::{
    Answer, Batcher, Claim, IdempotencyKey, Lease, MIGRATOR, Outcome, Scope, Terms, Width, claim, keeper,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use sqlx::{PgPool, PgTransaction};
use support::{Note, Notes, batcher, body, fingerprint, make_table};

/// Sequences, and operations of each.
const SEQUENCES: usize = 120;
const LENGTH: usize = 24;

/// One operation on the key of this number.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A request through the batches with this text.
    Post(usize, &'static str),
    /// A transaction claims it and stays open.
    Hold(usize, &'static str),
    /// That transaction writes its answer and commits.
    Complete(usize),
    /// That transaction is rolled back.
    GiveUp(usize),
    /// A claim for an effect outside.
    Begin(usize, &'static str),
    /// Its holder answers.
    Answer(usize),
    /// Its holder gives the key back.
    GiveBack(usize),
    /// Its lease passes.
    LeasePasses(usize),
    /// Its lease passed over a minute ago, and the table is kept.
    Reap(usize),
    /// A kept answer expires.
    Expire(usize),
    /// A kept answer is gone.
    Prune(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..3_usize;
    let text = || prop::sample::select(vec!["a", "a", "b", "refuse", "fail"]);
    prop_oneof![
        8 => (key(), text()).prop_map(|(key, text)| Op::Post(key, text)),
        2 => (key(), text()).prop_map(|(key, text)| Op::Hold(key, text)),
        2 => key().prop_map(Op::Complete),
        1 => key().prop_map(Op::GiveUp),
        2 => (key(), text()).prop_map(|(key, text)| Op::Begin(key, text)),
        2 => key().prop_map(Op::Answer),
        1 => key().prop_map(Op::GiveBack),
        1 => key().prop_map(Op::LeasePasses),
        1 => key().prop_map(Op::Reap),
        1 => key().prop_map(Op::Expire),
        1 => key().prop_map(Op::Prune),
    ]
}

/// What the model holds of one key.
#[derive(Default)]
struct Modelled {
    /// The row: the text it is for, and its answer unless it is in progress.
    row: Option<(&'static str, Option<Answer>)>,
    lease_passed: bool,
    /// Held by an open transaction, for this text.
    held: Option<&'static str>,
    /// The note that outlives the key.
    note: Option<&'static str>,
}

impl Modelled {
    /// What a claim for `text` comes to; `None` means it is new.
    fn claim(&mut self, text: &'static str) -> Option<Outcome<String>> {
        if self.held.is_some() {
            return Some(Outcome::InProgress);
        }
        match &self.row {
            Some((first, _)) if *first != text => Some(Outcome::Mismatch),
            Some((_, Some(answer))) => Some(Outcome::Replayed(answer.clone())),
            Some((_, None)) if !self.lease_passed => Some(Outcome::InProgress),
            Some((_, None)) | None => None,
        }
    }

    fn post(&mut self, text: &'static str) -> Outcome<String> {
        if let Some(outcome) = self.claim(text) {
            return outcome;
        }
        let outcome = match (self.note, text) {
            (Some(note), text) if note != text => return Outcome::Mismatch,
            (Some(note), _) => return Outcome::Replayed(Answer::new(201, body(note))),
            (None, "refuse") => return Outcome::Refused("refuse".into()),
            (None, "fail") => Answer::new(410, r#"{"failed":"for good"}"#),
            (None, text) => {
                self.note = Some(text);
                Answer::new(201, body(text))
            }
        };
        self.row = Some((text, Some(outcome.clone())));
        Outcome::Answered(outcome)
    }
}

/// The service, with what is open.
struct Real {
    pool: PgPool,
    batcher: Batcher<Notes>,
    held: HashMap<usize, (PgTransaction<'static>, Lease)>,
    holders: HashMap<usize, Holder>,
    sequence: usize,
}

impl Real {
    fn key(&self, key: usize) -> IdempotencyKey {
        support::key(&format!("model-{}-{key}", self.sequence))
    }

    async fn sql(&self, key: usize, sql: &'static str) {
        sqlx::query(sql).bind(self.key(key).as_str()).execute(&self.pool).await.unwrap();
    }

    /// Carries one operation out on both; what each said.
    async fn carry_out(&mut self, op: Op, model: &mut [Modelled]) -> (String, String) {
        let said = |outcome: &Outcome<String>| format!("{outcome:?}");
        let name = |key: usize| self.key(key);
        match op {
            Op::Post(key, text) => {
                let (named, modelled) = (name(key), &mut model[key]);
                let scope = Scope { tenant: "t", client: "c", key: &named };
                let id = format!("t/c/{named}");
                let note = Note { id, hash: fingerprint(text).as_bytes().to_vec(), text: text.to_owned() };
                let outcome = self.batcher.carry_out(&scope, &fingerprint(text), note).await.unwrap();
                let expected = modelled.post(text);
                // A stale holder is removed with the answer that takes its place.
                if matches!(expected, Outcome::Answered(_)) {
                    modelled.lease_passed = false;
                }
                (said(&outcome), said(&expected))
            }
            Op::Hold(key, text) => {
                let expected = match model[key].claim(text) {
                    Some(outcome) => said(&outcome),
                    None => "new".into(),
                };
                let named = name(key);
                let mut tx = self.pool.begin().await.unwrap();
                let scope = Scope { tenant: "t", client: "c", key: &named };
                let came = match claim(&mut tx, &scope, &fingerprint(text), &Terms::default()).await.unwrap()
                {
                    Claim::New(lease) => {
                        self.held.insert(key, (tx, lease));
                        model[key].held = Some(text);
                        return ("new".into(), expected);
                    }
                    Claim::Replay(answer) => said(&Outcome::Replayed(answer)),
                    Claim::InProgress => said(&Outcome::InProgress),
                    Claim::Mismatch => said(&Outcome::Mismatch),
                };
                tx.rollback().await.unwrap();
                (came, expected)
            }
            Op::Complete(key) => {
                if let Some((mut tx, lease)) = self.held.remove(&key) {
                    let answer = Answer::new(202, "by hand");
                    lease.complete(&mut tx, &answer).await.unwrap();
                    tx.commit().await.unwrap();
                    let text = model[key].held.take().unwrap();
                    model[key].row = Some((text, Some(answer)));
                    model[key].lease_passed = false;
                }
                Default::default()
            }
            Op::GiveUp(key) => {
                if let Some((tx, _)) = self.held.remove(&key) {
                    tx.rollback().await.unwrap();
                    model[key].held = None;
                }
                Default::default()
            }
            Op::Begin(key, text) => {
                let expected = match model[key].claim(text) {
                    Some(outcome) => said(&outcome),
                    None => {
                        model[key].row = Some((text, None));
                        model[key].lease_passed = false;
                        "held".into()
                    }
                };
                let named = name(key);
                let scope = Scope { tenant: "t", client: "c", key: &named };
                let begun =
                    outside::begin(&self.pool, &scope, &fingerprint(text), &Terms::default()).await.unwrap();
                let came = match begun {
                    Begun::Held(holder) => {
                        self.holders.insert(key, holder);
                        "held".into()
                    }
                    Begun::Replay(answer) => said(&Outcome::Replayed(answer)),
                    Begun::InProgress => said(&Outcome::InProgress),
                    Begun::Mismatch => said(&Outcome::Mismatch),
                };
                (came, expected)
            }
            Op::Answer(key) => {
                let Some(holder) = self.holders.remove(&key) else { return Default::default() };
                let came = holder.complete(&Answer::new(200, "outside")).await.is_ok();
                let mut expected = false;
                // While a transaction holds the key it has removed the row of a holder that was late.
                if let Some((_, answer @ None)) = &mut model[key].row {
                    *answer = Some(Answer::new(200, "outside"));
                    expected = true;
                }
                (came.to_string(), expected.to_string())
            }
            Op::GiveBack(key) => {
                let Some(holder) = self.holders.remove(&key) else { return Default::default() };
                let came = holder.give_back().await.is_ok();
                let expected = matches!(model[key].row, Some((_, None)));
                if expected {
                    model[key].row = None;
                }
                (came.to_string(), expected.to_string())
            }
            Op::LeasePasses(key) => {
                self.sql(key, "UPDATE idempotency_keys SET lease_until = now() - interval '1 s' WHERE key = $1 AND lease_until IS NOT NULL").await;
                model[key].lease_passed = true;
                Default::default()
            }
            Op::Reap(key) => {
                self.sql(key, "UPDATE idempotency_keys SET lease_until = now() - interval '2 min' WHERE key = $1 AND lease_until IS NOT NULL").await;
                keeper::keep(&self.pool).await.unwrap();
                if matches!(model[key].row, Some((_, None))) {
                    model[key].row = None;
                }
                Default::default()
            }
            Op::Expire(key) => {
                self.sql(
                    key,
                    "UPDATE idempotency_keys SET created_at = created_at - interval '2 days', expires_at = now()
                     WHERE key = $1 AND lease_until IS NULL",
                )
                .await;
                self.sql(key, "DELETE FROM idempotency_keys WHERE key = $1 AND lease_until IS NULL AND expires_at <= now()").await;
                if matches!(model[key].row, Some((_, Some(_)))) {
                    model[key].row = None;
                }
                Default::default()
            }
            Op::Prune(key) => {
                self.sql(key, "DELETE FROM idempotency_keys WHERE key = $1 AND lease_until IS NULL").await;
                if matches!(model[key].row, Some((_, Some(_)))) {
                    model[key].row = None;
                }
                Default::default()
            }
        }
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_random_sequences_keep_the_contract(pool: PgPool) {
    make_table(&pool).await;
    let mut runner = TestRunner::default();
    for sequence in 0..SEQUENCES {
        let ops = prop::collection::vec(op(), LENGTH).new_tree(&mut runner).unwrap().current();
        let mut model: Vec<Modelled> = (0..3).map(|_| Modelled::default()).collect();
        let mut real = Real {
            pool: pool.clone(),
            batcher: batcher(&pool, Width::default()),
            held: HashMap::new(),
            holders: HashMap::new(),
            sequence,
        };
        for (n, op) in ops.iter().enumerate() {
            // While a transaction holds a key, a row under it that nobody else can see is not touched by hand.
            let touched = match *op {
                Op::Answer(key)
                | Op::GiveBack(key)
                | Op::LeasePasses(key)
                | Op::Reap(key)
                | Op::Expire(key)
                | Op::Prune(key) => Some(key),
                _ => None,
            };
            if touched.is_some_and(|key| real.held.contains_key(&key)) {
                continue;
            }
            let (came, expected) = real.carry_out(*op, &mut model).await;
            assert_eq!(came, expected, "operation {n} of {:?}", &ops[..=n]);
        }
        for (_, (tx, _)) in real.held.drain() {
            tx.rollback().await.unwrap();
        }
    }
}

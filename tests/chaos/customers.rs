//! The customers: payments of every sandbox behaviour at a steady rate, each request repeated under its key until it is answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use testkit::system::API_KEY;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, sleep};
use tokio_util::sync::CancellationToken;

/// New payments in a second.
pub(crate) const PAYMENTS_PER_S: u64 = 4;
/// Payments of one account: all of them leave something of its opening balance of 10,000.00.
pub(crate) const PAYMENTS_PER_ACCOUNT: u64 = 80;
/// Customers whose request has no answer yet, at most; while there are more, no new one orders a payment.
const UNANSWERED_MAX: usize = 200;
/// Time limit for one request; the customer then repeats it.
const REQUEST_WITHIN: Duration = Duration::from_secs(3);
/// Pause before a request is repeated.
const REPEATED_AFTER: Duration = Duration::from_millis(250);
/// Sandbox amounts that misbehave, in minor units: 90.01 to 90.19.
const SANDBOX_MINOR: std::ops::RangeInclusive<i64> = 9_001..=9_019;
/// The sandbox amount of a transfer that settles and refuses to be recalled.
pub(crate) const RECALL_REFUSED_MINOR: i64 = 9_016;
/// An amount that no account has.
const TOO_MUCH_MINOR: i64 = 2_000_000;

/// A payment that a customer orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    key: String,
    pub(crate) account: String,
    pub(crate) amount_minor: i64,
    /// Whether the customer sends the request twice at once.
    is_doubled: bool,
    /// After which time the customer cancels.
    cancels_after: Option<Duration>,
}

/// The accounts of a run of this length, and of the time that its last faults may take longer: the customers go on until then.
pub(crate) fn accounts(length: Duration) -> Vec<String> {
    let seconds = length.as_secs() + 300;
    (0..=seconds * PAYMENTS_PER_S / PAYMENTS_PER_ACCOUNT).map(account).collect()
}

fn account(number: u64) -> String {
    format!("PAYER-{number}")
}

/// The payment with this number, drawn from the seed.
pub(crate) fn order(seed: u64, number: u64) -> Order {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(number + 1_000);
    let amount_minor = match random.random_range(0..100) {
        0..36 => 500,
        // As one sandbox amount of nineteen, it would leave to chance whether a run of ten minutes has a payment that waits for operators.
        36..40 => RECALL_REFUSED_MINOR,
        40..42 => TOO_MUCH_MINOR,
        _ => random.random_range(SANDBOX_MINOR),
    };
    Order {
        key: format!("chaos-{seed}-{number}"),
        account: account(number / PAYMENTS_PER_ACCOUNT),
        amount_minor,
        is_doubled: random.random_bool(0.1),
        cancels_after: random.random_bool(0.08).then(|| Duration::from_millis(random.random_range(0..4_000))),
    }
}

/// What the customers saw.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// How many payments were ordered.
    pub(crate) ordered: u64,
    /// The payment id of each order that was accepted.
    pub(crate) accepted: BTreeMap<u64, String>,
    /// Customers whose order, or cancel, is not answered yet.
    pub(crate) unanswered: usize,
    /// Answers 200: the request was repeated, and had been accepted.
    pub(crate) repeats: usize,
    /// Answers 409: the request was repeated while the first one was in progress.
    pub(crate) in_progress: usize,
    /// Answers 503 and others that say to repeat the request later.
    pub(crate) refused_for_now: usize,
    /// Requests without an answer.
    pub(crate) without_answer: usize,
    /// Answers that a customer must never get, in words.
    pub(crate) wrong: Vec<String>,
}

/// Orders payments.
pub(crate) struct Customers {
    seed: u64,
    url: String,
    http: reqwest::Client,
    answers: Arc<Mutex<Answers>>,
}

impl Customers {
    pub(crate) fn new(seed: u64, api_address: &str) -> Self {
        let url = format!("http://{api_address}/api/v1/payments");
        Self { seed, url, http: testkit::http(), answers: Arc::default() }
    }

    /// Reads or changes what the customers saw.
    pub(crate) fn with_answers<T>(&self, read: impl FnOnce(&mut Answers) -> T) -> T {
        read(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of the next payment.
    pub(crate) fn ordered(&self) -> u64 {
        self.with_answers(|answers| answers.ordered)
    }

    /// Orders payments at [`PAYMENTS_PER_S`] until `stop`, then waits until each is answered or `give_up`.
    ///
    /// # Errors
    /// If a task of a customer panics.
    pub(crate) async fn order_until(
        &self,
        stop: &CancellationToken,
        give_up: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_millis(1_000 / PAYMENTS_PER_S));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut customers = JoinSet::new();
        let mut number = 0;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            while let Some(ended) = customers.try_join_next() {
                ended?;
            }
            if customers.len() < UNANSWERED_MAX {
                let customer = Customer {
                    number,
                    order: order(self.seed, number),
                    url: self.url.clone(),
                    http: self.http.clone(),
                    answers: Arc::clone(&self.answers),
                };
                self.with_answers(|answers| {
                    answers.unanswered += 1;
                    answers.ordered = number + 1;
                });
                customers.spawn(customer.pay(give_up.clone()));
                number += 1;
            }
        }
        while let Some(ended) = customers.join_next().await {
            ended?;
        }
        Ok(())
    }
}

/// One customer with one payment.
struct Customer {
    number: u64,
    order: Order,
    url: String,
    http: reqwest::Client,
    answers: Arc<Mutex<Answers>>,
}

impl Customer {
    fn with_answers(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Orders the payment, and cancels it if this customer does.
    async fn pay(self, give_up: CancellationToken) {
        let both = async {
            if self.order.is_doubled {
                tokio::join!(self.order_until_answered(), self.order_until_answered());
            } else {
                self.order_until_answered().await;
            }
            if let Some(after) = self.order.cancels_after {
                sleep(after).await;
                self.cancel_until_answered().await;
            }
            self.with_answers(|answers| answers.unanswered -= 1);
        };
        tokio::select! {
            () = both => {}
            () = give_up.cancelled() => {}
        }
    }

    async fn order_until_answered(&self) {
        let Order { key, account, amount_minor, .. } = &self.order;
        let body = json!({
            "amount": format!("{}.{:02}", amount_minor / 100, amount_minor % 100),
            "currency": "EUR",
            "source_account": account,
            "destination_account": "XX-BOB",
        });
        let id = self.until_answered(&self.url, key, Some(&body)).await;
        self.with_answers(|answers| {
            let Some(id) = id else {
                return answers.wrong.push(format!("the order {key} has no payment id in its answer"));
            };
            let known = answers.accepted.entry(self.number).or_insert_with(|| id.clone());
            if *known != id {
                answers.wrong.push(format!("the key {key} has two payments: {known} and {id}"));
            }
        });
    }

    async fn cancel_until_answered(&self) {
        let mut id = None;
        self.with_answers(|answers| id = answers.accepted.get(&self.number).cloned());
        if let Some(id) = id {
            let url = format!("{}/{id}/cancel", self.url);
            self.until_answered(&url, &format!("{}-cancel", self.order.key), None).await;
        }
    }

    /// Repeats a request under its key until the answer is definite; returns the payment id in it, if it has one.
    async fn until_answered(&self, url: &str, key: &str, body: Option<&Value>) -> Option<String> {
        loop {
            match self.request(url, key, body).await {
                Ok((200..=299, answer)) => return answer["payment_id"].as_str().map(str::to_owned),
                // A payment that has ended is not cancelled any more.
                Ok((409, answer)) if answer["code"] == "payment_ended" => return None,
                Ok((409, answer)) if answer["code"] == "transaction_in_progress" => {
                    self.with_answers(|answers| answers.in_progress += 1);
                }
                Ok((429 | 503, _)) => self.with_answers(|answers| answers.refused_for_now += 1),
                Ok((status, answer)) => {
                    self.with_answers(|answers| answers.wrong.push(format!("{key}: {status} {answer}")));
                    return None;
                }
                Err(_) => self.with_answers(|answers| answers.without_answer += 1),
            }
            sleep(REPEATED_AFTER).await;
        }
    }

    async fn request(&self, url: &str, key: &str, body: Option<&Value>) -> anyhow::Result<(u16, Value)> {
        let request = self.http.post(url).bearer_auth(API_KEY).header("Idempotency-Key", key);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let response = request.timeout(REQUEST_WITHIN).send().await?;
        let status = response.status().as_u16();
        let answer: Value = serde_json::from_slice(&response.bytes().await?)?;
        if status == 200 {
            self.with_answers(|answers| answers.repeats += 1);
        }
        Ok((status, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_sandbox_amounts_is_that_of_the_mock_switch() {
        let codes: Vec<i64> = mock_switch::sandbox::TABLE.iter().map(|entry| entry.code).collect();
        assert_eq!(codes, SANDBOX_MINOR.collect::<Vec<_>>());
    }

    #[test]
    fn the_customers_order_every_sandbox_amount() {
        let orders: Vec<_> = (0..1_000).map(|number| order(1, number)).collect();
        let has = |amount: i64| orders.iter().any(|order| order.amount_minor == amount);
        assert!([500, TOO_MUCH_MINOR].into_iter().chain(SANDBOX_MINOR).all(has));
        assert_eq!(orders[7], order(1, 7));
    }
}

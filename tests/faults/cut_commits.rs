//! The connection to PostgreSQL is cut at places spread over the bytes of a step, in the requests and in the answers (R14): a COMMIT arrives and its
//! answer does not, or only a part of the statements arrives. The step is repeated, as its caller does after an error.

use std::net::SocketAddr;
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use jiff::Timestamp;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::callbacks::Callback;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::Payment;
use payment_protocol::cause::Cause;
use payment_protocol::ids::{EventId, PaymentId, RunId};
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use payment_protocol::report::SettledReport;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::auditor;
use testkit::proxy::{Direction, FaultProxy};
use testkit::{System, SystemOptions};

/// Places at which each direction of each step is cut, spread over its bytes.
const CUTS: u64 = 41;
/// The same in the long run: more than a step has bytes in most cases.
const CUTS_LONG: u64 = 900;
/// By how many bytes at most a step of one payment is shorter than that of another.
const VARIATION_BYTES: u64 = 16;
/// Repetitions of a step after a cut; the first ones may meet connections that are cut, too.
const TRIES: usize = 10;

/// A step, and the rows that it leaves once: a query of their number for the payment `$1`.
struct Step {
    name: &'static str,
    effect: &'static str,
}

const RESERVE: Step = Step {
    name: "reserve",
    effect: "SELECT count(*) FROM journal WHERE payment_id = $1 AND kind = 'reserve'",
};
const CONFIRM: Step =
    Step { name: "confirm", effect: "SELECT count(*) FROM switch_callbacks WHERE payment_id = $1" };
const DEBIT: Step =
    Step { name: "debit", effect: "SELECT count(*) FROM journal WHERE payment_id = $1 AND kind = 'debit'" };
const RELEASE: Step = Step {
    name: "release",
    effect: "SELECT count(*) FROM journal WHERE payment_id = $1 AND kind = 'release'",
};

/// A place in the bytes that a step sends or receives.
#[derive(Clone, Copy, Debug)]
struct Cut {
    direction: Direction,
    after: u64,
    of: u64,
}

/// What became of the first try of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstTry {
    Answered,
    /// It had no outcome, and has an effect.
    CommittedWithoutAnswer,
    /// It had no outcome, and no effect yet.
    WithoutEffect,
}

struct Bank {
    system: System,
    proxy: FaultProxy,
    /// Behind the proxy, with one connection.
    ledger: Ledger,
    run: RunId,
}

impl Bank {
    async fn start() -> anyhow::Result<Self> {
        let mut system = System::start("cut-commits", SystemOptions::default()).await?;
        // The test makes the steps.
        system.worker.kill().await?;
        system.background_worker.kill().await?;
        let server = PgConnectOptions::from_str(&system.database.owner_url)?;
        let proxy = FaultProxy::start(&format!("{}:{}", server.get_host(), server.get_port())).await?;
        let address = SocketAddr::from_str(&proxy.address)?;
        // Without prepared statements, a step has the same bytes each time.
        let through = server.host(&address.ip().to_string()).port(address.port()).statement_cache_capacity(0);
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(10));
        let ledger = Ledger::new(pool.connect_with(through).await?);
        Ok(Self { system, proxy, ledger, run: RunId::new("run-1")? })
    }

    async fn accepted(&self) -> anyhow::Result<Payment> {
        let payment = self.system.pay("1.00").await?;
        Ok(self.ledger.accepted_payment(&PaymentId::new(payment.payment_id)?).await?)
    }

    /// Makes the step once.
    async fn make(&self, step: &Step, payment: &Payment) -> anyhow::Result<()> {
        let id = &payment.payment_id;
        match step.name {
            "reserve" => {
                if self
                    .ledger
                    .reserve_with_attempt(payment, &self.run, Timestamp::now(), None)
                    .await
                    .is_none()
                {
                    let reserved = self.ledger.reserve(payment, &self.run).await?;
                    ensure!(reserved == ReserveOutcome::Held, "{reserved:?}");
                    self.ledger.record_attempt(id, &self.run, Timestamp::now(), false, None).await?;
                }
            }
            "confirm" => {
                let callback = Callback {
                    switch: payment.profile.switch.clone(),
                    event_id: EventId::new(format!("evt-{id}"))?,
                    reference: payment.reference().to_string(),
                    status: CallbackStatus::Success,
                    amount_minor: payment.money.amount_minor(),
                    currency: "EUR".into(),
                    reason: None,
                    reason_code: None,
                    posting: None,
                    body: b"{}".to_vec(),
                };
                self.ledger.store_callback(&callback).await?;
            }
            "debit" => {
                let confirmed = SettledReport {
                    switch: payment.profile.switch.clone(),
                    reference: payment.reference().to_string(),
                    amount_minor: payment.money.amount_minor(),
                    currency: "EUR".into(),
                };
                let debited = self.ledger.debit_confirmed(id, &confirmed).await?;
                ensure!(debited == DebitOutcome::Done, "{debited:?}");
            }
            "release" => {
                let released = self.ledger.release(id, &Cause::SlaExpired).await?;
                ensure!(matches!(released, ReleaseStepOutcome::Done(_)), "{released:?}");
            }
            other => bail!("{other} is no step"),
        }
        Ok(())
    }

    /// The rows that the step has left.
    async fn effects(&self, step: &Step, payment: &Payment) -> anyhow::Result<i64> {
        let query = sqlx::query_scalar(step.effect).bind(payment.payment_id.as_str());
        Ok(query.fetch_one(&self.system.database.pool).await?)
    }

    /// Makes the step with a cut, and repeats it until it has an outcome. A ledger's error says nothing about the step; any
    /// other ends the test.
    async fn make_with_cut(&self, step: &Step, payment: &Payment, cut: Cut) -> anyhow::Result<FirstTry> {
        self.proxy.cut_after(cut.direction, cut.after);
        let mut first_try = FirstTry::Answered;
        for _ in 0..TRIES {
            let made = self.make(step, payment).await;
            let is_within = cut.after + VARIATION_BYTES <= cut.of;
            ensure!(!is_within || !self.proxy.is_cut_due(cut.direction), "the step ended before its cut");
            self.proxy.heal();
            let effects = self.effects(step, payment).await?;
            match made {
                Ok(()) => {
                    ensure!(effects == 1, "{} has {effects} effects", step.name);
                    return Ok(first_try);
                }
                Err(error) if !error.is::<LedgerError>() => return Err(error),
                Err(_) if first_try != FirstTry::Answered => {}
                Err(_) if effects > 0 => first_try = FirstTry::CommittedWithoutAnswer,
                Err(_) => first_try = FirstTry::WithoutEffect,
            }
        }
        bail!("{} has no outcome after {TRIES} tries", step.name)
    }

    /// The bytes of the step in a direction, without a fault.
    async fn bytes_of(&self, step: &Step, payment: &Payment, direction: Direction) -> anyhow::Result<u64> {
        let before = self.proxy.passed(direction);
        self.make(step, payment).await?;
        Ok(self.proxy.passed(direction) - before)
    }
}

#[tokio::test]
async fn r14_a_connection_cut_after_any_byte_of_a_step_leaves_one_effect() -> anyhow::Result<()> {
    let bank = Bank::start().await?;
    let cuts = if std::env::var_os("TEST_LONG").is_some() { CUTS_LONG } else { CUTS };
    let (mut made, mut committed, mut without_effect) = (0, 0, 0);
    for direction in [Direction::ToServer, Direction::ToClient] {
        // The steps of a payment that settles, and of one that was never sent.
        for steps in [&[RESERVE, CONFIRM, DEBIT][..], &[RELEASE]] {
            let measured = bank.accepted().await?;
            if steps.len() == 1 {
                bank.ledger.reserve(&measured, &bank.run).await?;
            }
            let mut bytes = Vec::new();
            for step in steps {
                bytes.push(bank.bytes_of(step, &measured, direction).await?);
            }
            // The last place, in the answers, is within the answer to the COMMIT, which has 18 bytes.
            for cut in 0..=cuts + 1 {
                let payment = bank.accepted().await?;
                if steps.len() == 1 {
                    bank.ledger.reserve(&payment, &bank.run).await?;
                }
                for (step, bytes) in steps.iter().zip(&bytes) {
                    let after = if cut <= cuts { bytes * cut / cuts } else { bytes - VARIATION_BYTES };
                    let cut = Cut { direction, after, of: *bytes };
                    let first_try = bank
                        .make_with_cut(step, &payment, cut)
                        .await
                        .with_context(|| format!("{}, {cut:?}", step.name))?;
                    made += 1;
                    committed += u32::from(first_try == FirstTry::CommittedWithoutAnswer);
                    without_effect += u32::from(first_try == FirstTry::WithoutEffect);
                }
            }
        }
    }
    println!(
        "of {made} steps, the first try of {committed} was committed without an answer, and that of {without_effect} had no effect"
    );
    // The ledger repeats most steps by itself, and finds the others' answers.
    ensure!(committed > 0 && without_effect > 0, "a kind of cut was not reached");
    auditor::check_conservation(&bank.system.database.pool).await
}

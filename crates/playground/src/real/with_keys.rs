//! A schedule done to the real service: each fault at the moment when the processes reach its instant.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use testkit::TestCallback;
use testkit::process::Process;
use testkit::system::AcceptedPayment;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::bank::Bank;
use super::error::RealError;
use super::gate::{Held, Kind, Late, Message};
use super::reporter::Reporter;
use crate::run::{AMOUNT_MINOR, Actor, Outcome, Side};
use crate::schedule::{Drop, Fault, Instant, Schedule};

/// Pause between two looks at the payment's state.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a schedule; returns what the books say in the end.
pub(super) async fn run(
    bank: &mut Bank,
    schedule: &Schedule,
    reporter: &Reporter,
    temporal_ui: Option<&str>,
) -> Result<Outcome, RealError> {
    let line = bank.gate.hold();
    let account = bank.open_account().await?;
    let mut run = WithKeys {
        bank,
        line,
        schedule,
        reporter,
        used: BTreeSet::new(),
        account,
        payment: AcceptedPayment { payment_id: String::new(), reference: String::new(), key: String::new() },
        state: String::new(),
        late: Vec::new(),
        late_callback: None,
        stopped: Vec::new(),
        unanswered: false,
    };
    run.order(temporal_ui).await?;
    while !run.next().await? {}
    run.afterwards().await?;
    if let Some(drop) = schedule.drops().iter().find(|drop| !run.used.contains(&drop.at)) {
        return Err(RealError::NeverHappened(*drop));
    }
    Ok(run.bank.outcome(&run.payment).await?)
}

struct WithKeys<'r> {
    bank: &'r mut Bank,
    line: mpsc::UnboundedReceiver<Held>,
    schedule: &'r Schedule,
    reporter: &'r Reporter,
    used: BTreeSet<Instant>,
    account: String,
    payment: AcceptedPayment,
    /// The payment's state at the last look.
    state: String,
    /// Messages of the workers that are still on their way.
    late: Vec<Late>,
    /// The SUCCESS that is on its way until the payment has ended.
    late_callback: Option<Late>,
    /// Workers that are stopped.
    stopped: Vec<Process>,
    /// Whether an attempt to submit had no answer.
    unanswered: bool,
}

impl WithKeys<'_> {
    fn say(&self, at: Instant, actor: Actor, text: impl Into<String>) {
        self.reporter.step(Side::WithKeys, at, actor, text, None);
    }

    fn fault(&mut self, drop: Drop, actor: Actor, text: impl Into<String>) {
        self.used.insert(drop.at);
        self.reporter.step(Side::WithKeys, drop.at, actor, text, Some(drop.fault));
    }

    /// The fault of an instant, until it has happened.
    fn due(&self, at: Instant) -> Option<Drop> {
        let fault = self.schedule.at(at).filter(|_| !self.used.contains(&at))?;
        Some(Drop { at, fault })
    }

    /// The customer's request. The worker is stopped meanwhile, so that the switch knows the payment's behaviour before it gets
    /// its first message.
    async fn order(&mut self, temporal_ui: Option<&str>) -> anyhow::Result<()> {
        let at = Instant::Order;
        self.bank.system.worker.pause()?;
        let key = Uuid::new_v4().to_string();
        let body = Bank::order(&self.account);
        let system = &self.bank.system;
        let first = system.post_payment(&key, &body).await?;
        ensure!(first.status() == 201, "payments-api answered {} to the order", first.status());
        let first: serde_json::Value = first.json().await?;
        let text = |field: &str| {
            first[field].as_str().map(str::to_owned).with_context(|| format!("the answer has no {field}"))
        };
        self.payment = AcceptedPayment {
            payment_id: text("payment_id")?,
            reference: format!("{}:submit", text("transaction_id")?),
            key: key.clone(),
        };
        let payment_id = &self.payment.payment_id;
        let workflow = temporal_ui.map_or_else(|| payment_id.clone(), |ui| format!("{ui}/{payment_id}"));
        self.say(at, Actor::Customer, "The customer orders 42.00 USD, with an Idempotency-Key.");
        self.say(at, Actor::Ledger, format!("payments-api answers 201; the payment is {workflow}"));
        if let Some(drop) = self.due(at) {
            self.fault(drop, Actor::Customer, "The customer orders again, with the same Idempotency-Key.");
            let second = self.bank.system.post_payment(&key, &body).await?;
            ensure!(
                second.status() == 200,
                "payments-api answered {} to the repeated order",
                second.status()
            );
            let second: serde_json::Value = second.json().await?;
            ensure!(second == first, "the repeated order got another answer: {second}");
            self.say(
                at,
                Actor::Ledger,
                "payments-api answers 200, with the stored answer: the same payment.",
            );
        }
        let mut behaviour = json!({"outcome": "hold"});
        if self.schedule.has(Instant::SubmitSent, Fault::Refuse) {
            behaviour["submit"] = json!(["refuse"]);
        }
        if self.schedule.has(Instant::Recall, Fault::Refuse) {
            behaviour["recall"] = json!(["refuse"]);
        }
        self.bank.system.switch.set_behaviour(&self.payment.reference, behaviour).await?;
        self.bank.system.worker.resume()
    }

    /// Waits for the next message or the next state; returns whether the payment has ended.
    async fn next(&mut self) -> anyhow::Result<bool> {
        loop {
            tokio::select! {
                biased;
                held = self.line.recv() => {
                    let held = held.context("the gate has stopped")?;
                    if held.message.reference == self.payment.reference {
                        self.message(held).await?;
                    }
                    return Ok(false);
                }
                () = tokio::time::sleep(LOOK_INTERVAL) => {
                    let state = self.bank.system.state(&self.payment.payment_id).await?;
                    if state != self.state {
                        self.state = state;
                        return self.reached().await;
                    }
                }
            }
        }
    }

    /// A state that the ledger has recorded. States between two looks are not seen; no fault depends on one of them but
    /// `submitted` and `needs_operator`, in which the payment stays until something happens here.
    async fn reached(&mut self) -> anyhow::Result<bool> {
        match self.state.as_str() {
            "submitted" => self.waiting().await?,
            "needs_operator" => self.operators().await?,
            "cancelling" => {
                self.say(Instant::Waiting, Actor::Worker, "The worker cancels: the switch's answer decides.");
            }
            "settled" => {
                self.say(Instant::Debit, Actor::Ledger, "The ledger debits the held amount: settled.");
                return Ok(true);
            }
            "failed" | "timed_out" | "cancelled" | "rejected" => {
                let text = format!("The ledger releases the held amount: {}.", self.state);
                self.say(Instant::Debit, Actor::Ledger, text);
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    async fn message(&mut self, held: Held) -> anyhow::Result<()> {
        let message = &held.message;
        match message.kind {
            Kind::Query if message.status.is_none() => self.query(held).await,
            Kind::Submit if message.status.is_none() => self.submit(held).await,
            Kind::Submit => self.submit_answered(held).await,
            Kind::Callback if message.status.is_none() => self.callback(held).await,
            _ => {
                if let Some((at, actor, text)) = described(message) {
                    self.say(at, actor, text);
                }
                held.pass();
                Ok(())
            }
        }
    }

    async fn query(&mut self, held: Held) -> anyhow::Result<()> {
        if let Some(drop) = self.due(Instant::Reserve) {
            self.say(drop.at, Actor::Ledger, "The ledger holds the amount: 42.00.");
            return self.interrupt(drop, held).await;
        }
        if self.unanswered
            && let Some(drop) = self.due(Instant::Retry)
        {
            return self.interrupt(drop, held).await;
        }
        held.pass();
        Ok(())
    }

    async fn submit(&mut self, held: Held) -> anyhow::Result<()> {
        let at = Instant::SubmitSent;
        if self.schedule.has(at, Fault::Stall) {
            return self.stall(held);
        }
        let Some(drop) = self.due(at) else {
            self.say(at, Actor::Worker, "The worker submits the transfer, under the payment's reference.");
            held.pass();
            return Ok(());
        };
        match drop.fault {
            Fault::Lose => {
                self.fault(
                    drop,
                    Actor::Network,
                    "The submit is lost. The worker has no answer: it asks again.",
                );
                self.unanswered = true;
                held.lose();
            }
            Fault::Delay => {
                self.fault(
                    drop,
                    Actor::Network,
                    "The submit is late. The worker has no answer: it asks again.",
                );
                self.late.push(held.keep());
            }
            Fault::Refuse => {
                self.fault(drop, Actor::Switch, "The switch refuses the submit.");
                held.pass();
            }
            _ => return self.interrupt(drop, held).await,
        }
        Ok(())
    }

    /// No submit gets through; the first one stays on its way.
    fn stall(&mut self, held: Held) -> anyhow::Result<()> {
        match self.due(Instant::SubmitSent) {
            Some(drop) => {
                self.fault(drop, Actor::Network, "The submit does not get through, nor does any other.");
                self.late.push(held.keep());
            }
            None => {
                self.say(Instant::SubmitSent, Actor::Network, "The worker submits again, in vain.");
                held.lose();
            }
        }
        Ok(())
    }

    async fn submit_answered(&mut self, held: Held) -> anyhow::Result<()> {
        let at = Instant::SubmitAnswered;
        let Some(drop) = self.due(at) else {
            if let Some((at, actor, text)) = described(&held.message) {
                self.say(at, actor, text);
            }
            held.pass();
            return Ok(());
        };
        self.say(at, Actor::Switch, "The switch has accepted the transfer (202).");
        if drop.fault == Fault::Lose {
            self.fault(drop, Actor::Network, "The switch's answer is lost. The worker asks again.");
            self.unanswered = true;
            held.lose();
            return Ok(());
        }
        self.interrupt(drop, held).await
    }

    /// The worker dies or is stopped while this message of it is on its way.
    async fn interrupt(&mut self, drop: Drop, held: Held) -> anyhow::Result<()> {
        match drop.fault {
            Fault::Crash => {
                let pid = self.bank.kill_worker().await?;
                self.fault(drop, Actor::Worker, format!("kill -9 {pid}: the worker is dead."));
                // A submit that was sent arrives, even if its sender is dead; any other message dies with its sender.
                if held.message.is_request(Kind::Submit) {
                    self.late.push(held.keep());
                } else {
                    held.lose();
                }
                let pid = self.bank.start_worker().await?;
                self.say(
                    drop.at,
                    Actor::Worker,
                    format!("Worker {pid} carries the payment on, once Temporal has noticed."),
                );
            }
            _ => {
                self.stop(drop).await?;
                self.late.push(held.keep());
            }
        }
        Ok(())
    }

    /// Stops the worker; another one carries the payment on.
    async fn stop(&mut self, drop: Drop) -> anyhow::Result<()> {
        let first = self.bank.stop_worker().await?;
        let (pid, other) = (first.pid()?, self.bank.system.worker.pid()?);
        self.stopped.push(first);
        self.fault(
            drop,
            Actor::Worker,
            format!("kill -STOP {pid}: the worker stands still. Worker {other} takes over."),
        );
        Ok(())
    }

    /// The transfer is accepted, and the payment waits for its confirmation.
    async fn waiting(&mut self) -> anyhow::Result<()> {
        let at = Instant::Waiting;
        self.say(at, Actor::Temporal, "The payment waits for the confirmation, or for the end of its SLA.");
        // What a stopped worker sent arrives when it wakes up.
        if self.stopped.is_empty() {
            self.arrive().await?;
        }
        let reference = self.payment.reference.clone();
        match self.due(at) {
            Some(drop @ Drop { fault: Fault::Crash, .. }) => {
                let pid = self.bank.kill_worker().await?;
                self.fault(
                    drop,
                    Actor::Worker,
                    format!("kill -9 {pid}: no process carries the payment; it waits at Temporal."),
                );
                self.settle().await?;
                let pid = self.bank.start_worker().await?;
                self.say(at, Actor::Worker, format!("Worker {pid} carries the payment on."));
                return Ok(());
            }
            Some(drop @ Drop { fault: Fault::Stop, .. }) => self.stop(drop).await?,
            Some(drop @ Drop { fault: Fault::Expire, .. }) => {
                self.fault(drop, Actor::Switch, "The switch does not decide. The SLA of 20 s runs.");
                return Ok(());
            }
            Some(drop @ Drop { fault: Fault::Freeze, .. }) => {
                let account = self.account.clone();
                self.bank.system.set_account_status(&account, "frozen").await?;
                self.fault(drop, Actor::Customer, "A court freezes the account.");
            }
            _ => {}
        }
        self.settle().await?;
        if let Some(drop @ Drop { fault: Fault::FalseFailure, .. }) = self.due(at) {
            self.false_failure(drop, &reference).await?;
        }
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        self.say(Instant::Waiting, Actor::Switch, "The switch settles the transfer.");
        self.bank.system.switch.finish_transfer(&self.payment.reference, "settle").await
    }

    /// The switch reports FAILURE, although it settled; the FAILURE arrives before the SUCCESS.
    async fn false_failure(&mut self, drop: Drop, reference: &str) -> anyhow::Result<()> {
        let success = self.callback_of("SUCCESS").await?;
        self.bank.system.switch.send_callback(reference, json!({"status": "FAILURE"})).await?;
        self.callback_of("FAILURE").await?.pass();
        self.fault(
            drop,
            Actor::Switch,
            "The switch's callback reports FAILURE. That alone releases nothing.",
        );
        self.answered(Kind::Callback).await?;
        success.pass();
        self.say(Instant::Confirmation, Actor::Switch, "The switch's callback reports SUCCESS.");
        Ok(())
    }

    /// The next callback with this status; other messages pass.
    async fn callback_of(&mut self, status: &str) -> anyhow::Result<Held> {
        self.message_that(|message| message.is_request(Kind::Callback) && message.body["status"] == status)
            .await
    }

    /// Waits until the receiver has answered a message of this kind.
    async fn answered(&mut self, kind: Kind) -> anyhow::Result<u16> {
        let answer = self.message_that(|message| message.is_answer(kind)).await?;
        let status = answer.message.status.unwrap_or_default();
        answer.pass();
        Ok(status)
    }

    async fn message_that(&mut self, matches: impl Fn(&Message) -> bool) -> anyhow::Result<Held> {
        loop {
            let held = self.line.recv().await.context("the gate has stopped")?;
            if held.message.reference == self.payment.reference && matches(&held.message) {
                return Ok(held);
            }
        }
    }

    async fn callback(&mut self, held: Held) -> anyhow::Result<()> {
        let at = Instant::Confirmation;
        let text = "The switch's callback reports SUCCESS; payments-api verifies and stores it.";
        match self.due(at) {
            Some(drop @ Drop { fault: Fault::Lose, .. }) => {
                self.fault(drop, Actor::Network, "The callback of the switch is lost. The SLA of 20 s runs.");
                held.acknowledge();
                return Ok(());
            }
            Some(drop @ Drop { fault: Fault::Delay, .. }) => {
                self.used.insert(at);
                self.say(
                    drop.at,
                    Actor::Network,
                    "The callback of the switch is late. The SLA of 20 s runs.",
                );
                self.late_callback = Some(held.keep());
                return Ok(());
            }
            Some(drop @ Drop { fault: Fault::Repeat, .. }) => {
                self.fault(drop, Actor::Network, "The callback of the switch comes twice.");
                return self.confirm(held, Held::pass_twice).await;
            }
            Some(drop) => {
                let mut forged = TestCallback::success(&self.payment.reference, AMOUNT_MINOR).from_other();
                forged.switch = "mock";
                let status = self.bank.system.post_callback(&forged).await?;
                ensure!(status == 401, "payments-api answered {status} to a forged callback");
                self.fault(
                    drop,
                    Actor::Network,
                    "A stranger posts a SUCCESS with a signature of his own: payments-api answers 401.",
                );
            }
            None => {}
        }
        self.say(at, Actor::Switch, text);
        self.confirm(held, Held::pass).await
    }

    /// Lets the SUCCESS pass. The fault at the debit needs it stored, and no worker that reads it.
    async fn confirm(&mut self, held: Held, pass: impl FnOnce(Held)) -> anyhow::Result<()> {
        let Some(drop) = self.due(Instant::Debit) else {
            pass(held);
            return Ok(());
        };
        self.bank.pause_worker()?;
        pass(held);
        let status = self.answered(Kind::Callback).await?;
        ensure!(status == 200, "payments-api answered {status} to the callback");
        self.say(drop.at, Actor::Ledger, "The confirmation is recorded; the debit is next.");
        if drop.fault == Fault::Crash {
            let pid = self.bank.kill_worker().await?;
            self.fault(drop, Actor::Worker, format!("kill -9 {pid}: the worker dies before the debit."));
            let pid = self.bank.start_worker().await?;
            self.say(
                drop.at,
                Actor::Worker,
                format!("Worker {pid} carries the payment on, once Temporal has noticed."),
            );
            return Ok(());
        }
        self.stop(drop).await
    }

    /// The recall was refused: two operators debit the payment, when the account is free.
    async fn operators(&mut self) -> anyhow::Result<()> {
        let at = Instant::Recall;
        if let Some(drop) = self.due(at) {
            self.fault(
                drop,
                Actor::Switch,
                "The switch refuses to return the money: the payment needs an operator.",
            );
        }
        let (account, payment_id) = (self.account.clone(), self.payment.payment_id.clone());
        self.bank.system.set_account_status(&account, "active").await?;
        self.say(at, Actor::Customer, "The account is unfrozen.");
        let proposal = [
            "decide",
            &payment_id,
            "debit",
            "--reason",
            "recall refused",
            "--evidence",
            "statement of the switch",
        ];
        let proposed = self.bank.payctl("ann", &proposal).await?;
        let decision = proposed.split_whitespace().find(|word| word.starts_with("dec_"));
        let Some(decision) = decision.map(|word| word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
        else {
            bail!("payctl decide names no decision: {proposed}");
        };
        self.say(at, Actor::Operator, "An operator proposes the debit, with evidence.");
        let confirmed = self.bank.payctl("bob", &["decide", "confirm", decision, "--reason", "checked"]);
        // The workflow asks the switch before it applies the decision.
        self.passing(confirmed).await?;
        self.say(at, Actor::Operator, "Another operator confirms it.");
        Ok(())
    }

    /// What was on its way arrives.
    async fn arrive(&mut self) -> anyhow::Result<()> {
        for late in std::mem::take(&mut self.late) {
            if let Some(answer) = late.deliver().await? {
                let text = match answer.status {
                    _ if answer.kind != Kind::Submit => continue,
                    Some(202) => "The late submit arrives: the switch knows its reference and does nothing.",
                    _ => {
                        "The late submit arrives: the switch refuses it, because the cancel left a tombstone."
                    }
                };
                self.say(Instant::SubmitSent, Actor::Switch, text);
            }
        }
        Ok(())
    }

    /// The payment has ended; stopped workers wake up, and what was on its way arrives.
    async fn afterwards(&mut self) -> anyhow::Result<()> {
        for mut worker in std::mem::take(&mut self.stopped) {
            worker.resume()?;
            self.say(
                Instant::Debit,
                Actor::Worker,
                format!("kill -CONT {}: the stopped worker wakes up.", worker.pid()?),
            );
            self.arrive().await?;
            // It ends when its attempts have ended.
            self.passing(worker.wait_ready()).await?;
            self.passing(worker.stop()).await?;
            self.say(
                Instant::Debit,
                Actor::Ledger,
                "What it still did met the recorded keys, and changed nothing.",
            );
        }
        self.arrive().await?;
        if let Some(late) = self.late_callback.take() {
            let answer = late.deliver().await?;
            ensure!(
                answer.is_some_and(|answer| answer.status == Some(200)),
                "payments-api did not take the late callback"
            );
            let fault = self.schedule.at(Instant::Confirmation);
            let text = "The callback arrives after the end: it is stored, and changes nothing.";
            self.reporter.step(Side::WithKeys, Instant::Confirmation, Actor::Switch, text, fault);
        }
        Ok(())
    }

    /// Lets every message pass until `work` is done.
    async fn passing<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                held = self.line.recv() => held.context("the gate has stopped")?.pass(),
            }
        }
    }
}

/// What a reader should know of a message that nothing happens to.
fn described(message: &Message) -> Option<(Instant, Actor, String)> {
    let answer = || message.body["answer"].as_str().unwrap_or("no answer").to_owned();
    Some(match (message.kind, message.status) {
        (Kind::Query, Some(200)) if message.body["status"] == "SETTLED" => (
            Instant::Debit,
            Actor::Switch,
            "Queried under the payment's reference, the switch says that the transfer has settled.".into(),
        ),
        (Kind::Query, Some(200)) => (
            Instant::Retry,
            Actor::Switch,
            "Asked under the payment's reference, the switch knows the transfer: nothing is sent again."
                .into(),
        ),
        (Kind::Submit, Some(202)) => {
            (Instant::SubmitAnswered, Actor::Switch, "The switch accepts the transfer (202).".into())
        }
        (Kind::Submit, Some(status)) => {
            (Instant::SubmitAnswered, Actor::Switch, format!("The switch answers {status}."))
        }
        (Kind::Cancel, Some(_)) => {
            (Instant::Waiting, Actor::Switch, format!("The cancel: the switch answers {}.", answer()))
        }
        (Kind::Recall, Some(_)) => {
            (Instant::Recall, Actor::Switch, format!("The recall: the switch answers {}.", answer()))
        }
        _ => return None,
    })
}

//! A schedule done to the naive client: each fault at the moment when the processes reach its instant.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use testkit::process::Process;
use tokio::sync::mpsc;

use super::error::RealError;
use super::gate::{Held, Kind, Late};
use super::naive::NaiveClient;
use super::reporter::Reporter;
use crate::run::{Actor, Outcome, Side};
use crate::schedule::{Drop, Fault, Instant, Schedule};

/// Pause between two looks at the client's answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a schedule; returns what the account and the switch's book say in the end.
pub(super) async fn run(
    client: &mut NaiveClient,
    schedule: &Schedule,
    reporter: &Reporter,
) -> Result<Outcome, RealError> {
    let line = client.gate.hold();
    client.open_account();
    let mut run = WithoutKeys {
        client,
        line,
        schedule,
        reporter,
        used: BTreeSet::new(),
        orders: Vec::new(),
        unsettled: Vec::new(),
        uncharged: 0,
        late: Vec::new(),
        stopped: Vec::new(),
        unanswered: false,
    };
    run.order("The customer orders 42.00 USD, without a key.", None).await?;
    if let Some(drop) = run.due(Instant::Order) {
        run.order("The customer orders again: another order, another transfer.", Some(drop)).await?;
    }
    Ok(run.client.outcome(&run.orders).await?)
}

struct WithoutKeys<'r> {
    client: &'r mut NaiveClient,
    line: mpsc::UnboundedReceiver<Held>,
    schedule: &'r Schedule,
    reporter: &'r Reporter,
    used: BTreeSet<Instant>,
    orders: Vec<String>,
    /// Transfers that the switch has accepted and not settled.
    unsettled: Vec<String>,
    /// SUCCESSes that are on their way to the account.
    uncharged: usize,
    /// Messages that are still on their way.
    late: Vec<Late>,
    /// Clients that are stopped.
    stopped: Vec<Process>,
    /// Whether a send had no answer.
    unanswered: bool,
}

impl WithoutKeys<'_> {
    fn say(&self, at: Instant, actor: Actor, text: impl Into<String>) {
        self.reporter.step(Side::WithoutKeys, at, actor, text, None);
    }

    fn fault(&mut self, drop: Drop, actor: Actor, text: impl Into<String>) {
        self.used.insert(drop.at);
        self.reporter.step(Side::WithoutKeys, drop.at, actor, text, Some(drop.fault));
    }

    /// The fault of an instant, until it has happened.
    fn due(&self, at: Instant) -> Option<Drop> {
        let fault = self.schedule.at(at).filter(|_| !self.used.contains(&at))?;
        Some(Drop { at, fault })
    }

    /// The customer's order, to the end of everything that it sets off.
    async fn order(&mut self, text: &str, fault: Option<Drop>) -> anyhow::Result<()> {
        match fault {
            Some(drop) => self.fault(drop, Actor::Customer, text),
            None => self.say(Instant::Order, Actor::Customer, text),
        }
        let order = self.client.order().await?;
        self.orders.push(order.clone());
        self.until_answered(&order).await?;
        let answer = self.client.answer(&order)?;
        self.say(Instant::Debit, Actor::Worker, format!("The client says: {answer}."));
        for client in &self.stopped {
            client.resume()?;
            let text = format!("kill -CONT {}: the first client wakes up.", client.pid()?);
            self.say(Instant::Debit, Actor::Worker, text);
        }
        self.arrive().await?;
        self.settle().await?;
        self.until_answered(&order).await?;
        self.stopped.clear();
        Ok(())
    }

    /// Handles messages until the client has answered, and each SUCCESS has reached the account.
    async fn until_answered(&mut self, order: &str) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                biased;
                held = self.line.recv() => {
                    let held = held.context("the gate has stopped")?;
                    let reference = &held.message.reference;
                    if self.orders.iter().any(|order| reference.starts_with(order.as_str())) {
                        self.message(held).await?;
                    }
                }
                () = tokio::time::sleep(LOOK_INTERVAL) => {
                    if self.uncharged == 0 && self.client.answer(order)? != "open" {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn message(&mut self, held: Held) -> anyhow::Result<()> {
        match (held.message.kind, held.message.status) {
            (Kind::Submit, None) => self.submit(held).await,
            (Kind::Submit, Some(202)) => self.accepted(held).await,
            (Kind::Submit, Some(status)) => {
                self.say(Instant::SubmitAnswered, Actor::Switch, format!("The switch answers {status}."));
                held.pass();
                Ok(())
            }
            (Kind::Callback, None) => self.callback(held).await,
            (Kind::Charge, None) => self.charge(held).await,
            (Kind::Charge, Some(status)) => {
                let text = if status == 200 {
                    "SUCCESS: the client charges the account."
                } else {
                    "SUCCESS, and the account is frozen: the client cannot charge it. The bank pays."
                };
                self.say(Instant::Debit, Actor::Ledger, text);
                self.uncharged = self.uncharged.saturating_sub(1);
                held.pass();
                Ok(())
            }
            _ => {
                held.pass();
                Ok(())
            }
        }
    }

    /// A transfer is on its way to the switch.
    async fn submit(&mut self, held: Held) -> anyhow::Result<()> {
        if let Some(drop) = self.due(Instant::Reserve) {
            return self.interrupt(drop, held).await;
        }
        if self.unanswered
            && let Some(drop) = self.due(Instant::Retry)
        {
            return self.interrupt(drop, held).await;
        }
        let at = Instant::SubmitSent;
        let Some(drop) = self.due(at) else {
            if self.schedule.has(at, Fault::Stall) && self.orders.len() == 1 {
                self.say(at, Actor::Network, "Another transfer, another reference: it is lost.");
                held.lose();
                return Ok(());
            }
            self.say(at, Actor::Worker, "The client sends a transfer, under a new reference.");
            held.pass();
            return Ok(());
        };
        match drop.fault {
            Fault::Lose => {
                self.unanswered = true;
                self.fault(drop, Actor::Network, "The transfer is lost. The client sends another one.");
                held.lose();
            }
            Fault::Delay => {
                self.fault(drop, Actor::Network, "The transfer is late. The client sends another one.");
                self.late.push(held.keep());
            }
            Fault::Stall => {
                self.fault(drop, Actor::Network, "The transfer does not get through, nor does any other.");
                self.late.push(held.keep());
            }
            Fault::Refuse => {
                let reference = &held.message.reference;
                self.client.switch.set_behaviour(reference, json!({"submit": ["refuse"]})).await?;
                self.fault(drop, Actor::Switch, "The switch refuses the transfer.");
                held.pass();
            }
            _ => return self.interrupt(drop, held).await,
        }
        Ok(())
    }

    /// The client dies or is stopped while this message of it is on its way.
    async fn interrupt(&mut self, drop: Drop, held: Held) -> anyhow::Result<()> {
        if drop.fault == Fault::Crash {
            // A transfer that was sent arrives, even if its sender is dead; any other message dies with its sender.
            let is_sent = drop.at == Instant::SubmitSent;
            self.kill(drop).await?;
            if is_sent {
                self.late.push(held.keep())
            } else {
                held.lose()
            }
            return self.start(drop.at).await;
        }
        self.stop(drop).await?;
        self.late.push(held.keep());
        Ok(())
    }

    async fn kill(&mut self, drop: Drop) -> anyhow::Result<()> {
        let pid = self.client.process.pid()?;
        self.client.process.kill().await?;
        self.fault(drop, Actor::Worker, format!("kill -9 {pid}: the client is dead."));
        Ok(())
    }

    async fn start(&mut self, at: Instant) -> anyhow::Result<()> {
        self.client.process.restart().await?;
        let pid = self.client.process.pid()?;
        self.say(at, Actor::Worker, format!("Client {pid} starts, finds the order open and begins again."));
        Ok(())
    }

    async fn stop(&mut self, drop: Drop) -> anyhow::Result<()> {
        let first = self.client.stop().await?;
        let (pid, other) = (first.pid()?, self.client.process.pid()?);
        self.stopped.push(first);
        let text = format!(
            "kill -STOP {pid}: the client stands still. Client {other} finds the order open and begins again."
        );
        self.fault(drop, Actor::Worker, text);
        Ok(())
    }

    /// The switch has accepted a transfer; its answer is on its way.
    async fn accepted(&mut self, held: Held) -> anyhow::Result<()> {
        self.unsettled.push(held.message.reference.clone());
        self.say(Instant::SubmitAnswered, Actor::Switch, "The switch accepts the transfer (202).");
        if let Some(drop) = self.due(Instant::SubmitAnswered) {
            if drop.fault == Fault::Lose {
                self.unanswered = true;
                self.fault(
                    drop,
                    Actor::Network,
                    "The switch's answer is lost. The client sends another transfer.",
                );
                held.lose();
                return Ok(());
            }
            return self.interrupt(drop, held).await;
        }
        let reference = held.message.reference.clone();
        held.pass();
        self.waiting(&reference).await
    }

    /// The client waits for the confirmation of its last transfer. What it does after a fault is to send again: only that transfer
    /// and the ones before settle then.
    async fn waiting(&mut self, reference: &str) -> anyhow::Result<()> {
        if let Some(drop) = self.due(Instant::Waiting) {
            match drop.fault {
                Fault::Crash => {
                    self.kill(drop).await?;
                    return self.start(drop.at).await;
                }
                Fault::Stop => return self.stop(drop).await,
                Fault::Expire => {
                    self.fault(
                        drop,
                        Actor::Switch,
                        "The switch does not decide. After the SLA of 5 s the client sends another transfer.",
                    );
                    return Ok(());
                }
                Fault::FalseFailure => {
                    self.fault(
                        drop,
                        Actor::Switch,
                        "The switch reports FAILURE. The client believes it and sends another transfer.",
                    );
                    return self.client.switch.send_callback(reference, json!({"status": "FAILURE"})).await;
                }
                _ => {
                    self.client.freeze();
                    self.fault(drop, Actor::Customer, "A court freezes the account.");
                }
            }
        }
        // What a stopped client sent arrives when it wakes up.
        if self.stopped.is_empty() && !self.schedule.has(Instant::SubmitSent, Fault::Stall) {
            self.arrive().await?;
        }
        self.settle().await
    }

    /// Every accepted transfer settles.
    async fn settle(&mut self) -> anyhow::Result<()> {
        for reference in std::mem::take(&mut self.unsettled) {
            self.say(Instant::Waiting, Actor::Switch, "The switch settles the transfer.");
            self.uncharged += 1;
            self.client.switch.finish_transfer(&reference, "settle").await?;
        }
        Ok(())
    }

    async fn callback(&mut self, held: Held) -> anyhow::Result<()> {
        let at = Instant::Confirmation;
        let due = self.due(at).filter(|_| held.message.body["status"] == "SUCCESS");
        let Some(drop) = due else {
            held.pass();
            return Ok(());
        };
        match drop.fault {
            Fault::Lose => {
                self.fault(
                    drop,
                    Actor::Network,
                    "The SUCCESS is lost. After the SLA of 5 s the client sends another transfer.",
                );
                self.uncharged = self.uncharged.saturating_sub(1);
                held.acknowledge();
            }
            Fault::Delay => {
                self.fault(
                    drop,
                    Actor::Network,
                    "The SUCCESS is late. After the SLA of 5 s the client sends another transfer.",
                );
                self.uncharged = self.uncharged.saturating_sub(1);
                self.late.push(held.keep());
            }
            Fault::Repeat => {
                self.fault(drop, Actor::Network, "The SUCCESS comes twice.");
                self.uncharged += 1;
                held.pass_twice();
            }
            _ => {
                self.uncharged += 1;
                self.client.forge(&held.message.reference).await?;
                self.fault(
                    drop,
                    Actor::Network,
                    "A stranger posts a SUCCESS. The client checks no signature.",
                );
                held.pass();
            }
        }
        Ok(())
    }

    async fn charge(&mut self, held: Held) -> anyhow::Result<()> {
        let Some(drop) = self.due(Instant::Debit) else {
            held.pass();
            return Ok(());
        };
        self.uncharged = self.uncharged.saturating_sub(1);
        self.interrupt(drop, held).await
    }

    /// What was on its way arrives.
    async fn arrive(&mut self) -> anyhow::Result<()> {
        for late in std::mem::take(&mut self.late) {
            let Some(answer) = late.deliver().await? else { continue };
            match answer.kind {
                Kind::Submit if answer.status == Some(202) => {
                    self.say(
                        Instant::SubmitSent,
                        Actor::Switch,
                        "The late transfer arrives: the switch accepts it too.",
                    );
                    self.unsettled.push(answer.reference);
                }
                Kind::Callback => {
                    self.say(Instant::Confirmation, Actor::Switch, "The late SUCCESS arrives.");
                    self.uncharged += 1;
                }
                Kind::Charge => {
                    self.say(Instant::Debit, Actor::Ledger, "The first client charges the account too.")
                }
                _ => {}
            }
        }
        Ok(())
    }
}

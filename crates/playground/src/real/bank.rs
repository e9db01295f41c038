//! The bank of the page: the system of the fault tests, with a gate between it and its switch.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::environment::TestEnvironment;
use testkit::process::Process;
use testkit::proxy::FaultProxy;
use testkit::system::{AcceptedPayment, Operators, Proxies};
use testkit::{System, SystemOptions};
use uuid::Uuid;

use super::gate::Gate;
use crate::run::{AMOUNT_MINOR, Entry, Outcome};

/// Where payments go; any account that the configuration routes to the switch.
const DESTINATION: &str = "XX-SHOP";

/// The running bank.
pub(super) struct Bank {
    pub(super) system: System,
    pub(super) gate: Gate,
    /// Ann and bob.
    operators: Operators,
    /// Between the bank and Temporal.
    temporal: FaultProxy,
}

/// A payment-worker reaches the switch through the gate.
fn behind(gate: &Gate) -> Proxies {
    Proxies { switch: Some(gate.address.clone()), ..Proxies::default() }
}

impl Bank {
    pub(super) async fn start(servers: TestEnvironment) -> anyhow::Result<Self> {
        let gate = Gate::start().await?;
        let address = &servers.temporal_address;
        let temporal =
            FaultProxy::start(address.split_once("://").map_or(address.as_str(), |(_, rest)| rest)).await?;
        let options = SystemOptions {
            currency: "USD",
            proxies: BTreeMap::from([("payment-worker", behind(&gate))]),
            callback_proxy: Some(gate.address.clone()),
            temporal_address: Some(format!("http://{}", temporal.address)),
            // Each submit is then an activity of its own, which queries first: a fault can come between reserve and submit.
            commits_may_be_lost: true,
            ..SystemOptions::default()
        };
        // Longer than Temporal takes to give the tasks of a stopped worker to another one.
        let options =
            options.with_profile("attempt_timeout_ms", 2_000).with_profile("submit_budget_ms", 20_000);
        let system = System::start_in(servers, "playground", options).await?;
        gate.connect(|targets| {
            targets.switch = system.mock_switch.url();
            targets.client = system.api.url();
        });
        // A transfer settles when the run says so.
        system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
        let operators = system.operators(&["ann", "bob"]).await?;
        Ok(Self { system, gate, operators, temporal })
    }

    /// Opens an account for one run.
    pub(super) async fn open_account(&self) -> anyhow::Result<String> {
        let account = format!("VISITOR-{}", Uuid::new_v4().simple());
        self.system.open_account(&account).await?;
        Ok(account)
    }

    /// The request of the payment.
    pub(super) fn order(account: &str) -> Value {
        let amount = format!("{}.{:02}", AMOUNT_MINOR / 100, AMOUNT_MINOR % 100);
        json!({"amount": amount, "currency": "USD", "source_account": account, "destination_account": DESTINATION})
    }

    /// Kills the worker (SIGKILL); returns its process id.
    pub(super) async fn kill_worker(&mut self) -> anyhow::Result<u32> {
        let pid = self.system.worker.pid()?;
        self.system.worker.kill().await?;
        Ok(pid)
    }

    /// Starts the killed worker again: another process. Returns its process id.
    pub(super) async fn start_worker(&mut self) -> anyhow::Result<u32> {
        self.system.worker.restart().await?;
        self.system.worker.pid()
    }

    /// Stops the worker (SIGSTOP) and closes its connections to Temporal: as long as they are open, Temporal gives it tasks, as it
    /// does to a machine that stands still, until its network notices.
    pub(super) fn pause_worker(&self) -> anyhow::Result<()> {
        self.system.worker.pause()?;
        self.temporal.cut();
        Ok(())
    }

    /// The same, and starts another worker; returns the stopped one.
    pub(super) async fn stop_worker(&mut self) -> anyhow::Result<Process> {
        self.pause_worker()?;
        let proxies = behind(&self.gate);
        let worker = "payment-worker";
        let other =
            self.system.start_process_behind(worker, "PAYMENTS_WORKER__METRICS_LISTEN", &proxies).await?;
        Ok(std::mem::replace(&mut self.system.worker, other))
    }

    /// Runs `payctl` in the session of an operator; returns its output.
    pub(super) fn payctl(
        &self,
        operator: &str,
        arguments: &[&str],
    ) -> impl Future<Output = anyhow::Result<String>> + use<> {
        let mut command = self.operators.payctl(&self.system, operator);
        command.args(arguments);
        let words = arguments.join(" ");
        async move {
            let output = command.output().await.context("payctl cannot be started")?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let failed = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "payctl {words} ended with {}: {said}{failed}", output.status);
            Ok(said)
        }
    }

    /// What the ledger and the switch's book say of a payment that has ended, after the auditor compared all books.
    pub(super) async fn outcome(&self, payment: &AcceptedPayment) -> anyhow::Result<Outcome> {
        self.system.audit().await.context("the auditor found a difference between ledger and switch")?;
        let answer = self.system.state(&payment.payment_id).await?;
        let debits = self.system.debits(&payment.payment_id).await?;
        let entries: Vec<Entry> = debits
            .into_iter()
            .map(|amount_minor| Entry { text: "Payment".into(), amount_minor: -amount_minor })
            .collect();
        let settled =
            self.system.switch.transfer_status(&payment.reference).await?.as_deref() == Some("SETTLED");
        Ok(Outcome {
            answer,
            charged_minor: -entries.iter().map(|entry| entry.amount_minor).sum::<i64>(),
            // This switch answers a recall at once: the bank never bears the amount.
            claimed_minor: 0,
            left_minor: if settled { AMOUNT_MINOR } else { 0 },
            entries,
        })
    }
}

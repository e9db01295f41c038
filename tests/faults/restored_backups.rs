//! PostgreSQL and Temporal are lost and restored from backups of different instants, by the steps of `deploy/runbook/lost-commits.md`
//! (R30b).
//!
//! | ordered | before the first backup | between the backups | after both |
//! |---|---|---|---|
//! | and settled by the switch at last | `open` | `settled_between` | `settled_after` |
//! | and held by the switch | | `held_between` | `held_after` |

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::environment::TestEnvironment;
use testkit::system::{AcceptedPayment, OPENING_MINOR, payment_request};
use testkit::{System, SystemOptions, TemporalServer};

/// Longer than the switch holds a payment here before it settles; a payment whose callback was lost asks the switch after it.
const SLA_MS: u64 = 40_000;
/// Time for payments whose workflow or row was lost.
const WITHIN: Duration = Duration::from_secs(90);

struct Bank {
    system: System,
    cluster: Cluster,
    temporal: TemporalServer,
}

/// Amounts, so that each payment is recognized.
const OPEN: &str = "10.00";
const SETTLED_BETWEEN: &str = "20.00";
const HELD_BETWEEN: &str = "30.00";
const SETTLED_AFTER: &str = "40.00";
const HELD_AFTER: &str = "50.00";

impl Bank {
    async fn start(name: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::start_sound(name).await?;
        let temporal = TemporalServer::start(name).await?;
        let options = SystemOptions {
            database_url: Some(cluster.url.clone()),
            temporal_address: Some(temporal.url()),
            ..SystemOptions::default().with_long_attempts()
        };
        let options = options.with_profile("has_statement", true).with_profile("sla_ms", SLA_MS);
        let mut environment = TestEnvironment::load()?;
        environment.temporal_address = temporal.url();
        let system = System::start_in(environment, name, options).await?;
        system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
        Ok(Self { system, cluster, temporal })
    }

    /// A payment that the switch holds.
    async fn held(&self, amount: &str) -> anyhow::Result<AcceptedPayment> {
        let payment = self.system.pay(amount).await?;
        self.system.wait_for_state(&payment.payment_id, "submitted").await?;
        Ok(payment)
    }

    async fn settle(&self, payment: &AcceptedPayment) -> anyhow::Result<()> {
        self.system.switch.finish_transfer(&payment.reference, "settle").await?;
        self.system.wait_for_state(&payment.payment_id, "settled").await
    }

    /// `payctl restore-check` or `payctl reconcile`, with the login that they have in production; returns the report.
    async fn compare(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let mut payctl = self.system.command("payctl");
        payctl.env("PAYMENTS_DATABASE__URL", self.system.database.url_of("payctl-reconcile")?);
        let output = payctl.args(arguments).arg("--json").output().await?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    async fn debit_by_decision(&self, payment: &AcceptedPayment) -> anyhow::Result<()> {
        let staff = ["ann", "ben"];
        let operators = self.system.operators(&staff).await?;
        operators.decide_debit(&self.system, staff, &payment.payment_id).await
    }

    /// A customer who missed the answer, or whose payment is gone, repeats the request under its key.
    async fn repeat(&self, payment: &AcceptedPayment, amount: &str) -> anyhow::Result<()> {
        let response = self.system.post_payment(&payment.key, &payment_request(amount)).await?;
        let status = response.status();
        let body: Value = response.json().await?;
        ensure!(status == 201 || status == 200, "{status} {body}");
        ensure!(body["payment_id"] == payment.payment_id, "another payment: {body}");
        Ok(())
    }
}

/// Which server has the older backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Older {
    Postgres,
    Temporal,
}

/// Loses both servers; restores each from its backup; follows the runbook; the customers repeat their requests.
async fn restore_both(older: Older) -> anyhow::Result<()> {
    let mut bank = Bank::start("restored-backups").await?;
    let open = bank.held(OPEN).await?;
    match older {
        Older::Postgres => bank.cluster.back_up().await?,
        Older::Temporal => bank.temporal.back_up().await?,
    }
    let since: String = sqlx::query_scalar(
        "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    )
    .fetch_one(&bank.system.database.pool)
    .await?;
    bank.settle(&open).await?;
    let settled_between = bank.held(SETTLED_BETWEEN).await?;
    bank.settle(&settled_between).await?;
    let held_between = bank.held(HELD_BETWEEN).await?;
    match older {
        Older::Postgres => bank.temporal.back_up().await?,
        Older::Temporal => bank.cluster.back_up().await?,
    }
    let settled_after = bank.held(SETTLED_AFTER).await?;
    bank.settle(&settled_after).await?;
    let held_after = bank.held(HELD_AFTER).await?;

    // Stop the payment-workers, restore, and compare before any of them runs.
    bank.system.worker.kill().await?;
    bank.cluster.restore().await?;
    bank.temporal.restore().await?;
    let report = bank.compare(&["restore-check", "--since", &since]).await?;
    // What the switch settled and no row has, and the workflows that Temporal has without a row.
    let expected = match older {
        Older::Postgres => vec![
            ("transfer_without_payment", settled_between.reference.as_str()),
            ("transfer_without_payment", settled_after.reference.as_str()),
            ("workflow_without_payment", settled_between.payment_id.as_str()),
            ("workflow_without_payment", held_between.payment_id.as_str()),
        ],
        Older::Temporal => vec![("transfer_without_payment", settled_after.reference.as_str())],
    };
    let findings = report["reconciliation"]["findings"].as_array().context("the report has no findings")?;
    let is_named = |(drift, name): &(&str, &str)| {
        let names = |finding: &&Value| finding["detail"].as_str().is_some_and(|detail| detail.contains(name));
        findings.iter().filter(|finding| finding["drift"] == *drift).filter(names).count() == 1
    };
    assert!(findings.len() == expected.len() && expected.iter().all(is_named), "{report:#}");
    assert_eq!(report["marked"], 1, "{report:#}");
    bank.system.worker.restart().await?;

    for (payment, amount) in [
        (&open, OPEN),
        (&settled_between, SETTLED_BETWEEN),
        (&held_between, HELD_BETWEEN),
        (&settled_after, SETTLED_AFTER),
        (&held_after, HELD_AFTER),
    ] {
        bank.repeat(payment, amount).await?;
    }
    // The payment that only Temporal knows has no hold, and the switch says that the money left: two operators have it debited.
    if older == Older::Postgres {
        bank.system.wait_for_state(&settled_between.payment_id, "needs_operator").await?;
        let reason = bank.system.operator_reason(&settled_between.payment_id).await?;
        assert_eq!(reason.as_deref(), Some("settled_without_hold"));
        bank.debit_by_decision(&settled_between).await?;
    }
    for payment in [&open, &settled_between, &settled_after] {
        bank.system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    // What the switch holds, the customers cancel, unless its recovery has done so.
    for payment in [&held_between, &held_after] {
        bank.system.cancel(&payment.payment_id).await?;
    }
    bank.system.wait_until_all_have_ended_within(WITHIN).await?;
    for payment in [&held_between, &held_after] {
        assert_eq!(
            bank.system.switch.transfer_status(&payment.reference).await?.as_deref(),
            Some("CANCELLED")
        );
    }
    assert_eq!(bank.system.switch.transfers().await?.len(), 5, "a payment was sent as another transfer");
    assert_eq!(bank.system.available().await?, OPENING_MINOR - 7_000);
    if older == Older::Temporal {
        bank.system.expect_no_history(&settled_between.payment_id);
    }
    bank.system.audit().await?;
    let report = bank.compare(&["reconcile", "--grace", "0s"]).await?;
    assert!(
        report["drift"].as_object().is_some_and(|drift| drift.values().all(|count| *count == 0)),
        "{report:#}"
    );
    bank.cluster.discard();
    Ok(())
}

#[tokio::test]
async fn r30b_postgresql_restored_to_an_earlier_instant_than_temporal_ends_every_payment_right()
-> anyhow::Result<()> {
    restore_both(Older::Postgres).await
}

#[tokio::test]
async fn r30b_temporal_restored_to_an_earlier_instant_than_postgresql_ends_every_payment_right()
-> anyhow::Result<()> {
    restore_both(Older::Temporal).await
}

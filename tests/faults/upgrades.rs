//! Two releases of the payment-worker at once, under load, back and forth (R29).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use temporalio_common::protos::temporal::api::enums::v1::WorkflowTaskFailedCause;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::process::Process;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// Payments that the switch holds while the release changes.
const HELD: usize = 3;
/// An amount that the mock switch holds.
const HELD_AMOUNT: &str = "90.04";
/// Customers who pay meanwhile.
const CUSTOMERS: usize = 4;
/// Payments that end on a release before the next change.
const BETWEEN: usize = 10;
/// Program of another release's payment-worker; `./dev upgrade REVISION` sets it. Without it, the second worker is this release's.
const OTHER_WORKER: &str = "TEST_OTHER_WORKER";
/// What makes this release's worker another release, whose workflows are incompatible with this one's.
const INCOMPATIBLE: (&str, &str) = (crash_point::OTHER_RELEASE, "1");
const BUILD_ID: &str = "PAYMENTS_WORKER__BUILD_ID";
/// Time limit for Temporal to know a version.
const WITHIN: Duration = Duration::from_secs(60);

struct Bank {
    system: System,
    /// The other release's worker.
    other: Process,
}

impl Bank {
    /// A bank whose other worker is another release's, if there is one, and does not run yet.
    async fn start(name: &str) -> anyhow::Result<Self> {
        let options =
            SystemOptions { sandbox_amounts: true, ..SystemOptions::default().with_long_attempts() };
        let options = options.with_profile("sla_ms", 600_000);
        let system = System::start(name, options).await?;
        let mut other = system.start_process("payment-worker", "PAYMENTS_WORKER__METRICS_LISTEN").await?;
        other.stop().await?;
        if let Some(program) = std::env::var_os(OTHER_WORKER) {
            other.set_program(PathBuf::from(program));
        }
        Ok(Self { system, other })
    }

    async fn hold(&self) -> anyhow::Result<Vec<AcceptedPayment>> {
        let mut held = Vec::new();
        for _ in 0..HELD {
            let payment = self.system.pay(HELD_AMOUNT).await?;
            self.system.wait_for_state(&payment.payment_id, "submitted").await?;
            held.push(payment);
        }
        Ok(held)
    }

    async fn settle(&self, held: &[AcceptedPayment]) -> anyhow::Result<()> {
        for payment in held {
            self.system.switch.finish_transfer(&payment.reference, "settle").await?;
        }
        for payment in held {
            self.system.wait_for_state(&payment.payment_id, "settled").await?;
        }
        Ok(())
    }

    /// Payments one after the other, each to its end.
    async fn pay_to_the_end(&self) -> anyhow::Result<()> {
        for _ in 0..BETWEEN {
            let payment = self.system.pay("5.00").await?;
            self.system.wait_for_state(&payment.payment_id, "settled").await?;
        }
        Ok(())
    }

    /// `temporal worker deployment set-current-version`, as an operator types it, once the version's worker has announced itself.
    async fn set_current(&self, build_id: &str) -> anyhow::Result<()> {
        let address = self.system.temporal_address.trim_start_matches("http://");
        until("the version is current", WITHIN, || async {
            let temporal = std::env::var_os("TEMPORAL_CLI").unwrap_or_else(|| "temporal".into());
            let mut set = Command::new(temporal);
            set.args(["worker", "deployment", "set-current-version", "--yes", "--address", address]);
            set.args(["--deployment-name", &self.system.task_queue, "--build-id", build_id]);
            Ok(set.kill_on_drop(true).output().await?.status.success().then_some(()))
        })
        .await
    }

    /// Every payment has settled, the books agree, no workflow task has failed; returns the versions that completed the tasks of
    /// each payment.
    async fn compare(&self) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        self.system.wait_until_all_have_ended_within(WITHIN).await?;
        let payments: Vec<String> = sqlx::query_scalar("SELECT payment_id FROM payments")
            .fetch_all(&self.system.database.pool)
            .await?;
        let mut versions = BTreeMap::new();
        for id in &payments {
            ensure!(self.system.state(id).await? == "settled", "{id} has not settled");
            let history = self.system.history(id).await?;
            let failed = history.iter().any(|event| match &event.attributes {
                // The server repeats a task whose workflow ended while a signal arrived, in any release.
                Some(Attributes::WorkflowTaskFailedEventAttributes(failed)) => {
                    failed.cause() != WorkflowTaskFailedCause::UnhandledCommand
                }
                _ => false,
            });
            ensure!(!failed, "a workflow task of {id} failed: {history:#?}");
            let mut of_payment: Vec<String> = history
                .iter()
                .filter_map(|event| match &event.attributes {
                    Some(Attributes::WorkflowTaskCompletedEventAttributes(completed)) => Some(
                        completed
                            .deployment_version
                            .as_ref()
                            .map_or_else(String::new, |version| version.build_id.clone()),
                    ),
                    _ => None,
                })
                .collect();
            of_payment.dedup();
            versions.insert(id.clone(), of_payment);
        }
        let charged: i64 = sqlx::query_scalar("SELECT sum(amount_minor)::bigint FROM payments")
            .fetch_one(&self.system.database.pool)
            .await?;
        assert_eq!(self.system.available().await?, OPENING_MINOR - charged);
        assert_eq!(self.system.audit().await?.debited, payments.len());
        Ok(versions)
    }
}

/// Runs `change` while [`CUSTOMERS`] pay, each the next payment when the one before has settled; returns when all have ended.
async fn under_load<T>(
    system: &System,
    change: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let stop = CancellationToken::new();
    let customer = async || -> anyhow::Result<()> {
        while !stop.is_cancelled() {
            let payment = system.pay("5.00").await?;
            system.wait_for_state(&payment.payment_id, "settled").await?;
        }
        Ok(())
    };
    let change = async {
        let result = change.await;
        stop.cancel();
        result
    };
    let load = try_join_all((0..CUSTOMERS).map(|_| customer()));
    let (result, _) = tokio::try_join!(change, load)?;
    Ok(result)
}

/// Worker versioning: each payment is carried to its end by the release on which it started, although neither could replay the other's
/// history; under load, after the upgrade and after its rollback. `./dev upgrade REVISION` runs this with the worker of that revision as the
/// first release.
#[tokio::test]
async fn r29_with_build_ids_each_payment_ends_on_the_release_on_which_it_started() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let mut bank = Bank::start("upgrade").await?;
    bank.other.set_program(bank.system.worker.program().to_owned());
    bank.system.worker.stop().await?;
    match std::env::var_os(OTHER_WORKER) {
        Some(earlier) => bank.system.worker.set_program(PathBuf::from(earlier)),
        None => bank.other.set_variable(INCOMPATIBLE.0, INCOMPATIBLE.1),
    }
    bank.system.worker.set_variable(BUILD_ID, "v1");
    bank.system.worker.restart().await?;
    bank.set_current("v1").await?;
    let held_on_first = bank.hold().await?;

    bank.other.set_variable(BUILD_ID, "v2");
    bank.other.restart().await?;
    let held_on_second = under_load(&bank.system, async {
        bank.set_current("v2").await?;
        bank.pay_to_the_end().await?;
        bank.hold().await
    })
    .await?;
    bank.settle(&held_on_first).await?;
    // The rollback: what starts now is the first release's again.
    let held_after_rollback = under_load(&bank.system, async {
        bank.set_current("v1").await?;
        bank.pay_to_the_end().await?;
        bank.hold().await
    })
    .await?;
    bank.settle(&held_on_second).await?;
    bank.settle(&held_after_rollback).await?;
    let versions = bank.compare().await?;
    for (id, of_payment) in &versions {
        assert_eq!(of_payment.len(), 1, "{id} was carried by {of_payment:?}");
    }
    let releases = [(&held_on_first, "v1"), (&held_on_second, "v2"), (&held_after_rollback, "v1")];
    for (held, version) in releases {
        for payment in held {
            assert_eq!(versions[&payment.payment_id], [version]);
        }
    }
    bank.other.stop().await?;
    Ok(())
}

/// Without build ids any worker continues any payment: a release that replays the other one's histories takes over and gives back, under
/// load. `./dev upgrade REVISION` runs this with the worker of that revision.
#[tokio::test]
async fn r29_two_compatible_releases_share_the_payments() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let mut bank = Bank::start("shared").await?;
    let held = bank.hold().await?;
    bank.other.restart().await?;
    let mut between = under_load(&bank.system, bank.hold()).await?;
    bank.system.worker.stop().await?;
    under_load(&bank.system, bank.pay_to_the_end()).await?;
    bank.settle(&held).await?;
    between.extend(bank.hold().await?);
    // The rollback.
    bank.system.worker.restart().await?;
    under_load(&bank.system, bank.pay_to_the_end()).await?;
    bank.other.stop().await?;
    bank.settle(&between).await?;
    bank.compare().await?;
    Ok(())
}

/// An incompatible release without a build id loses nothing: its workers fail to replay an open payment, and the rollback continues it.
#[tokio::test]
async fn r29_a_payment_that_another_release_cannot_replay_ends_after_the_rollback() -> anyhow::Result<()> {
    let mut bank = Bank::start("incompatible").await?;
    bank.other.set_program(bank.system.worker.program().to_owned());
    let held = bank.hold().await?;
    bank.system.worker.stop().await?;
    bank.other.set_variable(INCOMPATIBLE.0, INCOMPATIBLE.1);
    bank.other.restart().await?;
    let (first, rest) = held.split_first().context("no payment is held")?;
    bank.system.switch.finish_transfer(&first.reference, "settle").await?;
    bank.system.wait_for_event(&first.payment_id, EventType::WorkflowTaskFailed).await?;
    bank.other.stop().await?;
    bank.system.worker.restart().await?;
    bank.settle(rest).await?;
    bank.system.wait_for_state(&first.payment_id, "settled").await?;
    assert_eq!(bank.system.audit().await?.debited, HELD);
    Ok(())
}

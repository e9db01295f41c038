//! R11: everything at once: of two workers one is frozen and the other killed, all database connections are cut, and the switch's
//! clock jumps. Every payment ends right. No process may panic meanwhile: `testkit::Process` looks for that in every test.

use futures::future::try_join_all;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::{System, SystemOptions};

/// Runs; the environment variable `KILL_RUNS` overrides it.
const RUNS: usize = 1;
/// Payments that are open at once.
const PAYMENTS: usize = 12;
/// How far the switch's clock jumps, in milliseconds.
const JUMP_MS: i64 = 600_000;

/// Cuts every connection to the bank's database, but the one that cuts.
async fn cut_connections(system: &System) -> anyhow::Result<()> {
    let sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let cut: i64 = sqlx::query_scalar(sessions).fetch_one(&system.database.pool).await?;
    anyhow::ensure!(cut > 0, "no connection was cut");
    Ok(())
}

async fn pay(system: &System) -> anyhow::Result<Vec<AcceptedPayment>> {
    try_join_all((0..PAYMENTS).map(|_| system.pay("5.00"))).await
}

#[tokio::test]
async fn r11_workers_frozen_and_killed_with_cut_connections_charge_once() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let runs: usize = std::env::var("KILL_RUNS").map_or(Ok(RUNS), |text| text.parse())?;
    let mut system = System::start("kill-run", SystemOptions::default()).await?;
    let other = system.start_process("payment-worker", "PAYMENTS_WORKER__METRICS_LISTEN").await?;
    let mut settled = 0;
    for run in 0..runs {
        let mut payments = pay(&system).await?;
        other.pause()?;
        cut_connections(&system).await?;
        system.switch.set_clock_offset(JUMP_MS).await?;
        payments.extend(pay(&system).await?);
        system.worker.kill().await?;
        system.switch.set_clock_offset(-JUMP_MS).await?;
        cut_connections(&system).await?;
        system.worker.restart().await?;
        other.resume()?;
        cut_connections(&system).await?;
        system.switch.set_clock_offset(0).await?;
        system.wait_until_all_have_ended().await?;
        for payment in &payments {
            settled += usize::from(system.state(&payment.payment_id).await? == "settled");
        }
        println!("run {run}: {settled} payments of {} settled so far", (run + 1) * 2 * PAYMENTS);
        assert_eq!(system.available().await?, OPENING_MINOR - i64::try_from(settled)? * 500);
        system.audit().await?;
    }
    // The jumps of the switch's clock void some transfers, and not all.
    assert!(settled > 0, "no payment settled");
    Ok(())
}

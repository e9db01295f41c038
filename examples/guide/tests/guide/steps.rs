//! Steps 1 to 6.

use std::time::Duration;

use durable_payments_guide::order::Order;
use durable_payments_guide::step_1_start::{StartedPayment, start};
use durable_payments_guide::step_2_activity::SubmittedPayment;
use durable_payments_guide::step_3_signal::ConfirmedPayment;
use durable_payments_guide::step_4_timer::TimedPayment;
use durable_payments_guide::step_5_compensation::CompensatedPayment;
use durable_payments_guide::step_6_lock::{AccountLock, LockedPayment};
use temporalio_client::{WorkflowGetResultOptions, WorkflowSignalOptions};

use crate::bank::Bank;

const WITHIN: Duration = Duration::from_secs(60);

fn result() -> WorkflowGetResultOptions {
    WorkflowGetResultOptions::default()
}

fn signal() -> WorkflowSignalOptions {
    WorkflowSignalOptions::default()
}

#[tokio::test]
async fn step_1_a_payment_is_started_once_however_often_it_is_requested() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    let order = Order::new("FR-CAROL-EUR");
    let test = async {
        assert!(start(&bank.client, &bank.queue, order.clone()).await?);
        assert!(!start(&bank.client, &bank.queue, order.clone()).await?);
        let payment = bank.client.get_workflow_handle::<StartedPayment>(&order.payment_id);
        assert_eq!(payment.get_result(result()).await?, "1250 to FR-CAROL-EUR");
        // Also after it has ended.
        assert!(!start(&bank.client, &bank.queue, order.clone()).await?);
        Ok(())
    };
    bank.with_worker(test).await
}

#[tokio::test]
async fn step_2_a_repeated_submit_finds_the_first_one() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    let order = Order { lost_answers: 2, ..Order::new("FR-CAROL-EUR") };
    let test = async {
        let payment =
            bank.client.start_workflow(SubmittedPayment::run, order.clone(), bank.options(&order)).await?;
        assert_eq!(payment.get_result(result()).await?, "submitted");
        assert_eq!(bank.books.attempts(&order.key("submit"))?, 3);
        assert_eq!(bank.recorded(&order), ["reserve", "submit"]);
        Ok(())
    };
    bank.with_worker(test).await
}

#[tokio::test]
async fn step_3_a_payment_waits_for_its_confirmation() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    let order = Order::new("FR-CAROL-EUR");
    let test = async {
        let payment =
            bank.client.start_workflow(ConfirmedPayment::run, order.clone(), bank.options(&order)).await?;
        bank.wait_until_recorded(&order.key("submit")).await?;
        assert_eq!(bank.recorded(&order), ["reserve", "submit"]);
        for _ in 0..2 {
            payment.signal(ConfirmedPayment::confirm, "transfer 1".to_owned(), signal()).await?;
        }
        assert_eq!(payment.get_result(result()).await?, "settled");
        assert_eq!(bank.recorded(&order), ["reserve", "submit", "debit"]);
        Ok(())
    };
    bank.with_worker(test).await
}

#[tokio::test]
async fn step_4_a_payment_without_confirmation_is_unknown_after_its_sla() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    let late = Order { sla_ms: 500, ..Order::new("FR-CAROL-EUR") };
    let confirmed = Order::new("FR-CAROL-EUR");
    let test = async {
        let start =
            |order: &Order| bank.client.start_workflow(TimedPayment::run, order.clone(), bank.options(order));
        let (late, confirmed) = (start(&late).await?, start(&confirmed).await?);
        confirmed.signal(TimedPayment::confirm, "transfer 1".to_owned(), signal()).await?;
        assert_eq!(confirmed.get_result(result()).await?, "settled");
        assert_eq!(late.get_result(result()).await?, "unknown");
        Ok(())
    };
    bank.with_worker(test).await
}

#[tokio::test]
async fn step_5_a_payment_obeys_the_answer_to_its_cancel() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    let short_sla = || Order { sla_ms: 500, ..Order::new("FR-CAROL-EUR") };
    let (void, settled) = (short_sla(), short_sla());
    // The switch settled this one, and its callback is lost.
    assert!(bank.books.record(&settled.key("settled"))?);
    let test = async {
        for (order, end, operations) in [
            (&void, "timed_out", ["reserve", "submit", "cancel", "release"].as_slice()),
            (&settled, "settled", ["reserve", "submit", "debit"].as_slice()),
        ] {
            let payment = bank
                .client
                .start_workflow(CompensatedPayment::run, order.clone(), bank.options(order))
                .await?;
            assert_eq!(payment.get_result(result()).await?, end);
            assert_eq!(bank.recorded(order), operations);
        }
        Ok(())
    };
    bank.with_worker(test).await
}

#[tokio::test]
async fn step_6_payments_to_one_account_submit_one_after_the_other() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    let account = format!("FR-{}", bank.queue);
    // The first holder's submit is answered only at its fifth attempt: the others wait.
    let first = Order { lost_answers: 4, ..Order::new(&account) };
    let second = Order::new(&account);
    let test = async {
        let start = |order: &Order| {
            bank.client.start_workflow(LockedPayment::run, order.clone(), bank.options(order))
        };
        let holder = start(&first).await?;
        bank.wait_until_recorded(&first.key("submit")).await?;
        let waiting = start(&second).await?;
        assert_eq!(holder.get_result(result()).await?, "submitted");
        assert_eq!(waiting.get_result(result()).await?, "submitted");
        let log = std::fs::read_to_string(bank.folder.join("attempts.log"))?;
        let lines: Vec<_> = log.lines().collect();
        let last_of_first = lines.iter().rposition(|line| *line == first.key("submit"));
        let first_of_second = lines.iter().position(|line| *line == second.key("submit"));
        assert!(last_of_first < first_of_second, "{log}");
        // Nobody holds it any more: the lock ends, and would start again.
        let lock = bank.client.get_workflow_handle::<AccountLock>(format!("lock:{account}"));
        lock.get_result(result()).await?;
        Ok(())
    };
    bank.with_worker(test).await
}

#[tokio::test]
async fn every_step_runs_from_the_command_line() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    for (step, end) in [
        ("1", "1250 to FR-CAROL-EUR"),
        ("2", "submitted"),
        ("3", "settled"),
        ("4", "unknown"),
        ("5", "timed_out"),
        ("6", "submitted"),
    ] {
        let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_guide"))
            .args(["run", step, "--address", &bank.address, "--queue", &format!("{}-{step}", bank.queue)])
            .arg("--books")
            .arg(&bank.folder)
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(WITHIN, run).await??;
        let shown = String::from_utf8(output.stdout)?;
        assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
        assert!(shown.contains(&format!("ended: {end}\n")), "{shown}");
    }
    Ok(())
}

//! Step 8: a crash test. The process that carries a payment is killed; another one carries it on, and nothing is done twice.

use std::process::Stdio;

use durable_payments_guide::order::Order;
use durable_payments_guide::step_5_compensation::CompensatedPayment;
use temporalio_client::{WorkflowGetResultOptions, WorkflowSignalOptions};
use tokio::process::{Child, Command};

use crate::bank::Bank;

fn start_worker(bank: &Bank) -> anyhow::Result<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_guide"));
    command
        .args(["worker", "--address", &bank.address, "--queue", &bank.queue, "--books"])
        .arg(&bank.folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    Ok(command.spawn()?)
}

#[tokio::test]
async fn step_8_a_payment_survives_the_kill_of_its_worker() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    let order = Order::new("FR-CAROL-EUR");
    let mut first = start_worker(&bank)?;
    let payment =
        bank.client.start_workflow(CompensatedPayment::run, order.clone(), bank.options(&order)).await?;
    // The transfer is with the switch, the payment waits: the worst moment to die.
    bank.wait_until_recorded(&order.key("submit")).await?;
    first.kill().await?; // SIGKILL
    // The callback comes while no worker runs; Temporal keeps it.
    let transfer = "transfer 1".to_owned();
    payment.signal(CompensatedPayment::confirm, transfer, WorkflowSignalOptions::default()).await?;
    let _second = start_worker(&bank)?;
    assert_eq!(payment.get_result(WorkflowGetResultOptions::default()).await?, "settled");
    assert_eq!(bank.recorded(&order), ["reserve", "submit", "debit"]);
    assert_eq!(bank.books.attempts(&order.key("debit"))?, 1);
    Ok(())
}

//! `payctl worker`. Its answer from a running Temporal is read by the system tests in the same way (`tests/acceptance/crashes.rs`).

use crate::bank::Bank;

#[tokio::test]
async fn payctl_worker_says_what_is_missing() {
    let bank = Bank::open().await;
    let output = bank.payctl(&["worker"]).await.refused();
    assert!(output.contains("there is no payment yet; make one with payctl pay"), "{output}");
    let output = bank.payctl(&["worker", "pay_00000000000000000000000000000000"]).await.refused();
    assert!(output.contains("the ledger has no payment pay_00000000000000000000000000000000"), "{output}");
    bank.settled("one").await;
    let output = bank.payctl(&["worker", "--pid"]).await.refused();
    assert!(output.contains("Temporal at http://127.0.0.1:1 does not answer"), "{output}");
}

//! `payctl restore-check`.

use ::mock_switch::Shape;
use jiff::Timestamp;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::cause::Cause;
use payment_protocol::rules::ReleaseRefusal;
use serde_json::Value;

use crate::bank::{AMOUNT_MINOR, Bank};
use crate::mock_switch::MockSwitch;
use crate::run::{CommandResult, payctl};

/// A payment without an attempt whose transfer the switch settled, and a transfer whose payment is gone, are listed. Nothing open
/// is released any more without the switch's answer.
#[tokio::test]
async fn payctl_restore_check_marks_open_payments_and_lists_differences() {
    let switch = MockSwitch::start(Shape::default(), 60_000).await;
    let bank = Bank::with_switch(&switch.url).await;
    let before = bank.settled("before").await;
    let open = bank.reserved("open").await;
    let since = Timestamp::now().to_string();
    let ended = bank.unreserved_end("ended").await;
    let later = bank.reserved("later").await;
    // What a database lost that the switch knows: an attempt, and a whole payment.
    switch.settle(&open.reference, AMOUNT_MINOR).await;
    switch.settle("tx_gone:submit", 700).await;

    let check = ["restore-check", "--since", &since];
    let output = bank.payctl(&check).await.check_failed();
    for part in [
        "marked 2 open payments; commits may be lost since 2",
        "not compared: workflows: ",
        "not compared: ended workflows: ",
        "mock settled transfer ",
        "(tx_gone:submit) of 7.00 EUR",
        "1 transfer without a recorded attempt, 1 listed",
        &format!("\n{}   reserved   mock     ", open.id),
        &format!("\n{}   cancelled   mock     2", ended.id),
        "ask its operators for transfers since then",
    ] {
        assert!(output.contains(part), "{part}\n{output}");
    }
    assert!(!output.contains(before.id.as_str()), "{output}");

    for payment in [&open, &later] {
        let released = bank.ledger.release(&payment.id, &Cause::SlaExpired).await.unwrap();
        assert_eq!(released, ReleaseStepOutcome::Refused(ReleaseRefusal::MayStillSettle));
    }
    let shown = bank.payctl(&["show", later.id.as_str()]).await.stdout;
    assert!(shown.contains("attempts may be missing from the record"), "{shown}");

    let output = bank.payctl(&[&check[..], &["--json"]].concat()).await.check_failed();
    let repeated: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(repeated["marked"], 0);
    assert_eq!(repeated["since"], since);
    assert_eq!(repeated["transfers_without_attempt"], 1);
    assert_eq!(repeated["first_transfers_without_attempt"][0]["payment_id"], open.id.as_str());
    assert_eq!(repeated["ended_without_attempt"][0]["payment_id"], ended.id.as_str());
    assert_eq!(repeated["ended_without_attempt"].as_array().unwrap().len(), 1);
    assert_eq!(repeated["reconciliation"]["drift"]["transfer_without_payment"], 1);
    switch.stop().await;
}

/// Without a statement and without Temporal, nothing is known to differ and nothing is known to agree.
#[tokio::test]
async fn payctl_restore_check_names_a_switch_without_a_statement() {
    let bank = Bank::open().await;
    bank.reserved("open").await;
    let mut command = bank.command(&["restore-check", "--since", "10m"]);
    command.env("PAYMENTS_SWITCHES__MOCK__PROFILE__HAS_STATEMENT", "false");
    let result = CommandResult::of(command.output().await.unwrap());
    assert_eq!(result.code, Some(3), "{result:?}");
    assert!(result.stdout.starts_with("marked 1 open payment; "), "{result:?}");
    assert!(result.stdout.contains("not compared: mock: the switch has no statement\n"), "{result:?}");
}

#[tokio::test]
async fn payctl_restore_check_refuses_an_instant_of_the_future() {
    let output = payctl(&["restore-check", "--since", "9999-01-01T00:00:00Z"]).await.refused();
    assert!(output.contains("an instant of the past"), "{output}");
}

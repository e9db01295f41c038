//! `payctl decide`: proposals, confirmations, outcomes and refusals.

use ::mock_switch::Shape;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::DecisionOutcome;

use crate::bank::{AMOUNT_MINOR, Bank, decision_id};
use crate::mock_switch::MockSwitch;
use crate::run::CommandResult;

const REASON: [&str; 2] = ["--reason", "as the letter says"];

async fn decide(bank: &Bank, args: &[&str], by: &str, options: &[&str]) -> CommandResult {
    bank.by(by, &[&["decide"], args, &REASON, options].concat()).await
}

#[tokio::test]
async fn s0_8_a_debit_decided_with_payctl_needs_another_operator_to_confirm() {
    let bank = Bank::open().await;
    let payment = bank.needs_operator("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let debit = [payment.as_str(), "debit"];
    let error = decide(&bank, &debit, "Ann", &[]).await.refused();
    assert!(error.contains("nothing was decided: the decision debit needs evidence"), "{error}");
    let output = decide(&bank, &debit, "Ann", &["--evidence", "letter 7"]).await.success();
    let expected = format!(
        "debit of payment {payment}, proposed by Ann\nnext: another operator confirms it with payctl decide confirm dec_"
    );
    assert!(output.contains(&expected), "{output}");
    let repeated = decide(&bank, &debit, "Ann", &["--evidence", "letter 7", "--json"]).await.success();
    let id = decision_id(&serde_json::from_str(&repeated).unwrap());
    assert!(output.contains(id.as_str()), "{output}");

    let confirm = ["confirm", id.as_str()];
    let error = decide(&bank, &confirm, "Ann", &[]).await.refused();
    assert!(error.contains("another operator must confirm"), "{error}");

    // The test applies the decision in the worker's place.
    let args = [&["decide"], &confirm[..], &REASON, &["--wait", "30"]].concat();
    let mut command = bank.command_by("Bob", &args).await;
    let confirming = command.output();
    let worker = async {
        bank.wait_confirmed(&id).await;
        bank.ledger.debit_by_decision(&payment, &id).await.unwrap();
    };
    let (output, ()) = tokio::join!(confirming, worker);
    let output = CommandResult::of(output.unwrap()).success();
    let expected = format!(
        "decision {id} confirmed\ndecision {id}: applied: 12.50 EUR debited, the payment is settled\n"
    );
    assert_eq!(output, expected);
    assert_eq!(bank.available("one").await, 8_750);

    let shown = bank.payctl(&["show", payment.as_str()]).await.success();
    assert!(shown.contains("Ann: as the letter says; evidence: letter 7"), "{shown}");
    assert!(shown.contains("applied: 12.50 EUR debited, the payment is settled"), "{shown}");
}

#[tokio::test]
async fn a_decision_confirmed_with_payctl_without_a_workflow_stays_recorded() {
    let bank = Bank::open().await;
    let payment = bank.needs_operator("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let release = [payment.as_str(), "release"];
    let evidence = ["--evidence", "statement of May", "--json"];
    let proposed = decide(&bank, &release, "Ann", &evidence).await.success();
    let id = decision_id(&serde_json::from_str(&proposed).unwrap());
    let result = decide(&bank, &["confirm", id.as_str()], "Bob", &["--wait", "2"]).await;
    assert_eq!(result.code, Some(3), "{result:?}");
    assert!(result.stdout.contains("not applied yet: the payment's workflow has not answered"), "{result:?}");
    assert!(result.stdout.contains("is recorded and is delivered until it is applied"), "{result:?}");
    let stuck = bank.payctl(&["stuck", "--older-than", "0s"]).await.success();
    assert!(stuck.contains(&format!("{id}: release, confirmed, not applied yet")), "{stuck}");
    let error = decide(&bank, &["withdraw", id.as_str()], "Ann", &[]).await.refused();
    assert!(error.contains("the decision is confirmed and cannot be withdrawn"), "{error}");
}

#[tokio::test]
async fn payctl_exits_with_1_if_the_switch_contradicts_a_decision() {
    let bank = Bank::open().await;
    let payment = bank.needs_operator("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let options = ["--reason", "try", "--wait", "30", "--json"];
    let args = [&["decide", payment.as_str(), "retry-cancel"], &options[..]].concat();
    let mut command = bank.command_by("Ann", &args).await;
    let deciding = command.output();
    let worker = async {
        let id = testkit::wait::until("the decision", std::time::Duration::from_secs(20), || async {
            Ok(bank.ledger.decisions(&payment).await?.pop())
        });
        let id = id.await.unwrap().decision_id;
        let refused = DecisionOutcome::Refused { detail: "the switch reports settled".into() };
        bank.ledger.close_decision(&id, &refused, "the switch reports settled").await.unwrap();
    };
    let (output, ()) = tokio::join!(deciding, worker);
    let output = CommandResult::of(output.unwrap()).check_failed();
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(document["status"], "refused");
    assert_eq!(document["result"], "refused: the switch reports settled");
}

#[tokio::test]
async fn a_decision_withdrawn_with_payctl_cannot_be_confirmed() {
    let bank = Bank::open().await;
    let payment = bank.needs_operator("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let release = [payment.as_str(), "release"];
    let proposed = decide(&bank, &release, "Ann", &["--evidence", "x", "--json"]).await.success();
    let id = decision_id(&serde_json::from_str(&proposed).unwrap());
    let output = decide(&bank, &["withdraw", id.as_str()], "Carl", &[]).await.success();
    assert_eq!(output, format!("decision {id} withdrawn; nothing was applied\n"));
    let error = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.refused();
    assert!(error.contains("the decision is withdrawn"), "{error}");
}

#[tokio::test]
async fn a_late_debit_with_payctl_needs_two_operators_and_posts_once() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let late = bank.released("late").await;
    bank.success(&late).await;
    let number = bank.json(&["exceptions"]).await["exceptions"][0]["exception_id"].to_string();
    let error = decide(&bank, &["write-off", &number], "Ann", &[]).await.refused();
    assert!(error.contains("nothing to write off"), "{error}");
    let error = decide(&bank, &["late-debit", &number], "Ann", &[]).await.refused();
    assert!(error.contains("the decision late_debit needs evidence"), "{error}");
    let evidence = ["--evidence", "statement 7, line 3", "--json"];
    let proposed = decide(&bank, &["late-debit", &number], "Ann", &evidence).await.success();
    let id = decision_id(&serde_json::from_str(&proposed).unwrap());
    assert_eq!(bank.available("late").await, 10_000);
    let error = decide(&bank, &["confirm", id.as_str()], "Ann", &[]).await.refused();
    assert!(error.contains("another operator must confirm"), "{error}");
    mock.settle(&late.reference, AMOUNT_MINOR).await;
    let output = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.success();
    assert!(output.starts_with(&format!("decision {id} confirmed and posted: ")), "{output}");
    assert_eq!(bank.available("late").await, 8_750);
    // A repeated confirmation posts nothing.
    assert_eq!(decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.success(), output);
    assert_eq!(bank.available("late").await, 8_750);
    mock.stop().await;
}

#[tokio::test]
async fn an_exception_opened_with_payctl_permits_a_correction() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let open = bank.submitted("open").await;
    let error = decide(&bank, &["open-exception", open.id.as_str()], "Ann", &[]).await.refused();
    assert!(error.contains("still open"), "{error}");
    let released = bank.released("released").await;
    let opened = decide(&bank, &["open-exception", released.id.as_str()], "Ann", &["--json"]).await.success();
    let opened: serde_json::Value = serde_json::from_str(&opened).unwrap();
    let number = opened["exception_id"].to_string();
    assert_eq!(bank.json(&["exceptions"]).await["exceptions"][0]["kind"], "opened_by_operator");
    let evidence = ["--evidence", "letter 7", "--json"];
    let proposed = decide(&bank, &["late-debit", &number], "Ann", &evidence).await.success();
    let id = decision_id(&serde_json::from_str(&proposed).unwrap());
    mock.settle(&released.reference, AMOUNT_MINOR).await;
    decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.success();
    assert_eq!(bank.available("released").await, 8_750);
    mock.stop().await;
}

/// Like every decision that moves money, a correction queries the switch first.
#[tokio::test]
async fn a_payctl_correction_that_the_switch_contradicts_is_refused() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let settled = bank.settled("one").await;
    mock.settle(&settled.reference, AMOUNT_MINOR).await;
    bank.failure(&settled).await;
    let number = bank.json(&["exceptions"]).await["exceptions"][0]["exception_id"].to_string();
    let evidence = ["--evidence", "the customer says so", "--json"];
    let proposed = decide(&bank, &["return-credit", &number], "Ann", &evidence).await.success();
    let id = decision_id(&serde_json::from_str(&proposed).unwrap());
    let before = bank.available("one").await;
    let error = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.refused();
    let contradicts = format!(
        "nothing was decided: return_credit of payment {} contradicts the switch, which reports settled",
        settled.id
    );
    assert!(error.contains(&contradicts), "{error}");
    assert_eq!(bank.available("one").await, before);
    // Without an answer of the switch, nothing is decided either, until its answers would prove nothing any more.
    mock.stop().await;
    let error = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.refused();
    assert!(error.contains("needs the switch's answer first"), "{error}");
    assert_eq!(bank.available("one").await, before);
    bank.age_attempts().await;
    decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.success();
    assert_eq!(bank.available("one").await, before + AMOUNT_MINOR);
}

/// The payment ended as one that was never sent, because the database had lost the record of its attempt, and the switch is gone: without
/// an attempt, the switch's retention counts from the acceptance.
#[tokio::test]
async fn a_late_debit_of_a_payment_without_a_recorded_attempt_is_possible_after_the_retention() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let ended = bank.unreserved_end("unrecorded").await;
    let opened = decide(&bank, &["open-exception", ended.id.as_str()], "Ann", &["--json"]).await.success();
    let opened: serde_json::Value = serde_json::from_str(&opened).unwrap();
    let number = opened["exception_id"].to_string();
    let evidence = ["--evidence", "letter 8", "--json"];
    let proposed = decide(&bank, &["late-debit", &number], "Ann", &evidence).await.success();
    let id = decision_id(&serde_json::from_str(&proposed).unwrap());
    mock.stop().await;
    let error = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.refused();
    assert!(error.contains("or after the acceptance where none is on record"), "{error}");
    bank.sql(
        "BEGIN; SET LOCAL session_replication_role = replica;
         UPDATE payments SET accepted_at = accepted_at - interval '10 years'; COMMIT",
    )
    .await;
    decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.success();
    assert_eq!(bank.available("unrecorded").await, 8_750);
}

#[tokio::test]
async fn payctl_refuses_unreadable_evidence() {
    let bank = Bank::open().await;
    let payment = bank.needs_operator("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let release = [payment.as_str(), "release"];
    for evidence in ["of \u{202E}ylrae", &"a".repeat(2_001)] {
        let error = decide(&bank, &release, "Ann", &["--evidence", evidence]).await.refused();
        assert!(error.contains("the evidence"), "{error}");
    }
    let error = decide(&bank, &release, "Ann", &["--evidence", &"a".repeat(70_000)]).await.refused();
    assert!(error.contains("body_too_large"), "{error}");
}

#[tokio::test]
async fn payctl_refuses_a_decision_about_an_open_payment_or_an_unknown_id() {
    let bank = Bank::open().await;
    let submitted = bank.submitted("submitted").await.id;
    for (args, refusal) in [
        (
            [submitted.as_str(), "retry-cancel"],
            "the payment is in the state submitted and does not need an operator",
        ),
        (["pay_nobody", "retry-cancel"], "the ledger has no payment pay_nobody"),
        (["confirm", "dec_nobody"], "the ledger has no operator decision dec_nobody"),
        (["close", "99"], "the ledger has no exception 99"),
    ] {
        let error = decide(&bank, &args, "Ann", &[]).await.refused();
        assert!(error.contains(refusal), "{refusal}: {error}");
    }
    let error = decide(&bank, &["close", "99"], "Ann", &["--evidence", "x"]).await.refused();
    assert!(error.contains("payctl decide close takes no --evidence; write it into --reason"), "{error}");
}

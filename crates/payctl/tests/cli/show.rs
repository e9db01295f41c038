//! `payctl show`: one payment in the ledger, Temporal and the switch, and its invariants.

use ::mock_switch::Shape;
use payment_protocol::cause::{Cause, OperatorReason};
use serde_json::Value;

use crate::api_stub::{ApiStub, PAYMENT_ID, ReadReply};
use crate::bank::{AMOUNT_MINOR, Bank, decision_id};
use crate::mock_switch::MockSwitch;
use crate::run::{CommandResult, command};

/// Status of one invariant in a document.
fn invariant_status(document: &Value, number: &str) -> String {
    let all = document["invariants"].as_array().unwrap();
    let invariant = all.iter().find(|invariant| invariant["number"] == number).unwrap();
    invariant["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn payctl_show_finds_every_invariant_holding_for_a_settled_payment() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let payment = bank.settled("one").await;
    mock.settle(&payment.reference, AMOUNT_MINOR).await;

    let output = bank.payctl(&["show", payment.id.as_str()]).await.success();
    let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        " state settled ",
        " tenant, client acme, shop ",
        " hold 12.50 EUR in DE-one: debited ",
        " final status settled, source: callback ",
        " switch reports settled: 12.50 EUR",
        " Temporal reports unavailable: Temporal at http://127.0.0.1:1 does not answer; check temporal.address and that Temporal runs ",
        " decisions: none ",
        " transfer sent",
    ] {
        assert!(words.contains(part), "{part}\n{output}");
    }
    assert!(!output.contains("VIOLATED"), "{output}");

    let document = bank.json(&["show", payment.id.as_str()]).await;
    assert_eq!(document["violated"], Value::Array(vec![]));
    assert_eq!(document["switch"]["answer"], "settled");
    assert_eq!(document["payment"]["end_to_end_id"], "invoice one");
    assert!(document["workflow"]["error"].is_string());
    for number in 1..=11 {
        assert_eq!(invariant_status(&document, &format!("I{number}")), "holds", "{document:#}");
    }
    let kinds: Vec<&Value> =
        document["journal"].as_array().unwrap().iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["reserve", "debit"]);
    mock.stop().await;
}

#[tokio::test]
async fn payctl_shows_the_queries_that_a_switch_limits() {
    let bank = Bank::open().await;
    let payment = bank.submitted("one").await;
    let unlimited = bank.json(&["show", payment.id.as_str()]).await;
    assert_eq!(unlimited["payment"]["queries"], 0);
    bank.sql(
        "BEGIN;
         SET LOCAL session_replication_role = replica;
         INSERT INTO switch_profiles SELECT switch_profile_hash(p), p
         FROM (SELECT profile || '{\"asks_max\": 3}' AS p FROM switch_profiles) AS limited;
         UPDATE payments SET asks = 2, last_asked_at = '2026-01-02T03:04:05Z',
                profile_hash = (SELECT profile_hash FROM switch_profiles WHERE profile ? 'asks_max');
         COMMIT",
    )
    .await;
    let output = bank.payctl(&["show", payment.id.as_str()]).await.success();
    let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(" queries 2 of 3, the last one at 2026-01-02T03:04:05Z switch reports "),
        "{output}"
    );
}

#[tokio::test]
async fn s0_7_payctl_shows_the_release_of_a_settled_transfer_first() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let payment = bank.released("one").await;
    mock.settle(&payment.reference, AMOUNT_MINOR).await;
    let output = bank.payctl(&["show", payment.id.as_str()]).await.check_failed();
    let expected = format!(
        "VIOLATED I4 (released only if the transfer can never settle): nothing is charged, but the switch reports \
         settled\nnext: payctl exceptions --payment {}; payctl ledger verify\n\npayment ",
        payment.id
    );
    assert!(output.starts_with(&expected), "{output}");

    // After the late debit the invariants hold.
    bank.success(&payment).await;
    let exception = bank.json(&["exceptions"]).await["exceptions"][0]["exception_id"].to_string();
    let propose = ["decide", "late-debit", &exception, "--reason", "it left", "--evidence", "x"];
    let proposed = bank.by("Ann", &[&propose[..], &["--json"]].concat()).await.success();
    let id = decision_id(&serde_json::from_str(&proposed).unwrap());
    bank.by("Bob", &["decide", "confirm", id.as_str(), "--reason", "so it did"]).await.success();
    let document = bank.json(&["show", payment.id.as_str()]).await;
    assert_eq!(
        (invariant_status(&document, "I3"), invariant_status(&document, "I4")),
        ("holds".into(), "holds".into()),
        "{document:#}"
    );
    mock.stop().await;
}

#[tokio::test]
async fn payctl_shows_a_debit_without_a_transfer_at_the_switch_first() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let payment = bank.settled("one").await;
    let output = bank.payctl(&["show", payment.id.as_str()]).await.check_failed();
    let expected = "VIOLATED I3 (debited only if the transfer settled): debited, but the switch does not know the transfer\n";
    assert!(output.starts_with(expected), "{output}");
    mock.stop().await;
}

#[tokio::test]
async fn payctl_show_names_the_invariant_that_a_manual_sql_change_violates() {
    let bank = Bank::open().await;
    let payment = bank.settled("one").await;
    let change = async |sql: &'static str| {
        let sql = format!("SET session_replication_role = replica; {sql}; RESET session_replication_role");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(bank.ledger.pool()).await.unwrap();
    };
    for (sql, number) in [
        ("UPDATE journal SET amount_minor = amount_minor + 1 WHERE kind = 'debit'", "I1"),
        ("UPDATE holds SET status = 'released'", "I2"),
        ("UPDATE payments SET final_status = 'void'", "I3"),
        ("DELETE FROM operations WHERE operation_key LIKE '%:debit'", "I6"),
        ("DELETE FROM submissions", "I7"),
        ("UPDATE payments SET run_id = NULL", "I8"),
        ("UPDATE holds SET status = 'open', closed_at = NULL", "I9"),
    ] {
        change(sql).await;
        let output = bank.payctl(&["show", payment.id.as_str(), "--json"]).await.check_failed();
        let document: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(invariant_status(&document, number), "violated", "{sql}");
    }
    let released = bank.released("two").await;
    change("UPDATE payments SET cause = '{\"code\":\"customer_cancel\"}' WHERE state = 'timed_out'").await;
    let output = bank.payctl(&["show", released.id.as_str()]).await.check_failed();
    assert!(output.starts_with("VIOLATED I11 "), "{output}");
    let late = bank.released("three").await;
    bank.success(&late).await;
    change("DELETE FROM exceptions").await;
    let output = bank.payctl(&["show", late.id.as_str()]).await.check_failed();
    assert!(output.starts_with("VIOLATED I5 "), "{output}");
    let open = bank.submitted("four").await;
    bank.success(&open).await;
    change("DELETE FROM inbox").await;
    let output = bank.payctl(&["show", open.id.as_str()]).await.check_failed();
    assert!(output.starts_with("VIOLATED I10 "), "{output}");
}

#[tokio::test]
async fn payctl_shows_needs_operator_with_reason_and_allowed_actions() {
    let bank = Bank::open().await;
    let payment = bank.needs_operator("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let output = bank.payctl(&["show", payment.as_str()]).await.success();
    for part in [
        "needs_operator for ",
        "; reason: not_found_is_inconclusive",
        "retry-cancel, debit, release; next: payctl decide ",
        "unavailable: the switch gave no definite answer: no connection",
        "needs an operator: not_found_is_inconclusive",
    ] {
        assert!(output.contains(part), "{part}\n{output}");
    }
    let error = bank.payctl(&["show", "pay_nobody"]).await.refused();
    assert!(error.contains("the ledger has no payment pay_nobody"), "{error}");
}

#[tokio::test]
async fn invariant_i4_holds_for_an_unsent_payment_unknown_to_the_switch() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let payment = bank.reserved("one").await;
    bank.ledger.release(&payment.id, &Cause::CustomerCancel).await.unwrap();
    let document = bank.json(&["show", payment.id.as_str()]).await;
    assert_eq!(document["switch"]["answer"], "not_found");
    assert_eq!(invariant_status(&document, "I4"), "holds");
    assert_eq!(document["payment"]["state"], "cancelled");
    mock.stop().await;
}

#[tokio::test]
async fn payctl_show_reads_a_payment_by_the_api_if_the_database_is_unreachable() {
    let timeline = vec![("accepted", "to be sent by mock"), ("reserved", "12.50 EUR held")];
    let api = ApiStub { timeline, reads: vec![ReadReply::Lines(2)], ..ApiStub::default() }.serve().await;
    let mut command = command(&["show", PAYMENT_ID, "--url", &api.url, "--key", "test-key"]);
    command.env("PAYMENTS_DATABASE__URL", "postgres://payments@127.0.0.1:1/payments");
    let result = CommandResult::of(command.output().await.unwrap());
    assert!(
        result.stderr.contains("cannot be opened")
            && result.stderr.contains("is read through the API instead"),
        "{result:?}"
    );
    assert!(result.success().contains("state         reserved\n"));
}

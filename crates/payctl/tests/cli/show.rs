//! `show`: one payment by all who know of it.

use mock_switch::Shape;
use payment_protocol::cause::{Cause, OperatorReason};
use serde_json::Value;

use crate::bank::{AMOUNT_MINOR, Bank};
use crate::mock::Mock;
use crate::run::{Ran, command};
use crate::stub::{PAYMENT_ID, Scene, Stub};

fn holds(document: &Value, number: &str) -> String {
    let all = document["invariants"].as_array().unwrap();
    let found = all.iter().find(|invariant| invariant["number"] == number).unwrap();
    found["holds"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_settled_payment_agrees_with_the_switch() {
    let mock = Mock::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let payment = bank.settled("one").await;
    mock.settle(&payment.reference, AMOUNT_MINOR).await;

    let said = bank.payctl(&["show", payment.id.as_str()]).await.done();
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        " state settled ",
        " tenant, client acme, shop ",
        " hold 12.50 EUR in DE-one: debited ",
        " its first answer settled, by callback ",
        " it says now settled: 12.50 EUR",
        " Temporal says not read: Temporal at http://127.0.0.1:1 does not answer ",
        " decisions: none ",
        " transfer sent",
    ] {
        assert!(words.contains(part), "{part}\n{said}");
    }
    assert!(!said.contains("VIOLATED"), "{said}");

    let document = bank.json(&["show", payment.id.as_str()]).await;
    assert_eq!(document["violated"], Value::Array(vec![]));
    assert_eq!(document["switch_says"]["answer"], "settled");
    assert_eq!(document["payment"]["end_to_end_id"], "invoice one");
    assert!(document["workflow"]["unread"].is_string());
    for number in 1..=11 {
        assert_eq!(holds(&document, &format!("I{number}")), "yes", "{document:#}");
    }
    let kinds: Vec<&Value> =
        document["journal"].as_array().unwrap().iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["reserve", "debit"]);
    mock.stop().await;
}

#[tokio::test]
async fn s0_7_money_given_back_that_left_is_said_first() {
    let mock = Mock::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let payment = bank.released("one").await;
    mock.settle(&payment.reference, AMOUNT_MINOR).await;
    let said = bank.payctl(&["show", payment.id.as_str()]).await.not_as_it_should_be();
    assert!(
        said.starts_with("VIOLATED I4: nothing is charged, and the switch says it settled\n\npayment "),
        "{said}"
    );

    // The correction of two people makes it right.
    bank.success(&payment).await;
    let exception = bank.json(&["exceptions"]).await["exceptions"][0]["exception_id"].to_string();
    let words = ["decide", "late-debit", &exception, "--by", "Ann", "--reason", "it left", "--evidence", "x"];
    let id = crate::bank::decision(&bank.json(&words).await);
    bank.payctl(&["decide", "confirm", id.as_str(), "--by", "Bob", "--reason", "so it did"]).await.done();
    let document = bank.json(&["show", payment.id.as_str()]).await;
    assert_eq!(
        (holds(&document, "I3"), holds(&document, "I4")),
        ("yes".into(), "yes".into()),
        "{document:#}"
    );
    mock.stop().await;
}

#[tokio::test]
async fn a_debit_that_the_switch_knows_nothing_of_is_said_first() {
    let mock = Mock::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let payment = bank.settled("one").await;
    let said = bank.payctl(&["show", payment.id.as_str()]).await.not_as_it_should_be();
    assert!(said.starts_with("VIOLATED I3: debited, and the switch knows nothing of it\n"), "{said}");
    mock.stop().await;
}

#[tokio::test]
async fn books_that_were_changed_by_hand_are_found_out() {
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
        let said = bank.payctl(&["show", payment.id.as_str(), "--json"]).await.not_as_it_should_be();
        let document: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(holds(&document, number), "no", "{sql}");
    }
    let released = bank.released("two").await;
    change("UPDATE payments SET cause = '{\"code\":\"customer_cancel\"}' WHERE state = 'timed_out'").await;
    let said = bank.payctl(&["show", released.id.as_str()]).await.not_as_it_should_be();
    assert!(said.starts_with("VIOLATED I11: "), "{said}");
    let late = bank.released("three").await;
    bank.success(&late).await;
    change("DELETE FROM exceptions").await;
    let said = bank.payctl(&["show", late.id.as_str()]).await.not_as_it_should_be();
    assert!(said.starts_with("VIOLATED I5: "), "{said}");
    let open = bank.sent("four").await;
    bank.success(&open).await;
    change("DELETE FROM inbox").await;
    let said = bank.payctl(&["show", open.id.as_str()]).await.not_as_it_should_be();
    assert!(said.starts_with("VIOLATED I10: "), "{said}");
}

#[tokio::test]
async fn what_stands_says_why_and_what_may_be_decided() {
    let bank = Bank::open().await;
    let payment = bank.standing("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let said = bank.payctl(&["show", payment.as_str()]).await.done();
    for part in [
        "needs_operator (not_found_is_inconclusive), for ",
        "retry-cancel, debit, release: payctl decide ",
        "not read: it gave no answer: no connection",
        "needs an operator: not_found_is_inconclusive",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let said = bank.payctl(&["show", "pay_nobody"]).await.refused();
    assert!(said.contains("there is no payment pay_nobody"), "{said}");
}

#[tokio::test]
async fn what_was_never_sent_holds_without_the_switch_knowing_it() {
    let mock = Mock::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let payment = bank.held("one").await;
    bank.ledger.release(&payment.id, &Cause::CustomerCancel).await.unwrap();
    let document = bank.json(&["show", payment.id.as_str()]).await;
    assert_eq!(document["switch_says"]["answer"], "not_found");
    assert_eq!(holds(&document, "I4"), "yes");
    assert_eq!(document["payment"]["state"], "cancelled");
    mock.stop().await;
}

#[tokio::test]
async fn without_the_banks_books_it_shows_what_the_api_shows() {
    let timeline = vec![("accepted", "to be sent by mock"), ("reserved", "12.50 EUR held")];
    let api = Stub { timeline, scenes: vec![Scene::Lines(2)], ..Stub::default() }.serve().await;
    let mut command = command(&["show", PAYMENT_ID, "--url", &api.url, "--key", "test-key"]);
    command.env("PAYMENTS_DATABASE__URL", "postgres://payments@127.0.0.1:1/payments");
    let ran = Ran::of(command.output().await.unwrap());
    assert!(
        ran.stderr.contains("cannot be opened") && ran.stderr.contains("showing what the API shows"),
        "{ran:?}"
    );
    assert!(ran.done().contains("state         reserved\n"));
}

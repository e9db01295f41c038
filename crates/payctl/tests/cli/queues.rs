//! `list`, `stuck` and `exceptions`.

use payment_protocol::cause::OperatorReason;

use crate::bank::Bank;
use crate::run::payctl;

#[tokio::test]
async fn payments_of_all_tenants_are_listed_and_filtered() {
    let bank = Bank::open().await;
    assert_eq!(bank.payctl(&["list"]).await.done(), "no payment is like that\n");
    let settled = bank.settled("one").await.id;
    let standing = bank.standing("two", OperatorReason::NotFoundIsInconclusive).await.id;
    let expected = format!(
        "\
payment                                state               amount   from     to             switch   reason
{standing}   needs_operator   12.50 EUR   DE-two   FR-CAROL-EUR   mock     not_found_is_inconclusive
{settled}   settled          12.50 EUR   DE-one   FR-CAROL-EUR   mock
"
    );
    assert_eq!(bank.payctl(&["list"]).await.done(), expected);
    let listed = bank.json(&["list", "--state", "settled", "--switch", "mock", "--older-than", "0s"]).await;
    assert_eq!(listed["payments"].as_array().unwrap().len(), 1);
    assert_eq!(listed["payments"][0]["payment_id"], settled.as_str());
    for nothing in [["--switch", "other"], ["--older-than", "1h"], ["--after", settled.as_str()]] {
        let listed = bank.json(&[&["list"], &nothing[..]].concat()).await;
        assert_eq!(listed["payments"].as_array().unwrap().len(), 0, "{nothing:?}");
    }
    let said = bank.payctl(&["list", "--state", "blocked"]).await.refused();
    assert!(said.contains("states are: accepted, started"), "{said}");
}

#[tokio::test]
async fn what_stands_is_shown_with_its_reason_and_what_may_be_decided() {
    let bank = Bank::open().await;
    let moving = bank.sent("moving").await.id;
    let standing = bank.standing("standing", OperatorReason::NoCancelOrQuery).await.id;
    assert_eq!(bank.payctl(&["stuck"]).await.done(), "no open payment has stood still for 5 min 0 s\n");
    let words = [
        "decide",
        standing.as_str(),
        "debit",
        "--by",
        "Ann",
        "--reason",
        "it left",
        "--evidence",
        "letter 7",
    ];
    bank.payctl(&words).await.done();

    let stuck = bank.payctl(&["stuck", "--older-than", "0s"]).await.done();
    let line = stuck.lines().find(|line| line.starts_with(standing.as_str())).unwrap();
    for part in [
        "needs_operator",
        "no_cancel_or_query",
        "debit, release",
        "settle, proposed by Ann, to be confirmed by another",
    ] {
        assert!(line.contains(part), "{part}\n{stuck}");
    }
    assert!(stuck.contains(moving.as_str()), "{stuck}");
    let stuck = bank.json(&["stuck", "--older-than", "0s"]).await;
    let entry = stuck["stuck"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["payment"]["payment_id"] == standing.as_str());
    let entry = entry.unwrap();
    assert_eq!(entry["payment"]["operator_reason"], "no_cancel_or_query");
    assert_eq!(entry["payment"]["allowed_actions"], serde_json::json!(["debit", "release"]));
    assert_eq!(entry["pending_decision"]["proposed_by"], "Ann");
    assert_eq!(entry["tenant"], "acme");
}

#[tokio::test]
async fn exceptions_are_listed_until_a_decision_closes_them() {
    let bank = Bank::open().await;
    assert_eq!(bank.payctl(&["exceptions"]).await.done(), "no open exception\n");
    let late = bank.released("late").await;
    bank.success(&late).await;
    let listed = bank.json(&["exceptions", "--payment", late.id.as_str()]).await;
    assert_eq!(listed["exceptions"][0]["kind"], "late_confirmation");
    let number = listed["exceptions"][0]["exception_id"].to_string();
    let said = bank.payctl(&["exceptions"]).await.done();
    assert!(said.starts_with("exception   kind                open for   payment "), "{said}");

    let close = ["decide", "close", &number, "--by", "Ann", "--reason", "a test of theirs"];
    let said = bank.payctl(&close).await.done();
    assert!(said.starts_with(&format!("exception {number} is closed by decision dec_")), "{said}");
    assert_eq!(bank.payctl(&close).await.done(), said);
    assert_eq!(bank.payctl(&["exceptions"]).await.done(), "no open exception\n");
    let all = bank.json(&["exceptions", "--all"]).await;
    assert!(all["exceptions"][0]["closed_by"].as_str().unwrap().starts_with("dec_"));
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    for words in [&["list"][..], &["stuck"], &["exceptions"]] {
        let nobody = ["--config", concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/demo.toml")];
        let mut command = crate::run::command(&[words, &nobody].concat());
        command.env("PAYMENTS_DATABASE__URL", "postgres://payments@127.0.0.1:1/payments");
        let output = command.output().await.unwrap();
        let said = crate::run::Ran::of(output).refused();
        assert!(said.contains("database payments at 127.0.0.1:1 cannot be opened"), "{said}");
    }
    let said = payctl(&["list", "--config", "/nowhere.toml"]).await.refused();
    assert!(said.contains("/nowhere.toml"), "{said}");
}

//! `payctl list`, `stuck` and `exceptions`.

use payment_protocol::cause::OperatorReason;

use crate::bank::Bank;
use crate::run::payctl;

#[tokio::test]
async fn payctl_lists_and_filters_payments_of_all_tenants() {
    let bank = Bank::open().await;
    assert_eq!(bank.payctl(&["list"]).await.success(), "no payment matches\n");
    let settled = bank.settled("one").await.id;
    let waiting = bank.needs_operator("two", OperatorReason::NotFoundIsInconclusive).await.id;
    let expected = format!(
        "\
payment                                state               amount   from     to             switch   reason
{waiting}   needs_operator   12.50 EUR   DE-two   FR-CAROL-EUR   mock     not_found_is_inconclusive
{settled}   settled          12.50 EUR   DE-one   FR-CAROL-EUR   mock
"
    );
    assert_eq!(bank.payctl(&["list"]).await.success(), expected);
    let listed = bank.json(&["list", "--state", "settled", "--switch", "mock", "--older-than", "0s"]).await;
    assert_eq!(listed["payments"].as_array().unwrap().len(), 1);
    assert_eq!(listed["payments"][0]["payment_id"], settled.as_str());
    for nothing in [["--switch", "other"], ["--older-than", "1h"], ["--after", settled.as_str()]] {
        let listed = bank.json(&[&["list"], &nothing[..]].concat()).await;
        assert_eq!(listed["payments"].as_array().unwrap().len(), 0, "{nothing:?}");
    }
    let output = bank.payctl(&["list", "--state", "blocked"]).await.refused();
    assert!(output.contains("the states are accepted, started"), "{output}");
}

#[tokio::test]
async fn payctl_stuck_lists_a_payment_with_reason_and_allowed_actions() {
    let bank = Bank::open().await;
    let submitted = bank.submitted("submitted").await.id;
    let waiting = bank.needs_operator("waiting", OperatorReason::NoCancelOrQuery).await.id;
    assert_eq!(bank.payctl(&["stuck"]).await.success(), "no payment is stuck for 5 min 0 s or longer\n");
    let debit = ["decide", waiting.as_str(), "debit", "--reason", "it left"];
    bank.by("Ann", &[&debit[..], &["--evidence", "letter 7"]].concat()).await.success();

    let stuck = bank.payctl(&["stuck", "--older-than", "0s"]).await.success();
    let line = stuck.lines().find(|line| line.starts_with(waiting.as_str())).unwrap();
    for part in [
        "needs_operator",
        "no_cancel_or_query",
        "debit, release",
        "debit, proposed by Ann, awaits another operator's confirmation",
    ] {
        assert!(line.contains(part), "{part}\n{stuck}");
    }
    assert!(stuck.contains(submitted.as_str()), "{stuck}");
    let stuck = bank.json(&["stuck", "--older-than", "0s"]).await;
    let entry = stuck["stuck"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["payment"]["payment_id"] == waiting.as_str());
    let entry = entry.unwrap();
    assert_eq!(entry["payment"]["operator_reason"], "no_cancel_or_query");
    assert_eq!(entry["payment"]["allowed_actions"], serde_json::json!(["debit", "release"]));
    assert_eq!(entry["pending_decision"]["proposed_by"], "Ann");
    assert_eq!(entry["tenant"], "acme");
}

#[tokio::test]
async fn payctl_lists_exceptions_until_a_decision_closes_them() {
    let bank = Bank::open().await;
    assert_eq!(bank.payctl(&["exceptions"]).await.success(), "no open exception\n");
    let late = bank.released("late").await;
    bank.success(&late).await;
    let listed = bank.json(&["exceptions", "--payment", late.id.as_str()]).await;
    assert_eq!(listed["exceptions"][0]["kind"], "late_confirmation");
    let number = listed["exceptions"][0]["exception_id"].to_string();
    for (kind, shown) in [("late_confirmation", true), ("return_differs", false), ("orphan_hold", false)] {
        let listed = bank.payctl(&["exceptions", "--kind", kind]).await.success();
        assert_eq!(listed != "no open exception\n", shown, "{kind}: {listed}");
    }
    let output = bank.payctl(&["exceptions"]).await.success();
    assert!(output.starts_with("exception   kind                open for   payment "), "{output}");

    assert!(output.contains("\nnext: payctl show PAYMENT; the kind says what to decide"), "{output}");

    let propose =
        ["decide", "late-debit", &number, "--reason", "it settled", "--evidence", "a letter", "--json"];
    let proposed: serde_json::Value =
        serde_json::from_str(&bank.by("Ann", &propose).await.success()).unwrap();
    let decision = proposed["decision_id"].as_str().unwrap();
    let output = bank.payctl(&["exceptions"]).await.success();
    assert!(output.contains(&format!("{decision}, awaits another operator's confirmation")), "{output}");
    bank.by("Ann", &["decide", "withdraw", decision, "--reason", "a mistake"]).await.success();

    let close = ["decide", "close", &number, "--reason", "a test of theirs"];
    let output = bank.by("Ann", &close).await.success();
    assert!(output.starts_with(&format!("exception {number} closed by decision dec_")), "{output}");
    assert_eq!(bank.by("Ann", &close).await.success(), output);
    assert_eq!(bank.payctl(&["exceptions"]).await.success(), "no open exception\n");
    let all = bank.json(&["exceptions", "--all"]).await;
    assert!(all["exceptions"][0]["closed_by"].as_str().unwrap().starts_with("dec_"));
}

#[tokio::test]
async fn payctl_queue_commands_name_an_unreachable_database() {
    for args in [&["list"][..], &["stuck"], &["exceptions"]] {
        let config = ["--config", concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/demo.toml")];
        let mut command = crate::run::command(&[args, &config].concat());
        command.env("PAYMENTS_DATABASE__URL", "postgres://payments@127.0.0.1:1/payments");
        let output = command.output().await.unwrap();
        let error = crate::run::CommandResult::of(output).refused();
        assert!(error.contains("database payments at 127.0.0.1:1 cannot be opened"), "{error}");
        assert!(error.contains("Connection refused"), "{error}");
    }
    let output = payctl(&["list", "--config", "/nowhere.toml"]).await.refused();
    assert!(output.contains("/nowhere.toml"), "{output}");
}

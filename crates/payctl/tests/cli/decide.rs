//! `decide`: two people, what comes of it, and what is refused.

use mock_switch::Shape;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::DecisionOutcome;

use crate::bank::{AMOUNT_MINOR, Bank, decision};
use crate::mock::Mock;
use crate::run::Ran;

const WHY: [&str; 2] = ["--reason", "as the letter says"];

async fn decide(bank: &Bank, words: &[&str], by: &str, more: &[&str]) -> Ran {
    bank.payctl(&[&["decide"], words, &["--by", by], &WHY, more].concat()).await
}

#[tokio::test]
async fn s0_8_money_moves_when_another_person_confirms() {
    let bank = Bank::open().await;
    let payment = bank.standing("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let settle = [payment.as_str(), "debit"];
    let said = decide(&bank, &settle, "Ann", &[]).await.refused();
    assert!(said.contains("nothing was decided: debit needs evidence"), "{said}");
    let said = decide(&bank, &settle, "Ann", &["--evidence", "letter 7"]).await.done();
    assert!(
        said.contains("settle, proposed by Ann\nanother person confirms it: payctl decide confirm dec_"),
        "{said}"
    );
    let again = decide(&bank, &settle, "Ann", &["--evidence", "letter 7", "--json"]).await.done();
    let id = decision(&serde_json::from_str(&again).unwrap());
    assert!(said.contains(id.as_str()), "{said}");

    let confirm = ["confirm", id.as_str()];
    let said = decide(&bank, &confirm, " ann ", &[]).await.refused();
    assert!(said.contains("another person must confirm"), "{said}");

    // The test carries it out, as the worker would.
    let words = [&["decide"], &confirm[..], &["--by", "Bob"], &WHY, &["--wait", "30"]].concat();
    let mut command = bank.command(&words);
    let confirming = command.output();
    let worker = async {
        bank.confirmed(&id).await;
        bank.ledger.debit_by_decision(&payment, &id).await.unwrap();
    };
    let (output, ()) = tokio::join!(confirming, worker);
    let said = Ran::of(output.unwrap()).done();
    assert_eq!(said, format!("decision {id} is confirmed\nsettled, as money that left: 12.50 EUR debited\n"));
    assert_eq!(bank.available("one").await, 8_750);

    let show = bank.payctl(&["show", payment.as_str()]).await.done();
    assert!(show.contains("Ann: as the letter says; evidence: letter 7"), "{show}");
    assert!(show.contains("settled, as money that left: 12.50 EUR debited"), "{show}");
}

#[tokio::test]
async fn a_confirmed_decision_without_a_workflow_stays_on_record() {
    let bank = Bank::open().await;
    let payment = bank.standing("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let release = [payment.as_str(), "release"];
    let proposed = decide(&bank, &release, "Ann", &["--evidence", "statement of May", "--json"]).await.done();
    let id = decision(&serde_json::from_str(&proposed).unwrap());
    let ran = decide(&bank, &["confirm", id.as_str()], "Bob", &["--wait", "2"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("the workflow was not reached: "), "{ran:?}");
    assert!(ran.stdout.contains("stays on record and is delivered until it is"), "{ran:?}");
    let stuck = bank.payctl(&["stuck", "--older-than", "0s"]).await.done();
    assert!(stuck.contains(&format!("{id}: release, being carried out")), "{stuck}");
    let said = decide(&bank, &["withdraw", id.as_str()], "Ann", &[]).await.refused();
    assert!(said.contains("it can not be withdrawn"), "{said}");
}

#[tokio::test]
async fn a_decision_that_the_switch_contradicts_is_exit_code_1() {
    let bank = Bank::open().await;
    let payment = bank.standing("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let words = [
        "decide",
        payment.as_str(),
        "retry-cancel",
        "--by",
        "Ann",
        "--reason",
        "try",
        "--wait",
        "30",
        "--json",
    ];
    let mut command = bank.command(&words);
    let asking = command.output();
    let worker = async {
        let id = testkit::wait::until("the decision", std::time::Duration::from_secs(20), || async {
            Ok(bank.ledger.decisions(&payment).await?.pop())
        });
        let id = id.await.unwrap().decision_id;
        let refused = DecisionOutcome::Refused { detail: "the switch says it settled".into() };
        bank.ledger.close_decision(&id, &refused, "the switch says it settled").await.unwrap();
    };
    let (output, ()) = tokio::join!(asking, worker);
    let said = Ran::of(output.unwrap()).not_as_it_should_be();
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["decision"]["status"], "refused");
    assert_eq!(document["decision"]["outcome"]["Refused"]["detail"], "the switch says it settled");
}

#[tokio::test]
async fn a_proposal_can_be_withdrawn() {
    let bank = Bank::open().await;
    let payment = bank.standing("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let release = [payment.as_str(), "release"];
    let proposed = decide(&bank, &release, "Ann", &["--evidence", "x", "--json"]).await.done();
    let id = decision(&serde_json::from_str(&proposed).unwrap());
    let said = decide(&bank, &["withdraw", id.as_str()], "Carl", &[]).await.done();
    assert_eq!(said, format!("decision {id} is withdrawn\n"));
    let said = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.refused();
    assert!(said.contains("the decision is withdrawn"), "{said}");
}

#[tokio::test]
async fn a_late_debit_is_booked_by_two_people() {
    let mock = Mock::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let late = bank.released("late").await;
    bank.success(&late).await;
    let number = bank.json(&["exceptions"]).await["exceptions"][0]["exception_id"].to_string();
    let said = decide(&bank, &["write-off", &number], "Ann", &[]).await.refused();
    assert!(said.contains("nothing to write off"), "{said}");
    let said = decide(&bank, &["late-debit", &number], "Ann", &[]).await.refused();
    assert!(said.contains("late_debit needs evidence"), "{said}");
    let evidence = ["--evidence", "statement 7, line 3", "--json"];
    let proposed = decide(&bank, &["late-debit", &number], "Ann", &evidence).await.done();
    let id = decision(&serde_json::from_str(&proposed).unwrap());
    assert_eq!(bank.available("late").await, 10_000);
    for same in ["Ann.", " ANN ", "a n n"] {
        let said = decide(&bank, &["confirm", id.as_str()], same, &[]).await.refused();
        assert!(said.contains("another person must confirm"), "{said}");
    }
    mock.settle(&late.reference, AMOUNT_MINOR).await;
    let said = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.done();
    assert!(said.starts_with(&format!("decision {id} is confirmed and booked: ")), "{said}");
    assert_eq!(bank.available("late").await, 8_750);
    // Said again, it is booked once.
    assert_eq!(decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.done(), said);
    assert_eq!(bank.available("late").await, 8_750);
    mock.stop().await;
}

/// A correction asks the switch first, like every decision that moves money.
#[tokio::test]
async fn a_correction_that_the_switch_contradicts_is_refused() {
    let mock = Mock::start(Shape::default(), 3_600_000).await;
    let bank = Bank::with_switch(&mock.url).await;
    let settled = bank.settled("one").await;
    mock.settle(&settled.reference, AMOUNT_MINOR).await;
    bank.failure(&settled).await;
    let number = bank.json(&["exceptions"]).await["exceptions"][0]["exception_id"].to_string();
    let evidence = ["--evidence", "the customer says so", "--json"];
    let proposed = decide(&bank, &["return-credit", &number], "Ann", &evidence).await.done();
    let id = decision(&serde_json::from_str(&proposed).unwrap());
    let before = bank.available("one").await;
    let said = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.refused();
    assert!(said.contains("nothing was decided: the switch says it is settled"), "{said}");
    assert_eq!(bank.available("one").await, before);
    // And where it does not answer, nothing is decided either.
    mock.stop().await;
    let said = decide(&bank, &["confirm", id.as_str()], "Bob", &[]).await.refused();
    assert!(said.contains("the switch must be asked first"), "{said}");
    assert_eq!(bank.available("one").await, before);
}

/// What nobody sees, or nobody reads, is not written.
#[tokio::test]
async fn names_and_reasons_are_what_they_look_like() {
    let bank = Bank::open().await;
    let payment = bank.standing("one", OperatorReason::NotFoundIsInconclusive).await.id;
    let release = [payment.as_str(), "release"];
    let long = "a".repeat(70_000);
    for by in ["ann\u{200B}", "\u{0430}nn", "...", &long] {
        let said = decide(&bank, &release, by, &["--evidence", "x"]).await.refused();
        assert!(said.contains("a name is 1 to 64 letters"), "{said}");
    }
    for evidence in ["of \u{202E}ylrae", &long] {
        let said = decide(&bank, &release, "Ann", &["--evidence", evidence]).await.refused();
        assert!(said.contains("the evidence"), "{said}");
    }
}

#[tokio::test]
async fn what_does_not_stand_or_is_not_there_is_refused() {
    let bank = Bank::open().await;
    let moving = bank.sent("moving").await.id;
    for (words, refusal) in [
        ([moving.as_str(), "retry-cancel"], "the payment is submitted and does not need an operator"),
        (["pay_nobody", "retry-cancel"], "there is no payment pay_nobody"),
        (["confirm", "dec_nobody"], "there is no decision dec_nobody"),
        (["close", "99"], "there is no exception 99"),
    ] {
        let said = decide(&bank, &words, "Ann", &[]).await.refused();
        assert!(said.contains(refusal), "{refusal}: {said}");
    }
}

//! `switch list` and `switch probe`.

use mock_switch::Shape;
use serde_json::Value;

use crate::liar::{Lie, serve};
use crate::mock::Mock;
use crate::run::{Ran, command};

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/demo.toml");

async fn switch(args: &[&str], settings: &[(&str, &str)]) -> Ran {
    let mut command = command(&[&["switch"], args, &["--config", CONFIG]].concat());
    Ran::of(command.envs(settings.iter().copied()).output().await.unwrap())
}

async fn probe(url: &str, more: &[&str]) -> Ran {
    switch(&[&["probe", "mock"], more].concat(), &[("PAYMENTS_SWITCHES__MOCK__BASE_URL", url)]).await
}

/// The finding of each ability, as `word: measured`.
fn measured(document: &Value) -> Vec<String> {
    let findings = document["findings"].as_array().unwrap().iter();
    let word = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    findings.map(|finding| format!("{}: {}", word(finding, "ability"), word(finding, "measured"))).collect()
}

fn document(said: &str) -> Value {
    serde_json::from_str(said).unwrap()
}

#[tokio::test]
async fn the_configured_switches_are_listed() {
    let listed = switch(&["list"], &[]).await.done();
    let mock = listed.lines().find(|line| line.starts_with("mock ")).unwrap();
    assert!(mock.contains("   query      query dedup tombstone deadline cancel recall "), "{listed}");
    assert!(mock.contains("http://127.0.0.1:8090   safe"), "{listed}");
    assert!(!switch(&["list", "--json"], &[]).await.done().contains("demo-switch-token"));
}

#[tokio::test]
async fn s0_11_a_refused_profile_is_shown_with_the_nearest_safe_one() {
    let no_query = [("PAYMENTS_SWITCHES__MOCK__PROFILE__HAS_QUERY", "false")];
    let listed = switch(&["list"], &no_query).await.not_as_it_should_be();
    assert!(listed.contains("mock is refused: strategy query needs has_query = true"), "{listed}");
    assert!(listed.contains("\nnearest safe profile: strategy = \"reference\"\n"), "{listed}");
    let listed = document(&switch(&["list", "--json"], &no_query).await.not_as_it_should_be());
    let mock = &listed["switches"].as_array().unwrap().iter().find(|one| one["name"] == "mock").unwrap();
    assert_eq!((&mock["safe"], &mock["changes"][0]), (&false.into(), &"strategy = \"reference\"".into()));
}

#[tokio::test]
async fn a_probe_finds_what_the_switch_can_and_leaves_nothing_under_way() {
    let mock = Mock::start(Shape::default(), 3_600_000).await;
    let found = document(&probe(&mock.url, &["--json"]).await.done());
    let expected =
        ["references: yes", "query: yes", "dedup: yes", "tombstone: yes", "deadline: yes", "cancel: yes"];
    assert_eq!(measured(&found)[..6], expected.map(String::from));
    assert_eq!(found["judged"]["changes"], Value::Array(vec![]));
    assert_eq!(found["clock"]["has_date"], true);

    let left = found["left"].as_array().unwrap();
    assert!(left.iter().all(|left| left["may_leave"] == false), "{left:?}");
    let book = mock.book().await.to_string();
    assert!(!book.contains("PENDING") && !book.contains("SETTLED") && book.contains("CANCELLED"), "{book}");
    mock.stop().await;
}

#[tokio::test]
async fn what_the_switch_cannot_is_named_beside_what_is_configured() {
    let shape = Shape { query: false, dedup: false, tombstone: false, deadline: false, ..Shape::default() };
    let mock = Mock::start(shape, 3_600_000).await;
    let said = probe(&mock.url, &[]).await.not_as_it_should_be();
    for line in [
        "query        no            has_query = true: DIFFERS ",
        "dedup        no            deduplicates = true: DIFFERS ",
        "tombstone    no            tombstones = true: DIFFERS ",
        "deadline     no            honours_deadline = true: DIFFERS ",
        "query          not safe   configured   strategy query needs has_query = true",
        "at_most_once   safe ",
        "nearest safe profile: has_query = false, deduplicates = false, tombstones = false, honours_deadline = false, \
         strategy = \"at_most_once\"",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    // Everything that came in was cancelled again: also the second transfer of the repeat.
    let book = mock.book().await.to_string();
    assert!(!book.contains("PENDING"), "{book}");
    mock.stop().await;
}

#[tokio::test]
async fn a_recall_shows_with_a_transfer_that_settled() {
    let mock = Mock::start(Shape::default(), 300).await;
    let found = document(&probe(&mock.url, &["--json", "--let-one-settle"]).await.done());
    assert!(measured(&found).contains(&"recall: yes".into()), "{found}");
    assert!(!mock.book().await.to_string().contains("\"SETTLED\""));
    mock.stop().await;

    let mock = Mock::start(Shape { cancel: false, recall: false, ..Shape::default() }, 3_600_000).await;
    let found = document(&probe(&mock.url, &["--json"]).await.not_as_it_should_be());
    assert!(measured(&found).contains(&"recall: no".into()), "{found}");
    assert!(measured(&found).contains(&"cancel: no".into()), "{found}");
    let stands = found["left"][0]["stands"].as_str().unwrap();
    assert_eq!(stands, "not cancelled: 200 CANNOT_CANCEL");
    assert_eq!(found["left"][0]["may_leave"], true);
    mock.stop().await;
}

#[tokio::test]
async fn a_switch_that_lies_is_found_out() {
    let found = |said: Ran| document(&said.not_as_it_should_be());
    let twice = found(probe(&serve(Lie::TwiceAllTheSame).await, &["--json"]).await);
    assert_eq!(twice["findings"][2]["detail"], "the listing has two transfers");
    assert_eq!(twice["findings"][2]["measured"], "no");
    let cancelled = found(probe(&serve(Lie::NotReallyCancelled).await, &["--json"]).await);
    assert_eq!(cancelled["findings"][5]["detail"], "200 CANCELLED, and then 200 PENDING");
    assert_eq!(cancelled["findings"][5]["measured"], "no");
}

#[tokio::test]
async fn s1_8_a_switch_without_references_is_probed_by_its_own_ids() {
    let found = document(&probe(&serve(Lie::Keyless).await, &["--json"]).await.not_as_it_should_be());
    let expected = ["references: no", "query: no", "dedup: no", "tombstone: no"];
    assert_eq!(measured(&found)[..4], expected.map(String::from));
    assert_eq!(measured(&found)[5], "cancel: yes");
    let safe: Vec<&Value> = found["judged"]["strategies"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|judged| judged["safe"] == true)
        .map(|judged| &judged["strategy"])
        .collect();
    assert_eq!(safe, ["at_most_once", "validate"]);
    assert_eq!(found["left"][0]["transfer_id"], "1, 2");
    assert_eq!(found["left"][0]["stands"], "cancelled");
}

#[tokio::test]
async fn no_answer_is_not_taken_for_no() {
    let said = probe(&serve(Lie::NoAnswer).await, &["--json"]).await;
    assert_eq!(said.code, Some(3), "{said:?}");
    let found = document(&said.stdout);
    assert_eq!(
        measured(&found)[..3],
        ["references: unknown", "query: unknown", "dedup: unknown"].map(String::from)
    );
    assert_eq!(found["judged"]["differences"], Value::Array(vec![]));
    assert_eq!(found["left"][0]["stands"], "cancelled");
}

#[tokio::test]
async fn a_probe_that_is_not_wanted_sends_nothing() {
    let said = probe("https://switch.example", &[]).await.refused();
    assert!(said.contains("is not on this machine") && said.contains("say --yes"), "{said}");
    let said = probe("http://127.0.0.1:1", &[]).await.refused();
    assert!(said.contains("the switch does not answer: no connection"), "{said}");
    let said = switch(&["probe", "nobody"], &[]).await.refused();
    assert!(said.contains("no switch nobody is configured; there are: "), "{said}");
}

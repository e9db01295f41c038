//! `payctl switch list` and `payctl switch probe`.

use ::mock_switch::{Rail, Shape};
use futures::future::join_all;
use serde_json::Value;

use crate::bank::Bank;
use crate::faulty_switch::{Fault, serve};
use crate::mock_switch::MockSwitch;
use crate::run::{CommandResult, command};

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/demo.toml");

async fn switch(args: &[&str], settings: &[(&str, &str)]) -> CommandResult {
    let mut command = command(&[&["switch"], args, &["--config", CONFIG]].concat());
    CommandResult::of(command.envs(settings.iter().copied()).output().await.unwrap())
}

async fn probe(url: &str, options: &[&str]) -> CommandResult {
    switch(&[&["probe", "mock"], options].concat(), &[("PAYMENTS_SWITCHES__MOCK__BASE_URL", url)]).await
}

/// Each finding as `capability: measured`.
fn measured(document: &Value) -> Vec<String> {
    let findings = document["findings"].as_array().unwrap().iter();
    let word = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    findings
        .map(|finding| format!("{}: {}", word(finding, "capability"), word(finding, "measured")))
        .collect()
}

fn parse(output: &str) -> Value {
    serde_json::from_str(output).unwrap()
}

#[tokio::test]
async fn payctl_lists_configured_switches_without_their_tokens() {
    let listed = switch(&["list"], &[]).await.success();
    let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap();
    let (mock, sepa) = (line("mock "), line("sepa "));
    assert!(mock.contains("   query          query dedup tombstone deadline cancel recall "), "{listed}");
    assert!(mock.contains("http://127.0.0.1:8090   safe"), "{listed}");
    assert!(sepa.contains("   at_most_once   query deadline recall statement callback "), "{listed}");
    let json = switch(&["list", "--json"], &[]).await.success();
    assert!(!json.contains("demo-switch-token") && !json.contains("demo-sepa-token"));
}

#[tokio::test]
async fn s0_11_payctl_lists_an_unsafe_profile_with_the_nearest_safe_one() {
    let no_query = [("PAYMENTS_SWITCHES__MOCK__PROFILE__HAS_QUERY", "false")];
    let listed = switch(&["list"], &no_query).await.check_failed();
    let expected = "switch mock has an unsafe profile: strategy query needs has_query = true";
    assert!(listed.contains(expected), "{listed}");
    assert!(listed.contains("\nnearest safe profile: strategy = \"reference\"\n"), "{listed}");
    let listed = parse(&switch(&["list", "--json"], &no_query).await.check_failed());
    let mock = &listed["switches"].as_array().unwrap().iter().find(|one| one["name"] == "mock").unwrap();
    assert_eq!((&mock["safe"], &mock["changes"][0]), (&false.into(), &"strategy = \"reference\"".into()));
}

#[tokio::test]
async fn a_payctl_probe_measures_each_capability_and_cancels_its_transfers() {
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let document = parse(&probe(&mock.url, &["--json"]).await.success());
    let expected =
        ["references: yes", "query: yes", "dedup: yes", "tombstone: yes", "deadline: yes", "cancel: yes"];
    assert_eq!(measured(&document)[..6], expected.map(String::from));
    assert_eq!(document["assessment"]["changes"], Value::Array(vec![]));
    assert_eq!(document["clock"]["has_date"], true);

    let transfers = document["transfers"].as_array().unwrap();
    assert!(transfers.iter().all(|transfer| transfer["may_settle"] == false), "{transfers:?}");
    let book = mock.book().await.to_string();
    assert!(!book.contains("PENDING") && !book.contains("SETTLED") && book.contains("CANCELLED"), "{book}");
    mock.stop().await;
}

#[tokio::test]
async fn a_payctl_probe_shows_a_missing_switch_capability_beside_its_setting() {
    let shape = Shape { query: false, dedup: false, tombstone: false, deadline: false, ..Shape::default() };
    let mock = MockSwitch::start(shape, 3_600_000).await;
    let output = probe(&mock.url, &[]).await.check_failed();
    for line in [
        "query        no         has_query = true: DIFFERS ",
        "dedup        no         deduplicates = true: DIFFERS ",
        "tombstone    no         tombstones = true: DIFFERS ",
        "deadline     no         honours_deadline = true: DIFFERS ",
        "query          unsafe       configured   strategy query needs has_query = true",
        "at_most_once   safe ",
        "nearest safe profile: has_query = false, deduplicates = false, tombstones = false, honours_deadline = false, \
         strategy = \"at_most_once\"",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    // The probe cancelled every transfer, including the second transfer of the repeat.
    let book = mock.book().await.to_string();
    assert!(!book.contains("PENDING"), "{book}");
    mock.stop().await;
}

#[tokio::test]
async fn a_payctl_probe_measures_recalls_with_a_settled_transfer() {
    let mock = MockSwitch::start(Shape::default(), 300).await;
    let document = parse(&probe(&mock.url, &["--json", "--let-one-settle"]).await.success());
    assert!(measured(&document).contains(&"recall: yes".into()), "{document}");
    assert!(!mock.book().await.to_string().contains("\"SETTLED\""));
    mock.stop().await;

    // The receiving bank answers later, and a second recall would be refused: the money is not back.
    let mock =
        MockSwitch::start(Shape { recall_takes_time: true, one_recall: true, ..Shape::default() }, 300).await;
    let document = parse(&probe(&mock.url, &["--json", "--let-one-settle"]).await.check_failed());
    assert!(measured(&document).contains(&"recall: yes".into()), "{document}");
    assert!(document.to_string().contains("settled; the recall is answered later"), "{document}");
    mock.stop().await;

    let shape = Shape { cancel: false, recall: false, ..Shape::default() };
    let mock = MockSwitch::start(shape, 3_600_000).await;
    let document = parse(&probe(&mock.url, &["--json"]).await.check_failed());
    assert!(measured(&document).contains(&"recall: no".into()), "{document}");
    assert!(measured(&document).contains(&"cancel: no".into()), "{document}");
    let status = document["transfers"][0]["status"].as_str().unwrap();
    assert_eq!(status, "not cancelled: 200 CANNOT_CANCEL");
    assert_eq!(document["transfers"][0]["may_settle"], true);
    mock.stop().await;
}

#[tokio::test]
async fn a_payctl_probe_detects_replies_that_contradict_switch_behaviour() {
    let check_failed = |result: CommandResult| parse(&result.check_failed());
    let duplicate = check_failed(probe(&serve(Fault::DuplicateTransfer).await, &["--json"]).await);
    assert_eq!(duplicate["findings"][2]["evidence"], "the listing has two transfers");
    assert_eq!(duplicate["findings"][2]["measured"], "no");
    let cancelled = check_failed(probe(&serve(Fault::CancelWithoutEffect).await, &["--json"]).await);
    assert_eq!(cancelled["findings"][5]["evidence"], "200 CANCELLED, then 200 PENDING");
    assert_eq!(cancelled["findings"][5]["measured"], "no");
}

#[tokio::test]
async fn s1_8_payctl_probes_a_switch_without_references_by_transfer_ids() {
    let document = parse(&probe(&serve(Fault::NoReferences).await, &["--json"]).await.check_failed());
    let expected = ["references: no", "query: no", "dedup: no", "tombstone: no"];
    assert_eq!(measured(&document)[..4], expected.map(String::from));
    assert_eq!(measured(&document)[5], "cancel: yes");
    let safe: Vec<&Value> = document["assessment"]["strategies"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|assessed| assessed["safe"] == true)
        .map(|assessed| &assessed["strategy"])
        .collect();
    assert_eq!(safe, ["at_most_once", "validate"]);
    assert_eq!(document["transfers"][0]["transfer_id"], "1, 2");
    assert_eq!(document["transfers"][0]["status"], "cancelled");
}

#[tokio::test]
async fn a_payctl_probe_without_a_reply_leaves_the_capability_unknown() {
    let result = probe(&serve(Fault::SubmitUnavailable).await, &["--json"]).await;
    assert_eq!(result.code, Some(3), "{result:?}");
    let document = parse(&result.stdout);
    assert_eq!(
        measured(&document)[..3],
        ["references: unknown", "query: unknown", "dedup: unknown"].map(String::from)
    );
    assert_eq!(document["assessment"]["differences"], Value::Array(vec![]));
    assert_eq!(document["transfers"][0]["status"], "cancelled");
}

#[tokio::test]
async fn payctl_does_not_probe_an_unconfirmed_unreachable_or_unknown_switch() {
    let error = probe("https://switch.example", &[]).await.refused();
    assert!(error.contains("is not on this machine") && error.contains("add --yes"), "{error}");
    let no_cancel = [
        ("PAYMENTS_SWITCHES__MOCK__BASE_URL", "http://127.0.0.1:1"),
        ("PAYMENTS_SWITCHES__MOCK__PROFILE__CAN_CANCEL", "false"),
    ];
    let error = switch(&["probe", "mock"], &no_cancel).await.refused();
    for part in [
        "nothing was sent: switch mock at http://127.0.0.1:1 has no cancel",
        "up to five transfers of 0.01 EUR to PAYCTL-PROBE; without a cancel each settles",
        "callback_for_unknown_payment and transfer_without_payment",
        "to send them, add --yes",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = switch(&["probe", "mock", "--yes"], &no_cancel).await.refused();
    assert!(error.starts_with("payctl: the probe sends up to five transfers"), "{error}");
    let error = probe("http://127.0.0.1:1", &[]).await.refused();
    assert!(error.contains("the switch did not answer the probe's first request: no connection"), "{error}");
    let error = switch(&["probe", "nobody"], &[]).await.refused();
    assert!(error.contains("switch nobody is not configured; configured: "), "{error}");
}

#[tokio::test]
async fn payctl_trigger_refuses_a_switch_that_is_not_a_mock_switch_of_this_machine() {
    let bank = Bank::with_switch("http://switch.example:8090").await;
    let refused = bank.payctl(&["trigger", "path-a"]).await.refused();
    assert!(
        refused.contains("nothing was triggered: switch mock at http://switch.example:8090/"),
        "{refused}"
    );
    assert!(refused.contains("is not on this machine"), "{refused}");
    let refused = bank.payctl(&["trigger", "path-x"]).await.refused();
    assert!(
        refused.contains("there is no case path-x; payctl trigger without a name lists them"),
        "{refused}"
    );
}

#[tokio::test]
async fn payctl_trigger_refuses_a_case_that_the_destinations_switch_cannot_show() {
    let trigger = async |case: &str, destination: &str| {
        let mut command = command(&["trigger", case, "--to", destination, "--config", CONFIG]);
        CommandResult::of(command.output().await.unwrap()).refused()
    };
    let refused = trigger("sla-expires", "AT-ERIN-EUR").await;
    let expected = "nothing was triggered: the case sla-expires needs a cancel at the switch, which the profile of switch sepa excludes; \
                    start ./dev up without --rail and --strategy, or pay an account of another switch that can show it (--to)";
    assert!(refused.contains(expected), "{refused}");
    let refused = trigger("unavailable-twice", "AT-ERIN-EUR").await;
    assert!(refused.contains("needs a second submit attempt"), "{refused}");
}

#[tokio::test]
async fn a_payctl_probe_recognises_the_rail_whose_shape_a_switch_has() {
    let rails = [
        (Rail::SctInst, "sct_inst", "DEMODEFF"),
        (Rail::FedNow, "fednow", "DEMO00001"),
        (Rail::Rtp, "rtp", "DEMO0000001"),
        (Rail::Upi, "upi", "DEM"),
        (Rail::Pix, "pix", "00000001"),
    ];
    // At the same time, because a probe waits for the first query that the rail answers.
    let probed = rails.map(|(rail, name, participant)| async move {
        let mock = MockSwitch::start(rail.shape(), 3_600_000).await;
        // But for its ids, the demo's profile is no rail's, so the check fails.
        let settings = [
            ("PAYMENTS_SWITCHES__MOCK__BASE_URL", mock.url.as_str()),
            ("PAYMENTS_SWITCHES__MOCK__PROFILE__ID_SCHEME", name),
            // Quoted: an ISPB is a text of digits.
            ("PAYMENTS_SWITCHES__MOCK__PROFILE__PARTICIPANT", &format!("\"{participant}\"")),
        ];
        let document = parse(&switch(&["probe", "mock", "--json"], &settings).await.check_failed());
        mock.stop().await;
        (name, document["rails"].clone(), document["traits"].clone())
    });
    for (name, found, traits) in join_all(probed).await {
        assert_eq!(found, serde_json::json!([name]), "{traits}");
    }
    let mock = MockSwitch::start(Shape::default(), 3_600_000).await;
    let output = probe(&mock.url, &[]).await.success();
    assert!(output.contains("the switch behaves like no shipped rail"), "{output}");
    mock.stop().await;
}

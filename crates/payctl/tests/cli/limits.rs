//! `payctl limits` and `payctl kill-switch`.

use serde_json::Value;

use crate::run::payctl;
use crate::scratch_database::ScratchDatabase;

#[tokio::test]
async fn payctl_sets_lists_and_removes_a_payment_limit() {
    let scratch = ScratchDatabase::migrated().await;
    let limits =
        async |args: &[&str]| payctl(&[&["limits"], args, &["--database-url", scratch.url()]].concat()).await;
    let operator = ["--by", "ann", "--reason", "a new customer"];
    assert_eq!(limits(&["list"]).await.success(), "no limit is set\n");
    let set = ["set", "--account", "BH-OMAR", "--currency", "BHD"];
    let bounds = ["--per-payment", "1.5", "--per-day", "2", "--per-day-count", "3"];
    let output = limits(&[&set[..], &bounds[..], &operator[..]].concat()).await.success();
    assert_eq!(output, "limit of account BH-OMAR in BHD set\n");
    let output = limits(&["list"]).await.success();
    let row = "account BH-OMAR     1.500 BHD   2.000 BHD                  3   0.000 BHD in 0   ann      a new customer";
    assert!(output.contains(row), "{output}");
    let output = limits(&["list", "--json"]).await.success();
    let document: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(document["limits"][0]["per_payment_minor"], 1_500);
    let output = limits(&[&set[..], &operator[..]].concat()).await.success();
    assert_eq!(output, "limit of account BH-OMAR in BHD removed\n");
    assert_eq!(limits(&["list"]).await.success(), "no limit is set\n");

    for (wrong, expected) in [
        (vec!["--per-payment", "1.2345"], "BHD has 3 decimals"),
        (vec!["--per-day", "9999999999999999999"], "amount"),
        (vec!["--tenant", "acme"], "cannot be used with"),
    ] {
        let error = limits(&[&set[..], &wrong[..], &operator[..]].concat()).await.refused();
        assert!(error.contains(expected), "{wrong:?}: {error}");
    }
    for (by, reason, expected) in [
        (" ", "x", "the operator's name is missing"),
        ("ann\u{200b}", "x", "use 1 to 64 ASCII letters"),
        ("ann", " ", "the reason is missing"),
        ("ann", "a\u{202e}b", "invisible characters"),
    ] {
        let error = limits(&[&set[..], &["--by", by, "--reason", reason]].concat()).await.refused();
        assert!(error.contains(expected), "{by:?} {reason:?}: {error}");
    }
}

#[tokio::test]
async fn payctl_activates_lists_and_lifts_a_kill_switch() {
    let scratch = ScratchDatabase::migrated().await;
    let kill_switch = async |args: &[&str]| {
        payctl(&[&["kill-switch"], args, &["--database-url", scratch.url()]].concat()).await
    };
    let operator = ["--by", "ann", "--reason", "double payments"];
    assert_eq!(kill_switch(&["list"]).await.success(), "no active kill switch\n");
    let stop = [&["stop", "--switch", "mock"][..], &operator].concat();
    let next = "to lift it: payctl kill-switch lift 1 --by NAME --reason TEXT\n";
    assert_eq!(
        kill_switch(&stop).await.success(),
        format!("kill switch 1 activated: new payments of switch mock are refused\n{next}")
    );
    assert!(kill_switch(&stop).await.success().starts_with("kill switch 1 was active before: "));
    let corridor = [&["stop", "--currency", "EUR", "--prefix", "FR"][..], &operator].concat();
    kill_switch(&corridor).await.success();
    let output = kill_switch(&["list"]).await.success();
    assert!(
        output.contains("switch mock   ann            double payments") && output.contains("EUR to FR*"),
        "{output}"
    );

    let lift = ["lift", "1", "--by", "bob", "--reason", "repaired"];
    assert_eq!(kill_switch(&lift).await.success(), "kill switch 1 lifted\n");
    let error = kill_switch(&lift).await.refused();
    assert!(error.contains("kill switch 1 is not active"), "{error}");
    assert!(!kill_switch(&["list"]).await.success().contains("mock"));
    let output = kill_switch(&["list", "--all"]).await.success();
    assert!(output.contains("by bob: repaired"), "{output}");
    for wrong in
        [&["stop"][..], &["stop", "--currency", "EUR"], &["stop", "--switch", "mock", "--prefix", "FR"]]
    {
        kill_switch(&[wrong, &operator].concat()).await.refused();
    }
}

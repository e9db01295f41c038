//! `payctl limits` and `payctl kill-switch`: what the bank's people set, with their names and reasons.

use serde_json::Value;

use crate::run::payctl;
use crate::scratch::Scratch;

#[tokio::test]
async fn a_limit_is_set_listed_and_taken_away() {
    let scratch = Scratch::migrated().await;
    let limits =
        async |args: &[&str]| payctl(&[&["limits"], args, &["--database-url", scratch.url()]].concat()).await;
    let words = ["--by", "ann", "--reason", "a new customer"];
    assert_eq!(limits(&["list"]).await.done(), "no limit\n");
    let of = ["set", "--account", "BH-OMAR", "--currency", "BHD"];
    let bounds = ["--per-payment", "1.5", "--per-day", "2", "--per-day-count", "3"];
    assert_eq!(limits(&[&of[..], &bounds[..], &words[..]].concat()).await.done(), "limit set\n");
    let said = limits(&["list"]).await.done();
    let row = "account BH-OMAR     1.500 BHD   2.000 BHD                  3   0.000 BHD in 0   ann      a new customer";
    assert!(said.contains(row), "{said}");
    let said = limits(&["list", "--json"]).await.done();
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["limits"][0]["per_payment_minor"], 1_500);
    assert_eq!(limits(&[&of[..], &words[..]].concat()).await.done(), "no limit any more\n");
    assert_eq!(limits(&["list"]).await.done(), "no limit\n");

    for (wrong, said) in [
        (vec!["--per-payment", "1.2345"], "BHD has 3 decimals"),
        (vec!["--per-day", "9999999999999999999"], "amount"),
        (vec!["--tenant", "acme"], "cannot be used with"),
    ] {
        let told = limits(&[&of[..], &wrong[..], &words[..]].concat()).await.refused();
        assert!(told.contains(said), "{wrong:?}: {told}");
    }
    for (by, reason, said) in [
        (" ", "x", "the operator's name is missing"),
        ("ann\u{200b}", "x", "a name is 1 to 64 letters"),
        ("ann", " ", "the reason is missing"),
        ("ann", "a\u{202e}b", "invisible characters"),
    ] {
        let told = limits(&[&of[..], &["--by", by, "--reason", reason]].concat()).await.refused();
        assert!(told.contains(said), "{by:?} {reason:?}: {told}");
    }
}

#[tokio::test]
async fn a_switch_and_a_corridor_are_stopped_and_lifted() {
    let scratch = Scratch::migrated().await;
    let switch = async |args: &[&str]| {
        payctl(&[&["kill-switch"], args, &["--database-url", scratch.url()]].concat()).await
    };
    let words = ["--by", "ann", "--reason", "double payments"];
    assert_eq!(switch(&["list"]).await.done(), "nothing is stopped\n");
    let stop = [&["stop", "--switch", "mock"][..], &words].concat();
    assert_eq!(switch(&stop).await.done(), "stopped: payctl kill-switch lift 1\n");
    assert!(switch(&stop).await.done().starts_with("was stopped before: "));
    let corridor = [&["stop", "--currency", "EUR", "--prefix", "FR"][..], &words].concat();
    switch(&corridor).await.done();
    let said = switch(&["list"]).await.done();
    assert!(said.contains("switch mock   ann   double payments") && said.contains("EUR to FR*"), "{said}");

    let lift = ["lift", "1", "--by", "bob", "--reason", "repaired"];
    assert_eq!(switch(&lift).await.done(), "lifted\n");
    let told = switch(&lift).await.refused();
    assert!(told.contains("no stop 1 stands"), "{told}");
    assert!(!switch(&["list"]).await.done().contains("mock"));
    let said = switch(&["list", "--all"]).await.done();
    assert!(said.contains("by bob: repaired"), "{said}");
    for wrong in
        [&["stop"][..], &["stop", "--currency", "EUR"], &["stop", "--switch", "mock", "--prefix", "FR"]]
    {
        switch(&[wrong, &words].concat()).await.refused();
    }
}

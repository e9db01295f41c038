//! `payctl limits` and `payctl kill-switch`.

use crate::staff::Staff;

#[tokio::test]
async fn payctl_sets_lists_and_removes_a_payment_limit() {
    let staff = Staff::open().await;
    let open = ["accounts", "open", "BH-OMAR", "--currency", "BHD", "--tenant", "acme", "--reason", "r"];
    staff.ann(&open).await.success();
    let limits = async |args: &[&str]| staff.ann(&[&["limits"], args].concat()).await;
    let reason = ["--reason", "a new customer"];
    assert_eq!(limits(&["list"]).await.success(), "no limit is set\n");
    let set = ["set", "--account", "BH-OMAR", "--currency", "BHD"];
    let bounds = ["--per-payment", "1.5", "--per-day", "2", "--per-day-count", "3"];
    let output = limits(&[&set[..], &bounds[..], &reason[..]].concat()).await.success();
    assert_eq!(output, "limit of account BH-OMAR in BHD set\n");
    let output = limits(&["list"]).await.success();
    let row = "account BH-OMAR     1.500 BHD   2.000 BHD                  3   0.000 BHD in 0   ann      a new customer";
    assert!(output.contains(row), "{output}");
    assert_eq!(staff.json(&["limits", "list"]).await["limits"][0]["per_payment_minor"], 1_500);
    // What lets more money move takes two.
    let raised = [&["limits"], &set[..], &["--per-payment", "1.6"], &reason[..]].concat();
    let output = staff.ann(&raised).await.success();
    // The bounds that it removes are not overlooked.
    let shown = staff.bob(&["changes", "show", crate::staff::proposed(&output)]).await.success();
    assert!(shown.contains("per_day_count=unlimited per_day=unlimited per_payment=1.600 BHD"), "{shown}");
    assert!(shown.contains("per_day_count=3 per_day=2.000 BHD per_payment=1.500 BHD"), "{shown}");
    staff.both(&raised).await;
    assert!(limits(&["list"]).await.success().contains("1.600 BHD"));
    staff.both(&[&["limits"], &set[..], &reason[..]].concat()).await;
    assert_eq!(limits(&["list"]).await.success(), "no limit is set\n");

    for (wrong, expected) in [
        (vec!["--per-payment", "1.2345"], "BHD has 3 decimals"),
        (vec!["--per-day", "9999999999999999999"], "amount"),
        (vec!["--tenant", "acme"], "cannot be used with"),
    ] {
        let error = limits(&[&set[..], &wrong[..], &reason[..]].concat()).await.refused();
        assert!(error.contains(expected), "{wrong:?}: {error}");
    }
    for (reason, expected) in [(" ", "the reason is missing"), ("a\u{202e}b", "invisible characters")] {
        let error =
            limits(&[&set[..], &["--per-day-count", "1", "--reason", reason]].concat()).await.refused();
        assert!(error.contains(expected), "{reason:?}: {error}");
    }
}

#[tokio::test]
async fn payctl_activates_lists_and_lifts_a_kill_switch() {
    let staff = Staff::open().await;
    let kill_switch = async |args: &[&str]| staff.ann(&[&["kill-switch"], args].concat()).await;
    let reason = ["--reason", "double payments"];
    assert_eq!(kill_switch(&["list"]).await.success(), "no active kill switch\n");
    let stop = [&["stop", "--switch", "mock"][..], &reason].concat();
    let output = kill_switch(&stop).await.success();
    assert_eq!(output, "kill switch 1 is active: new payments of switch mock are refused\n");
    let error = kill_switch(&stop).await.refused();
    assert!(error.contains("kill switch 1 does so already"), "{error}");
    let corridor = [&["stop", "--currency", "EUR", "--prefix", "FR"][..], &reason].concat();
    kill_switch(&corridor).await.success();
    let output = kill_switch(&["list"]).await.success();
    assert!(
        output.contains("switch mock   ann            double payments") && output.contains("EUR to FR*"),
        "{output}"
    );

    let lift = ["kill-switch", "lift", "1", "--reason", "repaired"];
    staff.both(&lift).await;
    let error = staff.ann(&lift).await.refused();
    assert!(error.contains("kill switch 1 is not active"), "{error}");
    assert!(!kill_switch(&["list"]).await.success().contains("mock"));
    let output = kill_switch(&["list", "--all"]).await.success();
    assert!(output.contains("by bob: seen"), "{output}");
    for wrong in
        [&["stop"][..], &["stop", "--currency", "EUR"], &["stop", "--switch", "mock", "--prefix", "FR"]]
    {
        kill_switch(&[wrong, &reason].concat()).await.refused();
    }
}

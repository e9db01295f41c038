//! `payctl trigger`: every case of the failure table, of Paths A to C and of the sandbox amounts ends as its table says
//! (S0.6 to S0.10, S0.17). The auditor compares all books at the end.

use std::process::Output;

use futures::future::join_all;
use testkit::system::{ALICE, API_KEY};
use testkit::{System, SystemOptions};

/// The cases that kill a worker. They run one after the other, each beside an additional worker: two killed workers at once
/// would leave none.
const KILLS: [&str; 3] = ["crash-after-accepted", "crash-after-reserve", "another-worker"];
/// The cases that freeze the account; each gets an account of its own.
const FREEZES: [&str; 2] = ["debit-fails", "path-c"];

fn options(sandbox_amounts: bool) -> SystemOptions {
    SystemOptions { sandbox_amounts, settle_after_ms: 3_000, ..SystemOptions::default() }
        // Longer than the switch takes for "settles after 10 s" and for a callback that is 10 s late.
        .with_profile("sla_ms", 20_000)
        .with_long_attempts()
}

async fn trigger(system: &System, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = system.command("payctl");
    command
        .arg("trigger")
        .args(arguments)
        .env("PATH", std::env::var("PATH")?)
        .env("PAYMENTS_API_URL", system.api.url())
        .env("PAYMENTS_API_KEY", API_KEY);
    Ok(command.output().await?)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a case and expects that everything is as its table says.
async fn expect_success(system: &System, case: &str, account: &str) -> anyhow::Result<()> {
    let output = trigger(system, &[case, "--from", account, "--to", "XX-BOB"]).await?;
    let text = text(&output);
    anyhow::ensure!(output.status.success(), "{case} ended with {}\n{text}", output.status);
    anyhow::ensure!(text.contains("ended as expected; the books are equal"), "{case}\n{text}");
    Ok(())
}

/// The names that `payctl trigger` lists.
async fn cases(system: &System) -> anyhow::Result<Vec<String>> {
    let listed = text(&trigger(system, &[]).await?);
    Ok(listed
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

#[tokio::test]
async fn s0_17_payctl_trigger_makes_every_case_happen_and_the_books_are_equal() -> anyhow::Result<()> {
    let system = System::start("trigger", options(true)).await?;
    let cases = cases(&system).await?;
    assert_eq!(cases.len(), 28);
    let others = cases.iter().filter(|case| !KILLS.contains(&case.as_str()));
    let ended = join_all(others.map(async |case| {
        let account = match FREEZES.contains(&case.as_str()) {
            true => format!("OWN-{case}").to_uppercase(),
            false => ALICE.to_owned(),
        };
        if account != ALICE {
            system.open_account(&account).await?;
        }
        expect_success(&system, case, &account).await
    }))
    .await;
    let failed: Vec<_> = ended.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let mut workers = Vec::new();
    for case in KILLS {
        workers.push(system.start_process("payment-worker", "PAYMENTS_WORKER__METRICS_LISTEN").await?);
        expect_success(&system, case, ALICE).await?;
    }
    assert_eq!(system.audit().await?.open, 0);
    Ok(())
}

#[tokio::test]
async fn payctl_trigger_says_what_differs_from_its_expectation() -> anyhow::Result<()> {
    let mut system = System::start("trigger-differs", options(false)).await?;
    // This switch refuses nothing.
    let output = trigger(&system, &["path-a", "--from", ALICE, "--to", "XX-BOB"]).await?;
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    let differs = "path-a: ended otherwise than expected: state, charged, transfer, workflow";
    assert!(shown.contains(differs), "{shown}");
    // A frozen account is active again after the case.
    let output = trigger(&system, &["debit-fails", "--from", ALICE, "--to", "XX-BOB"]).await?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let status: String = sqlx::query_scalar("SELECT status FROM accounts WHERE account_id = $1")
        .bind(ALICE)
        .fetch_one(&system.database.pool)
        .await?;
    assert_eq!(status, "active");
    system.audit().await?;
    // Without its switch no case begins.
    system.mock_switch.kill().await?;
    let output = trigger(&system, &["path-a", "--from", ALICE, "--to", "XX-BOB"]).await?;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("nothing was triggered: switch mock at"), "{}", text(&output));
    Ok(())
}

//! `payctl trigger`: every case of the failure table, of Paths A to C and of the sandbox amounts ends as its table says
//! (S0.6 to S0.10, S0.17). The auditor compares all books at the end.

use std::process::Output;

use futures::future::join_all;
use payment_ledger::Ledger;
use payment_ledger::access::operators::{OperatorRole, Password};
use testkit::process::Process;
use testkit::system::{ALICE, API_KEY};
use testkit::{System, SystemOptions};

/// The cases that kill a worker. They run one after the other, each beside an additional worker: two killed workers at once
/// would leave none.
const KILLS: [&str; 3] = ["crash-after-accepted", "crash-after-reserve", "another-worker"];
/// The cases that freeze the account; each gets an account of its own.
const FREEZES: [&str; 2] = ["debit-fails", "path-c"];

fn options(sandbox_amounts: bool) -> SystemOptions {
    SystemOptions { sandbox_amounts, settle_after_ms: 6_000, ..SystemOptions::default() }
        // Longer than the switch takes for "settles after 10 s" and for a callback that is 10 s late.
        .with_profile("sla_ms", 25_000)
        .with_long_attempts()
}

/// A system with the demo's operators, whose operator-api runs.
async fn start(name: &str, options: SystemOptions) -> anyhow::Result<(System, Process)> {
    let system = System::start(name, options).await?;
    let owner = Ledger::new(system.database.pool.clone());
    for operator in ["ann", "bob"] {
        let password = Password::new("demo-operator-not-for-production".into())?.to_stored()?;
        owner
            .create_operator(operator, &[OperatorRole::Operator, OperatorRole::Approver], &password.into())
            .await?;
    }
    let operator_api = system.start_process("operator-api", "PAYMENTS_OPERATOR_API__LISTEN").await?;
    Ok((system, operator_api))
}

/// Runs payctl with its own login, which changes nothing.
async fn trigger(system: &System, operator_api: &Process, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = system.command("payctl");
    command
        .arg("trigger")
        .args(arguments)
        .env("PAYMENTS_DATABASE__URL", system.database.url_of("payctl")?)
        .env("PAYCTL_OPERATOR_API", operator_api.url())
        .env("PATH", std::env::var("PATH")?)
        .env("PAYMENTS_API_URL", system.api.url())
        .env("PAYMENTS_API_KEY", API_KEY);
    Ok(command.output().await?)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a case and expects that everything is as its table says.
async fn expect_success(
    system: &System,
    operator_api: &Process,
    case: &str,
    account: &str,
) -> anyhow::Result<()> {
    let output = trigger(system, operator_api, &[case, "--from", account, "--to", "XX-BOB"]).await?;
    let text = text(&output);
    anyhow::ensure!(output.status.success(), "{case} ended with {}\n{text}", output.status);
    anyhow::ensure!(text.contains("ended as expected; the books are equal"), "{case}\n{text}");
    Ok(())
}

/// The names that `payctl trigger` lists.
async fn cases(system: &System, operator_api: &Process) -> anyhow::Result<Vec<String>> {
    let listed = text(&trigger(system, operator_api, &[]).await?);
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
    let (system, operator_api) = start("trigger", options(true)).await?;
    let cases = cases(&system, &operator_api).await?;
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
        expect_success(&system, &operator_api, case, &account).await
    }))
    .await;
    let failed: Vec<_> = ended.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let mut workers = Vec::new();
    for case in KILLS {
        workers.push(system.start_process("payment-worker", "PAYMENTS_WORKER__METRICS_LISTEN").await?);
        expect_success(&system, &operator_api, case, ALICE).await?;
    }
    assert_eq!(system.audit().await?.open, 0);
    Ok(())
}

#[tokio::test]
async fn payctl_trigger_says_what_differs_from_its_expectation() -> anyhow::Result<()> {
    let (mut system, mut operator_api) = start("trigger-differs", options(false)).await?;
    // This switch refuses nothing.
    let output = trigger(&system, &operator_api, &["path-a", "--from", ALICE, "--to", "XX-BOB"]).await?;
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    let differs = "path-a: ended otherwise than expected: state, charged, transfer, workflow";
    assert!(shown.contains(differs), "{shown}");
    // A frozen account is active again after the case.
    let output = trigger(&system, &operator_api, &["debit-fails", "--from", ALICE, "--to", "XX-BOB"]).await?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let status: String = sqlx::query_scalar("SELECT status FROM accounts WHERE account_id = $1")
        .bind(ALICE)
        .fetch_one(&system.database.pool)
        .await?;
    assert_eq!(status, "active");
    let by = "SELECT DISTINCT operator FROM audit_log WHERE object IN ('accounts', 'changes', 'decisions') AND operator IS NOT NULL
              ORDER BY operator";
    let by: Vec<String> = sqlx::query_scalar(by).fetch_all(&system.database.pool).await?;
    assert_eq!(by, ["ann", "bob"]);
    system.audit().await?;
    // Without the operators of a case, and without its switch, no case begins.
    operator_api.kill().await?;
    let output = trigger(&system, &operator_api, &["path-c", "--from", ALICE, "--to", "XX-BOB"]).await?;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("nothing was triggered: ann, an operator"), "{}", text(&output));
    system.mock_switch.kill().await?;
    let output = trigger(&system, &operator_api, &["path-a", "--from", ALICE, "--to", "XX-BOB"]).await?;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("nothing was triggered: switch mock at"), "{}", text(&output));
    Ok(())
}

//! The retry-safe examples: an order is paid and charged once, whatever answers are lost and whenever the client crashes (S1.7).

use std::time::Duration;

use anyhow::ensure;
use axum::http::StatusCode;
use testkit::system::{ALICE, API_KEY, OPENING_MINOR};
use testkit::wait::until;
use testkit::{System, SystemOptions};
use tokio::process::Command;

use super::WITHIN;
use super::flaky_api::{Answer, FlakyApi};
use super::program::{Language, output, spawn};

/// `Retry-After` of the replaced answers; a millisecond of it may pass before the attempt is recorded.
const RETRY_AFTER: Duration = Duration::from_millis(999);

#[tokio::test]
async fn s1_7_the_typescript_example_pays_once_with_lost_answers() -> anyhow::Result<()> {
    pay_with_lost_answers(Language::TypeScript).await
}

#[tokio::test]
async fn s1_7_the_python_example_pays_once_with_lost_answers() -> anyhow::Result<()> {
    pay_with_lost_answers(Language::Python).await
}

/// The command that pays an order of `amount` from [`ALICE`].
async fn pay(language: Language, api: &FlakyApi, order: &str, amount: &str) -> anyhow::Result<Command> {
    let mut client = language.command("examples/retry-safe").await?;
    client.args([order, amount, ALICE, "XX-BOB"]);
    client.env("PAYMENTS_API_URL", api.url()).env("PAYMENTS_API_KEY", API_KEY);
    Ok(client)
}

async fn pay_with_lost_answers(language: Language) -> anyhow::Result<()> {
    let system = System::start("retry-safe", SystemOptions::default()).await?;

    // Answers that say to retry, an executed request without an answer, and one with a late answer, in this order.
    let script = [
        Answer::Gateway,
        Answer::Retry(StatusCode::SERVICE_UNAVAILABLE),
        Answer::Lost,
        Answer::Retry(StatusCode::CONFLICT),
        Answer::Late,
        Answer::Retry(StatusCode::TOO_MANY_REQUESTS),
    ];
    let api = FlakyApi::start(system.api.url(), &script).await?;
    let paid = output(pay(language, &api, "order-1", "7.00").await?, WITHIN).await?.success()?;
    let attempts = api.attempts();
    assert_eq!(attempts.len(), script.len() + 1, "{attempts:?}");
    assert!(attempts.iter().all(|attempt| attempt.key == attempts[0].key), "the key changed: {attempts:?}");
    for (scripted, pair) in script.iter().zip(attempts.windows(2)) {
        let waited = pair[1].at.duration_since(pair[0].at);
        ensure!(
            !matches!(scripted, Answer::Retry(_)) || waited >= RETRY_AFTER,
            "expected a second of pause after {scripted:?}, got {waited:?}"
        );
    }

    // The client is killed while the answer of its first attempt is late, and started again.
    let api = FlakyApi::start(system.api.url(), &[Answer::Late]).await?;
    let mut command = pay(language, &api, "order-2", "3.00").await?;
    let mut client = spawn(&mut command)?;
    until("the first attempt is executed", WITHIN, || async {
        Ok((api.attempts().len() == 1).then_some(()))
    })
    .await?;
    client.kill().await?;
    let resumed = output(command, WITHIN).await?.success()?;
    let attempts = api.attempts();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert_eq!(attempts[0].key, attempts[1].key, "the restarted client used another key");

    // A refusal ends the attempts.
    let api = FlakyApi::start(system.api.url(), &[]).await?;
    let refused = output(pay(language, &api, "order-3", "0.001").await?, WITHIN).await?;
    ensure!(!refused.is_success && refused.stderr.contains("invalid_amount"), "{}", refused.stderr);
    assert_eq!(api.attempts().len(), 1);

    // Two orders, two payments, each charged once.
    for payment in [&paid, &resumed] {
        system.wait_for_state(payment.text("payment_id")?, "settled").await?;
    }
    assert_eq!(system.available().await?, OPENING_MINOR - 1000);
    let audit = system.audit().await?;
    assert_eq!((audit.payments, audit.debited, audit.open), (2, 2, 0));
    Ok(())
}

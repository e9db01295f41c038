//! S3.5, R32: a payment's events reach the tenant's own system, which is written in another language and verifies signatures
//! with the library of the Standard Webhooks project (`webhook_receiver.py`).

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::system::API_KEY;
use testkit::wait::until;
use testkit::{NatsServer, System, SystemOptions};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use uuid::Uuid;

/// Time limit for a delivery.
const WITHIN: Duration = Duration::from_secs(60);

/// The tenant's system, in a process that is killed when dropped.
pub(crate) struct Receiver {
    _child: Child,
    url: String,
    http: reqwest::Client,
}

impl Receiver {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let python = std::env::var_os("TEST_STANDARDWEBHOOKS").context(
            "TEST_STANDARDWEBHOOKS is not set: run the tests by `./dev test`, which installs the library",
        )?;
        let mut child = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/faults/webhook_receiver.py"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the receiver could not be started")?;
        let stdout = child.stdout.take().context("the receiver has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let port = tokio::time::timeout(WITHIN, lines.next_line())
            .await??
            .context("the receiver exited without printing its port")?;
        Ok(Self { _child: child, url: format!("http://127.0.0.1:{port}"), http: testkit::http() })
    }

    pub(crate) fn hook(&self) -> String {
        format!("{}/hook", self.url)
    }

    async fn put(&self, path: &str, value: Value) -> anyhow::Result<()> {
        self.http.put(format!("{}{path}", self.url)).json(&value).send().await?.error_for_status()?;
        Ok(())
    }

    /// Sets the secrets that the receiver accepts.
    pub(crate) async fn set_secrets(&self, secrets: &[&str]) -> anyhow::Result<()> {
        self.put("/secrets", json!(secrets)).await
    }

    /// Sets whether the receiver delays its answers.
    async fn hold_answers(&self, holds: bool) -> anyhow::Result<()> {
        self.put("/hold", json!(holds)).await
    }

    /// All requests that the receiver got, in order.
    pub(crate) async fn received(&self) -> anyhow::Result<Vec<Value>> {
        Ok(self.http.get(format!("{}/received", self.url)).send().await?.json().await?)
    }

    /// Waits until the receiver has got and verified an event.
    async fn wait_for_verified(&self, event_id: &str) -> anyhow::Result<Value> {
        until(&format!("the receiver has verified {event_id}"), WITHIN, || async {
            Ok(self
                .received()
                .await?
                .into_iter()
                .find(|one| one["id"] == event_id && one["verified"] == true))
        })
        .await
    }
}

/// A bank and a tenant with a webhook endpoint.
struct WebhookBank {
    system: System,
    _broker: NatsServer,
    notifier: Process,
    receiver: Receiver,
    /// URL of the endpoint in the API.
    endpoint: String,
    secret: String,
}

impl WebhookBank {
    async fn start(name: &str) -> anyhow::Result<Self> {
        let receiver = Receiver::start().await?;
        let broker = NatsServer::start(&format!("{name}-broker")).await?;
        let system =
            System::start(name, SystemOptions { broker_url: broker.url(), ..SystemOptions::default() })
                .await?;
        let notifier = system.start_process("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN").await?;
        let endpoints = format!("{}/api/v1/webhook-endpoints", system.api.url());
        let created = post(&endpoints, &json!({"url": receiver.hook()})).await?;
        let text = |field: &str| created[field].as_str().map(str::to_owned).context(created.to_string());
        let (endpoint, secret) = (format!("{endpoints}/{}", text("endpoint_id")?), text("secret")?);
        receiver.set_secrets(&[&secret]).await?;
        Ok(Self { system, _broker: broker, notifier, receiver, endpoint, secret })
    }

    /// Makes a payment that settles; returns the ids of its two events.
    async fn settle_payment(&self) -> anyhow::Result<[String; 2]> {
        let id = self.system.pay("5.00").await?.payment_id;
        self.system.wait_for_state(&id, "settled").await?;
        Ok([format!("{id}:transfer_pending"), format!("{id}:transfer_sent")])
    }

    /// Waits until the delivery log has exactly these events, all delivered.
    async fn wait_until_delivered(&self, events: &[String]) -> anyhow::Result<()> {
        let expected: BTreeSet<&str> = events.iter().map(String::as_str).collect();
        until("the delivery log shows every event as delivered", WITHIN, || async {
            let log = self.receiver.http.get(format!("{}/deliveries", self.endpoint)).bearer_auth(API_KEY);
            let log: Value = log.send().await?.error_for_status()?.json().await?;
            let log = log["deliveries"].as_array().context("no deliveries")?;
            let delivered = log.iter().filter(|one| one["state"] == "delivered");
            let delivered: BTreeSet<&str> = delivered.filter_map(|one| one["event_id"].as_str()).collect();
            Ok((log.len() == delivered.len() && delivered == expected).then_some(()))
        })
        .await
        .map_err(|error| error.context(self.notifier.log_tail()))
    }
}

impl WebhookBank {
    /// Number of requests for an event at the receiver.
    async fn received_count(&self, event_id: &str) -> anyhow::Result<i64> {
        let received = self.receiver.received().await?;
        Ok(i64::try_from(received.iter().filter(|one| one["id"] == event_id).count())?)
    }

    /// Number of recorded attempts of an event.
    async fn recorded_count(&self, event_id: &str) -> anyhow::Result<i64> {
        let attempts = "SELECT count(*) FROM webhook_attempts JOIN webhook_deliveries USING (position) WHERE event_id = $1";
        Ok(sqlx::query_scalar(attempts).bind(event_id).fetch_one(&self.system.database.pool).await?)
    }

    /// An event whose attempt began within the last second (a lease is 6 s) and has reached the receiver; `None` without
    /// one.
    async fn posted_unrecorded_event(&self) -> anyhow::Result<Option<String>> {
        let leased = "SELECT event_id FROM webhook_deliveries WHERE lease IS NOT NULL AND next_attempt_at > now() + interval '5 s'";
        let leased: Vec<String> = sqlx::query_scalar(leased).fetch_all(&self.system.database.pool).await?;
        for event in leased {
            if self.received_count(&event).await? > self.recorded_count(&event).await? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

pub(crate) async fn post(url: &str, body: &Value) -> anyhow::Result<Value> {
    let key = Uuid::new_v4().to_string();
    let request = testkit::http().post(url).bearer_auth(API_KEY).header("Idempotency-Key", key).json(body);
    let response = request.send().await?;
    let status = response.status();
    let body: Value = response.json().await?;
    ensure!(status.is_success(), "{url}: {status} {body}");
    Ok(body)
}

#[tokio::test]
async fn s3_5_outbound_webhooks_verify_with_the_standards_own_library() -> anyhow::Result<()> {
    let bank = WebhookBank::start("webhooks").await?;
    let mut events = bank.settle_payment().await?.to_vec();
    for (n, event) in events.iter().enumerate() {
        let request = bank.receiver.wait_for_verified(event).await?;
        let body: Value = serde_json::from_str(request["body"].as_str().context("no body")?)?;
        let (payment, kind) = event.split_once(':').context("the event id has no kind")?;
        assert_eq!((&body["type"], &body["sequence"]), (&json!(kind), &json!(n + 1)), "{body}");
        assert_eq!((&body["data"]["payment_id"], &body["key"]), (&json!(payment), &json!(payment)), "{body}");
        assert!(body["timestamp"].is_string(), "{body}");
    }
    // The receiver refuses a forged signature.
    let forged = bank.receiver.http.post(bank.receiver.hook()).header("webhook-id", "forged");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let forged =
        forged.header("webhook-timestamp", now).header("webhook-signature", "v1,Zm9yZ2Vk").body("{}");
    assert_eq!(forged.send().await?.status(), 401);

    // While two secrets are valid, each request is signed with both, so either secret verifies it.
    let rotated = post(&format!("{}/rotate-secret", bank.endpoint), &json!({})).await?;
    let new = rotated["secret"].as_str().context("no secret")?;
    for secret in [new, bank.secret.as_str()] {
        bank.receiver.set_secrets(&[secret]).await?;
        let later = bank.settle_payment().await?;
        for event in &later {
            let request = bank.receiver.wait_for_verified(event).await?;
            assert_eq!(request["signatures"], 2);
        }
        events.extend(later);
    }
    bank.wait_until_delivered(&events).await?;
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r32_a_notifier_killed_before_recording_posts_the_same_webhook_again() -> anyhow::Result<()> {
    let mut bank = WebhookBank::start("webhooks-killed").await?;
    bank.receiver.hold_answers(true).await?;
    let mut events = Vec::new();
    for _ in 0..3 {
        events.extend(bank.settle_payment().await?);
    }
    // The notifier stands still where it is killed: an attempt that it gives up is recorded.
    let posted = until("an event is posted and not recorded", WITHIN, || async {
        let Some(posted) = bank.posted_unrecorded_event().await? else { return Ok(None) };
        bank.notifier.pause()?;
        if bank.recorded_count(&posted).await? < bank.received_count(&posted).await? {
            return Ok(Some(posted));
        }
        bank.notifier.resume()?;
        Ok(None)
    })
    .await?;
    bank.notifier.kill().await?;
    ensure!(
        bank.recorded_count(&posted).await? < bank.received_count(&posted).await?,
        "the attempt was recorded before the kill"
    );
    let before = bank.received_count(&posted).await?;
    bank.receiver.hold_answers(false).await?;
    bank.notifier.restart().await?;
    bank.wait_until_delivered(&events).await?;
    assert!(bank.received_count(&posted).await? > before, "the event was not posted again");
    let received = bank.receiver.received().await?;
    ensure!(received.iter().all(|one| one["verified"] == true), "a signature is invalid: {received:?}");
    let bodies: BTreeSet<_> =
        received.iter().filter(|one| one["id"] == posted).map(|one| one["body"].to_string()).collect();
    assert_eq!(bodies.len(), 1, "the repeated bodies differ: {bodies:?}");
    let ids: BTreeSet<&str> = received.iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, events.iter().map(String::as_str).collect(), "events are missing or unexpected");
    until("the customer has six notifications", WITHIN, || async {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM notifications")
            .fetch_one(&bank.system.database.pool)
            .await?;
        ensure!(count <= 6, "expected 6 notifications, got {count}");
        Ok((count == 6).then_some(()))
    })
    .await?;
    bank.system.audit().await?;
    Ok(())
}

/// A line of a process's output.
async fn next_line(lines: &mut Lines<BufReader<ChildStdout>>) -> anyhow::Result<String> {
    tokio::time::timeout(WITHIN, lines.next_line()).await??.context("the output ended")
}

#[tokio::test]
async fn s3_5_payctl_listen_shows_and_forwards_events_with_their_signatures() -> anyhow::Result<()> {
    let bank = WebhookBank::start("listen").await?;
    let developer = Receiver::start().await?;
    let payctl = |arguments: &[&str]| {
        let mut command = bank.system.command("payctl");
        command
            .args(arguments)
            .env("PAYMENTS_API_URL", bank.system.api.url())
            .env("PAYMENTS_API_KEY", API_KEY)
            .stdout(Stdio::piped());
        command
    };
    let mut listen =
        payctl(&["listen", "--forward-to", &developer.hook(), "--kind", "transfer_sent"]).spawn()?;
    let mut lines = BufReader::new(listen.stdout.take().context("no stdout")?).lines();
    let created = next_line(&mut lines).await?;
    let endpoint = created.split(' ').nth(1).context(created.clone())?.to_owned();
    let signed = next_line(&mut lines).await?;
    let secret = signed.strip_prefix("signed with ").context(signed.clone())?.to_owned();
    assert_eq!(next_line(&mut lines).await?, "Ctrl-C ends it");

    // The developer's receiver does not know the secret yet: it refuses the event, and the service repeats it.
    let [_, sent] = bank.settle_payment().await?;
    let refused = next_line(&mut lines).await?;
    assert!(refused.contains("transfer_sent"), "{refused}");
    assert!(refused.ends_with("settled, 5.00 EUR; the receiver answered 401 Unauthorized"), "{refused}");
    developer.set_secrets(&[&secret]).await?;
    developer.wait_for_verified(&sent).await?;
    while !next_line(&mut lines).await?.ends_with("the receiver answered 200 OK") {}
    let received = developer.received().await?;
    assert!(
        received.iter().all(|one| one["id"] == json!(sent)),
        "only the kind that was chosen: {received:?}"
    );

    // An event of a kind that no payment has reached, with fields overridden.
    let overrides = ["--override", "amount_minor=7", "--override", "reason=debit_refused"];
    let trigger = |secret: &str| {
        let hook = developer.hook();
        let arguments = ["trigger", "transfer_failed", "--forward-to", &hook, "--secret", secret];
        payctl(&[&arguments[..], &overrides[..]].concat()).output()
    };
    let output = trigger(&secret).await?;
    assert!(output.status.success(), "{output:?}");
    let triggered = developer.received().await?.pop().context("nothing was received")?;
    assert_eq!(triggered["verified"], true, "{triggered}");
    let body: Value = serde_json::from_str(triggered["body"].as_str().context("no body")?)?;
    assert_eq!(body["type"], "transfer_failed");
    assert_eq!(
        (&body["data"]["amount_minor"], &body["data"]["reason"]),
        (&json!(7), &json!("debit_refused"))
    );
    let output = trigger(&bank.secret).await?;
    assert_eq!(output.status.code(), Some(1), "a receiver that refuses the event: {output:?}");

    // The endpoint ends with the command.
    let id = listen.id().context("payctl listen has ended")?.to_string();
    ensure!(Command::new("kill").args(["-TERM", &id]).status().await?.success());
    let ended = tokio::time::timeout(WITHIN, listen.wait()).await??;
    assert!(ended.success(), "{ended}");
    let status: String = sqlx::query_scalar("SELECT status FROM webhook_endpoints WHERE endpoint_id = $1")
        .bind(&endpoint)
        .fetch_one(&bank.system.database.pool)
        .await?;
    assert_eq!(status, "deleted");
    bank.system.audit().await?;
    Ok(())
}

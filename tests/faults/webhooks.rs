//! S3.5, R32: what happens to a payment reaches the tenant's own system, which stands at an HTTP address, is written in another
//! language and believes the standard's own library only (`receiver.py`).

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::system::API_KEY;
use testkit::wait::until;
use testkit::{NatsServer, System, SystemOptions};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

/// How long anything may take to be delivered.
const WITHIN: Duration = Duration::from_secs(60);

/// The tenant's system. Killed when dropped.
struct Receiver {
    _child: Child,
    url: String,
    http: reqwest::Client,
}

impl Receiver {
    async fn start() -> anyhow::Result<Self> {
        let python = std::env::var_os("TEST_STANDARDWEBHOOKS").context(
            "TEST_STANDARDWEBHOOKS is not set: run the tests by `./dev test`, which installs the library",
        )?;
        let mut child = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/faults/receiver.py"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the receiver cannot be started")?;
        let said = child.stdout.take().context("the receiver says nothing")?;
        let mut lines = BufReader::new(said).lines();
        let port =
            tokio::time::timeout(WITHIN, lines.next_line()).await??.context("the receiver has ended")?;
        Ok(Self { _child: child, url: format!("http://127.0.0.1:{port}"), http: testkit::http() })
    }

    fn hook(&self) -> String {
        format!("{}/hook", self.url)
    }

    async fn tell(&self, path: &str, what: Value) -> anyhow::Result<()> {
        self.http.put(format!("{}{path}", self.url)).json(&what).send().await?.error_for_status()?;
        Ok(())
    }

    /// The secrets it believes.
    async fn believe(&self, secrets: &[&str]) -> anyhow::Result<()> {
        self.tell("/secrets", json!(secrets)).await
    }

    /// Whether it takes what comes in and does not answer.
    async fn hold(&self, holds: bool) -> anyhow::Result<()> {
        self.tell("/hold", json!(holds)).await
    }

    /// Everything that came to it, in order.
    async fn came(&self) -> anyhow::Result<Vec<Value>> {
        Ok(self.http.get(format!("{}/came", self.url)).send().await?.json().await?)
    }

    /// Waits until it has believed an event.
    async fn until_believed(&self, event_id: &str) -> anyhow::Result<Value> {
        until(&format!("{event_id} came and was believed"), WITHIN, || async {
            Ok(self.came().await?.into_iter().find(|one| one["id"] == event_id && one["good"] == true))
        })
        .await
    }
}

/// A bank whose tenant has a receiver and an endpoint.
struct Bank {
    system: System,
    _broker: NatsServer,
    notifier: Process,
    receiver: Receiver,
    /// Path of the endpoint in the API.
    endpoint: String,
    secret: String,
}

impl Bank {
    async fn start(name: &str) -> anyhow::Result<Self> {
        let receiver = Receiver::start().await?;
        let broker = NatsServer::start(&format!("{name}-broker")).await?;
        let system =
            System::start(name, SystemOptions { broker_url: broker.url(), ..SystemOptions::default() })
                .await?;
        let notifier = system.start_process("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN").await?;
        let endpoints = format!("{}/api/v1/webhook-endpoints", system.api.url());
        let made = post(&endpoints, &json!({"url": receiver.hook()})).await?;
        let text = |field: &str| made[field].as_str().map(str::to_owned).context(made.to_string());
        let (endpoint, secret) = (format!("{endpoints}/{}", text("endpoint_id")?), text("secret")?);
        receiver.believe(&[&secret]).await?;
        Ok(Self { system, _broker: broker, notifier, receiver, endpoint, secret })
    }

    /// A payment that settles, and the ids of its two events.
    async fn settle(&self) -> anyhow::Result<[String; 2]> {
        let id = self.system.pay("5.00").await?.payment_id;
        self.system.wait_for_state(&id, "settled").await?;
        Ok([format!("{id}:transfer_pending"), format!("{id}:transfer_sent")])
    }

    /// Waits until the log of deliveries says that all of these, and nothing else, are delivered.
    async fn until_delivered(&self, events: &[String]) -> anyhow::Result<()> {
        let expected: BTreeSet<&str> = events.iter().map(String::as_str).collect();
        until("the log says that everything is delivered", WITHIN, || async {
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

impl Bank {
    /// Times an event came to the receiver.
    async fn arrivals(&self, event_id: &str) -> anyhow::Result<i64> {
        let came = self.receiver.came().await?;
        Ok(i64::try_from(came.iter().filter(|one| one["id"] == event_id).count())?)
    }

    /// Attempts of an event that are on record.
    async fn recorded(&self, event_id: &str) -> anyhow::Result<i64> {
        let recorded = "SELECT count(*) FROM webhook_attempts JOIN webhook_deliveries USING (position) WHERE event_id = $1";
        Ok(sqlx::query_scalar(recorded).bind(event_id).fetch_one(&self.system.database.pool).await?)
    }

    /// An event whose attempt began within the last second (a lease is 6 s), and has arrived.
    async fn posted_and_not_recorded(&self) -> anyhow::Result<Option<String>> {
        let begun = "SELECT event_id FROM webhook_deliveries WHERE lease IS NOT NULL AND next_at > now() + interval '5 s'";
        let begun: Vec<String> = sqlx::query_scalar(begun).fetch_all(&self.system.database.pool).await?;
        for event in begun {
            if self.arrivals(&event).await? > self.recorded(&event).await? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

async fn post(url: &str, body: &Value) -> anyhow::Result<Value> {
    let key = Uuid::new_v4().to_string();
    let request = testkit::http().post(url).bearer_auth(API_KEY).header("Idempotency-Key", key).json(body);
    let answer = request.send().await?;
    let status = answer.status();
    let said: Value = answer.json().await?;
    ensure!(status.is_success(), "{url}: {status} {said}");
    Ok(said)
}

#[tokio::test]
async fn s3_5_outbound_webhooks_verify_with_the_standards_own_library() -> anyhow::Result<()> {
    let bank = Bank::start("webhooks").await?;
    let mut events = bank.settle().await?.to_vec();
    for (n, event) in events.iter().enumerate() {
        let came = bank.receiver.until_believed(event).await?;
        let body: Value = serde_json::from_str(came["body"].as_str().context("no body")?)?;
        let (payment, kind) = event.split_once(':').context("an event's id")?;
        assert_eq!((&body["type"], &body["sequence"]), (&json!(kind), &json!(n + 1)), "{body}");
        assert_eq!((&body["data"]["payment_id"], &body["key"]), (&json!(payment), &json!(payment)), "{body}");
        assert!(body["timestamp"].is_string(), "{body}");
    }
    // The receiver does not believe everything.
    let forged = bank.receiver.http.post(bank.receiver.hook()).header("webhook-id", "forged");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let forged =
        forged.header("webhook-timestamp", now).header("webhook-signature", "v1,Zm9yZ2Vk").body("{}");
    assert_eq!(forged.send().await?.status(), 401);

    // While the secrets overlap, who knows one of them believes what comes, whichever that is.
    let rotated = post(&format!("{}/rotate-secret", bank.endpoint), &json!({})).await?;
    let new = rotated["secret"].as_str().context("no secret")?;
    for secret in [new, bank.secret.as_str()] {
        bank.receiver.believe(&[secret]).await?;
        let later = bank.settle().await?;
        for event in &later {
            let came = bank.receiver.until_believed(event).await?;
            assert_eq!(came["signatures"], 2);
        }
        events.extend(later);
    }
    bank.until_delivered(&events).await?;
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r32_a_notifier_killed_before_recording_posts_the_same_event_again() -> anyhow::Result<()> {
    let mut bank = Bank::start("webhooks-killed").await?;
    bank.receiver.hold(true).await?;
    let mut events = Vec::new();
    for _ in 0..3 {
        events.extend(bank.settle().await?);
    }
    let posted =
        until("something was posted and is not recorded", WITHIN, || bank.posted_and_not_recorded()).await?;
    bank.notifier.kill().await?;
    ensure!(
        bank.recorded(&posted).await? < bank.arrivals(&posted).await?,
        "it died before it could record it"
    );
    let before = bank.arrivals(&posted).await?;
    bank.receiver.hold(false).await?;
    bank.notifier.restart().await?;
    bank.until_delivered(&events).await?;
    assert!(bank.arrivals(&posted).await? > before, "it came again");
    let came = bank.receiver.came().await?;
    ensure!(came.iter().all(|one| one["good"] == true), "every one of them is signed: {came:?}");
    let bodies: BTreeSet<_> =
        came.iter().filter(|one| one["id"] == posted).map(|one| one["body"].to_string()).collect();
    assert_eq!(bodies.len(), 1, "always the very same: {bodies:?}");
    let ids: BTreeSet<&str> = came.iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, events.iter().map(String::as_str).collect(), "nothing is lost, and nothing made up");
    until("customers were told, each thing once", WITHIN, || async {
        let told: i64 = sqlx::query_scalar("SELECT count(*) FROM notifications")
            .fetch_one(&bank.system.database.pool)
            .await?;
        ensure!(told <= 6, "{told} messages of 6 events");
        Ok((told == 6).then_some(()))
    })
    .await?;
    bank.system.audit().await?;
    Ok(())
}

//! R1: an API dies between the effect of a request and its answer. The client repeats the request, as it was, and has its answer; the effect
//! is one. `service_kit::requests::crash_before_answer` is the point.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use sqlx::PgPool;
use testkit::process::Process;
use testkit::system::{API_KEY, AcceptedPayment, OPENING_MINOR, Operators, payment_request};
use testkit::{System, SystemOptions, TestCallback};
use uuid::Uuid;

use crate::crash_points::{die, doom};

/// The documents of both APIs, which their own tests compare with the routes.
const DOCUMENTS: [&str; 2] = ["clients/openapi.json", "operator-api/openapi.json"];
/// Requests without a case, and why.
const NOT_COVERED: [(&str, &str); 3] = [
    ("POST /operator/v1/sessions", "a repeat opens another session, and the first one expires unused"),
    (
        "POST /operator/v1/sessions/oidc",
        "the same; the ID token of a login is valid once, so the operator logs in again",
    ),
    ("DELETE /operator/v1/sessions/current", "a repeat is 401: the session has ended"),
];
/// The deposit of the operators, in minor units.
const DEPOSIT_MINOR: i64 = 100;

/// The routes whose answer was lost.
#[derive(Default)]
struct Repeated(BTreeSet<String>);

impl Repeated {
    /// Sends a request to a process that dies before its answer, starts the process again, and repeats the request; returns that answer.
    async fn send(
        &mut self,
        process: &mut Process,
        route: &str,
        request: RequestBuilder,
    ) -> anyhow::Result<Value> {
        let point = format!("before the answer to {route}");
        let copy = |request: &RequestBuilder| request.try_clone().context("the body cannot be sent twice");
        doom(process, &point).await?;
        let answer = copy(&request)?.send().await;
        ensure!(answer.is_err(), "{route} was answered: {answer:?}");
        die(process, &point, 1).await?;
        let answer = copy(&request)?.send().await.with_context(|| format!("the repeat of {route}"))?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "the repeat of {route}: {status} {text}");
        self.0.insert(route.to_owned());
        Ok(serde_json::from_str(&text)?)
    }
}

/// Every request of the documents that may change something.
fn documented() -> anyhow::Result<BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut routes = BTreeSet::new();
    for document in DOCUMENTS {
        let document: Value = serde_json::from_str(&std::fs::read_to_string(root.join(document))?)?;
        for (path, methods) in document["paths"].as_object().context("a document without paths")? {
            let methods = methods.as_object().context("a path without methods")?.keys();
            let writing =
                methods.filter(|method| ["post", "put", "patch", "delete"].contains(&method.as_str()));
            routes.extend(writing.map(|method| format!("{} {path}", method.to_uppercase())));
        }
    }
    Ok(routes)
}

async fn count(pool: &PgPool, query: &'static str) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar(query).fetch_one(pool).await?)
}

/// A payment that needs an operator: it settled when its account was frozen, and the switch refuses the recall.
async fn undecided(system: &System) -> anyhow::Result<AcceptedPayment> {
    let refuses = json!({"outcome": "hold", "recall": [{"fault": "refuse", "times": "always"}]});
    system.switch.set_default_behaviour(refuses).await?;
    let payment = system.pay("7.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.set_account_status(system.account(), "frozen").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    system.set_account_status(system.account(), "active").await?;
    Ok(payment)
}

/// The requests of customers and of the switch.
async fn repeat_requests_of_clients(
    system: &mut System,
    repeated: &mut Repeated,
    cancelled: &AcceptedPayment,
) -> anyhow::Result<AcceptedPayment> {
    let pool = system.database.pool.clone();
    let (http, api) = (testkit::http(), system.api.url());
    let keyed = |request: RequestBuilder| {
        request.bearer_auth(API_KEY).header("Idempotency-Key", Uuid::new_v4().to_string())
    };
    let text =
        |value: &Value, field: &str| value[field].as_str().map(str::to_owned).context(value.to_string());

    let before = count(&pool, "SELECT count(*) FROM payments").await?;
    let order = keyed(http.post(format!("{api}/api/v1/payments"))).json(&payment_request("5.00"));
    let ordered = repeated.send(&mut system.api, "POST /api/v1/payments", order).await?;
    ensure!(count(&pool, "SELECT count(*) FROM payments").await? == before + 1, "one order is two payments");

    let cancel = keyed(http.post(format!("{api}/api/v1/payments/{}/cancel", cancelled.payment_id)));
    repeated.send(&mut system.api, "POST /api/v1/payments/{payment_id}/cancel", cancel).await?;
    ensure!(count(&pool, "SELECT count(*) FROM inbox WHERE kind = 'cancel'").await? == 1);

    let callback = system.callback_request(&TestCallback::failure("unknown:submit", 500), 0)?;
    let before = count(&pool, "SELECT count(*) FROM switch_callbacks").await?;
    repeated.send(&mut system.api, "POST /callbacks/{switch}", callback).await?;
    ensure!(count(&pool, "SELECT count(*) FROM switch_callbacks").await? == before + 1);

    let endpoints = format!("{api}/api/v1/webhook-endpoints");
    // Nothing is sent there: no notifier runs.
    let create = keyed(http.post(&endpoints)).json(&json!({"url": "http://127.0.0.1:9/hook"}));
    let created = repeated.send(&mut system.api, "POST /api/v1/webhook-endpoints", create).await?;
    ensure!(count(&pool, "SELECT count(*) FROM webhook_endpoints").await? == 1);
    let id = text(&created, "endpoint_id")?;
    let (endpoint, route) = (format!("{endpoints}/{id}"), "/api/v1/webhook-endpoints/{endpoint_id}");

    let change = keyed(http.patch(&endpoint)).json(&json!({"kinds": ["transfer_sent"]}));
    let changed = repeated.send(&mut system.api, &format!("PATCH {route}"), change).await?;
    ensure!(changed["kinds"] == json!(["transfer_sent"]), "{changed}");

    let rotate = keyed(http.post(format!("{endpoint}/rotate-secret")));
    let rotated = repeated.send(&mut system.api, &format!("POST {route}/rotate-secret"), rotate).await?;
    ensure!(text(&rotated, "secret")? != text(&created, "secret")?, "the secret is the old one");
    ensure!(
        count(&pool, "SELECT secret_version::bigint FROM webhook_endpoints").await? == 2,
        "rotated twice"
    );

    let deliveries = "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, state, ended_at)
         SELECT $1, event_id, 'transfer_sent', '{}', state, now()
         FROM (VALUES ('first', 'delivered'), ('second', 'failed')) AS delivery (event_id, state)";
    sqlx::query(deliveries).bind(&id).execute(&pool).await?;
    let replay = keyed(http.post(format!("{endpoint}/deliveries/first/replay")));
    let replayed = repeated
        .send(&mut system.api, &format!("POST {route}/deliveries/{{event_id}}/replay"), replay)
        .await?;
    ensure!(replayed["status"] == "scheduled", "{replayed}");
    let failed =
        keyed(http.post(format!("{endpoint}/replay-failed"))).json(&json!({"since": "2026-01-01T00:00:00Z"}));
    let replayed = repeated.send(&mut system.api, &format!("POST {route}/replay-failed"), failed).await?;
    // A second replay would have found none.
    ensure!(replayed["replayed"] == 1, "{replayed}");
    ensure!(count(&pool, "SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'").await? == 2);

    repeated.send(&mut system.api, &format!("DELETE {route}"), keyed(http.delete(&endpoint))).await?;
    ensure!(count(&pool, "SELECT count(*) FROM webhook_endpoints WHERE status = 'deleted'").await? == 1);

    let payment_id = text(&ordered, "payment_id")?;
    let reference = format!("{}:submit", text(&ordered, "transaction_id")?);
    Ok(AcceptedPayment { payment_id, reference, key: String::new() })
}

/// The requests of operators, about a payment that has ended and one that needs them.
async fn repeat_requests_of_operators(
    system: &System,
    repeated: &mut Repeated,
    [settled, undecided]: [&AcceptedPayment; 2],
) -> anyhow::Result<Operators> {
    let mut operators = system.operators(&["ann", "ben"]).await?;
    let pool = &system.database.pool;
    let (http, base) = (testkit::http(), format!("{}/operator/v1", operators.api.url()));
    let (ann, ben) = (operators.token("ann")?, operators.token("ben")?);
    let post = |token: &str, path: &str, body: Value| {
        http.post(format!("{base}{path}")).bearer_auth(token).json(&body)
    };
    let reason = || json!({"reason": "a test"});
    let text =
        |value: &Value, field: &str| value[field].as_str().map(str::to_owned).context(value.to_string());
    let process = &mut operators.api;

    let deposit = json!({"kind": "fund_account", "tenant_id": "test", "account_id": system.account(), "amount": "1.00", "currency": "EUR"});
    let propose = || post(&ann, "/changes", json!({"change": deposit, "reason": "a test"}));
    let proposed = repeated.send(process, "POST /operator/v1/changes", propose()).await?;
    ensure!(count(pool, "SELECT count(*) FROM changes").await? == 1, "one proposal is two changes");
    let route = "POST /operator/v1/changes/{change_id}";
    let withdraw = post(&ann, &format!("/changes/{}/withdraw", text(&proposed, "change_id")?), reason());
    let withdrawn = repeated.send(process, &format!("{route}/withdraw"), withdraw).await?;
    ensure!(withdrawn["status"] == "withdrawn", "{withdrawn}");
    let proposed: Value = propose().send().await?.error_for_status()?.json().await?;
    let confirm = post(&ben, &format!("/changes/{}/confirm", text(&proposed, "change_id")?), reason());
    let confirmed = repeated.send(process, &format!("{route}/confirm"), confirm).await?;
    ensure!(confirmed["status"] == "done", "{confirmed}");
    system.expect_deposit(DEPOSIT_MINOR);
    ensure!(
        count(
            pool,
            "SELECT count(*) FROM journal WHERE kind = 'fund' AND operation_key NOT LIKE 'opening:%'"
        )
        .await?
            == 1,
        "one deposit is not one entry"
    );

    let open = post(&ann, &format!("/payments/{}/exceptions", settled.payment_id), reason());
    let opened = repeated.send(process, "POST /operator/v1/payments/{payment_id}/exceptions", open).await?;
    let exception = opened["exception_id"].as_i64().context(opened.to_string())?;
    ensure!(
        count(pool, "SELECT count(*) FROM exceptions WHERE closed_at IS NULL AND payment_id IS NOT NULL")
            .await?
            == 1
    );
    let close = json!({"action": "close", "reason": "a test"});
    let close = post(&ann, &format!("/exceptions/{exception}/decisions"), close);
    let closed =
        repeated.send(process, "POST /operator/v1/exceptions/{exception_id}/decisions", close).await?;
    ensure!(closed["closed_at"].is_string(), "{closed}");
    ensure!(count(pool, "SELECT count(*) FROM decisions").await? == 1, "one closing is two decisions");

    let debit = json!({"action": "debit", "reason": "a test", "evidence": "a statement"});
    let propose = || post(&ann, &format!("/payments/{}/decisions", undecided.payment_id), debit.clone());
    let proposed =
        repeated.send(process, "POST /operator/v1/payments/{payment_id}/decisions", propose()).await?;
    ensure!(count(pool, "SELECT count(*) FROM decisions").await? == 2, "one proposal is two decisions");
    let route = "POST /operator/v1/decisions/{decision_id}";
    let withdraw = post(&ann, &format!("/decisions/{}/withdraw", text(&proposed, "decision_id")?), reason());
    let withdrawn = repeated.send(process, &format!("{route}/withdraw"), withdraw).await?;
    ensure!(withdrawn["status"] == "withdrawn", "{withdrawn}");
    let proposed: Value = propose().send().await?.error_for_status()?.json().await?;
    let confirm = post(&ben, &format!("/decisions/{}/confirm", text(&proposed, "decision_id")?), reason());
    let confirmed = repeated.send(process, &format!("{route}/confirm"), confirm).await?;
    ensure!(confirmed["confirmed_by"] == "ben", "{confirmed}");
    Ok(operators)
}

#[tokio::test]
async fn r1_a_request_whose_answer_was_lost_with_its_process_is_repeated_with_one_effect()
-> anyhow::Result<()> {
    let options = SystemOptions::default().with_long_attempts().with_profile("sla_ms", 600_000);
    let mut system = System::start("unanswered", options).await?;
    let settled = system.pay("6.00").await?;
    system.wait_for_state(&settled.payment_id, "settled").await?;
    let undecided = undecided(&system).await?;
    let cancelled = system.pay("8.00").await?;
    system.wait_for_state(&cancelled.payment_id, "submitted").await?;

    // Nothing goes on while requests are repeated.
    system.worker.pause()?;
    let mut repeated = Repeated::default();
    let ordered = repeat_requests_of_clients(&mut system, &mut repeated, &cancelled).await?;
    let _operators = repeat_requests_of_operators(&system, &mut repeated, [&settled, &undecided]).await?;
    repeated.0.extend(NOT_COVERED.iter().map(|(route, _)| (*route).to_owned()));
    assert_eq!(repeated.0, documented()?);

    system.worker.resume()?;
    system.wait_for_state(&cancelled.payment_id, "cancelled").await?;
    system.wait_for_state(&undecided.payment_id, "settled").await?;
    system.wait_for_state(&ordered.payment_id, "submitted").await?;
    system.switch.finish_transfer(&ordered.reference, "settle").await?;
    system.wait_for_state(&ordered.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR + DEPOSIT_MINOR - 600 - 700 - 500);
    let audit = system.audit().await?;
    assert_eq!((audit.debited, audit.open), (3, 0), "{audit:?}");
    Ok(())
}

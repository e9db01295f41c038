//! Operators log in at operator-api and decide: two operators, whose identity is their session.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::system::{ALICE, OPENING_MINOR};
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// A system with operator-api, and requests to it.
struct Bank {
    system: System,
    api: Process,
}

impl Bank {
    async fn start(name: &str) -> anyhow::Result<Self> {
        let system = System::start(name, SystemOptions::default().with_long_attempts()).await?;
        let api = system.start_process("operator-api", "PAYMENTS_OPERATOR_API__LISTEN").await?;
        Ok(Self { system, api })
    }

    /// Creates an operator and logs in: the token.
    async fn operator(&self, name: &str, roles: &[&str]) -> anyhow::Result<String> {
        let mut command = self.system.command("payctl");
        command.args(["operators", "create", name, "--as-owner"]);
        for role in roles {
            command.args(["--role", role]);
        }
        let created = command.output().await?;
        ensure!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let output = String::from_utf8(created.stdout)?;
        let password = output.lines().next().context("no password")?;
        let login = json!({"name": name, "password": password});
        let (status, session) = self.send(Method::POST, "sessions", "", Some(login)).await?;
        ensure!(status == StatusCode::CREATED, "{status} {session}");
        Ok(session["token"].as_str().context("no token")?.to_owned())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let request = testkit::http().request(method, format!("{}/operator/v1/{path}", self.api.url()));
        let request = request.bearer_auth(token);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let response = request.send().await?;
        let status = response.status();
        Ok((status, response.json().await?))
    }

    async fn post(&self, path: &str, token: &str, body: Value) -> anyhow::Result<(StatusCode, Value)> {
        self.send(Method::POST, path, token, Some(body)).await
    }

    async fn get(&self, path: &str, token: &str) -> anyhow::Result<Value> {
        let (status, body) = self.send(Method::GET, path, token, None).await?;
        ensure!(status == StatusCode::OK, "{path}: {status} {body}");
        Ok(body)
    }
}

/// A payment whose debit and recall are refused waits for operators; one proposes the debit, another one confirms it, and the workflow applies
/// it after it has asked the switch.
#[tokio::test]
async fn two_operators_decide_a_payment_over_the_operators_api() -> anyhow::Result<()> {
    let bank = Bank::start("operator-api").await?;
    let Bank { system, .. } = &bank;
    let (ann, bob) = tokio::try_join!(
        bank.operator("ann", &["operator", "approver"]),
        bank.operator("bob", &["approver"])
    )?;
    system.switch.set_default_behaviour(json!({"outcome": "hold", "recall": ["refuse"]})).await?;
    let payment = system.pay("5.00").await?;
    let id = payment.payment_id.as_str();
    system.wait_for_state(id, "submitted").await?;
    system.set_account_status(ALICE, "frozen").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(id, "needs_operator").await?;
    system.set_account_status(ALICE, "active").await?;

    let waiting = bank.get("payments/waiting?waiting_s=0", &bob).await?;
    assert_eq!(waiting["payments"][0]["payment_id"], id);
    assert_eq!(waiting["payments"][0]["operator_reason"], "recall_refused");
    let allowed = &waiting["payments"][0]["allowed_actions"];
    assert!(allowed.as_array().is_some_and(|actions| actions.contains(&json!("debit"))), "{allowed}");

    let path = format!("payments/{id}/decisions");
    let debit = json!({"action": "debit", "reason": "it left", "evidence": "statement 7, line 3"});
    let (status, decision) = bank.post(&path, &ann, debit.clone()).await?;
    assert_eq!((status, &decision["status"]), (StatusCode::CREATED, &json!("proposed")), "{decision}");
    assert_eq!(decision["proposed_by"], "ann");
    // A repeat is the same decision.
    assert_eq!(bank.post(&path, &ann, debit).await?.1["decision_id"], decision["decision_id"]);
    let decision = format!("decisions/{}", decision["decision_id"].as_str().context("no id")?);
    let confirm = format!("{decision}/confirm");
    let (status, refused) = bank.post(&confirm, &ann, json!({"reason": "so it did"})).await?;
    assert_eq!((status, &refused["code"]), (StatusCode::FORBIDDEN, &json!("same_operator")));
    assert_eq!(system.state(id).await?, "needs_operator");

    let (status, confirmed) = bank.post(&confirm, &bob, json!({"reason": "so it did"})).await?;
    assert_eq!(status, StatusCode::OK, "{confirmed}");
    let done = bank.get(&format!("{decision}?wait=30"), &bob).await?;
    assert_eq!((&done["status"], &done["confirmed_by"]), (&json!("done"), &json!("bob")), "{done}");
    system.wait_for_state(id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    system.audit().await?;
    Ok(())
}

/// A transfer that comes back after the debit: the switch is queried before the credit of two operators, and the credit is posted once.
#[tokio::test]
async fn a_correction_over_the_operators_api_queries_the_switch_and_is_posted_once() -> anyhow::Result<()> {
    let bank = Bank::start("operator-api-correction").await?;
    let Bank { system, .. } = &bank;
    let (ann, bob) =
        tokio::try_join!(bank.operator("ann", &["operator"]), bank.operator("bob", &["approver"]))?;
    let payment = system.pay("5.00").await?;
    let id = payment.payment_id.as_str();
    system.wait_for_state(id, "settled").await?;

    // Nothing says that it came back: the switch contradicts the credit.
    let open = format!("payments/{id}/exceptions");
    let (status, opened) = bank.post(&open, &ann, json!({"reason": "the payee claims so"})).await?;
    assert_eq!(status, StatusCode::CREATED, "{opened}");
    let exception = format!("exceptions/{}/decisions", opened["exception_id"]);
    let credit =
        json!({"action": "return_credit", "reason": "it came back", "evidence": "statement 7, line 3"});
    let (_, wrong) = bank.post(&exception, &ann, credit.clone()).await?;
    let wrong = format!("decisions/{}", wrong["decision_id"].as_str().context("no id")?);
    let (status, refused) = bank.post(&format!("{wrong}/confirm"), &bob, json!({"reason": "r"})).await?;
    assert_eq!(
        (status, &refused["code"]),
        (StatusCode::CONFLICT, &json!("contradicted_by_switch")),
        "{refused}"
    );
    bank.post(&format!("{wrong}/withdraw"), &bob, json!({"reason": "it did not"})).await?;
    let close = json!({"action": "close", "reason": "nothing came back"});
    let (status, closed) = bank.post(&exception, &ann, close).await?;
    assert_eq!((status, &closed["status"]), (StatusCode::CREATED, &json!("done")), "{closed}");

    system.switch.finish_transfer(&payment.reference, "return").await?;
    let number = until("the exception of the return", Duration::from_secs(30), || async {
        let listed = bank.get(&format!("exceptions?payment_id={id}"), &bob).await?;
        let first = &listed["exceptions"][0];
        Ok((first["kind"] == "returned_after_debit").then(|| first["exception_id"].to_string()))
    })
    .await?;
    let (_, proposed) = bank.post(&format!("exceptions/{number}/decisions"), &ann, credit).await?;
    let confirm = format!("decisions/{}/confirm", proposed["decision_id"].as_str().context("no id")?);
    for _ in 0..2 {
        let (status, done) = bank.post(&confirm, &bob, json!({"reason": "so it did"})).await?;
        assert_eq!((status, &done["status"]), (StatusCode::OK, &json!("done")), "{done}");
        assert_eq!(system.available().await?, OPENING_MINOR, "credited once");
    }
    assert_eq!(bank.get("exceptions", &bob).await?["exceptions"], json!([]), "closed by the credit");
    system.audit().await?;
    Ok(())
}

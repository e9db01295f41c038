//! The real process: configuration by environment, SIGKILL and restart, shutdown on SIGTERM.

use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::test_switch::{Bank, client, eventually, order, read};

struct Process {
    child: Child,
    base: String,
    client: reqwest::Client,
}

impl Process {
    async fn start(database_url: &str, callback_url: &str) -> Self {
        Self::with(database_url, callback_url, &[]).await
    }

    async fn with(database_url: &str, callback_url: &str, more: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mock-switch"))
            .env("MOCK_SWITCH_DATABASE_URL", database_url)
            .env("MOCK_SWITCH_CALLBACK_URL", callback_url)
            .env("MOCK_SWITCH_LISTEN", "127.0.0.1:0")
            .env("MOCK_SWITCH_SETTLE_AFTER_MS", "0")
            .env("RUST_LOG", "info")
            .envs(more.iter().copied())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next_line().await.unwrap().expect("the process ended before it listened");
            if let Some((_, address)) = line.split_once("listening address=") {
                break address.trim().to_owned();
            }
        };
        // An unread pipe would block the process.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, base: format!("http://{address}"), client: client() }
    }

    async fn request(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .header("authorization", "Bearer demo-switch-token")
            .header("idempotency-key", "k");
        if let Some(body) = body {
            request = request.json(&body);
        }
        read(request.send().await.unwrap()).await
    }
}

#[sqlx::test(migrations = false)]
async fn a_killed_mock_switch_loses_no_request_that_it_answered(
    _options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let url = connect.to_url_lossy().to_string();
    let bank = Bank::default();
    let callback_url = bank.start().await;
    bank.answer_next(&[503; 3]);

    let mut process = Process::start(&url, &callback_url).await;
    let behaviour = json!({"outcome": "hold", "submit": ["error_503", "error_500"]});
    process.request(Method::PUT, "/admin/behaviours/held", Some(behaviour)).await;
    process.request(Method::PUT, "/admin/clock", Some(json!({"offset_ms": 5000}))).await;
    process.request(Method::PUT, "/admin/shape", Some(json!({"recall": false}))).await;
    assert_eq!(process.request(Method::POST, "/v1/transfers", Some(order("held"))).await.0, 503);
    process.request(Method::POST, "/v1/transfers", Some(order("reported"))).await;
    process.request(Method::POST, "/v1/transfers/gone/cancel", None).await;
    bank.wait_for(1).await;
    process.child.kill().await.unwrap();

    let mut process = Process::start(&url, &callback_url).await;
    // The script continues after the steps that were used before the restart.
    assert_eq!(process.request(Method::POST, "/v1/transfers", Some(order("held"))).await.0, 500);
    assert_eq!(process.request(Method::POST, "/v1/transfers", Some(order("held"))).await.0, 202);
    assert_eq!(process.request(Method::GET, "/admin/clock", None).await.1["offset_ms"], 5000);
    assert_eq!(process.request(Method::GET, "/admin/shape", None).await.1["recall"], false);
    assert_eq!(process.request(Method::POST, "/v1/transfers", Some(order("gone"))).await.0, 422);
    let received = bank.wait_for(4).await;
    assert!(received.iter().all(|callback| callback.id == received[0].id));
    eventually("delivery", || async {
        let book = process.request(Method::GET, "/admin/book/reported", None).await.1;
        (book["callbacks"][0]["state"] == "DELIVERED").then_some(())
    })
    .await;

    // The shell's built-in kill: some machines have no program of that name.
    let kill = format!("kill -TERM {}", process.child.id().unwrap());
    let signalled = Command::new("sh").args(["-c", &kill]).status().await.unwrap();
    assert!(signalled.success());
    drop(process.client);
    assert!(process.child.wait().await.unwrap().success(), "expected exit code 0 after SIGTERM");
}

#[sqlx::test(migrations = false)]
async fn environment_variables_configure_the_shape_of_the_mock_switch(
    _options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let url = connect.to_url_lossy().to_string();
    let shape = [
        ("MOCK_SWITCH_SHAPE__KEYS", "false"),
        ("MOCK_SWITCH_SHAPE__STATEMENT", "false"),
        ("MOCK_SWITCH_SHAPE__STICKY_ANSWERS", "true"),
    ];
    let process = Process::with(&url, "http://127.0.0.1:1/", &shape).await;
    let shown = process.request(Method::GET, "/admin/shape", None).await.1;
    assert_eq!((&shown["keys"], &shown["statement"]), (&json!(false), &json!(false)));
    assert_eq!((&shown["sticky_answers"], &shown["callback"]), (&json!(true), &json!(true)));
    assert_eq!(process.request(Method::GET, "/v1/statement", None).await.0, 501);
}

#[tokio::test]
async fn an_argument_that_would_have_no_effect_is_refused() {
    let refused = Command::new(env!("CARGO_BIN_EXE_mock-switch"))
        .args(["--config", "bank.toml"])
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{error}");
    assert!(error.contains(r#"the argument "--config" is unknown"#), "{error}");
    assert!(error.contains("MOCK_SWITCH_CONFIG") && error.contains("MOCK_SWITCH_SECTION__KEY"), "{error}");
}

#[sqlx::test(migrations = false)]
async fn the_mock_switch_creates_its_missing_database(_options: PgPoolOptions, connect: PgConnectOptions) {
    let name = format!("mock_switch_new_{}", std::process::id());
    let url = connect.clone().database(&name).to_url_lossy().to_string();
    let process = Process::start(&url, "http://127.0.0.1:1/").await;
    assert_eq!(process.request(Method::GET, "/ready", None).await.0, 200);
    drop(process);
    let drop = format!("DROP DATABASE {name} WITH (FORCE)");
    let mut connection = connect.connect().await.unwrap();
    sqlx::query(sqlx::AssertSqlSafe(drop)).execute(&mut connection).await.unwrap();
}

//! A database with operator-api in front of it, and two operators who are logged in with payctl.

use std::net::SocketAddr;
use std::path::PathBuf;

use payment_ledger::Ledger;
use payment_ledger::access::operators::{OperatorRole, Password};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::run::{CommandResult, command};
use crate::scratch_database::ScratchDatabase;

pub(crate) const PASSWORD: &str = "correct horse battery";

/// operator-api over a database, and operators who log in with payctl, each with a session file.
pub(crate) struct Operators {
    pub(crate) address: SocketAddr,
    sessions: PathBuf,
    _serving: DropGuard,
}

impl Operators {
    /// Starts operator-api and logs the operators in.
    pub(crate) async fn log_in_all(
        database_url: &str,
        switch_url: &str,
        operators: &[(&str, &[OperatorRole])],
    ) -> Self {
        let ledger = Ledger::new(PgPool::connect(database_url).await.unwrap());
        for (name, roles) in operators {
            let stored = Password::new(PASSWORD.into()).unwrap().to_stored().unwrap();
            ledger.create_operator(name, roles, &stored.into()).await.unwrap();
        }
        let all = Self::serve(database_url, switch_url, json!({})).await;
        for (name, _) in operators {
            let output = all.log_in(name, PASSWORD).await.success();
            assert!(output.starts_with(&format!("logged in as {name} until 2")), "{output}");
        }
        all
    }

    /// Starts operator-api with options of its section; nobody is logged in.
    pub(crate) async fn serve(database_url: &str, switch_url: &str, options: Value) -> Self {
        let connect: PgConnectOptions = database_url.parse().unwrap();
        let own = PgPoolOptions::new().max_connections(2);
        let own = own.connect_with(connect.options([("role", "operator_api")])).await.unwrap();
        let profile = json!({
            "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400, "tombstones": true,
            "honours_deadline": true, "max_skew_ms": 1_000, "can_cancel": true, "can_recall": true, "has_callback": true,
        });
        let config = serde_json::from_value(json!({
            "operator_api": options,
            "temporal": {"allow_clear_payloads": true, "address": "http://127.0.0.1:1"},
            "switches": {"mock": {"base_url": switch_url, "api_token": "demo-switch-token", "routes": ["XX"], "profile": profile}},
        }));
        let stop = CancellationToken::new();
        let router = operator_api::router(config.unwrap(), own.into(), stop.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, service).with_graceful_shutdown(stopped).await
        });
        let sessions =
            std::env::temp_dir().join(format!("payctl-sessions-{}", uuid::Uuid::new_v4().simple()));
        Self { address, sessions, _serving: stop.drop_guard() }
    }

    /// The session file of an operator.
    pub(crate) fn session(&self, name: &str) -> PathBuf {
        self.sessions.join(format!("{name}.json"))
    }

    /// The binary, acting in an operator's session.
    pub(crate) fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("PAYCTL_SESSION", self.session(name));
        command
    }

    /// Logs an operator in with a password on standard input.
    pub(crate) async fn log_in(&self, name: &str, password: &str) -> CommandResult {
        let file = self.sessions.with_extension(format!("{name}-password"));
        std::fs::write(&file, format!("{password}\n")).unwrap();
        let url = format!("http://{}", self.address);
        let mut command = self.command(name, &["login", name, "--operator-api", &url]);
        let output = command.stdin(std::fs::File::open(&file).unwrap()).output().await.unwrap();
        std::fs::remove_file(file).unwrap();
        CommandResult::of(output)
    }
}

impl Drop for Operators {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.sessions);
    }
}

/// Ann proposes; bob confirms.
pub(crate) struct Staff {
    pub(crate) scratch: ScratchDatabase,
    pub(crate) pool: PgPool,
    pub(crate) operators: Operators,
}

impl Staff {
    /// Logs both in.
    pub(crate) async fn open() -> Self {
        let scratch = ScratchDatabase::migrated().await;
        let pool = PgPool::connect(scratch.url()).await.unwrap();
        let both = [("ann", &[OperatorRole::Operator][..]), ("bob", &[OperatorRole::Approver])];
        let operators = Operators::log_in_all(scratch.url(), "http://127.0.0.1:1", &both).await;
        Self { scratch, pool, operators }
    }

    /// What ann does.
    pub(crate) async fn ann(&self, args: &[&str]) -> CommandResult {
        CommandResult::of(self.operators.command("ann", args).output().await.unwrap())
    }

    /// What bob does.
    pub(crate) async fn bob(&self, args: &[&str]) -> CommandResult {
        CommandResult::of(self.operators.command("bob", args).output().await.unwrap())
    }

    /// Ann proposes with a command, which changes nothing yet, and bob confirms. Returns the output of the proposal.
    pub(crate) async fn both(&self, args: &[&str]) -> String {
        let output = self.ann(args).await.success();
        let id = proposed(&output);
        let confirmed = self.bob(&["changes", "confirm", id, "--reason", "seen"]).await.success();
        assert!(confirmed.contains("confirmed by   bob: seen") && confirmed.contains("done"), "{confirmed}");
        output
    }

    /// Ann opens an account in EUR.
    pub(crate) async fn account(&self, id: &str) {
        let open =
            ["accounts", "open", id, "--currency", "EUR", "--tenant", "acme", "--reason", "a new customer"];
        self.ann(&open).await.success();
    }

    /// A document that ann reads.
    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let output = self.ann(&[args, &["--json"]].concat()).await.success();
        serde_json::from_str(&output).unwrap()
    }
}

/// The id of the change that a command proposed.
pub(crate) fn proposed(output: &str) -> &str {
    let lines: Vec<&str> = output.lines().collect();
    let said = lines.iter().find_map(|line| line.strip_prefix("change ")?.split_once(" proposed; "));
    let (id, _) = said.unwrap_or_else(|| panic!("nothing was proposed: {output}"));
    assert!(output.contains(&format!("payctl changes confirm {id} --reason TEXT")), "{output}");
    id
}

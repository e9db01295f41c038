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

/// Ann proposes; bob confirms.
pub(crate) struct Staff {
    pub(crate) scratch: ScratchDatabase,
    pub(crate) pool: PgPool,
    pub(crate) address: SocketAddr,
    sessions: PathBuf,
    _serving: DropGuard,
}

impl Staff {
    /// Starts operator-api and logs both in.
    pub(crate) async fn open() -> Self {
        let scratch = ScratchDatabase::migrated().await;
        let pool = PgPool::connect(scratch.url()).await.unwrap();
        let ledger = Ledger::new(pool.clone());
        for (name, role) in [("ann", OperatorRole::Operator), ("bob", OperatorRole::Approver)] {
            let stored = Password::new(PASSWORD.into()).unwrap().to_stored().unwrap();
            ledger.create_operator(name, &[role], &stored).await.unwrap();
        }
        let connect: PgConnectOptions = scratch.url().parse().unwrap();
        let own = PgPoolOptions::new().max_connections(2);
        let own = own.connect_with(connect.options([("role", "operator_api")])).await.unwrap();
        let profile = json!({
            "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400, "tombstones": true,
            "honours_deadline": true, "max_skew_ms": 1_000, "can_cancel": true, "can_recall": true, "has_callback": true,
        });
        let config = serde_json::from_value(json!({
            "temporal": {"allow_clear_payloads": true},
            "switches": {"mock": {"base_url": "http://127.0.0.1:9", "api_token": "t", "routes": ["XX"], "profile": profile}},
        }));
        let config = config.unwrap();
        let router = operator_api::router(config, own, CancellationToken::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, service).with_graceful_shutdown(stopped).await
        });
        let sessions =
            std::env::temp_dir().join(format!("payctl-sessions-{}", uuid::Uuid::new_v4().simple()));
        let staff = Self { scratch, pool, address, sessions, _serving: stop.drop_guard() };
        for name in ["ann", "bob"] {
            let output = staff.log_in(name, PASSWORD).await.success();
            assert!(output.starts_with(&format!("logged in as {name} until 2")), "{output}");
        }
        staff
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

    /// What ann does.
    pub(crate) async fn ann(&self, args: &[&str]) -> CommandResult {
        CommandResult::of(self.command("ann", args).output().await.unwrap())
    }

    /// What bob does.
    pub(crate) async fn bob(&self, args: &[&str]) -> CommandResult {
        CommandResult::of(self.command("bob", args).output().await.unwrap())
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

impl Drop for Staff {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.sessions);
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

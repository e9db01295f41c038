//! `payctl login` at a real OpenID provider: in a browser on this machine, with a device code, and with a token that another client got.

use std::process::Stdio;

use serde_json::{Value, json};
use sqlx::PgPool;
use testkit::OidcProvider;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout};

use crate::run::{CommandResult, payctl};
use crate::scratch_database::ScratchDatabase;
use crate::staff::Operators;

/// operator-api with a provider, and ann, who logs in there.
struct Login {
    provider: OidcProvider,
    scratch: ScratchDatabase,
    operators: Operators,
}

impl Login {
    async fn open() -> Self {
        let provider = OidcProvider::start().await.unwrap();
        let scratch = ScratchDatabase::migrated().await;
        let create = [
            "operators",
            "create",
            "ann",
            "--role",
            "operator",
            "--issuer",
            &provider.issuer(),
            "--subject",
            "carol",
        ];
        let output = Self::with(&scratch, &create).await.success();
        assert_eq!(output, "operator ann created with the roles operator\n");
        let options = json!({"oidc": {"issuer": provider.issuer(), "client_id": OidcProvider::CLIENT_ID}});
        let operators = Operators::serve(scratch.url(), "http://127.0.0.1:1", options).await;
        Self { provider, scratch, operators }
    }

    async fn with(scratch: &ScratchDatabase, args: &[&str]) -> CommandResult {
        let as_owner: &[&str] = if args.contains(&"reset-password") { &[] } else { &["--as-owner"] };
        payctl(&[args, as_owner, &["--database-url", scratch.url()]].concat()).await
    }

    /// A login that waits for its operator, who is to act on what it writes first.
    async fn start(&self, options: &[&str], lines: usize) -> (Waiting, String) {
        let url = format!("http://{}", self.operators.address);
        let mut command =
            self.operators.command("ann", &[&["login", "--operator-api", &url], options].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = String::new();
        for _ in 0..lines {
            last = output.next_line().await.unwrap().expect("payctl ended before the login");
        }
        (Waiting { child, output }, last)
    }
}

struct Waiting {
    child: Child,
    output: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Waiting {
    /// The last line of a login that succeeds.
    async fn success(mut self) -> String {
        let line = self.output.next_line().await.unwrap();
        let result = CommandResult::of(self.child.wait_with_output().await.unwrap());
        assert_eq!(result.code, Some(0), "{result:?}");
        line.unwrap()
    }

    /// The message of a login that is refused.
    async fn refused(self) -> String {
        CommandResult::of(self.child.wait_with_output().await.unwrap()).refused()
    }
}

#[tokio::test]
async fn an_operator_logs_in_at_the_openid_provider_with_a_browser() {
    let login = Login::open().await;
    let (waiting, page) = login.start(&[], 2).await;
    let (status, shown) = login.provider.log_in(&page, "carol").await.unwrap();
    assert_eq!(
        (status.as_u16(), shown.as_str()),
        (200, "The login is back at payctl. You can close this page.")
    );
    let output = waiting.success().await;
    assert!(output.starts_with("logged in as ann until 2"), "{output}");
    let acting =
        CommandResult::of(login.operators.command("ann", &["changes", "list"]).output().await.unwrap());
    assert_eq!(acting.success(), "no change waits for another operator\n");

    // Dave has a login at the provider, and is no operator here.
    let (waiting, page) = login.start(&[], 2).await;
    login.provider.log_in(&page, "dave").await.unwrap();
    let error = waiting.refused().await;
    assert!(
        error.contains("(identity_unknown)") && error.contains("payctl operators set-identity"),
        "{error}"
    );

    // The provider's answer to another login brings nothing.
    let (waiting, page) = login.start(&[], 2).await;
    let forged = page.replace("state=", "state=x");
    let (status, _) = login.provider.log_in(&forged, "carol").await.unwrap();
    assert_eq!(status.as_u16(), 400);
    let (status, _) = login.provider.log_in(&page, "carol").await.unwrap();
    assert_eq!(status.as_u16(), 200);
    waiting.success().await;
}

#[tokio::test]
async fn an_operator_logs_in_at_the_openid_provider_with_a_device_code() {
    let login = Login::open().await;
    let (waiting, line) = login.start(&["--device"], 1).await;
    let rest = line.strip_prefix("open ").unwrap();
    let (page, code) = rest.split_once(" in a browser and enter the code ").unwrap();
    login.provider.allow_device(page, code, "carol").await.unwrap();
    let output = waiting.success().await;
    assert!(output.starts_with("logged in as ann until 2"), "{output}");
}

#[tokio::test]
async fn an_id_token_opens_one_session_and_another_clients_opens_none() {
    let login = Login::open().await;
    let url = format!("http://{}", login.operators.address);
    let file = std::env::temp_dir().join(format!("id-token-{}", uuid::Uuid::new_v4().simple()));
    let with_token = async |token: &str| {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        let args = ["login", "--operator-api", &url, "--id-token-file", file.to_str().unwrap()];
        CommandResult::of(login.operators.command("ann", &args).output().await.unwrap())
    };
    let another = login.provider.id_token(OidcProvider::OTHER_CLIENT_ID, "carol").await.unwrap();
    let error = with_token(&another).await.refused();
    assert!(error.contains("the ID token is for another client; log in again (login_refused)"), "{error}");
    let token = login.provider.id_token(OidcProvider::CLIENT_ID, "carol").await.unwrap();
    assert!(with_token(&token).await.success().starts_with("logged in as ann until 2"));
    let error = with_token(&token).await.refused();
    assert!(error.contains("the ID token has opened a session already"), "{error}");
    // The claims of one token under the signature of the other.
    let (header, signature) = (token.split('.').next().unwrap(), token.rsplit('.').next().unwrap());
    let claims = another.split('.').nth(1).unwrap();
    let error = with_token(&format!("{header}.{claims}.{signature}")).await.refused();
    assert!(error.contains("the ID token has another signature than the provider's"), "{error}");
    std::fs::remove_file(file).unwrap();
}

/// An administrator gives an operator an identity in place of a password, and the other way round.
#[tokio::test]
async fn an_operator_has_one_login_and_an_identity_one_operator() {
    let login = Login::open().await;
    let issuer = login.provider.issuer();
    let with = async |args: &[&str]| Login::with(&login.scratch, args).await;
    with(&["operators", "create", "bob", "--role", "approver"]).await.success();
    let identity = ["operators", "set-identity", "bob", "--issuer", &issuer, "--subject"];
    let error = with(&[&identity[..], &["carol"]].concat()).await.refused();
    assert!(error.contains("operator ann has this identity"), "{error}");
    let error =
        with(&["operators", "create", "carl", "--role", "viewer", "--issuer", &issuer, "--subject", "carol"])
            .await;
    assert!(error.refused().contains("operator ann exists already"));
    let output = with(&[&identity[..], &["dave"]].concat()).await.success();
    assert_eq!(
        output,
        format!("operator bob logs in as dave of {issuer}; the operator's sessions have ended\n")
    );
    let listed: Value =
        serde_json::from_str(&with(&["operators", "list", "--json"]).await.success()).unwrap();
    assert_eq!(listed["operators"][1]["issuer"], json!(issuer));
    assert_eq!(listed["operators"][1]["subject"], "dave");
    let listed = with(&["operators", "list"]).await.success();
    assert!(listed.contains(&format!("dave of {issuer}")), "{listed}");

    let (waiting, page) = login.start(&[], 2).await;
    login.provider.log_in(&page, "dave").await.unwrap();
    assert!(waiting.success().await.starts_with("logged in as bob until 2"));
    with(&["operators", "reset-password", "bob"]).await.success();
    let pool = PgPool::connect(login.scratch.url()).await.unwrap();
    let open: i64 = sqlx::query_scalar("SELECT count(*) FROM operator_sessions WHERE ended_at IS NULL")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(open, 0, "the session of the identity ended");
    let (waiting, page) = login.start(&[], 2).await;
    login.provider.log_in(&page, "dave").await.unwrap();
    assert!(waiting.refused().await.contains("(identity_unknown)"));
    with(&["operators", "disable", "ann"]).await.success();
    let (waiting, page) = login.start(&[], 2).await;
    login.provider.log_in(&page, "carol").await.unwrap();
    assert!(waiting.refused().await.contains("(operator_disabled)"));
}

#[tokio::test]
async fn a_login_says_what_is_missing() {
    let scratch = ScratchDatabase::migrated().await;
    let operators = Operators::serve(scratch.url(), "http://127.0.0.1:1", json!({})).await;
    let url = format!("http://{}", operators.address);
    let login = async |options: &[&str]| {
        let args = [&["login", "--operator-api", &url], options].concat();
        CommandResult::of(operators.command("ann", &args).output().await.unwrap()).refused()
    };
    let error = login(&[]).await;
    assert!(
        error.contains("operators log in with passwords only") && error.contains("(oidc_not_configured)"),
        "{error}"
    );
    let file = std::env::temp_dir().join(format!("id-token-{}", uuid::Uuid::new_v4().simple()));
    std::fs::write(&file, "a.b.c\n").unwrap();
    let error = login(&["--id-token-file", file.to_str().unwrap()]).await;
    assert!(error.contains("(oidc_not_configured)"), "{error}");
    std::fs::remove_file(file).unwrap();

    // A provider that does not answer.
    let options = json!({"oidc": {"issuer": "http://127.0.0.1:1", "client_id": "payctl"}});
    let operators = Operators::serve(scratch.url(), "http://127.0.0.1:1", options).await;
    let url = format!("http://{}", operators.address);
    let output = operators.command("ann", &["login", "--operator-api", &url]).output().await.unwrap();
    let error = CommandResult::of(output).refused();
    assert!(error.contains("(oidc_provider_unavailable)"), "{error}");
}

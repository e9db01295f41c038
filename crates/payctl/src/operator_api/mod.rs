//! operator-api, in the session of the operator who logged in: who acts is who has the session.

mod documents;
mod oidc;
mod session;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use secrecy::SecretString;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

pub(crate) use documents::{
    AccountDocument, ApiKeyDocument, ChangeDocument, DecisionDocument, KillSwitchDocument, LimitDocument,
    OpenedExceptionDocument, OperatorDocument, OperatorDocuments,
};
pub(crate) use session::{Credential, Login, Session};

use crate::api::{ApiError, ApiResponse, Connection, Service};
use crate::output::Output;
use oidc::OidcProvider;

/// operator-api, in messages.
const OPERATOR_API: Service = Service {
    name: "operator-api",
    setting: "the address given at payctl login (--operator-api)",
    process: "operator-api",
};

/// Rows that one change of events or deliveries queues at most.
const PART: u64 = 10_000;

/// The session that a command acts in.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SessionArgs {
    /// File with the session of the operator who logged in with payctl login [default:
    /// ~/.local/state/payctl/session.json]
    #[arg(long, value_name = "FILE", env = "PAYCTL_SESSION")]
    session: Option<PathBuf>,
}

/// Why an operator changes something.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReasonArgs {
    /// Reason; recorded permanently
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

impl SessionArgs {
    /// The file.
    ///
    /// # Errors
    /// Neither the option nor the user's home folder names one.
    pub(crate) fn file(&self) -> anyhow::Result<PathBuf> {
        match &self.session {
            Some(file) => Ok(file.clone()),
            None => session::default_file(),
        }
    }

    /// A client that acts in the session. Sends nothing.
    ///
    /// # Errors
    /// Nobody is logged in.
    pub(crate) fn client(&self) -> anyhow::Result<OperatorClient> {
        let session = Session::read(&self.file()?)?;
        OperatorClient::new(&session)
    }
}

/// A client of operator-api.
#[derive(Debug)]
pub(crate) struct OperatorClient(Connection);

impl OperatorClient {
    /// A client that acts in a session. Sends nothing.
    ///
    /// # Errors
    /// The session's address cannot be called.
    pub(crate) fn new(session: &Session) -> anyhow::Result<Self> {
        let connection = Connection::new(&OPERATOR_API, &session.url()?, session.token.clone());
        Ok(Self(connection.context("the address of operator-api cannot be called; log in again")?))
    }

    /// Opens a session. Writes what an operator does meanwhile at the OpenID provider.
    ///
    /// # Errors
    /// The login is refused, or operator-api or the provider does not answer.
    pub(crate) async fn log_in(login: Login, out: &mut Output<'_>) -> anyhow::Result<Session> {
        use secrecy::ExposeSecret as _;
        let connection = Connection::new(&OPERATOR_API, &login.url, SecretString::default())
            .context("--operator-api (PAYCTL_OPERATOR_API) cannot be called")?;
        let provider = async || -> anyhow::Result<OidcProvider> {
            Ok(connection.call(connection.get("/operator/v1/oidc"), Duration::ZERO).await?.document)
        };
        let (path, body) = match login.as_whom {
            Credential::Password { name, password } => {
                ("/operator/v1/sessions", json!({"name": name, "password": password.expose_secret()}))
            }
            by_provider => {
                let token = match by_provider {
                    Credential::Device => oidc::log_in_with_device(&provider().await?, out).await?,
                    Credential::IdToken(token) => token,
                    _ => oidc::log_in_with_browser(&provider().await?, out).await?,
                };
                ("/operator/v1/sessions/oidc", json!({"id_token": token.expose_secret()}))
            }
        };
        let opened = connection.call(connection.post(path).json(&body), Duration::ZERO).await?;
        Ok(Session::opened(&login.url, opened.document))
    }

    /// Ends the session.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(crate) async fn log_out(&self) -> anyhow::Result<()> {
        let ended = self.0.call::<IgnoredAny>(self.0.delete("/operator/v1/sessions/current"), Duration::ZERO);
        Ok(ended.await.map(drop)?)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<ApiResponse<T>> {
        self.get_within(path, Duration::ZERO).await
    }

    /// Reads a document for which operator-api is requested to wait.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(crate) async fn get_within<T: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> anyhow::Result<ApiResponse<T>> {
        Ok(self.0.call(self.0.get(&format!("/operator/v1/{path}")), wait).await?)
    }

    /// Acts once. If no answer comes, `if_unknown` says what to do.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        if_unknown: &'static str,
    ) -> anyhow::Result<ApiResponse<T>> {
        let posted = self.0.call(self.0.post(&format!("/operator/v1/{path}")).json(body), Duration::ZERO);
        posted.await.map_err(|error| {
            let is_unknown = may_have_acted(&error);
            let error = anyhow::Error::new(error);
            if is_unknown { error.context(if_unknown) } else { error }
        })
    }

    /// Decides: a repeat is recorded once.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(crate) async fn decide<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<ApiResponse<T>> {
        let if_unknown = "the decision may be recorded; repeat the same command, which records it once";
        self.post(path, body, if_unknown).await
    }

    /// Proposes a change, which is made at once if one operator suffices.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(crate) async fn change(&self, change: Value, reason: &ReasonArgs) -> anyhow::Result<ChangeDocument> {
        let body = json!({"change": change, "reason": reason.reason});
        let if_unknown =
            "the change may be proposed or made; see payctl changes list --all before you repeat it";
        Ok(self.post("changes", &body, if_unknown).await?.document)
    }

    /// Makes a change that queues [`PART`] rows at a time until nothing is left, and writes how many each part queued, with `suffix`.
    ///
    /// # Errors
    /// operator-api refuses or does not answer: what was written is done, and the others can be done by a repeat.
    pub(crate) async fn change_all(
        &self,
        change: Value,
        reason: &ReasonArgs,
        suffix: &str,
        out: &mut Output<'_>,
    ) -> anyhow::Result<()> {
        loop {
            let queued = self.change(change.clone(), reason).await?.detail.unwrap_or_default();
            out.write_line(format_args!("{queued}{suffix}"))?;
            let count = queued.split(' ').next().and_then(|count| count.parse::<u64>().ok());
            if count.is_none_or(|count| count < PART) {
                return Ok(());
            }
        }
    }
}

/// Whether a request that failed with this error may have acted.
pub(crate) fn may_have_acted(error: &ApiError) -> bool {
    match error {
        ApiError::Unreachable { .. } => false,
        ApiError::NoResponse { .. } | ApiError::Unreadable { .. } => true,
        ApiError::Refused { status, .. } => status.is_server_error(),
    }
}

/// Says that a change waits for another operator. Returns whether it does.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn note_waiting(change: &ChangeDocument, out: &mut Output<'_>) -> anyhow::Result<bool> {
    if !change.is_proposed() {
        return Ok(false);
    }
    let id = &change.change_id;
    out.write_line(format_args!("change {id} proposed; nothing has changed yet"))?;
    let who = if change.kind.contains("_operator") { "administrator" } else { "operator" };
    out.write_line(format_args!("another {who} confirms it: payctl changes confirm {id} --reason TEXT"))?;
    Ok(true)
}

//! The client of one switch. Its answers are the protocol's own words.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use payment_protocol::SwitchProfile;
use payment_protocol::cancel::CancelAnswer;
use payment_protocol::ids::SwitchName;
use payment_protocol::keys::{Reference, StepKey, UndoKey};
use payment_protocol::money::Money;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::report::SettledReport;
use payment_protocol::submit::{QueryAnswer, SendAnswer};
use reqwest::header::{DATE, HeaderMap};
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;

use crate::breaker::Breaker;
use crate::clock::SwitchClock;
use crate::config::SwitchOptions;
use crate::wire::{
    CancelBody, CancelWord, ProblemBody, RecallBody, RecallWord, TransferBody, TransferStatus, TransferView,
};

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Longest excerpt of a foreign text that is kept, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// A transfer as it is sent; the same on every attempt.
#[derive(Clone, Debug)]
pub struct TransferOrder {
    /// What the switch knows it by.
    pub reference: Reference,
    /// How much.
    pub money: Money,
    /// The account at the destination bank.
    pub creditor_account: String,
    /// The customer's own id.
    pub end_to_end_id: Option<String>,
    /// On the switch's clock; none for a switch that, by the payment's own profile, honours none.
    pub deadline: Option<Timestamp>,
}

/// An answer with the switch's clock in it, if it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered<A> {
    /// What it said.
    pub answer: A,
    /// Its `Date`.
    pub switch_now: Option<Timestamp>,
}

/// Talks to one switch. Every call has the profile's attempt timeout.
#[derive(Debug)]
pub struct SwitchClient {
    name: SwitchName,
    base_url: String,
    api_token: SecretString,
    http: reqwest::Client,
    clock: SwitchClock,
    breaker: Breaker,
}

/// The HTTP client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for switch {switch} could not be made")]
pub struct ClientError {
    switch: SwitchName,
    #[source]
    source: reqwest::Error,
}

/// What came back over HTTP, before it is understood.
struct Reply {
    status: StatusCode,
    switch_now: Option<Timestamp>,
    body: Vec<u8>,
}

impl SwitchClient {
    /// A client for the switch that `profile` describes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(options: &SwitchOptions, profile: &SwitchProfile) -> Result<Self, ClientError> {
        // Refused when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let timeout = Duration::from_millis(profile.attempt_timeout_ms);
        let mut builder = reqwest::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout)
            .redirect(reqwest::redirect::Policy::none());
        if !options.base_url.starts_with("https:") {
            // Plain HTTP stays in the house: it needs no certificates and goes through no proxy.
            builder = builder.tls_certs_only([]).no_proxy();
        }
        let http =
            builder.build().map_err(|source| ClientError { switch: profile.switch.clone(), source })?;
        Ok(Self {
            name: profile.switch.clone(),
            base_url: options.base_url.trim_end_matches('/').to_owned(),
            api_token: options.api_token.clone(),
            http,
            clock: SwitchClock::default(),
            breaker: Breaker::new(profile.breaker_failures, Duration::from_millis(profile.breaker_open_ms)),
        })
    }

    /// The switch's clock now: as last heard, else asked for.
    ///
    /// # Errors
    /// A text that says why the switch's clock cannot be known.
    pub async fn switch_now(&self) -> Result<Timestamp, String> {
        if let Some(now) = self.clock.now() {
            return Ok(now);
        }
        // Any answer carries a Date, also a refusal.
        self.call(Method::GET, "/health", None, None).await?;
        self.clock.now().ok_or_else(|| "the switch sends no Date header".into())
    }

    /// Whether a submit may be made now, or the switch is left in peace for a moment because submits in
    /// a row had no answer. To be asked before an attempt is recorded.
    #[must_use]
    pub fn takes_submits(&self) -> bool {
        self.breaker.passes(Instant::now())
    }

    /// Sends a transfer.
    pub async fn send(&self, order: &TransferOrder) -> SendAnswer {
        let answer = self.send_once(order).await;
        self.breaker.note(!matches!(answer, SendAnswer::Unknown { .. }), Instant::now());
        answer
    }

    async fn send_once(&self, order: &TransferOrder) -> SendAnswer {
        let body = TransferBody {
            reference: order.reference.as_str(),
            amount_minor: order.money.amount_minor(),
            currency: order.money.currency().code(),
            creditor_account: &order.creditor_account,
            end_to_end_id: order.end_to_end_id.as_deref(),
            deadline: order.deadline.map(|deadline| deadline.to_string()),
        };
        let Ok(body) = serde_json::to_vec(&body) else {
            return SendAnswer::Refused { reason: "the transfer cannot be written as JSON".into() };
        };
        let key = order.reference.as_str();
        let reply = match self.call(Method::POST, "/v1/transfers", Some(key), Some(body)).await {
            Ok(reply) => reply,
            Err(detail) => return SendAnswer::Unknown { detail },
        };
        let said: Result<TransferView, String> = reply.read();
        match (reply.status, said) {
            (StatusCode::OK | StatusCode::ACCEPTED, Ok(transfer)) => match transfer.status {
                TransferStatus::Rejected | TransferStatus::Cancelled => {
                    SendAnswer::Refused { reason: reason(transfer.reason) }
                }
                TransferStatus::Pending | TransferStatus::Settled | TransferStatus::Recalled => {
                    SendAnswer::Accepted
                }
            },
            (StatusCode::UNPROCESSABLE_ENTITY, Ok(transfer)) => {
                SendAnswer::Refused { reason: reason(transfer.reason) }
            }
            (status, _) if may_pass(status) || status.is_success() => {
                SendAnswer::Unknown { detail: reply.excerpt() }
            }
            _ => SendAnswer::Refused { reason: reply.excerpt() },
        }
    }

    /// Asks for a transfer by our reference.
    pub async fn query(&self, reference: &Reference) -> Answered<QueryAnswer> {
        let path = format!("/v1/transfers/{reference}");
        let reply = match self.call(Method::GET, &path, None, None).await {
            Ok(reply) => reply,
            Err(detail) => return Answered { answer: QueryAnswer::NoAnswer { detail }, switch_now: None },
        };
        let answer = match reply.status {
            StatusCode::OK => match reply.read::<TransferView>() {
                Ok(transfer) => self.query_answer(transfer),
                Err(detail) => QueryAnswer::NoAnswer { detail },
            },
            StatusCode::NOT_FOUND if reply.problem().code.as_deref() == Some("unknown_reference") => {
                QueryAnswer::NotFound
            }
            status if may_pass(status) || status.is_success() => {
                QueryAnswer::NoAnswer { detail: reply.excerpt() }
            }
            _ => QueryAnswer::OurFault { detail: reply.excerpt() },
        };
        Answered { answer, switch_now: reply.switch_now }
    }

    /// Asks to cancel.
    pub async fn cancel(&self, reference: &Reference, key: &UndoKey) -> Answered<CancelAnswer> {
        let path = format!("/v1/transfers/{reference}/cancel");
        let reply = match self.call(Method::POST, &path, Some(key.as_str()), None).await {
            Ok(reply) => reply,
            Err(detail) => return Answered { answer: CancelAnswer::NoAnswer { detail }, switch_now: None },
        };
        let answer = match reply.status {
            StatusCode::OK => match reply.read::<CancelBody>() {
                Ok(body) => self.cancel_answer(body),
                Err(detail) => CancelAnswer::NoAnswer { detail },
            },
            status if may_pass(status) || status.is_success() => {
                CancelAnswer::NoAnswer { detail: reply.excerpt() }
            }
            _ => CancelAnswer::OurFault { detail: reply.excerpt() },
        };
        Answered { answer, switch_now: reply.switch_now }
    }

    /// Asks for money back that left.
    pub async fn recall(&self, reference: &Reference, key: &StepKey) -> RecallAnswer {
        let path = format!("/v1/transfers/{reference}/recall");
        let reply = match self.call(Method::POST, &path, Some(key.as_str()), None).await {
            Ok(reply) => reply,
            Err(detail) => return RecallAnswer::Unknown { detail },
        };
        match (reply.status, reply.read::<RecallBody>()) {
            (StatusCode::OK, Ok(body)) => match body.answer {
                RecallWord::Recalled => RecallAnswer::Recalled,
                RecallWord::Refused => RecallAnswer::Refused { reason: reason(body.reason) },
                RecallWord::CannotRecall => RecallAnswer::CannotRecall,
                RecallWord::InProcess | RecallWord::NotSettled | RecallWord::NotFound => {
                    RecallAnswer::Unknown { detail: reply.excerpt() }
                }
            },
            _ => RecallAnswer::Unknown { detail: reply.excerpt() },
        }
    }

    fn query_answer(&self, transfer: TransferView) -> QueryAnswer {
        match transfer.status {
            TransferStatus::Pending => QueryAnswer::Pending,
            TransferStatus::Rejected | TransferStatus::Cancelled => {
                QueryAnswer::Dead { reason: reason(transfer.reason) }
            }
            // Recalled is settled and given back: the settlement is what a query is asked for.
            TransferStatus::Settled | TransferStatus::Recalled => match self.report(transfer) {
                Some(report) => QueryAnswer::Settled(report),
                None => QueryAnswer::NoAnswer { detail: "settled, without an amount or a currency".into() },
            },
        }
    }

    fn cancel_answer(&self, body: CancelBody) -> CancelAnswer {
        match body.answer {
            CancelWord::Cancelled => CancelAnswer::Cancelled { tombstoned: !body.known },
            CancelWord::AlreadyRejected => CancelAnswer::AlreadyRejected,
            CancelWord::AlreadySettled => match body.transfer.and_then(|transfer| self.report(transfer)) {
                Some(report) => CancelAnswer::AlreadySettled(report),
                None => CancelAnswer::Undecided { detail: "already settled, without the transfer".into() },
            },
            CancelWord::NotFound => CancelAnswer::NotFound,
            CancelWord::CannotCancel => CancelAnswer::CannotCancel,
            CancelWord::Refused | CancelWord::InProcess => {
                CancelAnswer::Undecided { detail: format!("{:?}: {}", body.answer, reason(body.reason)) }
            }
        }
    }

    fn report(&self, transfer: TransferView) -> Option<SettledReport> {
        Some(SettledReport {
            switch: self.name.clone(),
            reference: transfer.reference,
            amount_minor: transfer.amount_minor?,
            currency: transfer.currency?,
        })
    }

    /// One attempt of one call. An error is a text for people: there was no answer.
    async fn call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Vec<u8>>,
    ) -> Result<Reply, String> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base_url))
            .bearer_auth(self.api_token.expose_secret());
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body);
        }
        let mut response = request.send().await.map_err(|error| no_answer(&error))?;
        let switch_now = self.hear(response.headers());
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(&error))? {
            if body.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
                return Err(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status, switch_now, body })
    }

    fn hear(&self, headers: &HeaderMap) -> Option<Timestamp> {
        headers.get(DATE).and_then(|date| date.to_str().ok()).and_then(|date| self.clock.hear(date))
    }
}

impl Reply {
    fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body)
            .map_err(|_| format!("an answer that cannot be read: {}", self.excerpt()))
    }

    fn problem(&self) -> ProblemBody {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// What it said, short enough to store.
    fn excerpt(&self) -> String {
        let problem = self.problem();
        let said = match (problem.code, problem.detail) {
            (Some(code), Some(detail)) => format!("{code}: {detail}"),
            (Some(code), None) => code,
            (None, _) => String::from_utf8_lossy(&self.body).into_owned(),
        };
        excerpt(&format!("{} {said}", self.status.as_u16()))
    }
}

/// Answers that say nothing of the transfer and may pass by themselves.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

fn no_answer(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        "no answer within the attempt's timeout".into()
    } else if error.is_connect() {
        "no connection".into()
    } else {
        "the connection broke".into()
    }
}

fn reason(said: Option<String>) -> String {
    excerpt(said.as_deref().unwrap_or("no reason given"))
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS_MAX).collect()
}

//! The client of one switch. Its answers are the protocol's own words.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use payment_protocol::SwitchProfile;
use payment_protocol::cancel::CancelAnswer;
use payment_protocol::ids::SwitchName;
use payment_protocol::keys::{CompensationKey, Reference, StepKey};
use payment_protocol::money::Money;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::report::SettledReport;
use payment_protocol::submit::{QueryAnswer, SendAnswer};
use reqwest::{Method, StatusCode};
use secrecy::SecretString;

use crate::breaker::Breaker;
use crate::clock::SwitchClock;
use crate::config::SwitchOptions;
use crate::http::{excerpt, may_pass};
use crate::quiet::Quiet;
use crate::read_back::{Found, LookupKey};
use crate::statement::Positions;
use crate::wire::{
    CancelBody, CancelWord, RecallBody, RecallWord, TransferBody, TransferStatus, TransferView,
};

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

/// Which transfer a call is about.
#[derive(Clone, Copy, Debug)]
pub enum TransferRef<'a> {
    /// The one of our reference.
    Reference(&'a Reference),
    /// One at a switch without references: by the switch's own id, else read back.
    LookupKey(&'a LookupKey),
}

/// An answer with the switch's clock in it, if it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchReply<A> {
    /// What it said.
    pub answer: A,
    /// Its `Date`.
    pub switch_now: Option<Timestamp>,
    /// The switch's own id of the transfer, where the answer tells it.
    pub transfer_id: Option<String>,
}

/// Talks to one switch. Every call has the profile's attempt timeout.
#[derive(Debug)]
pub struct SwitchClient {
    name: SwitchName,
    pub(crate) base_url: String,
    pub(crate) api_token: SecretString,
    pub(crate) http: reqwest::Client,
    pub(crate) clock: SwitchClock,
    /// Time for one call.
    pub(crate) timeout: Duration,
    /// How far its statement was read.
    pub(crate) positions: Positions,
    breaker: Breaker,
    pub(crate) quiet: Quiet,
}

/// The HTTP client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for switch {switch} could not be made")]
pub struct ClientError {
    switch: SwitchName,
    #[source]
    source: reqwest::Error,
}

impl<A> SwitchReply<A> {
    /// An answer that names no transfer.
    pub(crate) fn new(answer: A, switch_now: Option<Timestamp>) -> Self {
        Self { answer, switch_now, transfer_id: None }
    }

    /// With the transfer it is about.
    pub(crate) fn of(mut self, transfer_id: Option<String>) -> Self {
        self.transfer_id = transfer_id;
        self
    }
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
        let client = Self {
            name: profile.switch.clone(),
            base_url: options.base_url.trim_end_matches('/').to_owned(),
            api_token: options.api_token.clone(),
            http,
            clock: SwitchClock::default(),
            timeout,
            positions: Positions::default(),
            breaker: Breaker::new(profile.breaker_failures, Duration::from_millis(profile.breaker_open_ms)),
            quiet: Quiet::new(Duration::from_millis(profile.retry_interval_max_ms)),
        };
        client.show_breaker();
        Ok(client)
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
    /// a row had no answer, or because it asked for that. To be asked before an attempt is recorded.
    #[must_use]
    pub fn takes_submits(&self) -> bool {
        let now = Instant::now();
        self.breaker.passes(now) && self.quiet.left(now).is_none()
    }

    /// How long the switch still wants to be left alone, by its last `Retry-After` and at most the profile's
    /// `retry_interval_max_ms`: what is asked again is better asked after that. None when it does not.
    #[must_use]
    pub fn asked_to_wait(&self) -> Option<Duration> {
        self.quiet.left(Instant::now())
    }

    /// Sends a transfer.
    pub async fn send(&self, order: &TransferOrder) -> SwitchReply<SendAnswer> {
        let said = self.send_once(order).await;
        self.breaker.note(!matches!(said.answer, SendAnswer::Unknown { .. }), Instant::now());
        self.show_breaker();
        said
    }

    fn show_breaker(&self) {
        let is_open = f64::from(u8::from(self.breaker.is_open()));
        metrics::gauge!("switch_circuit_open", "switch" => self.name.to_string()).set(is_open);
    }

    async fn send_once(&self, order: &TransferOrder) -> SwitchReply<SendAnswer> {
        let body = TransferBody {
            reference: order.reference.as_str(),
            amount_minor: order.money.amount_minor(),
            currency: order.money.currency().code(),
            creditor_account: &order.creditor_account,
            end_to_end_id: order.end_to_end_id.as_deref(),
            deadline: order.deadline.map(|deadline| deadline.to_string()),
        };
        let Ok(body) = serde_json::to_vec(&body) else {
            let reason = "the transfer cannot be written as JSON".into();
            return SwitchReply::new(SendAnswer::Refused { reason }, None);
        };
        let key = order.reference.as_str();
        let reply = match self.call(Method::POST, "/v1/transfers", Some(key), Some(body)).await {
            Ok(reply) => reply,
            Err(detail) => return SwitchReply::new(SendAnswer::Unknown { detail }, None),
        };
        let said: Result<TransferView, String> = reply.read();
        let transfer_id = said.as_ref().ok().and_then(|transfer| transfer.transfer_id.clone());
        let answer = match (reply.status, said) {
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
        };
        SwitchReply::new(answer, reply.switch_now).of(transfer_id)
    }

    /// Asks for a transfer. At a switch without references what cannot be told apart is no answer.
    pub async fn query(&self, about: TransferRef<'_>) -> SwitchReply<QueryAnswer> {
        match about {
            TransferRef::Reference(reference) => {
                self.query_at(&format!("/v1/transfers/{reference}"), reference, false).await
            }
            TransferRef::LookupKey(lookup_key) => match &lookup_key.transfer_id {
                Some(id) => {
                    self.query_at(&path_of(id), &lookup_key.reference, true).await.of(Some(id.clone()))
                }
                None => self.read_back(lookup_key).await.into_query(),
            },
        }
    }

    async fn query_at(&self, path: &str, ours: &Reference, by_id: bool) -> SwitchReply<QueryAnswer> {
        let reply = match self.call(Method::GET, path, None, None).await {
            Ok(reply) => reply,
            Err(detail) => return SwitchReply::new(QueryAnswer::NoAnswer { detail }, None),
        };
        let mut transfer_id = None;
        let answer = match reply.status {
            StatusCode::OK => match reply.read::<TransferView>() {
                Ok(transfer) => {
                    transfer_id.clone_from(&transfer.transfer_id);
                    self.query_answer(transfer, by_id.then_some(ours))
                }
                Err(detail) => QueryAnswer::NoAnswer { detail },
            },
            StatusCode::NOT_FOUND if reply.says_unknown() => QueryAnswer::NotFound,
            status if may_pass(status) || status.is_success() => {
                QueryAnswer::NoAnswer { detail: reply.excerpt() }
            }
            _ => QueryAnswer::OurFault { detail: reply.excerpt() },
        };
        SwitchReply::new(answer, reply.switch_now).of(transfer_id)
    }

    /// Asks to cancel.
    pub async fn cancel(&self, about: TransferRef<'_>, key: &CompensationKey) -> SwitchReply<CancelAnswer> {
        let lookup_key = match about {
            TransferRef::Reference(reference) => {
                return self.cancel_at(&format!("/v1/transfers/{reference}"), key, None).await;
            }
            TransferRef::LookupKey(lookup_key) => lookup_key,
        };
        let id = match &lookup_key.transfer_id {
            Some(id) => id.clone(),
            None => {
                let read = self.read_back(lookup_key).await;
                match read.answer {
                    Found::One { transfer_id, .. } => transfer_id,
                    Found::Nothing => return SwitchReply::new(CancelAnswer::NotFound, read.switch_now),
                    Found::OurFault { detail } => {
                        return SwitchReply::new(CancelAnswer::OurFault { detail }, read.switch_now);
                    }
                    Found::NoAnswer { detail } => {
                        return SwitchReply::new(CancelAnswer::NoAnswer { detail }, read.switch_now);
                    }
                }
            }
        };
        self.cancel_at(&path_of(&id), key, Some(&lookup_key.reference)).await.of(Some(id))
    }

    async fn cancel_at(
        &self,
        path: &str,
        key: &CompensationKey,
        ours: Option<&Reference>,
    ) -> SwitchReply<CancelAnswer> {
        let path = format!("{path}/cancel");
        let reply = match self.call(Method::POST, &path, Some(key.as_str()), None).await {
            Ok(reply) => reply,
            Err(detail) => return SwitchReply::new(CancelAnswer::NoAnswer { detail }, None),
        };
        let answer = match reply.status {
            StatusCode::OK => match reply.read::<CancelBody>() {
                Ok(body) => self.cancel_answer(body, ours),
                Err(detail) => CancelAnswer::NoAnswer { detail },
            },
            // By reference it is the cancel's own answer that says so.
            StatusCode::NOT_FOUND if ours.is_some() && reply.says_unknown() => CancelAnswer::NotFound,
            status if may_pass(status) || status.is_success() => {
                CancelAnswer::NoAnswer { detail: reply.excerpt() }
            }
            _ => CancelAnswer::OurFault { detail: reply.excerpt() },
        };
        SwitchReply::new(answer, reply.switch_now)
    }

    /// Asks for money back that left.
    pub async fn recall(&self, about: TransferRef<'_>, key: &StepKey) -> SwitchReply<RecallAnswer> {
        let (path, id) = match about {
            TransferRef::Reference(reference) => (format!("/v1/transfers/{reference}"), None),
            TransferRef::LookupKey(LookupKey { transfer_id: Some(id), .. }) => {
                (path_of(id), Some(id.clone()))
            }
            TransferRef::LookupKey(lookup_key) => match self.read_back(lookup_key).await.answer {
                Found::One { transfer_id, .. } => (path_of(&transfer_id), Some(transfer_id)),
                Found::Nothing => {
                    let detail = "the transfer was not found".into();
                    return SwitchReply::new(RecallAnswer::Unknown { detail }, None);
                }
                Found::OurFault { detail } | Found::NoAnswer { detail } => {
                    return SwitchReply::new(RecallAnswer::Unknown { detail }, None);
                }
            },
        };
        let path = format!("{path}/recall");
        let reply = match self.call(Method::POST, &path, Some(key.as_str()), None).await {
            Ok(reply) => reply,
            Err(detail) => return SwitchReply::new(RecallAnswer::Unknown { detail }, None).of(id),
        };
        let answer = match (reply.status, reply.read::<RecallBody>()) {
            (StatusCode::OK, Ok(body)) => match body.answer {
                RecallWord::Recalled => RecallAnswer::Recalled,
                RecallWord::Refused => RecallAnswer::Refused { reason: reason(body.reason) },
                RecallWord::RecallUnsupported => RecallAnswer::RecallUnsupported,
                RecallWord::InProcess | RecallWord::NotSettled | RecallWord::NotFound => {
                    RecallAnswer::Unknown { detail: reply.excerpt() }
                }
            },
            _ => RecallAnswer::Unknown { detail: reply.excerpt() },
        };
        SwitchReply::new(answer, reply.switch_now).of(id)
    }

    /// What a transfer says to a query. `ours` is our reference where the switch knows none and the
    /// transfer was found otherwise.
    pub(crate) fn query_answer(&self, transfer: TransferView, ours: Option<&Reference>) -> QueryAnswer {
        match transfer.status {
            TransferStatus::Pending => QueryAnswer::Pending,
            TransferStatus::Rejected | TransferStatus::Cancelled => {
                QueryAnswer::Void { reason: reason(transfer.reason) }
            }
            // Recalled is settled and given back: the settlement is what a query is asked for.
            TransferStatus::Settled | TransferStatus::Recalled => match self.report(transfer, ours) {
                Some(report) => QueryAnswer::Settled(report),
                None => QueryAnswer::NoAnswer {
                    detail: "settled, without a reference, an amount or a currency".into(),
                },
            },
        }
    }

    fn cancel_answer(&self, body: CancelBody, ours: Option<&Reference>) -> CancelAnswer {
        match body.answer {
            // By its own id the switch knew it, whether it says so or not.
            CancelWord::Cancelled => CancelAnswer::Cancelled { tombstoned: !body.known && ours.is_none() },
            CancelWord::AlreadyRejected => CancelAnswer::AlreadyRejected,
            CancelWord::AlreadySettled => {
                match body.transfer.and_then(|transfer| self.report(transfer, ours)) {
                    Some(report) => CancelAnswer::AlreadySettled(report),
                    None => {
                        CancelAnswer::Undecided { detail: "already settled, without the transfer".into() }
                    }
                }
            }
            CancelWord::NotFound => CancelAnswer::NotFound,
            CancelWord::CannotCancel => CancelAnswer::CannotCancel,
            CancelWord::Refused => {
                CancelAnswer::Undecided { detail: format!("refused: {}", reason(body.reason)) }
            }
            CancelWord::InProcess => {
                CancelAnswer::Undecided { detail: format!("in process: {}", reason(body.reason)) }
            }
        }
    }

    fn report(&self, transfer: TransferView, ours: Option<&Reference>) -> Option<SettledReport> {
        Some(SettledReport {
            switch: self.name.clone(),
            reference: match ours {
                Some(reference) => reference.to_string(),
                None => transfer.reference?,
            },
            amount_minor: transfer.amount_minor?,
            currency: transfer.currency?,
        })
    }
}

/// Where a transfer is by the switch's own id.
fn path_of(id: &str) -> String {
    format!("/v1/transfers/by-id/{}", crate::http::escaped(id))
}

pub(crate) fn reason(said: Option<String>) -> String {
    excerpt(said.as_deref().unwrap_or("no reason given"))
}

//! Every call of the client that reads an answer about a transfer: how to make it, the definite answer that a switch gives
//! to it, and its outcome in a word.

use jiff::Timestamp;
use payment_protocol::cancel::CancelAnswer;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::{QueryAnswer, SendAnswer};
use payment_protocol::{SwitchProfile, keys};
use serde_json::{Value, json};
use switch_client::client::ClientError;
use switch_client::{HttpJsonClient, LookupKey, SecretsOf, Switches, TransferOrder, TransferRef};

use crate::server::{Server, Step};

/// A call of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Submit,
    SubmitWithoutReferences,
    Query,
    QueryById,
    Cancel,
    CancelById,
    Recall,
    RecallById,
    ReadBack,
    Marker,
    StatementLookup,
    StatementPage,
}

pub(crate) const ALL: [Call; 12] = [
    Call::Submit,
    Call::SubmitWithoutReferences,
    Call::Query,
    Call::QueryById,
    Call::Cancel,
    Call::CancelById,
    Call::Recall,
    Call::RecallById,
    Call::ReadBack,
    Call::Marker,
    Call::StatementLookup,
    Call::StatementPage,
];

/// The switch's own id of our transfer.
pub(crate) const ID: &str = "7";
/// The account at the destination bank.
pub(crate) const ACCOUNT: &str = "FR-BOB";

pub(crate) fn tx() -> TxId {
    TxId::derive(&PaymentId::new("pay_1").unwrap())
}

/// Our reference.
pub(crate) fn reference() -> String {
    keys::submit(&tx()).to_string()
}

impl Call {
    /// Whether the switch of this call has no references.
    fn is_without_references(self) -> bool {
        matches!(
            self,
            Self::SubmitWithoutReferences
                | Self::QueryById
                | Self::CancelById
                | Self::RecallById
                | Self::ReadBack
                | Self::Marker
        )
    }

    /// Status and body of a documented definite answer. It is the one that does most harm if it is concluded wrongly.
    pub(crate) fn definite(self) -> (u16, Value) {
        let reference = (!self.is_without_references()).then(reference);
        let transfer = |status: &str| {
            json!({"transfer_id": ID, "reference": reference, "status": status, "amount_minor": 500, "currency": "EUR",
                "creditor_account": ACCOUNT, "received_at": "2026-01-01T00:00:00Z"})
        };
        let with = |mut body: Value, field: &str, value: Value| {
            body[field] = value;
            body
        };
        match self {
            Self::Submit | Self::SubmitWithoutReferences => {
                (202, with(transfer("REJECTED"), "duplicate", true.into()))
            }
            Self::Query | Self::QueryById => (200, transfer("REJECTED")),
            Self::Cancel | Self::CancelById => (
                200,
                json!({"reference": reference, "transfer_id": self.is_without_references().then_some(ID),
                    "answer": "CANCELLED", "known": true, "transfer": transfer("CANCELLED")}),
            ),
            Self::Recall | Self::RecallById => (
                200,
                json!({"reference": reference, "transfer_id": self.is_without_references().then_some(ID),
                    "answer": "REFUSED", "reason": "spent"}),
            ),
            Self::ReadBack | Self::Marker => {
                (200, json!({"transfers": [transfer("REJECTED")], "next": null}))
            }
            Self::StatementLookup | Self::StatementPage => {
                let entry = with(transfer("REJECTED"), "cursor", "c1".into());
                let entry = with(entry, "finished_at", "2026-01-01T00:00:01Z".into());
                (200, json!({"entries": [entry], "next": null, "complete_until": "2026-01-01T00:00:01Z"}))
            }
        }
    }

    /// The outcome of the definite answer.
    pub(crate) fn definite_outcome(self) -> &'static str {
        match self {
            Self::Submit | Self::SubmitWithoutReferences | Self::Recall | Self::RecallById => "refused",
            Self::Query | Self::QueryById | Self::ReadBack | Self::StatementLookup => "void",
            Self::Cancel | Self::CancelById => "cancelled",
            Self::Marker => "marker 7",
            Self::StatementPage => "1 lines, last",
        }
    }

    /// The outcome if nothing definite was read.
    /// The outcome of a call that was certainly not carried out: a recall that a rail takes once may then be sent.
    pub(crate) fn not_received_outcome(self) -> &'static str {
        match self {
            Self::Recall | Self::RecallById => "not received",
            _ => self.unknown_outcome(),
        }
    }

    pub(crate) fn unknown_outcome(self) -> &'static str {
        match self {
            Self::Submit | Self::SubmitWithoutReferences | Self::Recall | Self::RecallById => "unknown",
            Self::Marker | Self::StatementPage => "error",
            _ => "no answer",
        }
    }

    /// JSON pointer to the transfer in the definite answer; `None` if the answer has none.
    pub(crate) fn transfer_pointer(self) -> Option<&'static str> {
        match self {
            Self::Submit | Self::SubmitWithoutReferences | Self::Query | Self::QueryById => Some(""),
            Self::Cancel | Self::CancelById => Some("/transfer"),
            Self::Recall | Self::RecallById => None,
            Self::ReadBack | Self::Marker => Some("/transfers/0"),
            Self::StatementLookup | Self::StatementPage => Some("/entries/0"),
        }
    }

    /// Makes the call.
    pub(crate) async fn make(self, client: &HttpJsonClient) -> Outcome {
        let (by_reference, by_id) = (keys::submit(&tx()), lookup_key(None, Some(ID)));
        let transfer = match self {
            Self::QueryById | Self::CancelById | Self::RecallById => TransferRef::LookupKey(&by_id),
            _ => TransferRef::Name(&by_reference.clone().into()),
        };
        match self {
            Self::Submit | Self::SubmitWithoutReferences => {
                let reply = client.send(&order()).await;
                Outcome::new(send_word(&reply.answer), detail(&reply.answer), reply.switch_now)
            }
            Self::Query | Self::QueryById => {
                let reply = client.query(transfer).await;
                Outcome::new(query_word(&reply.answer), detail(&reply.answer), reply.switch_now)
            }
            Self::Cancel | Self::CancelById => {
                let reply = client.cancel(transfer, &keys::compensate_submit(&tx())).await;
                Outcome::new(cancel_word(&reply.answer), detail(&reply.answer), reply.switch_now)
            }
            Self::Recall | Self::RecallById => {
                let reply = client.recall(transfer, &keys::recall(&tx())).await;
                Outcome::new(recall_word(&reply.answer), detail(&reply.answer), reply.switch_now)
            }
            Self::ReadBack => {
                let reply = client.query(TransferRef::LookupKey(&lookup_key(Some("0"), None))).await;
                Outcome::new(query_word(&reply.answer), detail(&reply.answer), reply.switch_now)
            }
            Self::StatementLookup => {
                let reply = client.statement(&lookup_key(None, None)).await;
                Outcome::new(query_word(&reply.answer), detail(&reply.answer), reply.switch_now)
            }
            Self::Marker => {
                Outcome::of(client.marker(ACCOUNT).await.map(|marker| format!("marker {marker}")))
            }
            Self::StatementPage => Outcome::of(client.statement_page(None).await.map(|page| {
                format!("{} lines, {}", page.lines.len(), if page.is_last { "last" } else { "more" })
            })),
        }
    }

    /// Makes the call to a new server that answers with this step.
    pub(crate) async fn outcome_of(self, step: Step) -> Outcome {
        let server = Server::start(vec![step]).await;
        self.make(&self.client(&server, 30_000)).await
    }

    /// A client of the kind of switch that this call is for.
    pub(crate) fn client(self, server: &Server, attempt_timeout_ms: u64) -> HttpJsonClient {
        let strategy = if self.is_without_references() { "validate" } else { "query" };
        let has_references = !self.is_without_references();
        let profile = json!({"strategy": strategy, "deduplicates": has_references, "tombstones": has_references,
            "has_callback": has_references, "attempt_timeout_ms": attempt_timeout_ms});
        client_with(&server.url, &profile)
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// In a word.
    pub(crate) word: String,
    /// The answer as the caller sees it.
    pub(crate) detail: String,
    pub(crate) switch_now: Option<Timestamp>,
}

impl Outcome {
    fn new(word: &str, detail: String, switch_now: Option<Timestamp>) -> Self {
        Self { word: word.to_owned(), detail, switch_now }
    }

    fn of(result: Result<String, String>) -> Self {
        match result {
            Ok(word) => Self::new(&word, String::new(), None),
            Err(detail) => Self::new("error", detail, None),
        }
    }
}

fn detail(answer: &impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

/// The profile of a switch that offers everything.
pub(crate) fn profile() -> Value {
    json!({"strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
        "tombstones": true, "honours_deadline": true, "max_skew_ms": 0, "can_cancel": true, "can_recall": true,
        "has_callback": true, "has_statement": true, "attempt_timeout_ms": 30_000, "submit_budget_ms": 300_000})
}

/// A client of the switch at `url`; `change` replaces fields of its profile.
pub(crate) fn client_with(url: &str, change: &Value) -> HttpJsonClient {
    let mut profile = profile();
    profile.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    client_of(&json!({"base_url": url, "profile": profile})).unwrap()
}

/// A client of a switch with these options and a token.
pub(crate) fn client_of(options: &Value) -> Result<HttpJsonClient, ClientError> {
    let mut section = json!({"api_token": "t", "callback_secrets": ["whsec_x"]});
    section.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    let switches: Switches = serde_json::from_value(json!({"mock": section})).unwrap();
    let checked = switches.check(SecretsOf::Requests).unwrap();
    let (_, options, profile): (_, _, &SwitchProfile) = checked.iter().next().unwrap();
    HttpJsonClient::new(options, profile)
}

pub(crate) fn order() -> TransferOrder {
    TransferOrder {
        name: keys::submit(&tx()).into(),
        money: money(),
        creditor_account: ACCOUNT.into(),
        end_to_end_id: None,
        deadline: Some(Timestamp::UNIX_EPOCH),
    }
}

fn money() -> Money {
    Money::from_minor(500, parse_currency("EUR").unwrap()).unwrap()
}

pub(crate) fn lookup_key(marker: Option<&str>, transfer_id: Option<&str>) -> LookupKey {
    LookupKey {
        name: keys::submit(&tx()).into(),
        marker: marker.map(str::to_owned),
        transfer_id: transfer_id.map(str::to_owned),
        creditor_account: ACCOUNT.into(),
        money: money(),
    }
}

pub(crate) fn send_word(answer: &SendAnswer) -> &'static str {
    match answer {
        SendAnswer::Accepted => "accepted",
        SendAnswer::Refused { .. } => "refused",
        SendAnswer::Unknown { .. } => "unknown",
    }
}

pub(crate) fn query_word(answer: &QueryAnswer) -> &'static str {
    match answer {
        QueryAnswer::Pending => "pending",
        QueryAnswer::Settled(_) => "settled",
        QueryAnswer::Returned(_) => "returned",
        QueryAnswer::Void { .. } => "void",
        QueryAnswer::NotFound => "not found",
        QueryAnswer::NotListed { .. } => "not listed",
        QueryAnswer::Ambiguous { .. } => "ambiguous",
        QueryAnswer::OurFault { .. } => "our fault",
        QueryAnswer::NoAnswer { .. } => "no answer",
    }
}

pub(crate) fn cancel_word(answer: &CancelAnswer) -> &'static str {
    match answer {
        CancelAnswer::Cancelled { tombstoned: Some(false) } => "cancelled",
        CancelAnswer::Cancelled { tombstoned: Some(true) } => "tombstoned",
        CancelAnswer::Cancelled { tombstoned: None } => "cancelled, unsaid",
        CancelAnswer::AlreadyRejected => "rejected",
        CancelAnswer::AlreadySettled(_) => "settled",
        CancelAnswer::AlreadyReturned(_) => "returned",
        CancelAnswer::NotFound => "not found",
        CancelAnswer::Undecided { .. } => "undecided",
        CancelAnswer::CannotCancel => "cannot",
        CancelAnswer::OurFault { .. } => "our fault",
        CancelAnswer::NoAnswer { .. } => "no answer",
    }
}

pub(crate) fn recall_word(answer: &RecallAnswer) -> &'static str {
    match answer {
        RecallAnswer::Recalled => "recalled",
        RecallAnswer::Refused { .. } => "refused",
        RecallAnswer::RecallUnsupported => "cannot",
        RecallAnswer::Promised => "promised",
        RecallAnswer::Pending => "pending",
        RecallAnswer::NotReceived { .. } => "not received",
        RecallAnswer::Unknown { .. } => "unknown",
    }
}

//! A callback: what the switch reports by itself, the end of a transfer, a return, where the money is, or the answer to a recall.

use payment_protocol::ids::{ReturnId, SwitchName};
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::recall::{RecallAnswer, RecallReport};
use payment_protocol::report::{Incoming, IncomingReport};
use payment_protocol::returns::{Posting, PostingReport, ReturnReport};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::bodies::{object, optional_word, scalar_text, word};
use super::http::excerpt;
use super::integer::deserialize_integer;
use crate::client::SwitchReports;

/// The event types.
const COMPLETED: &str = "transfer.completed";
const RETURNED: &str = "transfer.returned";
const POSTING: &str = "transfer.posting";
const RECALL_ANSWERED: &str = "transfer.recall_answered";

/// Body of a callback, by its event type. Unknown fields are ignored.
#[derive(Debug, ToSchema)]
#[schema(as = CallbackBody)]
#[allow(dead_code, reason = "documents the bodies; each is read by its event type")]
#[serde(untagged)]
pub enum CallbackBody {
    /// The end of a transfer.
    Completed(CompletedBody),
    /// A return of a settled transfer, whole or in part; each return has an id of its own.
    Returned(ReturnedBody),
    /// Where the money of a settled transfer is. It moves no money.
    Posting(PostingBody),
    /// The answer to a recall. It moves no money: what comes back is a return.
    RecallAnswered(RecallAnsweredBody),
}

/// The type of the end of a transfer.
#[derive(Debug, Deserialize, ToSchema)]
enum CompletedType {
    #[serde(rename = "transfer.completed")]
    Completed,
}

/// The type of a return.
#[derive(Debug, Deserialize, ToSchema)]
enum ReturnedType {
    #[serde(rename = "transfer.returned")]
    Returned,
}

/// The type of a report of the posting.
#[derive(Debug, Deserialize, ToSchema)]
enum PostingType {
    #[serde(rename = "transfer.posting")]
    Posting,
}

/// The type of the answer to a recall.
#[derive(Debug, Deserialize, ToSchema)]
enum RecallAnsweredType {
    #[serde(rename = "transfer.recall_answered")]
    RecallAnswered,
}

/// The type of an event, which says how to read the rest.
#[derive(Debug, Deserialize)]
struct EventType {
    r#type: String,
}

/// The end of a transfer.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({"type": "transfer.completed", "reference": "tx_0123456789abcdef01234567:submit",
    "status": "SUCCESS", "amount_minor": 1250, "currency": "EUR", "occurred_at": "2026-01-01T12:00:00Z"}))]
pub struct CompletedBody {
    #[allow(dead_code, reason = "read before the rest")]
    r#type: CompletedType,
    /// Reference of the transfer, as we submitted it.
    reference: String,
    #[serde(deserialize_with = "word")]
    status: Status,
    /// Amount of the transfer, in minor units.
    #[serde(deserialize_with = "deserialize_integer")]
    amount_minor: i64,
    /// ISO 4217 code.
    currency: String,
    /// Reason given by the switch, usually for a failure.
    #[serde(default)]
    reason: Option<String>,
    /// Code of the reason, from a switch whose rejects have codes.
    #[serde(default, deserialize_with = "scalar_text")]
    reason_code: Option<String>,
    /// Where the money of a SUCCESS is at the receiving bank, if the switch says so.
    #[serde(default, deserialize_with = "optional_word")]
    posting: Option<PostingWord>,
}

/// A return of a settled transfer.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({"type": "transfer.returned", "reference": "tx_0123456789abcdef01234567:submit",
    "return_id": "ret_1", "amount_minor": 500, "currency": "EUR", "reason_code": "AC04"}))]
pub struct ReturnedBody {
    #[allow(dead_code, reason = "read before the rest")]
    r#type: ReturnedType,
    /// Reference of the transfer, as we submitted it.
    reference: String,
    /// The switch's id of the return; the same whenever it reports the return.
    return_id: String,
    /// Amount of the return, in minor units.
    #[serde(deserialize_with = "deserialize_integer")]
    amount_minor: i64,
    /// ISO 4217 code.
    currency: String,
    /// Reason given by the switch.
    #[serde(default)]
    reason: Option<String>,
    /// Code of the reason.
    #[serde(default, deserialize_with = "scalar_text")]
    reason_code: Option<String>,
}

/// Where the money of a settled transfer is.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({"type": "transfer.posting", "reference": "tx_0123456789abcdef01234567:submit",
    "posting": "posted", "amount_minor": 1250, "currency": "EUR"}))]
pub struct PostingBody {
    #[allow(dead_code, reason = "read before the rest")]
    r#type: PostingType,
    /// Reference of the transfer, as we submitted it.
    reference: String,
    #[serde(deserialize_with = "word")]
    posting: PostingWord,
    /// Amount of the transfer, in minor units.
    #[serde(deserialize_with = "deserialize_integer")]
    amount_minor: i64,
    /// ISO 4217 code.
    currency: String,
    /// Reason given by the switch.
    #[serde(default)]
    reason: Option<String>,
}

/// The answer to a recall.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({"type": "transfer.recall_answered", "reference": "tx_0123456789abcdef01234567:submit",
    "answer": "promised", "amount_minor": 1250, "currency": "EUR"}))]
pub struct RecallAnsweredBody {
    #[allow(dead_code, reason = "read before the rest")]
    r#type: RecallAnsweredType,
    /// Reference of the transfer, as we submitted it.
    reference: String,
    #[serde(deserialize_with = "word")]
    answer: RecallWord,
    /// Amount of the transfer, in minor units.
    #[serde(deserialize_with = "deserialize_integer")]
    amount_minor: i64,
    /// ISO 4217 code.
    currency: String,
    /// Reason given by the receiving bank, usually for a refusal.
    #[serde(default)]
    reason: Option<String>,
    /// Code of the reason.
    #[serde(default, deserialize_with = "scalar_text")]
    reason_code: Option<String>,
}

/// What the receiving bank says to a recall.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecallAnswer)]
enum RecallWord {
    Pending,
    Promised,
    Refused,
}

/// Result of the transfer at the switch.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schema(as = CallbackStatus)]
enum Status {
    Success,
    Failure,
    Returned,
}

/// Where the money of a settled transfer is at the receiving bank.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Posting)]
enum PostingWord {
    Posted,
    Pending,
    Blocked,
    ReturnComing,
}

impl From<PostingWord> for Posting {
    fn from(word: PostingWord) -> Self {
        match word {
            PostingWord::Posted => Self::Posted,
            PostingWord::Pending => Self::Pending,
            PostingWord::Blocked => Self::Blocked,
            PostingWord::ReturnComing => Self::ReturnComing,
        }
    }
}

/// Reads callbacks.
#[derive(Clone, Copy, Debug)]
pub struct HttpJsonReports;

impl SwitchReports for HttpJsonReports {
    fn read(&self, switch: &SwitchName, body: &[u8]) -> Result<Incoming, String> {
        let event: EventType = parse(body)?;
        // Another event type with a status field must not be taken for the end of a transfer.
        Ok(match event.r#type.as_str() {
            COMPLETED => Incoming::End(parse::<CompletedBody>(body)?.into()),
            RETURNED => Incoming::Return(parse::<ReturnedBody>(body)?.report(switch)?),
            POSTING => Incoming::Posting(parse::<PostingBody>(body)?.into()),
            RECALL_ANSWERED => Incoming::Recall(parse::<RecallAnsweredBody>(body)?.into()),
            other => {
                let other = excerpt(other);
                return Err(format!(
                    "the event type must be {COMPLETED}, {RETURNED}, {POSTING} or {RECALL_ANSWERED}, not {other}"
                ));
            }
        })
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    object(body).map_err(|error| error.to_string())
}

impl From<CompletedBody> for IncomingReport {
    fn from(end: CompletedBody) -> Self {
        Self {
            reference: end.reference,
            status: match end.status {
                Status::Success => CallbackStatus::Success,
                Status::Failure => CallbackStatus::Failure,
                Status::Returned => CallbackStatus::Returned,
            },
            amount_minor: end.amount_minor,
            currency: end.currency,
            reason: end.reason,
            reason_code: end.reason_code,
            posting: end.posting.map(Posting::from),
        }
    }
}

impl ReturnedBody {
    fn report(self, switch: &SwitchName) -> Result<ReturnReport, String> {
        Ok(ReturnReport {
            switch: switch.clone(),
            return_id: ReturnId::new(self.return_id).map_err(|error| error.to_string())?,
            reference: self.reference,
            amount_minor: self.amount_minor,
            currency: self.currency,
            reason: words(self.reason_code, self.reason),
        })
    }
}

/// A reason with its code, if there is one.
fn words(code: Option<String>, reason: Option<String>) -> Option<String> {
    match (code, reason) {
        (Some(code), Some(reason)) => Some(format!("{code}: {reason}")),
        (code, reason) => code.or(reason),
    }
}

impl From<RecallAnsweredBody> for RecallReport {
    fn from(report: RecallAnsweredBody) -> Self {
        let reason = words(report.reason_code, report.reason);
        Self {
            reference: report.reference,
            answer: match report.answer {
                RecallWord::Pending => RecallAnswer::Pending,
                RecallWord::Promised => RecallAnswer::Promised,
                RecallWord::Refused => {
                    RecallAnswer::Refused { reason: reason.unwrap_or_else(|| "no reason given".into()) }
                }
            },
            amount_minor: report.amount_minor,
            currency: report.currency,
        }
    }
}

impl From<PostingBody> for PostingReport {
    fn from(report: PostingBody) -> Self {
        Self {
            reference: report.reference,
            posting: report.posting.into(),
            amount_minor: report.amount_minor,
            currency: report.currency,
            reason: report.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_with_its_code() {
        let reason = |more: serde_json::Value| {
            let mut body = serde_json::json!({"type": RETURNED, "reference": "tx:submit", "return_id": "ret_1",
                "amount_minor": 500, "currency": "EUR"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let switch = SwitchName::new("mock").unwrap();
            match HttpJsonReports.read(&switch, body.to_string().as_bytes()).unwrap() {
                Incoming::Return(report) => report.reason,
                other => panic!("{other:?}"),
            }
        };
        let both = serde_json::json!({"reason_code": "AC04", "reason": "closed"});
        assert_eq!(reason(both).as_deref(), Some("AC04: closed"));
        assert_eq!(reason(serde_json::json!({"reason_code": "AC04"})).as_deref(), Some("AC04"));
        assert_eq!(reason(serde_json::json!({"reason": "closed"})).as_deref(), Some("closed"));
        assert_eq!(reason(serde_json::json!({})), None);
    }
}

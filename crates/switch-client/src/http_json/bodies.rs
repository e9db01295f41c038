//! JSON bodies of the switch's HTTP API.

use jiff::Timestamp;
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Upper bound of a reference, an id or a position in bytes: real rails have up to 64. The ledger indexes them, and PostgreSQL refuses an
/// index entry of about 2,700 bytes.
const NAME_BYTES_MAX: usize = 512;

/// Body of `POST /v1/transfers`.
#[derive(Debug, Serialize)]
pub(crate) struct TransferBody<'a> {
    pub(crate) reference: &'a str,
    pub(crate) amount_minor: i64,
    pub(crate) currency: &'a str,
    pub(crate) creditor_account: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_to_end_id: Option<&'a str>,
    /// Submit deadline (RFC 3339), on the switch's clock. Only sent to a switch that honours it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<String>,
}

/// A transfer in the answers to submit, query and cancel, in the listing and in the statement.
#[derive(Debug, Deserialize)]
pub(crate) struct TransferView {
    /// `None` from a switch without references.
    #[serde(default, deserialize_with = "optional_name")]
    pub(crate) reference: Option<String>,
    /// The switch's own id.
    #[serde(default, deserialize_with = "optional_name")]
    pub(crate) transfer_id: Option<String>,
    #[serde(deserialize_with = "word")]
    pub(crate) status: TransferStatus,
    #[serde(default, deserialize_with = "positive")]
    pub(crate) amount_minor: Option<i64>,
    pub(crate) currency: Option<String>,
    pub(crate) creditor_account: Option<String>,
    pub(crate) reason: Option<String>,
    /// The code of the reason, of a switch whose rejects have codes.
    #[serde(default, deserialize_with = "scalar_text")]
    pub(crate) reason_code: Option<String>,
    /// Of a statement entry that is one return of its own: the switch's id of it. The amount is then the return's.
    pub(crate) return_id: Option<String>,
    /// Whether this is no transfer but the trace of a cancel: the switch has never received a submit under the reference.
    #[serde(default)]
    pub(crate) tombstone: bool,
    /// When the transfer ended, on the switch's clock.
    pub(crate) finished_at: Option<Timestamp>,
}

/// The status of a transfer at the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum TransferStatus {
    Pending,
    Settled,
    Rejected,
    Cancelled,
    Returned,
}

/// Answer to a cancel.
#[derive(Debug, Deserialize)]
pub(crate) struct CancelBody {
    /// `None` from a switch without references.
    #[serde(default, deserialize_with = "optional_name")]
    pub(crate) reference: Option<String>,
    /// The switch's own id, if the request named it.
    #[serde(default, deserialize_with = "optional_name")]
    pub(crate) transfer_id: Option<String>,
    #[serde(deserialize_with = "word")]
    pub(crate) answer: CancelAnswerCode,
    /// Whether the switch knew the reference; `None` if it does not say.
    pub(crate) known: Option<bool>,
    pub(crate) reason: Option<String>,
    #[serde(default, deserialize_with = "optional_object")]
    pub(crate) transfer: Option<TransferView>,
}

/// Code of the answer to a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum CancelAnswerCode {
    Cancelled,
    AlreadyRejected,
    AlreadySettled,
    AlreadyReturned,
    NotFound,
    Refused,
    InProcess,
    CannotCancel,
}

/// Answer to a recall.
#[derive(Debug, Deserialize)]
pub(crate) struct RecallBody {
    /// `None` from a switch without references.
    #[serde(default, deserialize_with = "optional_name")]
    pub(crate) reference: Option<String>,
    /// The switch's own id, if the request named it.
    #[serde(default, deserialize_with = "optional_name")]
    pub(crate) transfer_id: Option<String>,
    #[serde(deserialize_with = "word")]
    pub(crate) answer: RecallAnswerCode,
    pub(crate) reason: Option<String>,
}

/// Code of the answer to a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum RecallAnswerCode {
    Recalled,
    Promised,
    Refused,
    CannotRecall,
    InProcess,
    NotSettled,
    NotFound,
}

/// An amount, which is positive if it is present.
fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match Option::deserialize(deserializer)? {
        Some(amount_minor) if amount_minor <= 0 => Err(D::Error::custom("the amount is not positive")),
        amount_minor => Ok(amount_minor),
    }
}

/// A reference, an id or a position of at most [`NAME_BYTES_MAX`].
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(D::Error::custom(format!(
            "a reference, an id or a position is longer than {NAME_BYTES_MAX} bytes"
        )));
    }
    Ok(name)
}

/// The same, if it is present.
fn optional_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::<Name>::deserialize(deserializer).map(|name| name.map(|Name(name)| name))
}

/// See [`name`].
#[derive(Deserialize)]
struct Name(#[serde(deserialize_with = "name")] String);

/// A page of `GET /v1/transfers`.
#[derive(Debug, Deserialize)]
pub(crate) struct ListingBody {
    #[serde(deserialize_with = "objects")]
    pub(crate) transfers: Vec<TransferView>,
    /// `after` of the next page; `None` on the last page. A page without this field is not known to be the last one.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) next: Option<String>,
}

/// A page of `GET /v1/statement`.
#[derive(Debug, Deserialize)]
pub(crate) struct StatementBody {
    pub(crate) entries: Vec<StatementEntry>,
    /// `after` of the next page; `None` on the last page. A page without this field is not known to be the last one.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) next: Option<String>,
    /// Everything that finished before this time of the switch is in the statement; `None` if the switch does not say.
    pub(crate) complete_until: Option<Timestamp>,
}

/// A statement entry: a transfer that ended.
#[derive(Debug, Deserialize)]
pub(crate) struct StatementEntry {
    /// Position of the entry in the statement.
    #[serde(deserialize_with = "name")]
    pub(crate) cursor: String,
    #[serde(flatten)]
    pub(crate) transfer: TransferView,
}

/// The fields of a problem document (RFC 9457) that the client reads.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProblemBody {
    pub(crate) code: Option<String>,
    pub(crate) detail: Option<String>,
}

/// Reads a JSON object. A derived struct would also accept an array, in the undocumented order of its fields.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(serde_json::Error::custom("expected a JSON object"));
    }
    serde_json::from_slice(body)
}

/// Deserializes an object within a body, or nothing; see [`object`].
fn optional_object<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    raw.map(|raw| object(raw.get().as_bytes()).map_err(D::Error::custom)).transpose()
}

/// Deserializes a list of objects; see [`object`].
fn objects<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let raws = Vec::<Box<RawValue>>::deserialize(deserializer)?;
    raws.iter().map(|raw| object(raw.get().as_bytes()).map_err(D::Error::custom)).collect()
}

/// Deserializes a word of a list, which is a text. A derived enum would also accept `{"SUCCESS": null}`.
pub(super) fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(String::deserialize(deserializer)?.into_deserializer())
}

/// Deserializes a word of a list, or nothing.
pub(super) fn optional_word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| T::deserialize(text.into_deserializer())).transpose()
}

/// Deserializes a text or a number as text, and anything else as nothing: a code that cannot be read says nothing, and costs neither a
/// report nor a page of the statement.
pub(super) fn scalar_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "UPPERCASE")]
    enum Word {
        Yes,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Body {
        #[serde(default, deserialize_with = "scalar_text")]
        code: Option<String>,
        #[serde(default, deserialize_with = "optional_word")]
        word: Option<Word>,
    }

    fn read(body: serde_json::Value) -> Option<Body> {
        serde_json::from_value(body).ok()
    }

    #[test]
    fn a_code_is_read_as_text_or_number_and_anything_else_as_nothing() {
        let code = |code: serde_json::Value| read(serde_json::json!({"code": code})).unwrap().code;
        assert_eq!(code("AC04".into()).as_deref(), Some("AC04"));
        assert_eq!(code(17.into()).as_deref(), Some("17"));
        for unreadable in [serde_json::json!(null), serde_json::json!(true), serde_json::json!(["AC04"])] {
            assert_eq!(code(unreadable), None);
        }
    }

    #[test]
    fn a_reference_an_id_and_a_position_are_bounded() {
        let longest = "x".repeat(NAME_BYTES_MAX);
        let entry = |field: &str, text: &str| {
            let mut entry = serde_json::json!({"cursor": "1", "status": "SETTLED"});
            entry[field] = text.into();
            serde_json::from_value::<StatementEntry>(entry)
        };
        for field in ["cursor", "transfer_id", "reference"] {
            assert!(entry(field, &longest).is_ok(), "{field}");
            let error = entry(field, &format!("{longest}x")).unwrap_err().to_string();
            assert!(error.contains("longer than 512 bytes"), "{field}: {error}");
        }
        let answer = |id: String| serde_json::json!({"answer": "NOT_FOUND", "transfer_id": id});
        assert!(serde_json::from_value::<CancelBody>(answer(longest.clone())).is_ok());
        assert!(serde_json::from_value::<CancelBody>(answer(format!("{longest}x"))).is_err());
        assert!(serde_json::from_value::<RecallBody>(answer(format!("{longest}x"))).is_err());
        let without =
            serde_json::from_value::<TransferView>(serde_json::json!({"status": "PENDING"})).unwrap();
        assert_eq!((without.transfer_id, without.reference), (None, None));
    }

    #[test]
    fn a_word_that_may_be_missing_is_a_known_one_or_an_error() {
        let nothing = Some(Body { code: None, word: None });
        assert_eq!(read(serde_json::json!({})), nothing);
        assert_eq!(read(serde_json::json!({"word": null})), nothing);
        let yes = Some(Body { code: None, word: Some(Word::Yes) });
        assert_eq!(read(serde_json::json!({"word": "YES"})), yes);
        assert_eq!(read(serde_json::json!({"word": "NO"})), None);
        assert_eq!(read(serde_json::json!({"word": {"YES": null}})), None);
    }
}

//! A callback: the report of a transfer's end that the switch sends by itself.

use payment_protocol::inbox::CallbackStatus;
use payment_protocol::report::IncomingReport;
use serde::Deserialize;
use utoipa::ToSchema;

use super::bodies::scalar_text;
use super::http::excerpt;
use super::integer::deserialize_integer;
use crate::client::SwitchReports;

/// The only supported event type.
const TRANSFER_COMPLETED: &str = "transfer.completed";

/// Body of a callback. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({"type": "transfer.completed", "reference": "tx_0123456789abcdef01234567:submit",
    "status": "SUCCESS", "amount_minor": 1250, "currency": "EUR", "occurred_at": "2026-01-01T12:00:00Z"}))]
pub struct CallbackBody {
    /// Always `transfer.completed`.
    r#type: String,
    /// Reference of the transfer, as we submitted it.
    reference: String,
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

/// Reads callbacks.
#[derive(Clone, Copy, Debug)]
pub struct HttpJsonReports;

impl SwitchReports for HttpJsonReports {
    fn read(&self, body: &[u8]) -> Result<IncomingReport, String> {
        let parsed: CallbackBody = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        // Another event type with a status field must not be taken for the end of a transfer.
        if parsed.r#type != TRANSFER_COMPLETED {
            return Err(format!(
                "the event type must be {TRANSFER_COMPLETED}, not {}",
                excerpt(&parsed.r#type)
            ));
        }
        Ok(IncomingReport {
            reference: parsed.reference,
            status: match parsed.status {
                Status::Success => CallbackStatus::Success,
                Status::Failure => CallbackStatus::Failure,
                Status::Returned => CallbackStatus::Returned,
            },
            amount_minor: parsed.amount_minor,
            currency: parsed.currency,
            reason: parsed.reason,
            reason_code: parsed.reason_code,
        })
    }
}

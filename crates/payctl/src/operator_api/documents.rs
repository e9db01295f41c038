//! The documents of operator-api, restricted to the fields that payctl shows. Unknown fields are ignored.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A change.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ChangeDocument {
    pub(crate) change_id: String,
    pub(crate) kind: String,
    /// By kind; amounts are in minor units.
    pub(crate) arguments: Value,
    pub(crate) needs_two: bool,
    pub(crate) reason: String,
    pub(crate) proposed_by: String,
    pub(crate) proposed_at: Timestamp,
    pub(crate) confirmed_by: Option<String>,
    pub(crate) confirm_reason: Option<String>,
    pub(crate) withdrawn_by: Option<String>,
    /// `proposed`, `done` or `withdrawn`.
    pub(crate) status: String,
    pub(crate) detail: Option<String>,
}

impl ChangeDocument {
    /// Whether it waits for another operator.
    pub(crate) fn is_proposed(&self) -> bool {
        self.status == "proposed"
    }

    /// The arguments in one line.
    pub(crate) fn arguments_text(&self) -> String {
        let fields = self.arguments.as_object().into_iter().flatten();
        let words = fields.filter(|(_, value)| !value.is_null()).map(|(name, value)| match value {
            Value::String(text) => format!("{name}={text}"),
            other => format!("{name}={other}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A decision.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DecisionDocument {
    pub(crate) decision_id: String,
    /// Missing for an exception without a payment.
    pub(crate) payment_id: Option<String>,
    pub(crate) proposed_by: String,
    /// `proposed`, `confirmed`, `done`, `refused` or `withdrawn`.
    pub(crate) status: String,
    /// What came of it, in words; missing while it is open.
    pub(crate) result: Option<String>,
}

/// An exception that was opened.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OpenedExceptionDocument {
    pub(crate) exception_id: i64,
}

/// A customer account.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AccountDocument {
    pub(crate) account_id: String,
    pub(crate) currency: String,
    pub(crate) status: String,
    pub(crate) available_minor: i64,
    pub(crate) held_minor: i64,
}

/// A limit in force.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LimitDocument {
    pub(crate) scope: String,
    pub(crate) scope_id: String,
    pub(crate) currency: String,
    pub(crate) per_payment_minor: Option<i64>,
    pub(crate) per_day_minor: Option<i64>,
    pub(crate) per_day_count: Option<i64>,
    pub(crate) used_today_minor: i64,
    pub(crate) used_today_count: i64,
    pub(crate) set_by: String,
    pub(crate) reason: String,
}

/// A kill switch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KillSwitchDocument {
    pub(crate) kill_switch_id: i64,
    pub(crate) switch: Option<String>,
    pub(crate) currency: Option<String>,
    pub(crate) destination_prefix: Option<String>,
    pub(crate) activated_by: String,
    pub(crate) reason: String,
    pub(crate) lifted_by: Option<String>,
    pub(crate) lift_reason: Option<String>,
}

/// An API key, without the key.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ApiKeyDocument {
    pub(crate) key_id: String,
    pub(crate) prefix: String,
    pub(crate) tenant_id: String,
    pub(crate) client_id: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) status: String,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) rotated_to: Option<String>,
}

//! The documents of operator-api, restricted to the fields that payctl shows. Unknown fields are ignored.

use jiff::Timestamp;
use payment_ledger::access::operators::OperatorView;
use payment_protocol::money::{format_major, parse_currency};
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
    /// What it changes, as it was when the change was proposed.
    pub(crate) before: Option<Value>,
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
        text(&self.arguments)
    }

    /// What it changes, as it was, in one line.
    pub(crate) fn before_text(&self) -> Option<String> {
        self.before.as_ref().map(text)
    }
}

/// Fields in one line. A missing bound or end is a word, which an operator must not overlook, and an amount has the decimals of its currency.
fn text(fields: &Value) -> String {
    let currency = fields["currency"].as_str().and_then(|code| parse_currency(code).ok());
    let word = |name: &str, value: &Value| match (value, name.strip_suffix("_minor"), currency) {
        (Value::Null, _, _) => format!("{}=unlimited", name.trim_end_matches("_minor")),
        (value, Some(name), Some(currency)) => {
            let amount = value.as_i64().map(|minor| format_major(minor, currency));
            format!("{name}={} {}", amount.unwrap_or_else(|| value.to_string()), currency.code())
        }
        (Value::String(text), _, _) => format!("{name}={text}"),
        (value, _, _) => format!("{name}={value}"),
    };
    let fields = fields.as_object().into_iter().flatten();
    fields.map(|(name, value)| word(name, value)).collect::<Vec<_>>().join(" ")
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
    pub(crate) erasure: Option<ErasureDocument>,
}

/// The erasure of an account's personal fields.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ErasureDocument {
    pub(crate) requested_at: Timestamp,
    pub(crate) erased_payments: i64,
    pub(crate) waiting_payments: i64,
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) failure: Option<String>,
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

/// Operators.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OperatorDocuments {
    pub(crate) operators: Vec<OperatorDocument>,
}

/// An operator.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct OperatorDocument {
    pub(crate) name: String,
    pub(crate) roles: Vec<String>,
    /// Missing for a password, as is the subject.
    pub(crate) issuer: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) disabled_at: Option<Timestamp>,
    pub(crate) locked_until: Option<Timestamp>,
    pub(crate) open_sessions: i64,
}

impl From<OperatorView> for OperatorDocument {
    fn from(operator: OperatorView) -> Self {
        let identity = operator.identity.as_ref();
        Self {
            roles: operator.roles.iter().map(|role| role.as_str().to_owned()).collect(),
            issuer: identity.map(|identity| identity.issuer().to_owned()),
            subject: identity.map(|identity| identity.subject().to_owned()),
            name: operator.name,
            created_at: operator.created_at,
            disabled_at: operator.disabled_at,
            locked_until: operator.locked_until,
            open_sessions: operator.open_sessions,
        }
    }
}

//! Endpoints of tenants: their URLs, the kinds of events that they receive, and their status.
//!
//! | file | content |
//! |---|---|
//! | `create` | creates an endpoint within the tenant's limit |
//! | `read` | lists and reads endpoints |
//! | `change` | changes, rotates and deletes a tenant's endpoint |
//! | `operator` | disables and enables any endpoint |
//!
//! The row of a deleted endpoint stays until its last delivery is deleted ([`crate::retention`]).

mod change;
mod create;
mod operator;
mod read;

use jiff::Timestamp;

use crate::{EndpointId, WebhooksError};

pub use change::{EndpointChange, EndpointUpdateOutcome, change, delete, rotate};
pub use create::{CreateEndpointOutcome, NewEndpoint, create};
pub use operator::{disable_as_operator, enable_as_operator};
pub use read::{EndpointScope, get, list};

/// Whether an endpoint receives events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointStatus {
    /// Receives events.
    Active,
    /// Receives none; deliveries that were pending stay pending.
    Disabled,
}

/// Why an endpoint is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisabledReason {
    /// The tenant disabled the endpoint.
    Tenant,
    /// An operator disabled it; its tenant cannot enable it.
    Operator,
    /// The endpoint answered 410.
    Gone,
    /// Every attempt failed for longer than `disable_after_s`.
    Failing,
}

impl EndpointStatus {
    /// Every status.
    pub const ALL: [Self; 2] = [Self::Active, Self::Disabled];

    /// The word in the database and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
        }
    }

    /// Parses a word; `None` for any other.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl DisabledReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Tenant, Self::Operator, Self::Gone, Self::Failing];

    /// The word in the database and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "by_tenant",
            Self::Operator => "by_operator",
            Self::Gone => "endpoint_gone",
            Self::Failing => "failing",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// The tenant that owns it.
    pub tenant: String,
    /// Its URL.
    pub url: String,
    /// Kinds of events that it receives; empty for all.
    pub kinds: Vec<String>,
    /// Whether it receives events.
    pub status: EndpointStatus,
    /// Why it is disabled; `None` if it is active.
    pub disabled_reason: Option<DisabledReason>,
    /// The operator's note on disabling it.
    pub disabled_note: Option<String>,
    /// Version of its current secret, from 1.
    pub secret_version: i32,
    /// Until when the previous secret signs too.
    pub old_secret_until: Option<Timestamp>,
    /// Since when no attempt has succeeded; `None` if the last attempt succeeded or nothing is pending.
    pub failing_since: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its secret was last rotated.
    pub rotated_at: Option<Timestamp>,
}

/// A row of `webhook_endpoints`.
struct EndpointRow {
    endpoint_id: String,
    tenant_id: String,
    url: String,
    kinds: Vec<String>,
    status: String,
    disabled_reason: Option<String>,
    disabled_note: Option<String>,
    secret_version: i32,
    old_secret_until: Option<jiff_sqlx::Timestamp>,
    failing_since: Option<jiff_sqlx::Timestamp>,
    created_at: jiff_sqlx::Timestamp,
    rotated_at: Option<jiff_sqlx::Timestamp>,
}

impl TryFrom<EndpointRow> for Endpoint {
    type Error = WebhooksError;

    fn try_from(row: EndpointRow) -> Result<Self, WebhooksError> {
        let invalid = |column, value: &str| WebhooksError::InvalidValue {
            id: row.endpoint_id.clone(),
            column,
            value: value.to_owned(),
        };
        let disabled_reason = match &row.disabled_reason {
            Some(word) => Some(DisabledReason::parse(word).ok_or_else(|| invalid("disabled_reason", word))?),
            None => None,
        };
        Ok(Self {
            id: EndpointId::new(row.endpoint_id.as_str())
                .map_err(|_| invalid("endpoint_id", &row.endpoint_id))?,
            status: EndpointStatus::parse(&row.status).ok_or_else(|| invalid("status", &row.status))?,
            disabled_reason,
            tenant: row.tenant_id,
            url: row.url,
            kinds: row.kinds,
            disabled_note: row.disabled_note,
            secret_version: row.secret_version,
            old_secret_until: row.old_secret_until.map(jiff_sqlx::Timestamp::to_jiff),
            failing_since: row.failing_since.map(jiff_sqlx::Timestamp::to_jiff),
            created_at: row.created_at.to_jiff(),
            rotated_at: row.rotated_at.map(jiff_sqlx::Timestamp::to_jiff),
        })
    }
}

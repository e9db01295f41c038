//! One file per command: its arguments, what it does, and its output.

pub(crate) mod accounts;
pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod codec_server;
pub(crate) mod completions;
pub(crate) mod decide;
pub(crate) mod demo;
pub(crate) mod events;
pub(crate) mod exceptions;
pub(crate) mod keys;
pub(crate) mod kill_switch;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod list;
pub(crate) mod listen;
pub(crate) mod login;
pub(crate) mod migrate;
pub(crate) mod operators;
pub(crate) mod pay;
pub(crate) mod reconcile;
pub(crate) mod restore_check;
pub(crate) mod show;
pub(crate) mod stuck;
pub(crate) mod switch;
pub(crate) mod temporal_namespace;
pub(crate) mod trigger;
pub(crate) mod webhooks;
pub(crate) mod worker;

use idempotency::{IdempotencyKey, KeyError};
use payment_ledger::events::EventKind;

/// Parses an id from an argument.
fn id<T: TryFrom<String>>(text: &str) -> Result<T, T::Error> {
    T::try_from(text.to_owned())
}

/// Parses an idempotency key from an argument, by the API's own rules.
fn key(text: &str) -> Result<IdempotencyKey, KeyError> {
    IdempotencyKey::parse(text.as_bytes())
}

/// Generates an unused idempotency key.
fn new_key() -> Result<IdempotencyKey, KeyError> {
    key(&uuid::Uuid::new_v4().simple().to_string())
}

/// The kinds of events, for messages.
fn event_kinds() -> String {
    EventKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

//! Kill switches: stop new payments of a switch or a corridor. Accepted payments continue.

use iso_currency::Currency;
use jiff::Timestamp;
use payment_protocol::ids::{AccountId, SwitchName};
use postgres_kit::Connection;

use crate::{Ledger, LedgerError};

/// The scope of a kill switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KillSwitchTarget {
    /// All payments of a switch.
    Switch(SwitchName),
    /// All payments of a currency to destination accounts with a prefix; an empty prefix matches all.
    Corridor {
        /// The currency.
        currency: Currency,
        /// Prefix of the destination account.
        destination_prefix: String,
    },
}

/// A kill switch with its audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillSwitchView {
    /// Its number.
    pub kill_switch_id: i64,
    /// The switch; `None` for a corridor.
    pub switch: Option<String>,
    /// ISO 4217 code; `None` for a switch.
    pub currency: Option<String>,
    /// Prefix of the destination account; `None` for a switch.
    pub destination_prefix: Option<String>,
    /// The operator who activated it.
    pub activated_by: String,
    /// The operator's reason.
    pub reason: String,
    /// When it was activated.
    pub activated_at: Timestamp,
    /// The operator who lifted it; `None` while it is active.
    pub lifted_by: Option<String>,
    /// The operator's reason for lifting it.
    pub lift_reason: Option<String>,
    /// When it was lifted.
    pub lifted_at: Option<Timestamp>,
}

impl KillSwitchView {
    /// Whether it stops a payment by `switch` of `currency` to `destination`.
    #[must_use]
    pub fn covers(&self, switch: &SwitchName, currency: Currency, destination: &AccountId) -> bool {
        let matches_switch = self.switch.as_deref() == Some(switch.as_str());
        let matches_corridor = self.currency.as_deref() == Some(currency.code())
            && self
                .destination_prefix
                .as_deref()
                .is_some_and(|prefix| destination.as_str().starts_with(prefix));
        matches_switch || matches_corridor
    }
}

macro_rules! kill_switch_view {
    ($row:expr) => {{
        let row = $row;
        KillSwitchView {
            kill_switch_id: row.kill_switch_id,
            switch: row.switch,
            currency: row.currency,
            destination_prefix: row.destination_prefix,
            activated_by: row.activated_by,
            reason: row.reason,
            activated_at: row.activated_at.to_jiff(),
            lifted_by: row.lifted_by,
            lift_reason: row.lift_reason,
            lifted_at: row.lifted_at.map(|at| at.to_jiff()),
        }
    }};
}

/// Active kill switches, read on the caller's connection.
///
/// # Errors
/// [`LedgerError`].
pub async fn active(connection: &mut Connection) -> Result<Vec<KillSwitchView>, LedgerError> {
    let rows = sqlx::query!("SELECT * FROM kill_switches WHERE lifted_at IS NULL ORDER BY kill_switch_id")
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| kill_switch_view!(row)).collect())
}

impl Ledger {
    /// At most `limit` kill switches, newest first; only the active ones unless `all`.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn kill_switches(&self, all: bool, limit: i64) -> Result<Vec<KillSwitchView>, LedgerError> {
        let rows = sqlx::query!(
            "SELECT * FROM kill_switches WHERE $1 OR lifted_at IS NULL ORDER BY kill_switch_id DESC LIMIT $2",
            all,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| kill_switch_view!(row)).collect())
    }
}

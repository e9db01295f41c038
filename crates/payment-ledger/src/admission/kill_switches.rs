//! The kill switch: what takes no new payments. Payments that were accepted go on.

use iso_currency::Currency;
use jiff::Timestamp;
use payment_protocol::ids::{AccountId, SwitchName};
use sqlx::PgConnection;

use crate::operator::decisions::{DecideError, said};
use crate::{Ledger, LedgerError};

/// What can be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A switch.
    Switch(SwitchName),
    /// A currency to destinations that begin with a text; an empty one is all.
    Corridor {
        /// The currency.
        currency: Currency,
        /// The beginning of the destination account.
        destination_prefix: String,
    },
}

/// A stop, with its trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillSwitchView {
    /// Its number.
    pub kill_switch_id: i64,
    /// The switch; none for a corridor.
    pub switch: Option<String>,
    /// ISO 4217 code; none for a switch.
    pub currency: Option<String>,
    /// The beginning of the destination account; none for a switch.
    pub destination_prefix: Option<String>,
    /// Who stopped it.
    pub activated_by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub activated_at: Timestamp,
    /// Who lifted it; none while it stands.
    pub lifted_by: Option<String>,
    /// Why.
    pub lift_reason: Option<String>,
    /// When.
    pub lifted_at: Option<Timestamp>,
}

impl KillSwitchView {
    /// Whether a payment by `switch` of `currency` to `destination` is not taken.
    #[must_use]
    pub fn covers(&self, switch: &SwitchName, currency: Currency, destination: &AccountId) -> bool {
        let is_of_switch = self.switch.as_deref() == Some(switch.as_str());
        let is_of_corridor = self.currency.as_deref() == Some(currency.code())
            && self
                .destination_prefix
                .as_deref()
                .is_some_and(|prefix| destination.as_str().starts_with(prefix));
        is_of_switch || is_of_corridor
    }
}

macro_rules! stop {
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

/// Stops that stand, read on the caller's connection.
///
/// # Errors
/// [`LedgerError`].
pub async fn standing(connection: &mut PgConnection) -> Result<Vec<KillSwitchView>, LedgerError> {
    let rows = sqlx::query!("SELECT * FROM kill_switches WHERE lifted_at IS NULL ORDER BY kill_switch_id")
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| stop!(row)).collect())
}

impl Ledger {
    /// Stops `target`. Returns the number of the stop, and whether it is new: what stands already stays as it is.
    ///
    /// # Errors
    /// [`DecideError`]: a name or reason that a decision would not take either is refused.
    pub async fn stop(&self, target: &Target, by: &str, reason: &str) -> Result<(i64, bool), DecideError> {
        let (by, reason) = said(by, reason)?;
        let (switch, currency, prefix) = match target {
            Target::Switch(switch) => (Some(switch.as_str()), None, None),
            Target::Corridor { currency, destination_prefix } => {
                (None, Some(currency.code()), Some(destination_prefix.as_str()))
            }
        };
        let mut tx = self.pool.begin().await?;
        let new = sqlx::query_scalar!(
            "INSERT INTO kill_switches (switch, currency, destination_prefix, activated_by, reason) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT DO NOTHING RETURNING kill_switch_id",
            switch,
            currency,
            prefix,
            by,
            reason,
        )
        .fetch_optional(&mut *tx)
        .await?;
        let kill_switch_id = match new {
            Some(kill_switch_id) => kill_switch_id,
            None => {
                sqlx::query_scalar!(
                    "SELECT kill_switch_id FROM kill_switches
                     WHERE lifted_at IS NULL
                       AND (switch, currency, destination_prefix) IS NOT DISTINCT FROM ($1::text, $2::text, $3::text)",
                    switch,
                    currency,
                    prefix,
                )
                .fetch_one(&mut *tx)
                .await?
            }
        };
        tx.commit().await?;
        Ok((kill_switch_id, new.is_some()))
    }

    /// Lifts a stop. Returns whether one of that number stood.
    ///
    /// # Errors
    /// [`DecideError`], as [`Ledger::stop`].
    pub async fn lift(&self, kill_switch_id: i64, by: &str, reason: &str) -> Result<bool, DecideError> {
        let (by, reason) = said(by, reason)?;
        let lifted = sqlx::query!(
            "UPDATE kill_switches SET lifted_by = $2, lift_reason = $3, lifted_at = clock_timestamp()
             WHERE kill_switch_id = $1 AND lifted_at IS NULL",
            kill_switch_id,
            by,
            reason,
        )
        .execute(&self.pool)
        .await?;
        Ok(lifted.rows_affected() > 0)
    }

    /// At most `limit` kill_switches, newest first; only those that stand unless `all`.
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
        Ok(rows.into_iter().map(|row| stop!(row)).collect())
    }
}

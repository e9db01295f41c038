//! How a payment comes in: one row, in the transaction of its idempotency claim.

use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::{AccountId, ClientId, PaymentId, TenantId, TxId};
use payment_protocol::money::Money;
use payment_protocol::{PaymentState, SwitchProfile, keys};
use sqlx::PgConnection;

use crate::{LedgerError, record};

/// A payment as the API took it.
#[derive(Clone, Debug)]
pub struct NewPayment {
    /// Derived from tenant, client and idempotency key.
    pub payment_id: PaymentId,
    /// Whose.
    pub tenant: TenantId,
    /// Through which client.
    pub client: ClientId,
    /// From.
    pub source_account: AccountId,
    /// To, at the destination bank.
    pub destination_account: AccountId,
    /// The customer's own id.
    pub end_to_end_id: Option<String>,
    /// How much.
    pub money: Money,
    /// The switch it was routed to, as configured now.
    pub profile: SwitchProfile,
    /// Fingerprint of the request.
    pub request_hash: Vec<u8>,
    /// The answer, byte for byte.
    pub response_body: Vec<u8>,
    /// When the answer says it was accepted.
    pub accepted_at: jiff::Timestamp,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Stored now.
    New,
    /// Stored before, when its idempotency key was still kept.
    Before {
        /// Fingerprint of the first request.
        request_hash: Vec<u8>,
        /// The first answer.
        response_body: Vec<u8>,
    },
}

/// Stores the payment in the caller's transaction, or gives what is stored under its id. The row is
/// the last word on its key, for ever (S0.1).
///
/// # Errors
/// [`LedgerError`].
pub async fn accept(tx: &mut PgConnection, new: &NewPayment) -> Result<Accepted, LedgerError> {
    let profile = serde_json::to_value(&new.profile).map_err(|error| LedgerError::Unreadable {
        id: new.payment_id.to_string(),
        column: "profile",
        value: error.to_string(),
    })?;
    let tx_id = TxId::derive(&new.payment_id);
    let inserted = sqlx::query!(
        "INSERT INTO payments
             (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id, amount_minor,
              currency, switch, profile, request_hash, response_body, workflow_id, accepted_at, valid_until)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                 clock_timestamp() + $16 * interval '1 millisecond')
         ON CONFLICT (payment_id) DO NOTHING",
        new.payment_id.as_str(),
        tx_id.as_str(),
        new.tenant.as_str(),
        new.client.as_str(),
        new.source_account.as_str(),
        new.destination_account.as_str(),
        new.end_to_end_id,
        new.money.amount_minor(),
        new.money.currency().code(),
        new.profile.switch.as_str(),
        profile,
        new.request_hash,
        new.response_body,
        keys::workflow_id(&new.payment_id, 0),
        new.accepted_at.to_sqlx() as _,
        new.profile.start_within_ms as f64,
    )
    .execute(&mut *tx)
    .await?;
    if inserted.rows_affected() > 0 {
        let detail = format!("accepted: {} to be sent by {}", new.money, new.profile.switch);
        record::timeline(tx, &new.payment_id, PaymentState::Accepted, &detail).await?;
        return Ok(Accepted::New);
    }
    earlier(tx, &new.payment_id).await?.ok_or_else(|| LedgerError::UnknownPayment(new.payment_id.to_string()))
}

/// What is stored under the id of a payment, if there is one ([`Accepted::Before`]): the first request
/// and its answer outlive their idempotency key.
///
/// # Errors
/// [`LedgerError`].
pub async fn earlier(tx: &mut PgConnection, payment_id: &PaymentId) -> Result<Option<Accepted>, LedgerError> {
    let row = sqlx::query!(
        "SELECT request_hash, response_body FROM payments WHERE payment_id = $1",
        payment_id.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    Ok(row.map(|row| Accepted::Before { request_hash: row.request_hash, response_body: row.response_body }))
}

//! How payments come in: a row for each, many at once, in the transaction of their idempotency claims.

use std::collections::{HashMap, HashSet};

use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::{AccountId, ClientId, PaymentId, TenantId, TxId};
use payment_protocol::money::Money;
use payment_protocol::{PaymentState, SwitchProfile, keys};
use sqlx::PgConnection;

use crate::LedgerError;

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

/// Stores payments in the caller's transaction, or gives what is stored under their ids; one result for each, in
/// their order. The row is the last word on its key, for ever (S0.1). Their ids must differ.
///
/// # Errors
/// [`LedgerError`]: none is stored.
pub async fn accept(tx: &mut PgConnection, new: &[NewPayment]) -> Result<Vec<Accepted>, LedgerError> {
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let stored: HashSet<String> = insert(tx, new).await?.into_iter().collect();
    let (now, before): (Vec<_>, Vec<_>) =
        new.iter().partition(|one| stored.contains(one.payment_id.as_str()));
    write_timeline(tx, &now).await?;
    let mut before = earlier(tx, &before.iter().map(|one| &one.payment_id).collect::<Vec<_>>()).await?;
    new.iter()
        .map(|one| match before.remove(&one.payment_id) {
            Some(earlier) => Ok(earlier),
            None if stored.contains(one.payment_id.as_str()) => Ok(Accepted::New),
            None => Err(LedgerError::UnknownPayment(one.payment_id.to_string())),
        })
        .collect()
}

/// The ids of those that were not there.
async fn insert(tx: &mut PgConnection, new: &[NewPayment]) -> Result<Vec<String>, LedgerError> {
    let text = |of: fn(&NewPayment) -> &str| -> Vec<&str> { new.iter().map(of).collect() };
    let profiles = new.iter().map(profile).collect::<Result<Vec<_>, _>>()?;
    let tx_ids: Vec<String> = new.iter().map(|one| TxId::derive(&one.payment_id).to_string()).collect();
    let workflow_ids: Vec<String> = new.iter().map(|one| keys::workflow_id(&one.payment_id, 0)).collect();
    let end_to_end_ids: Vec<Option<&str>> = new.iter().map(|one| one.end_to_end_id.as_deref()).collect();
    let amounts: Vec<i64> = new.iter().map(|one| one.money.amount_minor()).collect();
    let hashes: Vec<&[u8]> = new.iter().map(|one| &*one.request_hash).collect();
    let bodies: Vec<&[u8]> = new.iter().map(|one| &*one.response_body).collect();
    let accepted_at: Vec<jiff_sqlx::Timestamp> = new.iter().map(|one| one.accepted_at.to_sqlx()).collect();
    let start_within_ms: Vec<f64> = new.iter().map(|one| one.profile.start_within_ms as f64).collect();
    Ok(sqlx::query_scalar!(
        "INSERT INTO payments
             (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id, amount_minor,
              currency, switch, profile, request_hash, response_body, workflow_id, accepted_at, valid_until)
         SELECT payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id, amount_minor,
                currency, switch, profile, request_hash, response_body, workflow_id, accepted_at,
                clock_timestamp() + start_within_ms * interval '1 millisecond'
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                     $9::text[], $10::text[], $11::jsonb[], $12::bytea[], $13::bytea[], $14::text[], $15::timestamptz[],
                     $16::float8[])
              AS new (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id,
                      amount_minor, currency, switch, profile, request_hash, response_body, workflow_id, accepted_at,
                      start_within_ms)
         ON CONFLICT (payment_id) DO NOTHING
         RETURNING payment_id",
        &text(|one| one.payment_id.as_str()) as &[&str],
        &tx_ids,
        &text(|one| one.tenant.as_str()) as &[&str],
        &text(|one| one.client.as_str()) as &[&str],
        &text(|one| one.source_account.as_str()) as &[&str],
        &text(|one| one.destination_account.as_str()) as &[&str],
        &end_to_end_ids as &[Option<&str>],
        &amounts,
        &text(|one| one.money.currency().code()) as &[&str],
        &text(|one| one.profile.switch.as_str()) as &[&str],
        &profiles,
        &hashes as &[&[u8]],
        &bodies as &[&[u8]],
        &workflow_ids,
        &accepted_at as &[jiff_sqlx::Timestamp],
        &start_within_ms,
    )
    .fetch_all(&mut *tx)
    .await?)
}

fn profile(new: &NewPayment) -> Result<serde_json::Value, LedgerError> {
    serde_json::to_value(&new.profile).map_err(|error| LedgerError::Unreadable {
        id: new.payment_id.to_string(),
        column: "profile",
        value: error.to_string(),
    })
}

async fn write_timeline(tx: &mut PgConnection, now: &[&NewPayment]) -> Result<(), LedgerError> {
    let ids: Vec<&str> = now.iter().map(|one| one.payment_id.as_str()).collect();
    let details: Vec<String> = now
        .iter()
        .map(|one| format!("accepted: {} to be sent by {}", one.money, one.profile.switch))
        .collect();
    sqlx::query!(
        "INSERT INTO timeline (payment_id, state, detail)
         SELECT payment_id, $3, detail FROM unnest($1::text[], $2::text[]) AS new (payment_id, detail)",
        &ids as &[&str],
        &details,
        PaymentState::Accepted.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// What is stored under the ids of payments ([`Accepted::Before`]), of those that there are: the first request and its
/// answer outlive their idempotency key.
///
/// # Errors
/// [`LedgerError`].
pub async fn earlier(
    tx: &mut PgConnection,
    payment_ids: &[&PaymentId],
) -> Result<HashMap<PaymentId, Accepted>, LedgerError> {
    if payment_ids.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<&str> = payment_ids.iter().map(|id| id.as_str()).collect();
    let rows = sqlx::query!(
        "SELECT payment_id, request_hash, response_body FROM payments WHERE payment_id = ANY($1)",
        &ids as &[&str],
    )
    .fetch_all(&mut *tx)
    .await?;
    rows.into_iter()
        .map(|row| {
            let unreadable = |_| LedgerError::Unreadable {
                id: row.payment_id.clone(),
                column: "payment_id",
                value: row.payment_id.clone(),
            };
            let id = PaymentId::new(row.payment_id.as_str()).map_err(unreadable)?;
            Ok((id, Accepted::Before { request_hash: row.request_hash, response_body: row.response_body }))
        })
        .collect()
}

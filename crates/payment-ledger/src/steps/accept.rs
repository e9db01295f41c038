//! Accepting payments: inserts many in the transaction of their idempotency claims.

use std::collections::{HashMap, HashSet};

use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::{AccountId, ClientId, PaymentId, TenantId, TxId};
use payment_protocol::money::Money;
use payment_protocol::rail_id::TransferName;
use payment_protocol::{PaymentState, SwitchProfile, keys};
use postgres_kit::Connection;

use crate::LedgerError;
use crate::stored_id::read_id;

/// A payment as requested through the API.
#[derive(Clone, Debug)]
pub struct NewPayment {
    /// The payment id, derived from tenant, client and idempotency key.
    pub payment_id: PaymentId,
    /// The tenant.
    pub tenant: TenantId,
    /// The client of the tenant.
    pub client: ClientId,
    /// The account to debit.
    pub source_account: AccountId,
    /// The account to credit, at the destination bank.
    pub destination_account: AccountId,
    /// The customer's own id.
    pub end_to_end_id: Option<String>,
    /// The amount.
    pub money: Money,
    /// Profile of the switch that the payment was routed to, as configured now.
    pub profile: SwitchProfile,
    /// Fingerprint of the request.
    pub request_hash: Vec<u8>,
    /// The API's response, byte for byte.
    pub response_body: Vec<u8>,
    /// The acceptance time stated in the response.
    pub accepted_at: jiff::Timestamp,
    /// Position of the request in its distributed trace, a W3C `traceparent`.
    pub trace_parent: Option<String>,
}

/// Outcome of accepting one payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptOutcome {
    /// The payment was inserted now.
    New,
    /// The payment was inserted by an earlier request with the same idempotency key.
    Existing {
        /// Fingerprint of the first request.
        request_hash: Vec<u8>,
        /// The first response.
        response_body: Vec<u8>,
    },
}

/// Inserts payments in the caller's transaction, or returns the stored request of an existing id; one outcome each, in their
/// order. A payment's row outlives its idempotency key for ever (S0.1). The ids must differ.
///
/// # Errors
/// [`LedgerError`]: no payment is inserted.
pub async fn accept(tx: &mut Connection, new: &[NewPayment]) -> Result<Vec<AcceptOutcome>, LedgerError> {
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let inserted: HashSet<String> = insert(tx, new).await?.into_iter().collect();
    let (inserted_now, existing): (Vec<_>, Vec<_>) =
        new.iter().partition(|payment| inserted.contains(payment.payment_id.as_str()));
    write_timeline(tx, &inserted_now).await?;
    let mut existing =
        stored_requests(tx, &existing.iter().map(|payment| &payment.payment_id).collect::<Vec<_>>()).await?;
    new.iter()
        .map(|payment| match existing.remove(&payment.payment_id) {
            Some(outcome) => Ok(outcome),
            None if inserted.contains(payment.payment_id.as_str()) => Ok(AcceptOutcome::New),
            None => Err(LedgerError::UnknownPayment(payment.payment_id.to_string())),
        })
        .collect()
}

/// Ids that were newly inserted; existing ids are skipped.
async fn insert(tx: &mut Connection, new: &[NewPayment]) -> Result<Vec<String>, LedgerError> {
    let text = |column: fn(&NewPayment) -> &str| -> Vec<&str> { new.iter().map(column).collect() };
    // Most payments of a moment have one profile: each is written and hashed once.
    let mut profiles: Vec<&SwitchProfile> = Vec::new();
    let mut profile_numbers: Vec<i32> = Vec::with_capacity(new.len());
    for payment in new {
        let known = profiles.iter().position(|profile| **profile == payment.profile);
        let number = known.unwrap_or(profiles.len());
        if known.is_none() {
            profiles.push(&payment.profile);
        }
        profile_numbers.push(i32::try_from(number).unwrap_or(i32::MAX));
    }
    let profiles = profiles.into_iter().map(profile_json).collect::<Result<Vec<_>, _>>()?;
    let needs_account_lock: Vec<bool> =
        new.iter().map(|payment| payment.profile.needs_account_lock()).collect();
    let tx_ids: Vec<TxId> = new.iter().map(|payment| TxId::derive(&payment.payment_id)).collect();
    let names: Vec<String> = new.iter().zip(&tx_ids).map(|(payment, tx_id)| name(payment, tx_id)).collect();
    // The switch keeps a reference from the transfer's arrival on, which is before its end.
    let recognised_s: Vec<Option<f64>> = new
        .iter()
        .map(|payment| payment.profile.deduplicates.then_some((payment.profile.retention_s / 2) as f64))
        .collect();
    let tx_ids: Vec<&str> = tx_ids.iter().map(TxId::as_str).collect();
    let workflow_ids: Vec<String> =
        new.iter().map(|payment| keys::workflow_id(&payment.payment_id, 0)).collect();
    let end_to_end_ids: Vec<Option<&str>> =
        new.iter().map(|payment| payment.end_to_end_id.as_deref()).collect();
    let amounts: Vec<i64> = new.iter().map(|payment| payment.money.amount_minor()).collect();
    let hashes: Vec<&[u8]> = new.iter().map(|payment| &*payment.request_hash).collect();
    let bodies: Vec<&[u8]> = new.iter().map(|payment| &*payment.response_body).collect();
    let accepted_at: Vec<jiff_sqlx::Timestamp> =
        new.iter().map(|payment| payment.accepted_at.to_sqlx()).collect();
    let trace_parents: Vec<Option<&str>> =
        new.iter().map(|payment| payment.trace_parent.as_deref()).collect();
    let start_within_ms: Vec<f64> =
        new.iter().map(|payment| payment.profile.start_within_ms as f64).collect();
    let restore_after_ms: Vec<Option<f64>> =
        new.iter().map(|payment| payment.profile.restore_customer_after_ms.map(|ms| ms as f64)).collect();
    Ok(sqlx::query_scalar!(
        "WITH profiles AS (
             SELECT number - 1 AS number, profile, switch_profile_hash(profile) AS profile_hash
             FROM unnest($11::jsonb[]) WITH ORDINALITY AS configured (profile, number)),
         stored AS (
             INSERT INTO switch_profiles (profile_hash, profile)
             SELECT DISTINCT profile_hash, profile FROM profiles ORDER BY profile_hash
             ON CONFLICT DO NOTHING)
         INSERT INTO payments
             (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id, amount_minor,
              currency, switch, profile_hash, needs_account_lock, request_hash, response_body, workflow_id, accepted_at, trace_parent,
              valid_until, restore_due_at, attempts_uncertain)
         SELECT payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id, amount_minor,
                currency, switch, profile_hash, needs_account_lock, request_hash, response_body, workflow_id, accepted_at, trace_parent,
                clock_timestamp() + start_within_ms * interval '1 millisecond',
                -- By the database's clock: the receiving process's may be ahead.
                least(accepted_at, clock_timestamp()) + restore_after_ms * interval '1 millisecond',
                -- Its row was lost, and the client repeats the request: the first workflow may have submitted, or the switch lists the first
                -- transfer and may not recognise it any more.
                EXISTS (SELECT FROM exceptions e WHERE e.kind = 'workflow_without_payment' AND e.origin = new.payment_id)
                OR EXISTS (SELECT FROM statement_lines l WHERE l.switch = new.switch AND l.reference = new.name
                           AND coalesce(l.finished_at < clock_timestamp() - recognised_s * interval '1 second', true))
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                     $9::text[], $10::text[], $19::integer[], $20::boolean[], $12::bytea[], $13::bytea[], $14::text[], $15::timestamptz[],
                     $16::float8[], $17::text[], $18::float8[], $21::text[], $22::float8[])
              AS new (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id,
                      amount_minor, currency, switch, number, needs_account_lock, request_hash, response_body, workflow_id,
                      accepted_at, start_within_ms, trace_parent, restore_after_ms, name, recognised_s)
         JOIN profiles USING (number)
         -- On any unique index: with one named, PostgreSQL may report a concurrent duplicate by the other one as an error.
         ON CONFLICT DO NOTHING
         RETURNING payment_id",
        &text(|payment| payment.payment_id.as_str()) as &[&str],
        &tx_ids as &[&str],
        &text(|payment| payment.tenant.as_str()) as &[&str],
        &text(|payment| payment.client.as_str()) as &[&str],
        &text(|payment| payment.source_account.as_str()) as &[&str],
        &text(|payment| payment.destination_account.as_str()) as &[&str],
        &end_to_end_ids as &[Option<&str>],
        &amounts,
        &text(|payment| payment.money.currency().code()) as &[&str],
        &text(|payment| payment.profile.switch.as_str()) as &[&str],
        &profiles,
        &hashes as &[&[u8]],
        &bodies as &[&[u8]],
        &workflow_ids,
        &accepted_at as &[jiff_sqlx::Timestamp],
        &start_within_ms,
        &trace_parents as &[Option<&str>],
        &restore_after_ms as &[Option<f64>],
        &profile_numbers,
        &needs_account_lock,
        &names,
        &recognised_s as &[Option<f64>],
    )
    .fetch_all(&mut *tx)
    .await?)
}

/// The name under which the switch would list an earlier transfer of the payment. An id with a time is another one then.
fn name(payment: &NewPayment, tx_id: &TxId) -> String {
    let rail_id = payment.profile.mint(tx_id, payment.accepted_at, 0).ok().flatten();
    TransferName { reference: keys::submit(tx_id), rail_id }.on_wire().to_owned()
}

fn profile_json(profile: &SwitchProfile) -> Result<serde_json::Value, LedgerError> {
    serde_json::to_value(profile).map_err(|error| LedgerError::Unreadable {
        id: profile.switch.to_string(),
        column: "profile",
        value: error.to_string(),
    })
}

async fn write_timeline(tx: &mut Connection, inserted: &[&NewPayment]) -> Result<(), LedgerError> {
    let ids: Vec<&str> = inserted.iter().map(|payment| payment.payment_id.as_str()).collect();
    let details: Vec<String> = inserted
        .iter()
        .map(|payment| format!("accepted: {} to be sent by {}", payment.money, payment.profile.switch))
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

/// The stored requests ([`AcceptOutcome::Existing`]) of those ids that exist: the first request and its response outlive their
/// idempotency key.
///
/// # Errors
/// [`LedgerError`].
pub async fn stored_requests(
    tx: &mut Connection,
    payment_ids: &[&PaymentId],
) -> Result<HashMap<PaymentId, AcceptOutcome>, LedgerError> {
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
            Ok((
                read_id(&row.payment_id)?,
                AcceptOutcome::Existing { request_hash: row.request_hash, response_body: row.response_body },
            ))
        })
        .collect()
}

//! One payment's transfer at its switch, read by query, statement or list, as the payment's switch profile names it. Reading changes
//! nothing at the switch.

use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::reads::explain::{PaymentExplanation as LedgerExplanation, PaymentRow};
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::keys;
use payment_protocol::money::{format_major, parse_currency};
use payment_protocol::rail_id::{RailId, TransferName};
use payment_protocol::submit::QueryAnswer;
use serde::Serialize;
use switch_client::client::STATEMENT_NOT_READ_TO_END;
use switch_client::config::SwitchOptions;
use switch_client::{LookupKey, SwitchClient, SwitchReply, TransferRef};
use tokio::time::{Instant, timeout};

/// Time for all requests together. A long statement takes several.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How the transfer was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LookupMethod {
    /// Query by our reference.
    Query,
    /// Query by the switch's transfer id, or in its list of transfers to the destination account.
    ReadBack,
    /// The switch's statement, which lists finished transfers only.
    Statement,
}

/// The transfer as the switch reports it.
#[derive(Clone, Debug)]
pub struct TransferView {
    /// How the transfer was looked up.
    pub method: LookupMethod,
    /// The switch's answer; never [`QueryAnswer::NoAnswer`] or [`QueryAnswer::OurFault`].
    pub answer: QueryAnswer,
    /// The switch's id of the transfer.
    pub transfer_id: Option<String>,
}

impl TransferView {
    /// The answer in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let id = self.transfer_id.as_ref().map(|id| format!(" (transfer id {id})")).unwrap_or_default();
        match &self.answer {
            QueryAnswer::Settled(report) => {
                format!("settled: {}{id}", money(report.amount_minor, &report.currency))
            }
            QueryAnswer::Returned(report) => {
                format!("returned: {}{id}", money(report.amount_minor, &report.currency))
            }
            QueryAnswer::Pending => format!("pending{id}"),
            QueryAnswer::Void { reject } => format!("void: {reject}{id}"),
            QueryAnswer::NotListed { complete_until_ms } => {
                let until = complete_until_ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
                let complete = until.map(|until| format!(", and is complete until {until}"));
                format!("not found: the statement does not list the transfer{}", complete.unwrap_or_default())
            }
            QueryAnswer::NotFound => "not found: the switch does not know the transfer".into(),
            QueryAnswer::Ambiguous { detail }
            | QueryAnswer::NoAnswer { detail }
            | QueryAnswer::OurFault { detail } => detail.clone(),
        }
    }

    /// The answer's word in JSON.
    #[must_use]
    pub fn answer_word(&self) -> &'static str {
        match self.answer {
            QueryAnswer::Settled(_) => "settled",
            QueryAnswer::Returned(_) => "returned",
            QueryAnswer::Pending => "pending",
            QueryAnswer::Void { .. } => "void",
            QueryAnswer::NotFound | QueryAnswer::NotListed { .. } => "not_found",
            QueryAnswer::Ambiguous { .. } => "ambiguous",
            QueryAnswer::NoAnswer { .. } | QueryAnswer::OurFault { .. } => "no_answer",
        }
    }
}

/// Whether an operator's look may query the switch. The payment's own workflow needs the few queries that a switch with limits answers, and a repeat is
/// no reading.
#[must_use]
pub fn may_query(profile: &SwitchProfile) -> bool {
    profile.has_query && !profile.limits_queries()
}

/// The id of the rail that the transfer has if it was sent, and the record of it is lost; `None` where the switch takes our reference.
async fn unrecorded_rail_id(
    ledger: &Ledger,
    row: &PaymentRow,
    tx_id: &TxId,
) -> Result<Option<RailId>, String> {
    let minted = row.profile.mint(tx_id, row.view.accepted_at, 0).map_err(|error| error.to_string())?;
    let Some(minted) = minted else { return Ok(None) };
    let named = ledger.named_transaction(&row.profile.switch, minted.as_str()).await;
    if named.map_err(|error| error.to_string())?.is_some() {
        return Err(format!(
            "no id of the rail is on record, and the one that it would have, {minted}, is another payment's"
        ));
    }
    Ok(Some(minted))
}

/// Looks the transfer up at the switch, within 15 seconds. `options`: the configured switch of the payment, or why it is missing.
///
/// # Errors
/// Why the switch could not be queried.
pub async fn query(
    options: Result<&SwitchOptions, String>,
    ledger: &Ledger,
    payment: &LedgerExplanation,
) -> Result<TransferView, String> {
    let row = &payment.payment;
    let profile = &row.profile;
    let method = match (profile.needs_account_lock(), may_query(profile), profile.has_statement) {
        (true, true, _) => LookupMethod::ReadBack,
        (false, true, _) => LookupMethod::Query,
        (_, false, true) => LookupMethod::Statement,
        (_, false, false) if profile.has_query => {
            return Err(
                "the switch limits queries, and an operator's look spends none of them; it has no statement"
                    .into(),
            );
        }
        (_, false, false) => return Err("the switch offers neither a query nor a statement".into()),
    };
    let options = options?;
    if options.api_token.is_none() {
        return Err(format!("there is no token for the switch; set switches.{}.api_token", profile.switch));
    }
    let connected = options.kind.connect(options, profile);
    let client = connected.map_err(|error| error.to_string())?;
    let id = PaymentId::new(row.view.payment_id.as_str()).map_err(|error| error.to_string())?;
    let tx_id = TxId::derive(&id);
    let rail_id = match &row.rail_id {
        Some(stored) => Some(RailId::stored(stored.clone())),
        None => unrecorded_rail_id(ledger, row, &tx_id).await?,
    };
    let name = TransferName { reference: keys::submit(&tx_id), rail_id };
    let stored = ledger.lookup_key(&id, name.on_wire()).await.map_err(|error| error.to_string())?;
    let key = LookupKey {
        name: name.clone(),
        marker: stored.marker,
        transfer_id: stored.transfer_id,
        creditor_account: stored.destination_account,
        money: stored.money,
    };
    let request = async {
        match method {
            LookupMethod::Query => client.query(TransferRef::Name(&name)).await,
            LookupMethod::ReadBack => client.query(TransferRef::LookupKey(&key)).await,
            LookupMethod::Statement => read_statement(&*client, &key).await,
        }
    };
    let reply =
        timeout(TIMEOUT, request).await.map_err(|_| "the switch gave no answer within 15 s".to_owned())?;
    // As the service reads it: a code of the switch's may say nothing about the transfer.
    match profile.read_query_answer(reply.answer) {
        QueryAnswer::NoAnswer { detail } => Err(format!("the switch gave no definite answer: {detail}")),
        QueryAnswer::OurFault { detail } => Err(format!("the switch refused the query: {detail}")),
        // The lookup reads a bounded part of the statement after the settlement; reconciliation has read all of it.
        QueryAnswer::Settled(report)
            if method == LookupMethod::Statement
                && ledger.lists_return(&id).await.map_err(|error| error.to_string())? =>
        {
            let answer = QueryAnswer::Returned(report);
            Ok(TransferView { method, answer, transfer_id: reply.transfer_id })
        }
        answer => Ok(TransferView { method, answer, transfer_id: reply.transfer_id }),
    }
}

/// Reads the statement to its end: the client reads a bounded number of pages per call.
async fn read_statement(client: &dyn SwitchClient, key: &LookupKey) -> SwitchReply<QueryAnswer> {
    let started_at = Instant::now();
    loop {
        let reply = client.statement(key).await;
        let is_partial =
            matches!(&reply.answer, QueryAnswer::NoAnswer { detail } if detail == STATEMENT_NOT_READ_TO_END);
        if !is_partial || started_at.elapsed() > TIMEOUT {
            return reply;
        }
    }
}

/// An amount in major units. An unknown currency keeps its minor units.
fn money(amount_minor: i64, currency: &str) -> String {
    match parse_currency(currency) {
        Ok(known) => format!("{} {currency}", format_major(amount_minor, known)),
        Err(_) => format!("{amount_minor} minor units of {currency}"),
    }
}

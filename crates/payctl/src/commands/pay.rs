//! `payctl pay`: makes one payment as a customer would, and can follow it to its end.

use std::time::Duration;

use anyhow::Context as _;
use idempotency::IdempotencyKey;
use payment_protocol::ids::{AccountId, PaymentId};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::api::{Account, Answer, Api, ApiArgs, ApiError, Order, Payment};
use crate::out::{Out, plain};
use crate::outcome::Outcome;
use crate::table::{Align, Table};
use crate::watch::{follow, seconds};

/// Make a payment over HTTP; with --watch, show it until it ends
#[derive(Debug, clap::Args)]
#[command(after_help = crate::outcome::EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    api: ApiArgs,
    /// The account that is charged
    #[arg(long, value_name = "ACCOUNT", value_parser = super::id::<AccountId>)]
    from: AccountId,
    /// The account that is paid
    #[arg(long, value_name = "ACCOUNT", value_parser = super::id::<AccountId>)]
    to: AccountId,
    /// Decimal in major units, like 12.50
    #[arg(long, allow_negative_numbers = true)]
    amount: String,
    /// ISO 4217 code, like EUR
    #[arg(long)]
    currency: String,
    /// Repeating a payment under its key does not pay again [default: a new one]
    #[arg(long, value_name = "KEY", value_parser = super::key)]
    idempotency_key: Option<IdempotencyKey>,
    /// Wait for the end, and print what happens as it happens
    #[arg(long)]
    watch: bool,
    /// Seconds that --watch waits at most
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    timeout_s: u64,
    /// Print one JSON document: the acceptance, or with --watch the end
    #[arg(long)]
    json: bool,
}

/// What --watch --json prints.
#[derive(Debug, Serialize)]
struct Document<'a> {
    payment_id: &'a PaymentId,
    /// None: it was never seen after its acceptance.
    payment: Option<&'a RawValue>,
    source_before: Option<&'a RawValue>,
    source_after: Option<&'a RawValue>,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let api = args.api.client()?;
    let before = if args.watch { source(&api, &args).await? } else { None };

    let order = Order {
        amount: &args.amount,
        currency: &args.currency,
        source_account: args.from.as_str(),
        destination_account: args.to.as_str(),
    };
    let key = args.idempotency_key.clone().map_or_else(super::new_key, Ok)?;
    let deadline = Instant::now() + Duration::from_secs(args.timeout_s);
    let accepted = api.pay(&order, &key).await.map_err(|error| not_accepted(error, &key))?;
    let payment_id = &accepted.read.payment_id;
    if args.json && !args.watch {
        out.line(accepted.document)?;
        return Ok(Outcome::Done);
    }
    if !args.json {
        let accepted = &accepted.read;
        let money = format!("{} {}", accepted.amount, accepted.currency);
        let way = format!("from {} to {}", accepted.source_account, accepted.destination_account);
        out.line(plain(&format!("payment {payment_id}: {money} {way}")))?;
        if !args.watch {
            out.line(format_args!("accepted; to look at it: {}", look(&args, payment_id)))?;
            return Ok(Outcome::Done);
        }
    }

    let lines = (!args.json).then_some(&mut *out);
    let last = follow(&api, payment_id, deadline, lines).await?;
    // The payment's outcome stands; that the account cannot be read now must not hide it.
    let after = source(&api, &args).await.unwrap_or_default();
    if args.json {
        out.json(&Document {
            payment_id,
            payment: raw(last.as_ref())?,
            source_before: raw(before.as_ref())?,
            source_after: raw(after.as_ref())?,
        })?;
    } else {
        out.line(format_args!("\n{}\n", summary(&args, payment_id, last.as_ref().map(|last| &last.read))))?;
        out.line(balances(&args, before.as_ref(), after.as_ref()))?;
    }
    Ok(last.map_or(Outcome::StillOpen, |last| Outcome::of(last.read.status)))
}

/// The account that is charged. None when the API does not show it: what is wrong with it is said when
/// the payment is refused.
async fn source(api: &Api, args: &Args) -> Result<Option<Answer<Account>>, ApiError> {
    match api.account(args.from.as_str()).await {
        Ok(account) => Ok(Some(account)),
        Err(ApiError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn not_accepted(error: ApiError, key: &IdempotencyKey) -> anyhow::Error {
    if error.leaves_unknown() {
        let again = format!(
            "whether the payment was accepted is not known; to find out, repeat the command with \
             --idempotency-key {key}: that cannot pay twice"
        );
        return anyhow::Error::new(error).context(again);
    }
    // The key may have been used before: of that this answer says nothing.
    anyhow::Error::new(error).context("this request made no payment")
}

/// The end, or how to look for it.
fn summary(args: &Args, id: &PaymentId, last: Option<&Payment>) -> String {
    let open = |state: &str| {
        let waited = args.timeout_s;
        format!("{state} after {waited} s: unknown, not failed; to look again: {}", look(args, id))
    };
    let Some(payment) = last else { return open("not seen yet") };
    let Some(end) = payment.status.end() else { return open(&format!("still {}", payment.status)) };
    let elapsed = seconds(payment.created_at, payment.ended_at.unwrap_or(payment.created_at));
    let reason = payment.reason.as_deref().map(|reason| format!(": {}", plain(reason))).unwrap_or_default();
    format!("{end} after {elapsed} s{reason}")
}

/// The command that shows the payment; the key is left out, it may be a secret.
fn look(args: &Args, id: &PaymentId) -> String {
    format!("payctl show {id} --api --url {}", args.api.url())
}

fn balances(args: &Args, before: Option<&Answer<Account>>, after: Option<&Answer<Account>>) -> String {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new([("account", left), ("", left), ("available", right), ("held", right)]);
    for (when, account) in [("before", before), ("after", after)] {
        let cell = |amount: fn(&Account) -> &str| match account {
            Some(Answer { read, .. }) => format!("{} {}", amount(read), read.currency),
            None => "not known".to_owned(),
        };
        let (available, held) = (cell(|read| &read.available), cell(|read| &read.held));
        table.row([args.from.as_str(), when, &available, &held]);
    }
    table.to_string()
}

fn raw<T>(answer: Option<&Answer<T>>) -> anyhow::Result<Option<&RawValue>> {
    let document = answer.map(|answer| serde_json::from_str(&answer.document)).transpose();
    document.context("an answer of the API is not JSON")
}

//! `payctl pay`: makes one payment as a customer, and optionally follows it to its final state.

use std::time::Duration;

use anyhow::Context as _;
use idempotency::IdempotencyKey;
use payment_protocol::ids::{AccountId, PaymentId};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::api::{
    AccountDocument, ApiArgs, ApiClient, ApiError, ApiResponse, PaymentAcceptance, PaymentDocument,
    PaymentRequest,
};
use crate::outcome::CommandOutcome;
use crate::output::{Output, escape_control};
use crate::table::{Align, Table};
use crate::watch::{elapsed_seconds, follow_payment};

/// Make a payment through the API; with --watch, follow it to its final state
#[derive(Debug, clap::Args)]
#[command(after_help = crate::outcome::EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    api: ApiArgs,
    /// Id of the account to charge
    #[arg(long, value_name = "ACCOUNT", value_parser = super::id::<AccountId>)]
    from: AccountId,
    /// Id of the account to pay
    #[arg(long, value_name = "ACCOUNT", value_parser = super::id::<AccountId>)]
    to: AccountId,
    /// Amount to pay, as a decimal in major units like 12.50; greater than zero
    #[arg(long, allow_negative_numbers = true)]
    amount: String,
    /// Currency of the amount, an ISO 4217 code like EUR
    #[arg(long)]
    currency: String,
    /// Idempotency key of the payment: a repeat with the same key does not pay again [default: a new key]
    #[arg(long, value_name = "KEY", value_parser = super::key)]
    idempotency_key: Option<IdempotencyKey>,
    /// Wait for the final state and print each step of the timeline
    #[arg(long)]
    watch: bool,
    /// Longest time that --watch waits, in seconds, 0 to 86400
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    timeout_s: u64,
    /// Print one JSON document: the acceptance, or with --watch the payment's last state
    #[arg(long)]
    json: bool,
}

/// Output of `--watch --json`.
#[derive(Debug, Serialize)]
struct WatchDocument<'a> {
    payment_id: &'a PaymentId,
    /// The payment as last read; `None` if it was not read after its acceptance.
    payment: Option<&'a RawValue>,
    source_before: Option<&'a RawValue>,
    source_after: Option<&'a RawValue>,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let api = args.api.client()?;
    let before = if args.watch { read_source(&api, &args).await? } else { None };

    let deadline = Instant::now() + Duration::from_secs(args.timeout_s);
    let acceptance = request_payment(&api, &args).await?;
    let payment_id = &acceptance.document.payment_id;
    if args.json && !args.watch {
        out.write_line(acceptance.body)?;
        return Ok(CommandOutcome::Success);
    }
    if !args.json {
        let PaymentAcceptance { amount, currency, source_account, destination_account, .. } =
            &acceptance.document;
        let order = format!("{amount} {currency} from {source_account} to {destination_account}");
        out.write_line(escape_control(&format!("payment {payment_id}: {order}")))?;
        if !args.watch {
            out.write_line(format_args!(
                "payment {payment_id} accepted; next: {}",
                show_command(&args, payment_id)
            ))?;
            return Ok(CommandOutcome::Success);
        }
    }

    let timeline = (!args.json).then_some(&mut *out);
    let last = follow_payment(&api, payment_id, deadline, timeline).await?;
    // An account that cannot be read now must not hide the payment's outcome.
    let after = read_source(&api, &args).await.unwrap_or_default();
    if args.json {
        out.write_json(&WatchDocument {
            payment_id,
            payment: raw_json(last.as_ref())?,
            source_before: raw_json(before.as_ref())?,
            source_after: raw_json(after.as_ref())?,
        })?;
    } else {
        let summary = summary(&args, payment_id, last.as_ref().map(|last| &last.document));
        out.write_line(format_args!("\n{summary}\n"))?;
        out.write_line(balances(&args, before.as_ref(), after.as_ref()))?;
    }
    Ok(last.map_or(CommandOutcome::Unknown, |last| CommandOutcome::of(last.document.status)))
}

async fn request_payment(api: &ApiClient, args: &Args) -> anyhow::Result<ApiResponse<PaymentAcceptance>> {
    let payment = PaymentRequest {
        amount: &args.amount,
        currency: &args.currency,
        source_account: args.from.as_str(),
        destination_account: args.to.as_str(),
    };
    let key = args.idempotency_key.clone().map_or_else(super::new_key, Ok)?;
    api.pay(&payment, &key).await.map_err(|error| not_accepted(error, &key))
}

/// Reads the account to charge. `None` if the API refuses to show it: the refusal of the payment then gives
/// the reason.
async fn read_source(api: &ApiClient, args: &Args) -> Result<Option<ApiResponse<AccountDocument>>, ApiError> {
    match api.account(args.from.as_str()).await {
        Ok(account) => Ok(Some(account)),
        Err(ApiError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn not_accepted(error: ApiError, key: &IdempotencyKey) -> anyhow::Error {
    if error.may_have_taken_effect() {
        let context = format!(
            "the payment may have been accepted; to find out, repeat the command with --idempotency-key {key}, which \
             cannot pay twice"
        );
        return anyhow::Error::new(error).context(context);
    }
    // An earlier request under the same key may have made one.
    anyhow::Error::new(error).context("the request created no payment")
}

/// The final state, or how to read the payment later.
fn summary(args: &Args, id: &PaymentId, last: Option<&PaymentDocument>) -> String {
    let open = |state: &str| {
        let (waited, next) = (args.timeout_s, show_command(args, id));
        format!("payment {id}: {state} after {waited} s; not ended, not failed; next: {next}")
    };
    let Some(payment) = last else { return open("state unknown") };
    let Some(end) = payment.status.end() else { return open(&format!("state {}", payment.status)) };
    let elapsed = elapsed_seconds(payment.created_at, payment.ended_at.unwrap_or(payment.created_at));
    let reason = payment
        .reason
        .as_deref()
        .map(|reason| format!("; reason: {}", escape_control(reason)))
        .unwrap_or_default();
    format!("payment {id}: final state {end} after {elapsed} s{reason}")
}

/// The command that shows the payment, without the API key.
fn show_command(args: &Args, id: &PaymentId) -> String {
    format!("payctl show {id} --api --url {}", args.api.url())
}

fn balances(
    args: &Args,
    before: Option<&ApiResponse<AccountDocument>>,
    after: Option<&ApiResponse<AccountDocument>>,
) -> String {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new([("account", left), ("", left), ("available", right), ("held", right)]);
    for (when, account) in [("before", before), ("after", after)] {
        let cell = |amount: fn(&AccountDocument) -> &str| match account {
            Some(ApiResponse { document, .. }) => format!("{} {}", amount(document), document.currency),
            None => "unknown".to_owned(),
        };
        let (available, held) = (cell(|account| &account.available), cell(|account| &account.held));
        table.row([args.from.as_str(), when, &available, &held]);
    }
    table.to_string()
}

fn raw_json<T>(response: Option<&ApiResponse<T>>) -> anyhow::Result<Option<&RawValue>> {
    let document = response.map(|response| serde_json::from_str(&response.body)).transpose();
    document.context("a response of the payments API is not JSON; check --url (PAYMENTS_API_URL)")
}

//! `payctl demo`: accounts and a key to try the service with. Idempotent: each account is funded
//! once, however often this runs.

use iso_currency::Currency;
use payment_ledger::access::api_keys::Caller;
use payment_ledger::accounts::Account;
use payment_protocol::ids::{AccountId, ClientId, TenantId};
use payment_protocol::money::{Money, format_major, parse_currency};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use super::accounts;
use crate::database::DatabaseArgs;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::secret;
use crate::table::{Align, Table};

/// The key of the demo, known to everybody. `pay` and `show` use it unless told otherwise.
pub(crate) const DEMO_KEY: &str = "demo-key-not-for-production";

const TENANT: &str = "demo";
const CLIENT: &str = "demo-app";
/// The one that the next payment is best made from.
const SOURCE: &str = "DE-ALICE-EUR";
/// At another bank, so not on our books: what is sent there leaves.
const DESTINATION: &str = "FR-CAROL-EUR";
/// The deposit that each account begins with.
const DEPOSIT: &str = "demo-opening";

/// Accounts by id, currency and opening balance in minor units: enough money, some, and too little;
/// currencies of two decimals, none and three.
const ACCOUNTS: [(&str, Currency, i64); 5] = [
    (SOURCE, Currency::EUR, 1_000_000),
    ("DE-BOB-EUR", Currency::EUR, 50_000),
    ("DE-DAVE-EUR", Currency::EUR, 500),
    ("JP-HANA-JPY", Currency::JPY, 1_000_000),
    ("BH-OMAR-BHD", Currency::BHD, 1_000_000),
];

/// Open and fund the demo accounts, store the demo API key, and show them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The key that the demo client calls with
    #[arg(long, value_name = "KEY", env = "PAYMENTS_API_KEY", default_value = DEMO_KEY, hide_env_values = true)]
    api_key: SecretString,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The demo for programs; `./dev up` reads it.
#[derive(Debug, Serialize)]
struct Document<'a> {
    tenant: &'a str,
    client: &'a str,
    api_key: &'a str,
    source_account: &'a str,
    destination_account: &'a str,
    accounts: Vec<AccountDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct AccountDocument<'a> {
    account_id: &'a str,
    currency: &'a str,
    status: &'a str,
    available: String,
    held: String,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let ledger = args.database.ledger().await?;
    let caller = Caller { tenant: TenantId::new(TENANT)?, client: ClientId::new(CLIENT)? };
    secret::store(&ledger, &args.api_key, &caller).await?;
    let mut opened = Vec::with_capacity(ACCOUNTS.len());
    for (id, currency, opening_minor) in ACCOUNTS {
        let account = AccountId::new(id)?;
        accounts::open(&ledger, &caller.tenant, &account, currency).await?;
        let money = Money::from_minor(opening_minor, currency)?;
        accounts::deposit(&ledger, &account, money, DEPOSIT).await?;
        opened.push(accounts::open(&ledger, &caller.tenant, &account, currency).await?);
    }
    if args.json {
        write_json(&args, &opened, out)?
    } else {
        write_text(&args, &opened, out)?
    }
    Ok(Outcome::Done)
}

fn write_text(args: &Args, opened: &[Account], out: &mut Out<'_>) -> anyhow::Result<()> {
    out.line(accounts::table(opened)?)?;
    let mut facts = Table::new([("", Align::Left), ("", Align::Left)]);
    facts.row(["tenant", TENANT]);
    facts.row(["client", CLIENT]);
    facts.row(["API key", args.api_key.expose_secret()]);
    facts.row(["pay to, for example", DESTINATION]);
    Ok(out.line(format_args!("\n{facts}"))?)
}

fn write_json(args: &Args, opened: &[Account], out: &mut Out<'_>) -> anyhow::Result<()> {
    let accounts = opened.iter().map(document).collect::<anyhow::Result<_>>()?;
    let document = Document {
        tenant: TENANT,
        client: CLIENT,
        api_key: args.api_key.expose_secret(),
        source_account: SOURCE,
        destination_account: DESTINATION,
        accounts,
    };
    Ok(out.json(&document)?)
}

fn document(account: &Account) -> anyhow::Result<AccountDocument<'_>> {
    let currency = parse_currency(&account.currency)?;
    Ok(AccountDocument {
        account_id: &account.account_id,
        currency: &account.currency,
        status: &account.status,
        available: format_major(account.available_minor, currency),
        held: format_major(account.held_minor, currency),
    })
}

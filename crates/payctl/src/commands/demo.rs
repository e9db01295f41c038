//! `payctl demo`: accounts, an API key and two operators to try the service. Idempotent: each account is funded once.

use anyhow::Context as _;
use iso_currency::Currency;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::Caller;
use payment_ledger::access::operators::{NewOperatorOutcome, OperatorRole, Password};
use payment_protocol::ids::{AccountId, ClientId, TenantId};
use payment_protocol::money::{Money, format_major, parse_currency};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use service_kit::published::{self, DEMO_API_KEY, DEMO_OPERATOR_PASSWORD};

use super::accounts;
use crate::api_key;
use crate::database::DatabaseArgs;
use crate::operator_api::AccountDocument;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

const TENANT: &str = "demo";
const CLIENT: &str = "demo-app";
/// The account that the demo suggests to pay from.
const SOURCE: &str = "DE-ALICE-EUR";
/// An account at another bank.
const DESTINATION: &str = "FR-CAROL-EUR";
/// Idempotency key of each account's opening deposit.
const DEPOSIT: &str = "demo-opening";

/// Accounts by id, currency and opening balance in minor units: with large, small and insufficient balances,
/// in currencies with two, zero and three decimals.
const ACCOUNTS: [(&str, Currency, i64); 5] = [
    (SOURCE, Currency::EUR, 1_000_000),
    ("DE-BOB-EUR", Currency::EUR, 50_000),
    ("DE-DAVE-EUR", Currency::EUR, 500),
    ("JP-HANA-JPY", Currency::JPY, 1_000_000),
    ("BH-OMAR-BHD", Currency::BHD, 1_000_000),
];

/// The operators, who decide with four eyes. operator-api accepts their password on its own machine only.
pub(super) const OPERATORS: [&str; 2] = ["ann", "bob"];
/// What each of them may do.
const ROLES: [OperatorRole; 2] = [OperatorRole::Operator, OperatorRole::Approver];

/// Open and fund the demo accounts, store the demo API key and create two operators; safe to repeat
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// API key to store for the demo client
    #[arg(long, value_name = "KEY", env = "PAYMENTS_API_KEY", default_value = DEMO_API_KEY, hide_env_values = true)]
    api_key: SecretString,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Output of `--json`; `./dev up` reads it.
#[derive(Debug, Serialize)]
struct DemoDocument<'a> {
    tenant: &'a str,
    client: &'a str,
    api_key: &'a str,
    source_account: &'a str,
    destination_account: &'a str,
    operators: [&'a str; 2],
    operator_password: &'a str,
    accounts: Vec<DemoAccountDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct DemoAccountDocument<'a> {
    account_id: &'a str,
    currency: &'a str,
    status: &'a str,
    available: String,
    held: String,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let host = args.database.options()?.get_host().to_owned();
    anyhow::ensure!(
        is_this_machine(&host) || !published::is_published(args.api_key.expose_secret()),
        "the demo's API key is public, and the database is at {host}: other machines could pay with the key; set --api-key \
         (PAYMENTS_API_KEY) to one of your own"
    );
    let ledger = args.database.ledger().await?;
    let caller = Caller { tenant: TenantId::new(TENANT)?, client: ClientId::new(CLIENT)? };
    api_key::import(&ledger, &args.api_key, &caller).await?;
    if is_this_machine(&host) {
        create_operators(&ledger).await?;
    }
    let mut opened = Vec::with_capacity(ACCOUNTS.len());
    for (id, currency, opening_minor) in ACCOUNTS {
        let account = AccountId::new(id)?;
        ledger.open_account(&caller.tenant, &account, currency).await?;
        let money = Money::from_minor(opening_minor, currency)?;
        let funded = ledger.fund(&account, money, &format!("fund:{account}:{DEPOSIT}")).await;
        let open =
            ledger.account(&caller.tenant, &account).await?.filter(|open| open.currency == currency.code());
        let open = open.with_context(|| {
            format!("account {account} exists already, of another tenant or in another currency; use an empty database for the demo")
        })?;
        funded?;
        opened.push(AccountDocument::from(open));
    }
    if args.json {
        write_json(&args, &opened, out)?
    } else {
        write_text(&args, &opened, out)?
    }
    Ok(CommandOutcome::Success)
}

/// Creates the operators that do not exist yet.
async fn create_operators(ledger: &Ledger) -> anyhow::Result<()> {
    let existing = ledger.operators().await?;
    for name in OPERATORS {
        if existing.iter().any(|operator| operator.name == name) {
            continue;
        }
        let hash = Password::new(DEMO_OPERATOR_PASSWORD.into())?.to_stored()?;
        match ledger.create_operator(name, &ROLES, &hash.into()).await? {
            NewOperatorOutcome::Created => {}
            NewOperatorOutcome::Exists(other) => {
                anyhow::bail!("operator {other} exists, and is not the demo's {name}")
            }
        }
    }
    Ok(())
}

/// Whether a database's host is this machine: a loopback address, or the folder of a socket.
fn is_this_machine(host: &str) -> bool {
    host.starts_with('/') || link_kit::is_this_machine(host)
}

fn write_text(args: &Args, opened: &[AccountDocument], out: &mut Output<'_>) -> anyhow::Result<()> {
    out.write_line(accounts::table(opened)?)?;
    let mut facts = Table::new([("", Align::Left), ("", Align::Left)]);
    facts.row(["tenant", TENANT]);
    facts.row(["client", CLIENT]);
    facts.row(["API key", args.api_key.expose_secret()]);
    facts.row(["example destination", DESTINATION]);
    facts.row(["operators", &OPERATORS.join(", ")]);
    facts.row(["their password", DEMO_OPERATOR_PASSWORD]);
    Ok(out.write_line(format_args!("\n{facts}"))?)
}

fn write_json(args: &Args, opened: &[AccountDocument], out: &mut Output<'_>) -> anyhow::Result<()> {
    let accounts = opened.iter().map(document).collect::<anyhow::Result<_>>()?;
    let document = DemoDocument {
        tenant: TENANT,
        client: CLIENT,
        api_key: args.api_key.expose_secret(),
        source_account: SOURCE,
        destination_account: DESTINATION,
        operators: OPERATORS,
        operator_password: DEMO_OPERATOR_PASSWORD,
        accounts,
    };
    Ok(out.write_json(&document)?)
}

fn document(account: &AccountDocument) -> anyhow::Result<DemoAccountDocument<'_>> {
    let currency = parse_currency(&account.currency)?;
    Ok(DemoAccountDocument {
        account_id: &account.account_id,
        currency: &account.currency,
        status: &account.status,
        available: format_major(account.available_minor, currency),
        held: format_major(account.held_minor, currency),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_on_this_machine_has_a_loopback_address_or_a_socket() {
        for here in ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "/var/run/postgresql"] {
            assert!(is_this_machine(here), "{here}");
        }
        for elsewhere in ["postgres", "10.0.0.1", "db.example", "0.0.0.0", ""] {
            assert!(!is_this_machine(elsewhere), "{elsewhere}");
        }
    }
}

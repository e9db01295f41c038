//! `payctl accounts`: customers' accounts on our books.

use anyhow::Context as _;
use idempotency::IdempotencyKey;
use iso_currency::Currency;
use payment_ledger::Ledger;
use payment_ledger::accounts::{Account, AccountStatus};
use payment_protocol::ids::{AccountId, TenantId};
use payment_protocol::money::{Money, format_major, parse_currency};

use crate::database::DatabaseArgs;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::table::{Align, Table};

/// Open, fund, freeze and show customers' accounts
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Open an account; one that is open stays as it is
    Open {
        #[command(flatten)]
        which: Which,
        /// ISO 4217 code, like EUR
        #[arg(long, value_parser = parse_currency)]
        currency: Currency,
    },
    /// Pay money in, in the account's currency
    Fund {
        #[command(flatten)]
        which: Which,
        /// Decimal in major units, like 12.50
        #[arg(long, allow_negative_numbers = true)]
        amount: String,
        /// Repeating a deposit under its key does not pay in again [default: a new one]
        #[arg(long, value_name = "KEY", value_parser = super::key)]
        idempotency_key: Option<IdempotencyKey>,
    },
    /// Forbid debits: no payment is reserved or settled from it
    Freeze(Which),
    /// Allow debits again
    Unfreeze(Which),
    /// Show what can be spent and what is held
    Show(Which),
}

/// The account that is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The tenant it belongs to
    #[arg(long, default_value = "demo", value_parser = super::id::<TenantId>)]
    tenant: TenantId,
    /// The account's id
    #[arg(value_parser = super::id::<AccountId>)]
    account: AccountId,
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let account = match command {
        Command::Open { which, currency } => {
            let ledger = which.database.ledger().await?;
            open(&ledger, &which.tenant, &which.account, currency).await?
        }
        Command::Fund { which, amount, idempotency_key } => {
            fund(which, &amount, idempotency_key, out).await?
        }
        Command::Freeze(which) => set_status(which, AccountStatus::Frozen).await?,
        Command::Unfreeze(which) => set_status(which, AccountStatus::Active).await?,
        Command::Show(which) => read(&which.database.ledger().await?, &which.tenant, &which.account).await?,
    };
    out.line(table([&account])?)?;
    Ok(Outcome::Done)
}

/// Opens an account, and makes sure that it is the tenant's and of that currency.
///
/// # Errors
/// When the id is taken, or the ledger has no answer.
pub(crate) async fn open(
    ledger: &Ledger,
    tenant: &TenantId,
    account: &AccountId,
    currency: Currency,
) -> anyhow::Result<Account> {
    ledger.open_account(tenant, account, currency).await?;
    let found = ledger.account(tenant, account).await?;
    let found = found.with_context(|| format!("the account id {account} is taken by another tenant"))?;
    anyhow::ensure!(found.currency == currency.code(), "{account} is there already, in {}", found.currency);
    Ok(found)
}

/// Pays in once per account and `key`. Returns whether it was done now.
///
/// # Errors
/// When the ledger has no answer or refuses.
pub(crate) async fn deposit(
    ledger: &Ledger,
    account: &AccountId,
    money: Money,
    key: &str,
) -> anyhow::Result<bool> {
    // Its own word in front: no other operation's key looks like that.
    Ok(ledger.fund(account, money, &format!("fund:{account}:{key}")).await?)
}

async fn fund(
    which: Which,
    amount: &str,
    key: Option<IdempotencyKey>,
    out: &mut Out<'_>,
) -> anyhow::Result<Account> {
    let ledger = which.database.ledger().await?;
    let account = read(&ledger, &which.tenant, &which.account).await?;
    let money = Money::parse_major(amount, parse_currency(&account.currency)?)?;
    let key = key.map_or_else(super::new_key, Ok)?;
    let done = deposit(&ledger, &which.account, money, key.as_str()).await.with_context(|| {
        format!("whether it was paid in is not known; repeat with --idempotency-key {key} to make sure")
    })?;
    if !done {
        out.line(format_args!("nothing paid in: the deposit {key} was made before"))?;
    }
    read(&ledger, &which.tenant, &which.account).await
}

async fn set_status(which: Which, status: AccountStatus) -> anyhow::Result<Account> {
    let ledger = which.database.ledger().await?;
    read(&ledger, &which.tenant, &which.account).await?;
    ledger.set_account_status(&which.account, status).await?;
    read(&ledger, &which.tenant, &which.account).await
}

async fn read(ledger: &Ledger, tenant: &TenantId, account: &AccountId) -> anyhow::Result<Account> {
    let found = ledger.account(tenant, account).await?;
    found.with_context(|| format!("tenant {tenant} has no account {account}"))
}

/// Accounts with their balances, for people.
///
/// # Errors
/// When a stored currency is none.
pub(crate) fn table<'a>(accounts: impl IntoIterator<Item = &'a Account>) -> anyhow::Result<Table<4>> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new([("account", left), ("available", right), ("held", right), ("status", left)]);
    for account in accounts {
        let currency = parse_currency(&account.currency)?;
        let amount = |minor| format!("{} {}", format_major(minor, currency), currency.code());
        let (available, held) = (amount(account.available_minor), amount(account.held_minor));
        table.row([&account.account_id, &available, &held, &account.status]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balances_have_all_decimals_of_their_currency() {
        let account = |id: &str, currency: &str, minor| Account {
            account_id: id.into(),
            currency: currency.into(),
            status: "active".into(),
            available_minor: minor,
            held_minor: 5,
        };
        let accounts = [account("A", "EUR", 1_250), account("B", "JPY", 1_250), account("C", "BHD", 1_250)];
        let expected = "\
account   available        held   status
A         12.50 EUR    0.05 EUR   active
B          1250 JPY       5 JPY   active
C         1.250 BHD   0.005 BHD   active";
        assert_eq!(table(&accounts).unwrap().to_string(), expected);
    }
}

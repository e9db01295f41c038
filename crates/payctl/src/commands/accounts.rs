//! `payctl accounts`: customers' accounts in the ledger.

use anyhow::Context as _;
use idempotency::IdempotencyKey;
use iso_currency::Currency;
use payment_ledger::Ledger;
use payment_ledger::accounts::{Account, AccountStatus};
use payment_protocol::ids::{AccountId, TenantId};
use payment_protocol::money::{Money, format_major, parse_currency};

use crate::database::DatabaseArgs;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

/// Open, fund, freeze, unfreeze and show customers' accounts
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Open an account; an account that is open already stays unchanged
    Open {
        #[command(flatten)]
        account: AccountArgs,
        /// Currency of the account, an ISO 4217 code like EUR
        #[arg(long, value_parser = parse_currency)]
        currency: Currency,
    },
    /// Deposit an amount into an account, in the account's currency
    Fund {
        #[command(flatten)]
        account: AccountArgs,
        /// Amount to deposit, as a decimal in major units like 12.50; greater than zero
        #[arg(long, allow_negative_numbers = true)]
        amount: String,
        /// Idempotency key of the deposit: a repeat with the same key does not deposit again [default: a new key]
        #[arg(long, value_name = "KEY", value_parser = super::key)]
        idempotency_key: Option<IdempotencyKey>,
    },
    /// Freeze an account: no payment is reserved in it or debited from it
    Freeze(AccountArgs),
    /// Unfreeze an account: payments are reserved and debited again
    Unfreeze(AccountArgs),
    /// Show an account's available and held amounts
    Show(AccountArgs),
}

/// One account of one tenant.
#[derive(Debug, clap::Args)]
pub(crate) struct AccountArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Tenant that owns the account
    #[arg(long, default_value = "demo", value_parser = super::id::<TenantId>)]
    tenant: TenantId,
    /// Id of the account
    #[arg(value_name = "ACCOUNT", value_parser = super::id::<AccountId>)]
    id: AccountId,
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let account = match command {
        Command::Open { account: args, currency } => {
            let ledger = args.database.ledger().await?;
            open(&ledger, &args.tenant, &args.id, currency).await?
        }
        Command::Fund { account: args, amount, idempotency_key } => {
            fund(args, &amount, idempotency_key, out).await?
        }
        Command::Freeze(args) => set_status(args, AccountStatus::Frozen).await?,
        Command::Unfreeze(args) => set_status(args, AccountStatus::Active).await?,
        Command::Show(args) => read(&args.database.ledger().await?, &args.tenant, &args.id).await?,
    };
    out.write_line(table([&account])?)?;
    Ok(CommandOutcome::Success)
}

/// Opens an account and checks its tenant and currency.
///
/// # Errors
/// The id is taken by another tenant or currency, or the ledger does not answer.
pub(crate) async fn open(
    ledger: &Ledger,
    tenant: &TenantId,
    account: &AccountId,
    currency: Currency,
) -> anyhow::Result<Account> {
    ledger.open_account(tenant, account, currency).await?;
    let opened = ledger.account(tenant, account).await?;
    let opened =
        opened.with_context(|| format!("account {account} belongs to another tenant; choose another id"))?;
    anyhow::ensure!(
        opened.currency == currency.code(),
        "account {account} exists already in {}; choose another id",
        opened.currency
    );
    Ok(opened)
}

/// Deposits an amount once per account and `key`. Returns whether this call deposited it.
///
/// # Errors
/// The ledger refuses or does not answer.
pub(crate) async fn deposit(
    ledger: &Ledger,
    account: &AccountId,
    money: Money,
    key: &str,
) -> anyhow::Result<bool> {
    // The prefix keeps deposits apart from other operations' keys.
    Ok(ledger.fund(account, money, &format!("fund:{account}:{key}")).await?)
}

async fn fund(
    args: AccountArgs,
    amount: &str,
    key: Option<IdempotencyKey>,
    out: &mut Output<'_>,
) -> anyhow::Result<Account> {
    let ledger = args.database.ledger().await?;
    let account = read(&ledger, &args.tenant, &args.id).await?;
    let money = Money::parse_major(amount, parse_currency(&account.currency)?)?;
    let key = key.map_or_else(super::new_key, Ok)?;
    let is_new = deposit(&ledger, &args.id, money, key.as_str()).await.with_context(|| {
        format!("the deposit may have been made; repeat the command with --idempotency-key {key}, which cannot deposit twice")
    })?;
    if !is_new {
        out.write_line(format_args!(
            "nothing deposited: deposit {key} to account {} was made before",
            args.id
        ))?;
    }
    read(&ledger, &args.tenant, &args.id).await
}

async fn set_status(args: AccountArgs, status: AccountStatus) -> anyhow::Result<Account> {
    let ledger = args.database.ledger().await?;
    read(&ledger, &args.tenant, &args.id).await?;
    ledger.set_account_status(&args.id, status).await?;
    read(&ledger, &args.tenant, &args.id).await
}

async fn read(ledger: &Ledger, tenant: &TenantId, account: &AccountId) -> anyhow::Result<Account> {
    let account_row = ledger.account(tenant, account).await?;
    account_row.with_context(|| format!("tenant {tenant} has no account {account}; check --tenant"))
}

/// A table of accounts with their balances.
///
/// # Errors
/// A stored currency is not an ISO 4217 code.
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
    fn payctl_prints_a_balance_with_the_decimals_of_its_currency() {
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

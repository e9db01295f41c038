//! `payctl accounts`: customers' accounts in the ledger.

use iso_currency::Currency;
use payment_ledger::accounts::Account;
use payment_protocol::ids::{AccountId, TenantId};
use payment_protocol::money::{format_major, parse_currency};
use serde_json::{Value, json};

use crate::operator_api::{AccountDocument, OperatorClient, ReasonArgs, SessionArgs, note_waiting};
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

/// Open, fund, freeze, unfreeze, erase and show customers' accounts; a deposit, an unfreeze and an erasure take two operators
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Open an account without money
    Open {
        #[command(flatten)]
        account: AccountArgs,
        #[command(flatten)]
        reason: ReasonArgs,
        /// Currency of the account, an ISO 4217 code like EUR
        #[arg(long, value_parser = parse_currency)]
        currency: Currency,
    },
    /// Propose to deposit an amount into an account; another operator confirms it
    Fund {
        #[command(flatten)]
        account: AccountArgs,
        #[command(flatten)]
        reason: ReasonArgs,
        /// Amount to deposit in the account's currency, as a decimal in major units like 12.50; greater than zero
        #[arg(long, allow_negative_numbers = true)]
        amount: String,
    },
    /// Freeze an account: no payment is reserved in it or debited from it
    Freeze {
        #[command(flatten)]
        account: AccountArgs,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Propose to unfreeze an account, so that payments are reserved and debited again; another operator confirms it
    Unfreeze {
        #[command(flatten)]
        account: AccountArgs,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Propose to erase the personal fields of the payments that an account has made until now; another operator confirms it
    ///
    /// Each payment is erased some time after its end: who was paid, the reference, and what the switch wrote. The account's id and the
    /// amounts stay in the books. Nothing brings back what is erased.
    Erase {
        #[command(flatten)]
        account: AccountArgs,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Show an account's available and held amounts, and the erasure of its payments
    Show(AccountArgs),
}

/// One account of one tenant.
#[derive(Debug, clap::Args)]
pub(crate) struct AccountArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Tenant that owns the account
    #[arg(long, default_value = "demo", value_parser = super::id::<TenantId>)]
    tenant: TenantId,
    /// Id of the account
    #[arg(value_name = "ACCOUNT", value_parser = super::id::<AccountId>)]
    id: AccountId,
}

impl AccountArgs {
    async fn read(&self, client: &OperatorClient) -> anyhow::Result<AccountDocument> {
        let path = format!("tenants/{}/accounts/{}", self.tenant, self.id);
        Ok(client.get(&path).await?.document)
    }

    fn change(&self, kind: &str) -> Value {
        json!({"kind": kind, "tenant_id": self.tenant, "account_id": self.id})
    }
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Open { account, reason, currency } => {
            let mut change = account.change("open_account");
            change["currency"] = currency.code().into();
            make(&account, change, &reason, out).await?;
        }
        Command::Fund { account, reason, amount } => {
            let mut change = account.change("fund_account");
            change["currency"] = account.read(&account.session.client()?).await?.currency.into();
            change["amount"] = amount.into();
            make(&account, change, &reason, out).await?;
        }
        Command::Freeze { account, reason } => {
            make(&account, account.change("freeze_account"), &reason, out).await?;
        }
        Command::Unfreeze { account, reason } => {
            make(&account, account.change("unfreeze_account"), &reason, out).await?;
        }
        Command::Erase { account, reason } => {
            make(&account, account.change("erase_account"), &reason, out).await?;
        }
        Command::Show(account) => show(&account, &account.session.client()?, out).await?,
    }
    Ok(CommandOutcome::Success)
}

async fn make(
    account: &AccountArgs,
    change: Value,
    reason: &ReasonArgs,
    out: &mut Output<'_>,
) -> anyhow::Result<()> {
    let client = account.session.client()?;
    let change = client.change(change, reason).await?;
    if !note_waiting(&change, out)? {
        show(account, &client, out).await?;
    }
    Ok(())
}

async fn show(account: &AccountArgs, client: &OperatorClient, out: &mut Output<'_>) -> anyhow::Result<()> {
    let account = account.read(client).await?;
    out.write_line(table([&account])?)?;
    if let Some(erasure) = &account.erasure {
        let status = match erasure.done_at {
            Some(at) => format!("done at {at:.0}"),
            // Those that are not looked at yet are not counted.
            None if erasure.waiting_payments == 0 => "others are looked at within two minutes".to_owned(),
            None => {
                format!("{} waited at the last look, which is repeated every hour", erasure.waiting_payments)
            }
        };
        out.write_line(format_args!(
            "payments before {:.0} are erased: {}, {status}",
            erasure.requested_at, erasure.erased_payments
        ))?;
        if let Some(failure) = &erasure.failure {
            out.write_line(format_args!(
                "the database refused one, which is tried again every hour: {failure}"
            ))?;
        }
    }
    Ok(())
}

impl From<Account> for AccountDocument {
    fn from(account: Account) -> Self {
        Self {
            account_id: account.account_id,
            currency: account.currency,
            status: account.status,
            available_minor: account.available_minor,
            held_minor: account.held_minor,
            erasure: None,
        }
    }
}

/// A table of accounts with their balances.
///
/// # Errors
/// A stored currency is not an ISO 4217 code.
pub(crate) fn table<'a>(accounts: impl IntoIterator<Item = &'a AccountDocument>) -> anyhow::Result<Table<4>> {
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
        let account = |id: &str, currency: &str, minor| AccountDocument {
            account_id: id.into(),
            currency: currency.into(),
            status: "active".into(),
            available_minor: minor,
            held_minor: 5,
            erasure: None,
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

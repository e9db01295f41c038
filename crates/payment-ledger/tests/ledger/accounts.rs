//! `accounts`: funding, the view of an account, and separate currencies.

use crate::support::{Bank, FUNDS_MINOR, Stage, account_id, eur};
use iso_currency::Currency;
use payment_ledger::LedgerError;
use payment_ledger::accounts::AccountStatus;
use payment_protocol::ids::TenantId;
use payment_protocol::money::Money;
use sqlx::PgPool;

/// SQLSTATE of our own triggers.
const RESTRICT: &str = "23001";

/// An account is funded once per key, if it is a customer's account and has the currency.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_account_is_funded_once_per_operation_key(pool: PgPool) {
    let bank = Bank::new(pool);
    let account = bank.open("purse", FUNDS_MINOR).await;
    assert!(
        !bank.ledger.fund(&account, eur(FUNDS_MINOR), "fund:purse").await.unwrap(),
        "a repeated key funded the account again"
    );
    assert!(bank.ledger.fund(&account, eur(1), "more").await.unwrap());

    let dollars = Money::from_minor(5, Currency::USD).unwrap();
    let refused = bank.ledger.fund(&account, dollars, "dollars").await.unwrap_err();
    assert!(!matches!(refused, LedgerError::Unavailable(_)), "{refused:?}");
    for account in ["nobody", "internal:holding:EUR", "internal:escrow:EUR", "internal:funding:EUR"] {
        let refused = bank.ledger.fund(&account_id(account), eur(5), account).await.unwrap_err();
        assert!(!matches!(refused, LedgerError::Unavailable(_)), "{account}: {refused:?}");
    }
    let keys = "SELECT operation_key FROM operations ORDER BY operation_key";
    assert_eq!(bank.words(keys).await, ["fund:purse", "more"], "a refused operation used its key");
    let view = bank.ledger.account(&crate::support::tenant(), &account).await.unwrap().unwrap();
    assert_eq!((view.available_minor, view.held_minor), (FUNDS_MINOR + 1, 0));
    bank.audit().await;
}

/// The view of an account: available balance, open holds, and ledger balance.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_ledger_shows_the_available_and_held_amounts_of_an_account(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // stage             available  held   ledger balance
        (Stage::Accepted,    10_000,    0,     10_000),
        (Stage::Reserved,     9_000,    1_000, 10_000),
        (Stage::Cancelling,   9_000,    1_000, 10_000),
        (Stage::Settled,      9_000,    0,      9_000),
        (Stage::Released,    10_000,    0,     10_000),
    ];
    for (stage, available, held, ledger) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let view = bank.ledger.account(&crate::support::tenant(), &p.account).await.unwrap().unwrap();
        assert_eq!(
            (view.available_minor, view.held_minor, view.ledger_minor()),
            (available, held, ledger),
            "{stage:?}"
        );
        let other_tenant = TenantId::new("other").unwrap();
        assert_eq!(bank.ledger.account(&other_tenant, &p.account).await.unwrap(), None);
    }
    bank.audit().await;
}

/// Currencies with zero, two and three decimals balance separately; an amount that would overflow is refused completely.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_balances_of_currencies_stay_separate_and_no_sum_overflows(pool: PgPool) {
    let bank = Bank::new(pool);
    let money = |minor, currency| Money::from_minor(minor, currency).unwrap();
    for currency in [Currency::JPY, Currency::EUR, Currency::BHD] {
        let account = account_id(&format!("purse-{}", currency.code()));
        bank.ledger.open_account(&crate::support::tenant(), &account, currency).await.unwrap();
        assert!(bank.ledger.fund(&account, money(1_234, currency), currency.code()).await.unwrap());
        for other in [Currency::JPY, Currency::EUR, Currency::BHD] {
            if other != currency {
                let key = format!("{} into {}", other.code(), currency.code());
                assert!(bank.ledger.fund(&account, money(1, other), &key).await.is_err(), "{key}");
                let sql = format!(
                    "INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
                     VALUES ('x', 'fund', 'internal:funding:{0}', '{account}', 1, '{0}')",
                    other.code()
                );
                let reason = format!("there is no account {account} in {}", other.code());
                assert_eq!(bank.refused(&sql).await, (RESTRICT.to_owned(), reason));
            }
        }
    }
    let trial = bank.ledger.trial_balance(None).await.unwrap();
    let balances = |account: &str| -> Vec<_> {
        let lines = trial.iter().filter(|line| line.account.starts_with(account));
        lines.map(|line| (line.currency.as_str(), line.balance_minor)).collect()
    };
    assert_eq!(balances("customers"), [("BHD", 1_234), ("EUR", 1_234), ("JPY", 1_234)]);
    assert_eq!(balances("internal:funding"), [("BHD", -1_234), ("EUR", -1_234), ("JPY", -1_234)]);

    // One below the maximum of a bigint.
    bank.sql(&format!(
        "SET LOCAL session_replication_role = replica;
         UPDATE accounts SET available_minor = {} WHERE account_id = 'purse-EUR'",
        i64::MAX - 1
    ))
    .await;
    let overflow = bank.ledger.fund(&account_id("purse-EUR"), eur(2), "over").await.unwrap_err();
    assert!(matches!(overflow, LedgerError::Refused(_)), "{overflow:?}");
    assert_eq!(bank.operation("over").await, [""; 0], "a refused operation was recorded");
    assert!(bank.ledger.fund(&account_id("purse-EUR"), eur(1), "just").await.unwrap());
    let entries = "SELECT count(*) FROM journal WHERE credit_account = 'purse-EUR'";
    assert_eq!(bank.number(entries).await, 2);
}

/// Freezing says whether there was anything to freeze: a customer's account that is not closed.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn only_a_customers_open_account_is_frozen(pool: PgPool) {
    let bank = Bank::new(pool);
    let (open, closed) = (bank.open("open", 0).await, bank.open("closed", 0).await);
    bank.sql("UPDATE accounts SET status = 'closed' WHERE account_id = 'closed'").await;
    for (account, expected) in [
        (open, true),
        (closed, false),
        (account_id("nobody"), false),
        (account_id("internal:holding:EUR"), false),
    ] {
        let changed = bank.ledger.set_account_status(&account, AccountStatus::Frozen).await.unwrap();
        assert_eq!(changed, expected, "{account:?}");
    }
    assert_eq!(bank.words("SELECT account_id FROM accounts WHERE status = 'frozen'").await, ["open"]);
}

//! What the database itself enforces, by raw SQL, with the rules out of the way.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod support;

use payment_ledger::LedgerError;
use sqlx::PgPool;
use support::{Bank, FUNDS_MINOR, Stage, account_id, eur};

/// SQLSTATE of our own triggers.
const RESTRICT: &str = "23001";
const UNIQUE: &str = "23505";
const CHECK: &str = "23514";

/// An entry of a payment, between the accounts that its kind is between.
fn entry(payment: &str, kind: &str, key: &str) -> String {
    let (debit, credit) = match kind {
        "reserve" => ("from-open", "internal:holding:EUR"),
        "release" => ("internal:holding:EUR", "from-open"),
        _ => ("internal:holding:EUR", "internal:escrow:EUR"),
    };
    format!(
        "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
         VALUES ('{key}', '{payment}', '{kind}', '{debit}', '{credit}', 1, 'EUR')"
    )
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_enforces_the_ledgers_invariants(pool: PgPool) {
    let bank = Bank::new(pool);
    let open = bank.payment_at(Stage::Cancelling, "open").await;
    let dead = bank.payment_at(Stage::Void, "void").await;
    let settled = bank.payment_at(Stage::Settled, "settled").await;
    let released = bank.payment_at(Stage::Released, "released").await;
    let of = |p: &support::Sample| format!("WHERE payment_id = '{}'", p.id);
    #[rustfmt::skip]
    let table = [
        // the journal is append-only
        (RESTRICT, "journal is append-only: UPDATE refused",   "UPDATE journal SET amount_minor = 1".to_owned()),
        (RESTRICT, "journal is append-only: DELETE refused",   "DELETE FROM journal".into()),
        (RESTRICT, "journal is append-only: TRUNCATE refused", "TRUNCATE journal".into()),
        (RESTRICT, "journal is append-only: TRUNCATE refused", "TRUNCATE payments, accounts CASCADE".into()),
        // one entry per key, one reserve, one settle or release per payment
        (UNIQUE, "journal_operation_key_key",   entry(open.id.as_str(), "debit", &format!("{}:reserve", open.id))),
        (UNIQUE, "journal_one_reserve",         entry(open.id.as_str(), "reserve", "again")),
        (UNIQUE, "journal_debited_or_released", entry(settled.id.as_str(), "release", "x")),
        (UNIQUE, "journal_debited_or_released", entry(settled.id.as_str(), "debit", "x")),
        (UNIQUE, "journal_debited_or_released", entry(released.id.as_str(), "debit", "x")),
        (UNIQUE, "journal_debited_or_released", entry(released.id.as_str(), "release", "x")),
        // an entry is positive, between two accounts, and of a payment unless it pays in
        (CHECK, "journal_amount_positive", entry(open.id.as_str(), "debit", "x").replace(", 1, ", ", 0, ")),
        (CHECK, "journal_amount_positive", entry(open.id.as_str(), "debit", "x").replace(", 1, ", ", -1, ")),
        (CHECK, "journal_two_accounts",    entry(open.id.as_str(), "debit", "x").replace("escrow", "holding")),
        (CHECK, "journal_kind_known",      entry(open.id.as_str(), "adjust", "x")),
        (CHECK, "journal_payment_unless_fund",   entry(open.id.as_str(), "fund", "x")),
        // a hold is settled or released, once
        (RESTRICT, "is closed: debited",  format!("UPDATE holds SET status = 'released' {}", of(&settled))),
        (RESTRICT, "is closed: released", format!("UPDATE holds SET status = 'debited' {}", of(&released))),
        (RESTRICT, "is closed: released", format!("UPDATE holds SET status = 'open', closed_at = NULL {}", of(&released))),
        // and changes with its entries only, which are of its amount and account
        (RESTRICT, "a hold changes by journal entries", format!("UPDATE holds SET status = 'debited', closed_at = now() {}", of(&open))),
        (RESTRICT, "a hold changes by journal entries", format!("UPDATE holds SET amount_minor = 1 {}", of(&open))),
        (RESTRICT, "a hold changes by journal entries", format!("DELETE FROM holds {}", of(&released))),
        (RESTRICT, "a hold changes by journal entries", "TRUNCATE holds".into()),
        (RESTRICT, "a hold changes by journal entries", format!("INSERT INTO holds (payment_id, account_id, amount_minor, currency)
                                                         SELECT payment_id, account_id, 1, currency FROM holds {}", of(&released))),
        (RESTRICT, "has no hold that matches this debit",  entry(open.id.as_str(), "debit", "x")),
        (RESTRICT, "has no hold that matches this release", entry(dead.id.as_str(), "release", "x").replace(", 1, ", ", 1000, ")),
        (RESTRICT, "has no hold that matches this release", entry("nobody", "release", "x")),
        // an entry is between the accounts of its kind, and in the account's own currency
        (CHECK, "journal_valid_accounts_for_kind", entry(open.id.as_str(), "debit", "x").replace("escrow", "claims")),
        (CHECK, "journal_valid_accounts_for_kind", entry(open.id.as_str(), "debit", "x").replace("escrow:EUR", "escrow:USD")),
        (CHECK, "journal_valid_accounts_for_kind", entry(open.id.as_str(), "release", "x").replace("from-open", "internal:funding:EUR")),
        (RESTRICT, "there is no account from-open in USD", entry(open.id.as_str(), "release", "x").replace("EUR", "USD")),
        (RESTRICT, "there is no account from-open in USD", entry(open.id.as_str(), "reserve", "x").replace("EUR", "USD")),
        (RESTRICT, "there is no account nobody in EUR",  entry(open.id.as_str(), "release", "x").replace("from-open", "nobody")),
        // the first answer, the first run and the end are written once
        (RESTRICT, "is final: settled", format!("UPDATE payments SET final_status = 'void' {}", of(&settled))),
        (RESTRICT, "is final: void",    format!("UPDATE payments SET final_status = 'settled' {}", of(&dead))),
        (RESTRICT, "is final: void",    format!("UPDATE payments SET final_status = NULL, final_status_source = NULL {}", of(&dead))),
        (RESTRICT, "the run of payment",          format!("UPDATE payments SET run_id = 'another' {}", of(&open))),
        (RESTRICT, "the run of payment",          format!("UPDATE payments SET run_id = NULL {}", of(&open))),
        (RESTRICT, "has ended: settled",  format!("UPDATE payments SET state = 'failed' {}", of(&settled))),
        (RESTRICT, "has ended: timed_out",format!("UPDATE payments SET state = 'cancelling', ended_at = NULL {}", of(&released))),
        (CHECK, "payments_end_has_a_time",      format!("UPDATE payments SET state = 'failed' {}", of(&open))),
        (CHECK, "payments_final_status_has_a_source",format!("UPDATE payments SET final_status = 'settled' {}", of(&open))),
        (CHECK, "payments_first_attempt_has_a_time", format!("UPDATE payments SET attempts = 0 {}", of(&open))),
        (CHECK, "payments_state_known",         format!("UPDATE payments SET state = 'blocked' {}", of(&open))),
        // nobody owes us
        (CHECK, "accounts_available_not_negative", entry(open.id.as_str(), "reserve", "x").replace(", 1, ", ", 9001, ")),
        // a balance changes with its entries only
        (RESTRICT, "a balance changes by journal entries", "UPDATE accounts SET available_minor = available_minor + 1 WHERE account_id = 'from-open'".into()),
        (RESTRICT, "a balance changes by journal entries", "UPDATE accounts SET available_minor = 0 WHERE kind = 'internal'".into()),
        (RESTRICT, "a balance changes by journal entries", "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor) VALUES ('rich', 't', 'customer', 'EUR', 1)".into()),
        (CHECK, "accounts_balance_only_for_customers", "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor) VALUES ('internal:x', 't', 'internal', 'EUR', 0)".into()),
        // a key is recorded once, a refusal with its reason
        (UNIQUE, "operations_pkey", format!("INSERT INTO operations (operation_key, outcome) VALUES ('{}:debit', 'done')", settled.tx)),
        (CHECK, "operations_reason_unless_done", "INSERT INTO operations (operation_key, outcome) VALUES ('x', 'refused')".into()),
        (CHECK, "operations_reason_unless_done", "INSERT INTO operations (operation_key, outcome, reason) VALUES ('x', 'done', 'y')".into()),
        // one cancel
        (UNIQUE, "inbox_one_cancel", format!("INSERT INTO inbox (payment_id, kind) VALUES ('{0}', 'cancel'), ('{0}', 'cancel')", open.id)),
    ];
    for (code, told, sql) in table {
        let refused = bank.refused(&sql).await;
        assert_eq!(refused.0, code, "{sql}: {refused:?}");
        assert!(refused.1.contains(told), "{sql}: {refused:?}");
    }
    bank.audit().await;
}

/// A defect that the rules let through kill_switches at the database, and is told as one: repeating does
/// not help.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_constraint_violation_is_a_final_error(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Confirmed, "k").await;
    // Somebody else's entry has the key that settling is to have.
    bank.sql(
        "INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
         SELECT tx_id || ':debit', 'fund', 'internal:funding:EUR', source_account, 1, 'EUR' FROM payments",
    )
    .await;
    let error = bank.ledger.debit(&p.id).await.unwrap_err();
    assert!(matches!(error, LedgerError::Refused(_)), "{error:?}");
    assert!(error.is_final());
    assert_eq!(bank.state(&p).await, "confirmed", "all or nothing");
    assert_eq!(bank.operation(&format!("{}:debit", p.tx)).await, [""; 0]);
}

/// Paying in: once per key, into a customer's account, in its currency.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_account_is_funded_once_per_key(pool: PgPool) {
    let bank = Bank::new(pool);
    let account = bank.open("purse", FUNDS_MINOR).await;
    assert!(!bank.ledger.fund(&account, eur(FUNDS_MINOR), "fund:purse").await.unwrap(), "the key again");
    assert!(bank.ledger.fund(&account, eur(1), "more").await.unwrap());

    let dollars = payment_protocol::money::Money::from_minor(5, iso_currency::Currency::USD).unwrap();
    let refused = bank.ledger.fund(&account, dollars, "dollars").await.unwrap_err();
    assert!(!matches!(refused, LedgerError::Unavailable(_)), "{refused:?}");
    for stranger in ["nobody", "internal:holding:EUR", "internal:escrow:EUR", "internal:funding:EUR"] {
        let refused = bank.ledger.fund(&account_id(stranger), eur(5), stranger).await.unwrap_err();
        assert!(!matches!(refused, LedgerError::Unavailable(_)), "{stranger}: {refused:?}");
    }
    let keys = "SELECT operation_key FROM operations ORDER BY operation_key";
    assert_eq!(bank.words(keys).await, ["fund:purse", "more"], "what was refused burns no key");
    let seen = bank.ledger.account(&support::tenant(), &account).await.unwrap().unwrap();
    assert_eq!((seen.available_minor, seen.held_minor), (FUNDS_MINOR + 1, 0));
    bank.audit().await;
}

/// An account shows what it can spend, what is held, and both together.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_account_shows_its_available_and_held_amounts(pool: PgPool) {
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
    for (stage, available, held, whole) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let seen = bank.ledger.account(&support::tenant(), &p.account).await.unwrap().unwrap();
        assert_eq!(
            (seen.available_minor, seen.held_minor, seen.ledger_minor()),
            (available, held, whole),
            "{stage:?}"
        );
        let stranger = payment_protocol::ids::TenantId::new("stranger").unwrap();
        assert_eq!(bank.ledger.account(&stranger, &p.account).await.unwrap(), None);
    }
    bank.audit().await;
}

/// Currencies of no, two and three decimals keep apart, each balanced in its own minor units; what no number can hold is
/// refused whole.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_currencies_stay_separate_and_no_sum_overflows(pool: PgPool) {
    let bank = Bank::new(pool);
    let money = |minor, currency| payment_protocol::money::Money::from_minor(minor, currency).unwrap();
    for currency in [iso_currency::Currency::JPY, iso_currency::Currency::EUR, iso_currency::Currency::BHD] {
        let account = account_id(&format!("purse-{}", currency.code()));
        bank.ledger.open_account(&support::tenant(), &account, currency).await.unwrap();
        assert!(bank.ledger.fund(&account, money(1_234, currency), currency.code()).await.unwrap());
        for other in [iso_currency::Currency::JPY, iso_currency::Currency::EUR, iso_currency::Currency::BHD] {
            if other != currency {
                let key = format!("{} into {}", other.code(), currency.code());
                assert!(bank.ledger.fund(&account, money(1, other), &key).await.is_err(), "{key}");
                let sql = format!(
                    "INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
                     VALUES ('x', 'fund', 'internal:funding:{0}', '{account}', 1, '{0}')",
                    other.code()
                );
                let told = format!("there is no account {account} in {}", other.code());
                assert_eq!(bank.refused(&sql).await, (RESTRICT.to_owned(), told));
            }
        }
    }
    let trial = bank.ledger.trial_balance(None).await.unwrap();
    let of = |account: &str| -> Vec<_> {
        let lines = trial.iter().filter(|line| line.account.starts_with(account));
        lines.map(|line| (line.currency.as_str(), line.balance_minor)).collect()
    };
    assert_eq!(of("customers"), [("BHD", 1_234), ("EUR", 1_234), ("JPY", 1_234)]);
    assert_eq!(of("internal:funding"), [("BHD", -1_234), ("EUR", -1_234), ("JPY", -1_234)]);

    // One below what a bigint holds.
    bank.sql(&format!(
        "SET LOCAL session_replication_role = replica;
         UPDATE accounts SET available_minor = {} WHERE account_id = 'purse-EUR'",
        i64::MAX - 1
    ))
    .await;
    let over = bank.ledger.fund(&account_id("purse-EUR"), eur(2), "over").await.unwrap_err();
    assert!(matches!(over, LedgerError::Refused(_)), "{over:?}");
    assert_eq!(bank.operation("over").await, [""; 0], "all or nothing");
    assert!(bank.ledger.fund(&account_id("purse-EUR"), eur(1), "just").await.unwrap());
    let entries = "SELECT count(*) FROM journal WHERE credit_account = 'purse-EUR'";
    assert_eq!(bank.number(entries).await, 2);
}

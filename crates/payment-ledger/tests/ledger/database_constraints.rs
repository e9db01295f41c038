//! The database's constraints and triggers, tested by SQL that bypasses the rules in the code.

use crate::support::{Bank, Sample, Stage, eur};
use payment_ledger::LedgerError;
use sqlx::PgPool;

/// SQLSTATE of our own triggers.
const RESTRICT: &str = "23001";
const UNIQUE: &str = "23505";
const CHECK: &str = "23514";

/// An INSERT of an entry with a payment, a kind and the accounts of that kind.
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

/// SQLSTATE, constraint or part of the message, and the statement.
type Violation = (&'static str, &'static str, String);

fn row_of(p: &Sample) -> String {
    format!("WHERE payment_id = '{}'", p.id)
}

/// Statements that violate constraints of the journal.
#[rustfmt::skip]
fn journal_violations(open: &Sample, settled: &Sample, released: &Sample) -> Vec<Violation> {
    vec![
        // The journal is append-only.
        (RESTRICT, "journal is append-only: UPDATE refused",   "UPDATE journal SET amount_minor = 1".into()),
        (RESTRICT, "journal is append-only: DELETE refused",   "DELETE FROM journal".into()),
        (RESTRICT, "journal is append-only: TRUNCATE refused", "TRUNCATE journal".into()),
        (RESTRICT, "journal is append-only: TRUNCATE refused", "TRUNCATE payments, accounts CASCADE".into()),
        // One entry per key, one reserve, and one debit or release per payment.
        (UNIQUE, "journal_operation_key_key",   entry(open.id.as_str(), "debit", &format!("{}:reserve", open.id))),
        (UNIQUE, "journal_one_reserve",         entry(open.id.as_str(), "reserve", "again")),
        (UNIQUE, "journal_debited_or_released", entry(settled.id.as_str(), "release", "x")),
        (UNIQUE, "journal_debited_or_released", entry(settled.id.as_str(), "debit", "x")),
        (UNIQUE, "journal_debited_or_released", entry(released.id.as_str(), "debit", "x")),
        (UNIQUE, "journal_debited_or_released", entry(released.id.as_str(), "release", "x")),
        // The amount is positive, between two accounts, and has a payment unless it is a fund entry.
        (CHECK, "journal_amount_positive", entry(open.id.as_str(), "debit", "x").replace(", 1, ", ", 0, ")),
        (CHECK, "journal_amount_positive", entry(open.id.as_str(), "debit", "x").replace(", 1, ", ", -1, ")),
        (CHECK, "journal_two_accounts",    entry(open.id.as_str(), "debit", "x").replace("escrow", "holding")),
        (CHECK, "journal_kind_known",      entry(open.id.as_str(), "adjust", "x")),
        (CHECK, "journal_payment_unless_fund",   entry(open.id.as_str(), "fund", "x")),
        // An entry is between the accounts of its kind, in the account's currency.
        (CHECK, "journal_valid_accounts_for_kind", entry(open.id.as_str(), "debit", "x").replace("escrow", "claims")),
        (CHECK, "journal_valid_accounts_for_kind", entry(open.id.as_str(), "debit", "x").replace("escrow:EUR", "escrow:USD")),
        (CHECK, "journal_valid_accounts_for_kind", entry(open.id.as_str(), "release", "x").replace("from-open", "internal:funding:EUR")),
        (RESTRICT, "there is no account from-open in USD", entry(open.id.as_str(), "release", "x").replace("EUR", "USD")),
        (RESTRICT, "charges no 1 USD to the account from-open", entry(open.id.as_str(), "reserve", "x").replace("EUR", "USD")),
        (RESTRICT, "there is no account nobody in EUR",  entry(open.id.as_str(), "release", "x").replace("from-open", "nobody")),
    ]
}

/// Statements that violate constraints of holds.
#[rustfmt::skip]
fn hold_violations(open: &Sample, void: &Sample, settled: &Sample, released: &Sample) -> Vec<Violation> {
    vec![
        // A hold is closed once.
        (RESTRICT, "is closed: debited",  format!("UPDATE holds SET status = 'released' {}", row_of(settled))),
        (RESTRICT, "is closed: released", format!("UPDATE holds SET status = 'debited' {}", row_of(released))),
        (RESTRICT, "is closed: released", format!("UPDATE holds SET status = 'open', closed_at = NULL {}", row_of(released))),
        // A hold changes by entries only, which have its amount and account.
        (RESTRICT, "a hold changes by journal entries", format!("UPDATE holds SET status = 'debited', closed_at = now() {}", row_of(open))),
        (RESTRICT, "a hold changes by journal entries", format!("UPDATE holds SET amount_minor = 1 {}", row_of(open))),
        (RESTRICT, "a hold changes by journal entries", format!("DELETE FROM holds {}", row_of(released))),
        (RESTRICT, "a hold changes by journal entries", "TRUNCATE holds".into()),
        (RESTRICT, "a hold changes by journal entries", format!("INSERT INTO holds (payment_id, account_id, amount_minor, currency)
                                                         SELECT payment_id, account_id, 1, currency FROM holds {}", row_of(released))),
        (RESTRICT, "has no hold that matches this debit",  entry(open.id.as_str(), "debit", "x")),
        (RESTRICT, "has no hold that matches this release", entry(void.id.as_str(), "release", "x").replace(", 1, ", ", 1000, ")),
        (RESTRICT, "has no hold that matches this release", entry("nobody", "release", "x")),
    ]
}

/// Statements that violate constraints of payments and the inbox.
#[rustfmt::skip]
fn payment_violations(open: &Sample, void: &Sample, settled: &Sample, released: &Sample) -> Vec<Violation> {
    vec![
        // The final status, the run and the final state are written once.
        (RESTRICT, "is final: settled", format!("UPDATE payments SET final_status = 'void' {}", row_of(settled))),
        (RESTRICT, "is final: void",    format!("UPDATE payments SET final_status = 'settled' {}", row_of(void))),
        (RESTRICT, "is final: void",    format!("UPDATE payments SET final_status = NULL, final_status_source = NULL {}", row_of(void))),
        (RESTRICT, "the run of payment",          format!("UPDATE payments SET run_id = 'another' {}", row_of(open))),
        (RESTRICT, "the run of payment",          format!("UPDATE payments SET run_id = NULL {}", row_of(open))),
        (RESTRICT, "has ended: settled",  format!("UPDATE payments SET state = 'failed' {}", row_of(settled))),
        (RESTRICT, "has ended: timed_out",format!("UPDATE payments SET state = 'cancelling', ended_at = NULL {}", row_of(released))),
        (CHECK, "payments_end_has_a_time",      format!("UPDATE payments SET state = 'failed' {}", row_of(open))),
        (CHECK, "payments_final_status_has_a_source",format!("UPDATE payments SET final_status = 'settled' {}", row_of(open))),
        (CHECK, "payments_first_attempt_has_a_time", format!("UPDATE payments SET attempts = 0 {}", row_of(open))),
        (CHECK, "payments_state_known",         format!("UPDATE payments SET state = 'blocked' {}", row_of(open))),
        // A payment has one cancel.
        (UNIQUE, "inbox_one_cancel", format!("INSERT INTO inbox (payment_id, kind) VALUES ('{0}', 'cancel'), ('{0}', 'cancel')", open.id)),
    ]
}

/// Statements that violate constraints of accounts and operations.
#[rustfmt::skip]
fn account_violations(unfunded: &Sample, settled: &Sample) -> Vec<Violation> {
    vec![
        // No customer's balance is negative.
        (CHECK, "accounts_available_not_negative", entry(unfunded.id.as_str(), "reserve", "x").replace("from-open", "from-unfunded").replace(", 1, ", ", 10001, ")),
        // A balance changes by entries only.
        (RESTRICT, "a balance changes by journal entries", "UPDATE accounts SET available_minor = available_minor + 1 WHERE account_id = 'from-open'".into()),
        (RESTRICT, "a balance changes by journal entries", "UPDATE accounts SET available_minor = 0 WHERE kind = 'internal'".into()),
        (RESTRICT, "a balance changes by journal entries", "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor) VALUES ('rich', 't', 'customer', 'EUR', 1)".into()),
        (CHECK, "accounts_balance_only_for_customers", "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor) VALUES ('internal:x', 't', 'internal', 'EUR', 0)".into()),
        // A key is recorded once, a refusal with its reason.
        (UNIQUE, "operations_pkey", format!("INSERT INTO operations (operation_key, outcome) VALUES ('{}:debit', 'done')", settled.tx)),
        (CHECK, "operations_reason_unless_done", "INSERT INTO operations (operation_key, outcome) VALUES ('x', 'refused')".into()),
        (CHECK, "operations_reason_unless_done", "INSERT INTO operations (operation_key, outcome, reason) VALUES ('x', 'done', 'y')".into()),
    ]
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_enforces_the_ledgers_invariants(pool: PgPool) {
    let bank = Bank::new(pool);
    let open = bank.payment_at(Stage::Cancelling, "open").await;
    let void = bank.payment_at(Stage::Void, "void").await;
    let settled = bank.payment_at(Stage::Settled, "settled").await;
    let released = bank.payment_at(Stage::Released, "released").await;
    let mut order = bank.order("unfunded");
    order.money = eur(10_001);
    let unfunded = bank.order_at(Stage::Accepted, order).await;
    let violations = [
        journal_violations(&open, &settled, &released),
        hold_violations(&open, &void, &settled, &released),
        payment_violations(&open, &void, &settled, &released),
        account_violations(&unfunded, &settled),
    ];
    for (code, reason, sql) in violations.concat() {
        let refused = bank.refused(&sql).await;
        assert_eq!(refused.0, code, "{sql}: {refused:?}");
        assert!(refused.1.contains(reason), "{sql}: {refused:?}");
    }
    bank.audit().await;
}

/// A constraint violation is a defect that repeating does not solve, so the error is final.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_database_constraint_violation_is_a_final_ledger_error(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Confirmed, "k").await;
    // Another entry already has the key of the debit.
    bank.sql(
        "INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
         SELECT tx_id || ':debit', 'fund', 'internal:funding:EUR', source_account, 1, 'EUR' FROM payments",
    )
    .await;
    let error = bank.ledger.debit(&p.id).await.unwrap_err();
    assert!(matches!(error, LedgerError::Refused(_)), "{error:?}");
    assert!(error.is_final());
    assert_eq!(bank.state(&p).await, "confirmed", "the debit was partly written");
    assert_eq!(bank.operation(&format!("{}:debit", p.tx)).await, [""; 0]);
}

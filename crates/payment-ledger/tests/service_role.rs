//! `access::service_role`: the service role can add to history and never change it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod support;

use payment_ledger::accounts::AccountStatus;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_protocol::cause::ReserveRefusal;
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use support::{Bank, Stage, event, success};

/// SQLSTATE of a missing privilege.
const NOT_ALLOWED: &str = "42501";

/// The bank with the privileges of `payments_service` only.
async fn service(options: PgPoolOptions, connect: PgConnectOptions) -> Bank {
    drop(options);
    let as_service = connect.options([("role", "payments_service")]);
    Bank::new(PgPoolOptions::new().max_connections(4).connect_with(as_service).await.unwrap())
}

/// Every step of a payment works with the privileges of the service role.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_the_service_role_can_run_every_ledger_step(options: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let service = service(options, connect).await;
    for (n, end) in
        [Stage::Settled, Stage::Released, Stage::Recalled, Stage::Differing].into_iter().enumerate()
    {
        // The owner opens, funds and freezes accounts.
        let order = owner.order(&format!("k{n}"));
        owner.open(order.source_account.as_str(), support::FUNDS_MINOR).await;
        let p = service.accept(&order).await;
        if end == Stage::Recalled {
            service.advance(&p, Stage::Confirmed).await;
            owner.freeze(&p).await;
            assert!(matches!(service.debit(&p).await, DebitOutcome::Refused { .. }));
        } else {
            service.advance(&p, end).await;
        }
    }
    let order = owner.order("poor");
    owner.open(order.source_account.as_str(), 1).await;
    let poor = service.accept(&order).await;
    assert_eq!(service.reserve(&poor).await, ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds));
    assert!(matches!(service.ledger.seal(BatchSize::new(100)).await.unwrap(), SealOutcome::Batch { .. }));
    assert_eq!(service.ledger.verify(None).await.unwrap().findings, []);
    owner.audit().await;
    service.close().await;
    owner.close().await;
}

/// Statements that the service role has no privilege for.
const FORBIDDEN: &[&str] = &[
    "UPDATE journal SET amount_minor = 1",
    "DELETE FROM journal",
    "TRUNCATE journal",
    "ALTER TABLE journal DISABLE TRIGGER ALL",
    "DROP TRIGGER journal_append_only ON journal",
    "SET session_replication_role = replica",
    "CREATE RULE r AS ON INSERT TO journal DO INSTEAD NOTHING",
    "UPDATE operations SET outcome = 'done'",
    "DELETE FROM operations",
    "UPDATE journal_seals SET hash = hash",
    "DELETE FROM journal_seals",
    "UPDATE seal_batches SET hash = hash",
    "DELETE FROM seal_batches",
    "INSERT INTO journal_unsealed VALUES (1)",
    "TRUNCATE journal_unsealed",
    "DELETE FROM sealed_balances",
    "UPDATE accounts SET available_minor = available_minor + 1",
    "UPDATE accounts SET tenant_id = 'mine'",
    "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor) VALUES ('mine', 't', 'customer', 'EUR', 0)",
    "DELETE FROM accounts",
    "UPDATE holds SET status = 'released', closed_at = now()",
    "INSERT INTO holds (payment_id, account_id, amount_minor, currency) SELECT payment_id, account_id, 1, currency FROM holds",
    "DELETE FROM holds",
    "UPDATE payments SET amount_minor = 1",
    "UPDATE payments SET destination_account = 'mine'",
    "DELETE FROM payments",
    "UPDATE temporal_namespaces SET namespace_id = 'mine'",
    "DELETE FROM temporal_namespaces",
    "UPDATE submissions SET recorded_at = now()",
    "DELETE FROM submissions",
    "UPDATE timeline SET detail = ''",
    "DELETE FROM timeline",
    "UPDATE switch_callbacks SET body = ''",
    "DELETE FROM switch_callbacks",
    "UPDATE decisions SET proposed_by = 'nobody'",
    "DELETE FROM decisions",
    "DELETE FROM exceptions",
    "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes) VALUES ('pk_000000000000', '', 'x', 't', 'c', '{pay}')",
    "UPDATE api_keys SET expires_at = NULL",
    "UPDATE webhook_endpoints SET tenant_id = 'mine'",
    "UPDATE webhook_deliveries SET body = '{}'",
    "UPDATE webhook_deliveries SET event_id = 'forged'",
    "UPDATE webhook_attempts SET response_status = 200",
];

/// R36: no statement of the service role can change history.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_the_service_role_cannot_change_ledger_history(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let p = owner.payment_at(Stage::Settled, "k").await;
    owner.payment_at(Stage::Reserved, "open").await;
    assert!(matches!(owner.ledger.seal(BatchSize::new(4)).await.unwrap(), SealOutcome::Batch { .. }));
    let service = service(options, connect).await;
    for sql in FORBIDDEN {
        assert_eq!(service.refused(sql).await.0, NOT_ALLOWED, "{sql}");
    }
    // The role may delete from the queue of unsealed entries, but the trigger refuses it.
    assert_eq!(service.refused("DELETE FROM journal_unsealed").await.0, "23001");
    // A temporary table that shadows ours has no effect, since the triggers use qualified names.
    let forged = owner.payment_at(Stage::Accepted, "forged").await;
    let mut session = service.pool.begin().await.unwrap();
    sqlx::raw_sql("CREATE TEMP TABLE accounts AS TABLE public.accounts; CREATE TEMP TABLE journal_unsealed (entry_id bigint)")
        .execute(&mut *session)
        .await
        .unwrap();
    let post = "INSERT INTO public.operations (operation_key, payment_id, outcome) SELECT payment_id || ':reserve', payment_id, 'done'
                FROM public.payments WHERE payment_id = $1";
    sqlx::query(post).bind(forged.id.as_str()).execute(&mut *session).await.unwrap();
    let post = "INSERT INTO public.journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
                SELECT payment_id || ':reserve', payment_id, 'reserve', source_account, 'internal:holding:EUR', amount_minor, currency
                FROM public.payments WHERE payment_id = $1";
    sqlx::query(post).bind(forged.id.as_str()).execute(&mut *session).await.unwrap();
    session.commit().await.unwrap();
    assert_eq!(owner.available(&forged).await, support::FUNDS_MINOR - support::AMOUNT_MINOR);
    assert_eq!(owner.ledger.verify(None).await.unwrap().findings, []);
    assert!(service.ledger.set_account_status(&p.account, AccountStatus::Active).await.unwrap());
    owner.ledger.store_callback(&success(&p, &event(&p, "again"))).await.unwrap();
    service.close().await;
    owner.close().await;
}

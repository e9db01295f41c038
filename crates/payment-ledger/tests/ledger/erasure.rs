//! `operator::erasure`: the personal fields of an account's payments go, some time after their end; the books, the chains and what protects a
//! customer from a second payment stay.

use std::time::Duration;

use crate::support::{AMOUNT_MINOR, Bank, Sample, Stage, account_id, event, return_part, success};
use payment_ledger::access::service_roles::SERVICE_ROLES;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_ledger::operator::erasure::{ErasureStep, OpenErasures};
use payment_ledger::steps::accept::{AcceptOutcome, NewPayment, accept};
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_protocol::ids::{AccountId, EventId};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const MONTH: Duration = Duration::from_secs(30 * 24 * 3_600);
/// What only the payments of `purse` have in a personal field, followed by the payment's key.
const PERSONAL: &str = "Hildegard-";
/// A webhook endpoint of the tenant.
const ENDPOINT: &str = "whe_00000000000000000000000000000000";

/// A payment of an account to somebody, with a callback, a notification and texts of the switch.
async fn payment(bank: &Bank, account: &AccountId, stage: Stage, key: &str) -> (NewPayment, Sample) {
    let order = NewPayment {
        source_account: account.clone(),
        destination_account: account_id(&format!("{PERSONAL}{key}")),
        end_to_end_id: Some(format!("rent of {PERSONAL}{key}")),
        response_body: format!("{PERSONAL}{key}").into_bytes(),
        ..bank.order(key)
    };
    let p = bank.accept(&order).await;
    bank.advance(&p, stage).await;
    if stage != Stage::Released {
        bank.ledger.store_callback(&callback(&p, key)).await.unwrap();
    }
    bank.sql(&format!(
        "UPDATE submissions SET detail = '{PERSONAL}{key}' WHERE payment_id = '{0}';
         UPDATE outbox SET published_at = clock_timestamp() - interval '31 days' WHERE published_at IS NULL;
         INSERT INTO timeline (payment_id, state, detail) VALUES ('{0}', 'settled', '{PERSONAL}{key}');
         INSERT INTO alerts (payment_id, kind, detail) VALUES ('{0}', 'needs_operator', '{PERSONAL}{key}');
         INSERT INTO notifications (payment_id, event_id, kind, message) VALUES ('{0}', '{0}:k', 'k', '{PERSONAL}{key}');
         INSERT INTO parked_deliveries (consumer, stream, stream_sequence, published_at, subject, event_id, payload, reason, deliveries)
             VALUES ('notifier', 'PAYMENTS', {1}, now(), 's', '{0}:k', '{PERSONAL}{key}', 'not an event', 5);
         INSERT INTO webhook_endpoints (endpoint_id, tenant_id, url, secret_check)
             VALUES ('{ENDPOINT}', 'acme', 'https://acme.example/', '') ON CONFLICT DO NOTHING;
         INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body) VALUES ('{ENDPOINT}', '{0}:k', 'k', '{PERSONAL}{key}');
         INSERT INTO operations (operation_key, payment_id, outcome, reason)
             VALUES ('{2}:recall', '{0}', 'unsupported', '{PERSONAL}{key}')",
        p.id,
        key.len(),
        p.tx,
    ))
    .await;
    // In the place where a payment that was refused has the switch's words.
    bank.damage(format!(
        r#"UPDATE payments SET cause = '{{"code": "submit_refused", "reason": "{PERSONAL}{key}"}}' WHERE payment_id = '{}'"#,
        p.id
    ))
    .await;
    (order, p)
}

fn callback(p: &Sample, key: &str) -> Callback {
    Callback {
        body: format!("{PERSONAL}{key}").into_bytes(),
        reason: Some(format!("{PERSONAL}{key}")),
        ..success(p, &event(p, "again"))
    }
}

/// Tables that have the personal words of the payment with this key, in a text or in bytes.
async fn found(bank: &Bank, key: &str) -> Vec<String> {
    let tables = bank
        .words("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'")
        .await;
    let (word, mut found) = (format!("{PERSONAL}{key}"), Vec::new());
    let bytes: String = word.bytes().map(|byte| format!("{byte:02x}")).collect();
    for table in tables {
        let rows = format!(
            "SELECT count(*) FROM {table} t WHERE t::text LIKE '%{word}%' OR t::text LIKE '%{bytes}%'"
        );
        if bank.number(&rows).await > 0 {
            found.push(table);
        }
    }
    found.sort();
    found
}

const PUBLISHED: &str =
    "UPDATE outbox SET published_at = clock_timestamp() - interval '31 days' WHERE published_at IS NULL";
const LOOK_NOW: &str = "UPDATE erasures SET next_look_at = '-infinity'";

/// What two operators decide.
async fn order_erasure(bank: &Bank, account: &AccountId) {
    bank.sql(&format!(
        r#"SELECT apply_change('chg_1', 'erase_account', '{{"tenant_id": "acme", "account_id": "{account}"}}', NULL, 'bob', 'a letter')"#
    ))
    .await;
    let early = format!(
        "SELECT count(*) FROM erasures WHERE account_id = '{account}' AND next_look_at < requested_at + interval '1 minute'"
    );
    assert_eq!(bank.number(&early).await, 0, "payments that were accepted before may not be committed yet");
    bank.sql(LOOK_NOW).await;
}

async fn age(bank: &Bank, p: &Sample) {
    bank.damage(format!(
        "UPDATE payments SET ended_at = ended_at - interval '31 days' WHERE payment_id = '{}'",
        p.id
    ))
    .await;
}

/// What background-worker does, with its rights, until nothing is due.
async fn erase(worker: &Bank) {
    while worker.ledger.go_on_with_erasure(MONTH).await.unwrap().is_some() {}
}

async fn seal(bank: &Bank) {
    while let SealOutcome::Batch { .. } = bank.ledger.seal(BatchSize::new(BatchSize::MAX)).await.unwrap() {}
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_erasure_takes_the_personal_fields_and_leaves_the_books(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let worker = connect.clone().options([("role", "background_worker")]);
    let bank = Bank::with_connections(options, connect, 3).await;
    let worker = Bank::with_connections(PgPoolOptions::new(), worker, 1).await;
    let account = bank.open("purse", 5 * AMOUNT_MINOR).await;
    let (order, old) = payment(&bank, &account, Stage::Settled, "a").await;
    let (_, young) = payment(&bank, &account, Stage::Released, "bb").await;
    let (_, open) = payment(&bank, &account, Stage::Sent, "ccc").await;
    let other = bank.open("other", 5 * AMOUNT_MINOR).await;
    let (_, others) = payment(&bank, &other, Stage::Settled, "dddd").await;
    for p in [&old, &others] {
        age(&bank, p).await;
    }
    let everywhere = [
        "alerts",
        "notifications",
        "operations",
        "outbox",
        "parked_deliveries",
        "payments",
        "submissions",
        "switch_callbacks",
        "timeline",
        "webhook_deliveries",
    ];
    assert_eq!(found(&bank, "a").await, everywhere);
    seal(&bank).await;
    let books = "SELECT t::text FROM (SELECT account_id, available_minor FROM accounts ORDER BY 1) t";
    let before = bank.words(books).await;

    erase(&worker).await;
    assert_eq!(found(&bank, "a").await, everywhere, "nobody had it erased");
    order_erasure(&bank, &account).await;
    erase(&worker).await;
    assert_eq!(found(&bank, "a").await, [""; 0]);
    for key in ["bb", "ccc", "dddd"] {
        assert!(!found(&bank, key).await.is_empty(), "{key} was erased too early, or is another's");
    }
    let erasure = async || bank.ledger.erasure(&account).await.unwrap().unwrap();
    assert_eq!((erasure().await.payments, erasure().await.done_at), (1, None));
    let view = bank.ledger.payment(&order.tenant, &old.id).await.unwrap().unwrap();
    assert_eq!((view.destination_account.as_str(), view.end_to_end_id), ("(erased)", None));

    // The books are as before, and the chain has no gap.
    assert_eq!(bank.words(books).await, before);
    bank.audit().await;
    assert_eq!(bank.ledger.verify(None).await.unwrap().findings, []);
    // The switch repeats its report, and the client its request: neither has an effect.
    let repeated = bank.ledger.store_callback(&callback(&old, "a")).await.unwrap();
    assert_eq!(repeated, StoreCallbackOutcome::Duplicate);
    let mut tx = bank.ledger.pool().begin().await.unwrap();
    let accepted = accept(&mut tx, std::slice::from_ref(&order)).await.unwrap();
    let [AcceptOutcome::Existing { request_hash, .. }] = &accepted[..] else { panic!("{accepted:?}") };
    assert_ne!(*request_hash, order.request_hash, "the hash of the request is left");
    drop(tx);
    let id = old.id.to_string();
    for change in ["destination_account = 'x'", "end_to_end_id = 'x'", "erased_at = NULL"] {
        let sql = format!("UPDATE payments SET {change} WHERE payment_id = '{id}'");
        assert_eq!(bank.refused(&sql).await.0, "23001", "{change}");
    }
    let sql = format!("UPDATE payments SET erased_at = now() WHERE payment_id = '{}'", open.id);
    assert_eq!(bank.refused(&sql).await, ("23514".into(), "payments_erased_after_their_end".into()));

    // Those that had to wait, each once it may be erased.
    bank.ledger.store_callback(&success(&open, &event(&open, "late"))).await.unwrap();
    bank.debit(&open).await;
    bank.sql(PUBLISHED).await;
    age(&bank, &open).await;
    age(&bank, &young).await;
    let exception = format!(
        "INSERT INTO exceptions (payment_id, kind, origin, detail) VALUES ('{}', 'opened_by_operator', 'o', 'a question')",
        young.id
    );
    bank.sql(&exception).await;
    bank.sql(LOOK_NOW).await;
    erase(&worker).await;
    assert_eq!((erasure().await.payments, erasure().await.done_at), (2, None), "an exception is open");
    bank.damage("DELETE FROM exceptions".into()).await;
    // What is paid meanwhile is another erasure's.
    let (_, later) = payment(&bank, &account, Stage::Settled, "eeeee").await;
    age(&bank, &later).await;
    bank.sql(LOOK_NOW).await;
    erase(&worker).await;
    assert!(erasure().await.done_at.is_some(), "{:?}", erasure().await);
    assert_eq!(erasure().await.payments, 3);
    assert!(!found(&bank, "eeeee").await.is_empty() && !found(&bank, "dddd").await.is_empty());
    bank.sql(LOOK_NOW).await;
    assert_eq!(worker.ledger.go_on_with_erasure(MONTH).await.unwrap(), None, "it is done");
    seal(&bank).await;
    bank.audit().await;
    assert_eq!(bank.ledger.verify(None).await.unwrap().findings, []);
    worker.close().await;
    bank.close().await;
}

/// A payment that somebody has locked may get something open in this moment, and waits. What comes after an erasure is erased by the next.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_comes_beside_an_erasure_or_after_it_is_erased_by_the_next(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 3).await;
    let account = bank.open("purse", AMOUNT_MINOR).await;
    let (_, p) = payment(&bank, &account, Stage::Settled, "a").await;
    age(&bank, &p).await;
    order_erasure(&bank, &account).await;
    let mut tx = bank.ledger.pool().begin().await.unwrap();
    sqlx::query("SELECT FROM payments WHERE payment_id = $1 FOR UPDATE")
        .bind(p.id.as_str())
        .execute(&mut *tx)
        .await
        .unwrap();
    erase(&bank).await;
    let erasure = async || bank.ledger.erasure(&account).await.unwrap().unwrap();
    assert_eq!((erasure().await.payments, erasure().await.done_at), (0, None));
    tx.commit().await.unwrap();
    // A return, whose event is not published yet.
    return_part(&bank, &p, "r", 1).await;
    bank.sql(&format!("UPDATE returns SET reason = '{PERSONAL}a'")).await;
    bank.sql(LOOK_NOW).await;
    erase(&bank).await;
    assert_eq!((erasure().await.payments, erasure().await.done_at), (0, None));
    assert_eq!(bank.number("SELECT count(*) FROM outbox WHERE published_at IS NULL").await, 1);
    bank.sql(PUBLISHED).await;
    bank.damage("DELETE FROM exceptions".into()).await;
    bank.sql(LOOK_NOW).await;
    erase(&bank).await;
    assert_eq!(found(&bank, "a").await, [""; 0]);
    assert!(erasure().await.done_at.is_some());

    // The switch says it again in other words.
    let late = Callback { event_id: EventId::new(event(&p, "late")).unwrap(), ..callback(&p, "a") };
    bank.ledger.store_callback(&late).await.unwrap();
    assert_eq!(found(&bank, "a").await, ["switch_callbacks"]);
    order_erasure(&bank, &account).await;
    erase(&bank).await;
    assert_eq!(found(&bank, "a").await, [""; 0]);
    assert_eq!(erasure().await.payments, 1, "counted once");
    bank.audit().await;
    bank.close().await;
}

/// More payments than one transaction takes, of which several were accepted at once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_erasure_of_many_payments_takes_each_once(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 2).await;
    let account = bank.open("purse", AMOUNT_MINOR).await;
    let (_, p) = payment(&bank, &account, Stage::Settled, "a").await;
    age(&bank, &p).await;
    bank.damage(format!(
        "INSERT INTO payments SELECT (jsonb_populate_record(p, jsonb_build_object(
             'payment_id', p.payment_id || n, 'tx_id', p.tx_id || n, 'accepted_at', p.accepted_at - n % 3 * interval '1 day'))).*
         FROM payments p, generate_series(1, 1300) n WHERE p.payment_id = '{}'",
        p.id
    ))
    .await;
    order_erasure(&bank, &account).await;
    let other = bank.open("other", AMOUNT_MINOR).await;
    order_erasure(&bank, &other).await;
    let mut rounds = Vec::new();
    while let Some(step) = bank.ledger.go_on_with_erasure(MONTH).await.unwrap() {
        let ErasureStep::Taken(taken) = step else { panic!("{step:?}") };
        rounds.push(taken);
    }
    rounds.sort_unstable();
    assert_eq!(rounds, [0, 0, 301, 500, 500]);
    assert!(bank.ledger.erasure(&other).await.unwrap().unwrap().done_at.is_some());
    assert_eq!(bank.number("SELECT count(*) FROM payments WHERE erased_at IS NULL").await, 0);
    assert_eq!(bank.ledger.erasure(&account).await.unwrap().unwrap().payments, 1_301);
}

/// Payments that the database refuses, or takes too long for, are reported and tried again later; the others, of the account and of other
/// accounts, are erased meanwhile.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_that_cannot_be_erased_keeps_no_other_waiting(_: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let (purse, other) = (bank.open("purse", 6 * AMOUNT_MINOR).await, bank.open("other", AMOUNT_MINOR).await);
    let mut payments = Vec::new();
    for (account, key) in
        [(&purse, "a"), (&purse, "bb"), (&purse, "ccc"), (&purse, "dddd"), (&other, "eeeee")]
    {
        let (_, p) = payment(&bank, account, Stage::Settled, key).await;
        age(&bank, &p).await;
        payments.push(p.id.to_string());
    }
    order_erasure(&bank, &purse).await;
    order_erasure(&bank, &other).await;
    let (refused, slow) = (&payments[1], &payments[3]);
    bank.sql(&format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'this one is refused'; END $$;
         CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$;
         CREATE TRIGGER refused BEFORE UPDATE OF erased_at ON payments FOR EACH ROW WHEN (NEW.payment_id = '{refused}') EXECUTE FUNCTION refuse();
         CREATE TRIGGER slow BEFORE UPDATE OF erased_at ON payments FOR EACH ROW WHEN (NEW.payment_id = '{slow}') EXECUTE FUNCTION hang()"
    ))
    .await;
    let worker = connect.options([("role", "background_worker"), ("statement_timeout", "2s")]);
    let worker = Bank::with_connections(PgPoolOptions::new(), worker, 1).await;
    let mut failed = Vec::new();
    while let Some(step) = worker.ledger.go_on_with_erasure(MONTH).await.unwrap() {
        if let ErasureStep::Failed { account, payment, reason } = step {
            failed.push((account, payment.unwrap(), reason));
        }
    }
    let timeout = "canceling statement due to statement timeout";
    let expected = [(refused, "this one is refused"), (slow, timeout)]
        .map(|(payment, reason)| ("purse".to_owned(), payment.clone(), reason.to_owned()));
    assert_eq!(failed, expected, "each once in a pass");
    let erasure = async |account| bank.ledger.erasure(account).await.unwrap().unwrap();
    let open = erasure(&purse).await;
    assert_eq!((open.payments, open.waiting, open.failure.as_deref()), (2, 2, Some(timeout)));
    assert!(open.done_at.is_none() && erasure(&other).await.done_at.is_some());
    assert_eq!(erasure(&other).await.failure, None);
    // Overdue is what might have been erased.
    let gauges = worker.ledger.open_erasures(MONTH).await.unwrap();
    assert_eq!(gauges, OpenErasures { failing: 1, overdue_s: 0 });
    bank.sql("UPDATE erasures SET requested_at = requested_at - interval '40 days' WHERE done_at IS NULL")
        .await;
    let gauges = worker.ledger.open_erasures(MONTH).await.unwrap();
    let ten_days_s = 10 * 24 * 3_600;
    assert!((ten_days_s..ten_days_s + 600).contains(&gauges.overdue_s), "{gauges:?}");
    bank.sql("UPDATE erasures SET requested_at = requested_at + interval '40 days' WHERE done_at IS NULL")
        .await;

    // The reasons are removed.
    bank.sql("DROP TRIGGER refused ON payments; DROP TRIGGER slow ON payments").await;
    bank.sql(LOOK_NOW).await;
    erase(&worker).await;
    let done = erasure(&purse).await;
    assert_eq!((done.payments, done.waiting, done.failure), (4, 0, None));
    assert!(done.done_at.is_some());
    let gauges = worker.ledger.open_erasures(MONTH).await.unwrap();
    assert_eq!(gauges, OpenErasures { failing: 0, overdue_s: 0 });
    bank.audit().await;
    worker.close().await;
    bank.close().await;
}

/// background-worker goes on with what operators began; no role erases by itself.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn no_role_erases_what_no_operator_had_erased(_: PgPoolOptions, connect: PgConnectOptions) {
    for role in SERVICE_ROLES {
        let pool = PgPoolOptions::new().max_connections(1);
        let connect = connect.clone().options([("role", role)]);
        let bank = Bank::with_connections(pool, connect, 1).await;
        for sql in [
            "SELECT erase_payments('acme', '{pay_1}')",
            "INSERT INTO erasures (account_id, approved_by, reason, requested_at, next_look_at) VALUES ('a', 'ann', 'r', now(), now())",
            "UPDATE erasures SET requested_at = now()",
        ] {
            assert_eq!(bank.refused(sql).await.0, "42501", "{role}: {sql}");
        }
        let goes_on = bank.ledger.go_on_with_erasure(MONTH).await;
        assert_eq!(goes_on.is_ok(), role == "background_worker", "{role}: {goes_on:?}");
        bank.close().await;
    }
}

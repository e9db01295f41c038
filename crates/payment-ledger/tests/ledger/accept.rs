//! `steps::accept`: a payment is accepted once per id, in the caller's transaction.

use std::slice;

use crate::support::{Bank, profile, tenant};
use futures::future::join_all;
use payment_ledger::LedgerError;
use payment_ledger::steps::accept::{AcceptOutcome, NewPayment, accept};
use payment_protocol::SwitchProfile;
use postgres_kit::Pool;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn acceptance_stores_the_payment_request_in_the_payment_row(pool: PgPool) {
    let bank = Bank::new(pool);
    let order = bank.order("k");
    let p = bank.accept(&order).await;
    let sql = "SELECT concat_ws(' ', tx_id, tenant_id, client_id, source_account, destination_account, amount_minor, currency,
                                switch, state, workflow_id, resume_count, attempts) FROM payments";
    let expected = format!("{} acme shop from-k DE-far-away 1000 EUR northern accepted {} 0 0", p.tx, p.id);
    assert_eq!(bank.words(sql).await, [expected]);
    let valid = "SELECT (extract(epoch FROM valid_until - now()) / 60)::bigint FROM payments";
    assert_eq!(
        bank.number(valid).await,
        60,
        "minutes of the profile's start_within, by the database's clock"
    );
    let view = bank.ledger.payment(&tenant(), &p.id).await.unwrap().unwrap();
    assert_eq!(view.accepted_at.as_millisecond(), order.accepted_at.as_millisecond());
    bank.audit().await;
}

/// Payments share the row of their profile, and nothing changes it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_switch_profile_is_stored_once_and_never_changes(pool: PgPool) {
    let bank = Bank::new(pool);
    let slower = SwitchProfile { sla_ms: profile().sla_ms + 1, ..profile() };
    let orders = [
        bank.order("a"),
        NewPayment { profile: slower.clone(), ..bank.order("b") },
        bank.order("c"),
        NewPayment { profile: slower.clone(), ..bank.order("d") },
    ];
    for half in orders.chunks(2) {
        let mut tx = Pool::from(bank.pool.clone()).begin().await.unwrap();
        accept(&mut tx, half).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(bank.number("SELECT count(*) FROM switch_profiles").await, 2);
    for order in &orders {
        let stored = bank.ledger.accepted_payment(&order.payment_id).await.unwrap();
        assert_eq!(stored.profile, order.profile);
    }
    for change in [
        "UPDATE switch_profiles SET profile = profile || '{\"sla_ms\": 1}'",
        "DELETE FROM switch_profiles",
        "TRUNCATE switch_profiles",
    ] {
        let refused = bank.refused(change).await;
        assert!(refused.1.contains("switch_profiles is append-only"), "{change}: {refused:?}");
    }
    let other = bank.refused("INSERT INTO switch_profiles VALUES (sha256('other'), '{}')").await;
    assert!(other.1.contains("switch_profiles_hash_of_contents"), "{other:?}");
}

/// S0.1: a second request with the same id returns the first answer, whatever its content is.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_1_a_repeated_acceptance_returns_the_first_answer(pool: PgPool) {
    let bank = Bank::new(pool);
    let first = bank.order("k");
    bank.accept(&first).await;
    let second = NewPayment {
        money: crate::support::eur(99),
        request_hash: vec![8],
        response_body: b"another".to_vec(),
        ..bank.order("k")
    };
    let mut tx = Pool::from(bank.pool.clone()).begin().await.unwrap();
    let before =
        AcceptOutcome::Existing { request_hash: first.request_hash, response_body: first.response_body };
    assert_eq!(accept(&mut tx, slice::from_ref(&second)).await.unwrap(), [before]);
    tx.commit().await.unwrap();
    assert_eq!(bank.words("SELECT amount_minor::text FROM payments").await, ["1000"]);
    assert_eq!(bank.number("SELECT count(*) FROM timeline").await, 1);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_rolled_back_acceptance_leaves_no_rows(pool: PgPool) {
    let bank = Bank::new(pool);
    let order = bank.order("k");
    let mut tx = Pool::from(bank.pool.clone()).begin().await.unwrap();
    assert_eq!(accept(&mut tx, slice::from_ref(&order)).await.unwrap(), [AcceptOutcome::New]);
    tx.rollback().await.unwrap();
    assert_eq!(
        bank.number("SELECT (SELECT count(*) FROM payments) + (SELECT count(*) FROM timeline)").await,
        0
    );
    bank.accept(&order).await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r31_of_concurrent_acceptances_of_one_payment_one_is_new(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 16).await;
    let order = bank.order("k");
    let outcomes = join_all((0..16).map(|_| async {
        let mut tx = Pool::from(bank.pool.clone()).begin().await.unwrap();
        let accepted = accept(&mut tx, slice::from_ref(&order)).await.unwrap().remove(0);
        tx.commit().await.unwrap();
        accepted
    }))
    .await;
    assert_eq!(outcomes.iter().filter(|accepted| **accepted == AcceptOutcome::New).count(), 1);
    assert_eq!(bank.number("SELECT count(*) FROM payments").await, 1);
    bank.close().await;
}

/// Source and destination must differ; the database enforces it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_to_its_own_source_account_is_refused(pool: PgPool) {
    let bank = Bank::new(pool);
    let order = bank.order("k");
    let order = NewPayment { destination_account: order.source_account.clone(), ..order };
    let mut tx = Pool::from(bank.pool.clone()).begin().await.unwrap();
    let refused = accept(&mut tx, slice::from_ref(&order)).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Refused(_)));
}

/// The results of a batch are in the order of its requests.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_1_each_payment_of_an_acceptance_batch_has_its_own_result(pool: PgPool) {
    let bank = Bank::new(pool);
    let before = bank.order("k1");
    bank.accept(&before).await;
    let orders = [
        NewPayment { end_to_end_id: None, ..bank.order("k0") },
        NewPayment { response_body: b"another".to_vec(), ..bank.order("k1") },
        NewPayment {
            end_to_end_id: Some("invoice".into()),
            money: crate::support::eur(7),
            ..bank.order("k2")
        },
    ];
    let mut tx = Pool::from(bank.pool.clone()).begin().await.unwrap();
    let accepted = accept(&mut tx, &orders).await.unwrap();
    tx.commit().await.unwrap();
    let before =
        AcceptOutcome::Existing { request_hash: before.request_hash, response_body: before.response_body };
    assert_eq!(accepted, [AcceptOutcome::New, before, AcceptOutcome::New]);
    let stored =
        "SELECT coalesce(end_to_end_id, 'none') || ' ' || amount_minor FROM payments WHERE payment_id = $1";
    for (order, expected) in orders.iter().zip(["none 1000", "none 1000", "invoice 7"]) {
        let row: String =
            sqlx::query_scalar(stored).bind(order.payment_id.as_str()).fetch_one(&bank.pool).await.unwrap();
        assert!(
            row == expected || order.payment_id == orders[1].payment_id,
            "expected {expected}, got {row}"
        );
    }
    assert_eq!(bank.number("SELECT count(*) FROM timeline").await, 3);
}

/// The trace of the request that made a payment, by the payment's id and by the name of its transfer.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_trace_of_a_payment_is_found_by_its_transfer(pool: PgPool) {
    let bank = Bank::new(pool);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let traced = NewPayment { trace_parent: Some(trace.to_owned()), ..bank.order("traced") };
    let (traced, untraced) = (bank.accept(&traced).await, bank.accept(&bank.order("untraced")).await);
    let switch = profile().switch;
    for (p, expected) in [(&traced, Some(trace)), (&untraced, None)] {
        let of_payment = bank.ledger.trace_parent(&p.id).await.unwrap();
        let of_transfer =
            bank.ledger.trace_parent_of_transfer(&switch, &format!("{}:submit", p.tx)).await.unwrap();
        assert_eq!((of_payment.as_deref(), of_transfer.as_deref()), (expected, expected));
    }
    assert_eq!(bank.ledger.trace_parent_of_transfer(&switch, "of nobody").await.unwrap(), None);
}

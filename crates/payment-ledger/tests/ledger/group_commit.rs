//! Group commit: concurrent steps share a transaction, and each has the effect that it has alone.

use std::time::Duration;

use crate::support::{AMOUNT_MINOR, Bank, SWITCH_NOW_MS, Sample, Stage, at, event, first_run, success};
use futures::future::{join, join_all};
use payment_ledger::LedgerError;
use payment_ledger::switch::callbacks::StoreCallbackOutcome;
use payment_protocol::cause::ReserveRefusal;
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use payment_protocol::rules::{AttemptRuling, NotSent};
use payment_protocol::submit::SendAnswer;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

/// Payments of a test.
const PAYMENTS: usize = 16;
/// Time limit of a wait.
const WITHIN: Duration = Duration::from_secs(30);
/// Counts the groups whose COMMIT waits for the test.
const HANGING: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

async fn payments_at(bank: &Bank, stage: Stage) -> Vec<Sample> {
    let mut payments = Vec::new();
    for n in 0..PAYMENTS {
        payments.push(bank.payment_at(stage, &format!("k{n}")).await);
    }
    payments
}

/// S1.2: steps of all kinds that come at the same moment are committed together.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_steps_of_all_kinds_share_a_transaction(pool: PgPool) {
    let bank = Bank::new(pool);
    let reserving = bank.payment_at(Stage::Accepted, "reserving").await;
    let sending = bank.payment_at(Stage::Reserved, "sending").await;
    let answered = bank.payment_at(Stage::Sent, "answered").await;
    let reported = bank.payment_at(Stage::Sent, "reported").await;
    let debiting = bank.payment_at(Stage::Confirmed, "debiting").await;
    let payment = bank.payment(&reserving).await;
    let (run, now) = (first_run(), at(SWITCH_NOW_MS));
    let callback = success(&reported, &event(&reported, "s"));
    let (reserve, attempt, answer, store, debit) = futures::join!(
        bank.ledger.reserve(&payment, &run),
        bank.ledger.record_attempt(&sending.id, &run, now, false, None),
        bank.ledger.record_answer(&answered.id, 1, &SendAnswer::Accepted, Some("t-1"), now),
        bank.ledger.store_callback(&callback),
        bank.ledger.debit(&debiting.id),
    );
    assert_eq!(reserve.unwrap(), ReserveOutcome::Held);
    assert!(attempt.unwrap().1.is_some());
    answer.unwrap();
    let StoreCallbackOutcome::New(Some(message)) = store.unwrap() else { panic!("no message") };
    assert_eq!(debit.unwrap(), DebitOutcome::Done);
    let stored = "SELECT inbox_id FROM inbox WHERE kind = 'callback' ORDER BY inbox_id DESC LIMIT 1";
    assert_eq!(message.inbox_id, bank.number(stored).await);
    let states = "SELECT state FROM payments ORDER BY array_position(
                      ARRAY['reserved', 'submitted', 'confirmed', 'settled'], state)";
    assert_eq!(bank.words(states).await, ["reserved", "reserved", "submitted", "confirmed", "settled"]);
    assert_eq!(bank.number("SELECT count(DISTINCT xmin::text) FROM payments").await, 1);
    bank.audit().await;
}

/// The switch may confirm before its answer is recorded: both steps of the payment come at the same moment, by different names.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_answer_and_a_success_of_one_payment_at_the_same_moment_are_both_recorded(pool: PgPool) {
    let bank = Bank::new(pool);
    let payments = payments_at(&bank, Stage::Sent).await;
    let callbacks: Vec<_> = payments.iter().map(|p| success(p, &event(p, "s"))).collect();
    let answers = payments
        .iter()
        .map(|p| bank.ledger.record_answer(&p.id, 1, &SendAnswer::Accepted, Some("t-1"), at(SWITCH_NOW_MS)));
    let stores = callbacks.iter().map(|callback| bank.ledger.store_callback(callback));
    let (answers, stores) = join(join_all(answers), join_all(stores)).await;
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
    assert!(stores.into_iter().all(|store| matches!(store, Ok(StoreCallbackOutcome::New(Some(_))))));
    let recorded = "SELECT count(*) FROM payments p JOIN submissions s USING (payment_id)
                    WHERE p.final_status = 'settled' AND s.outcome = 'accepted' AND s.transfer_id = 't-1'";
    assert_eq!(bank.number(recorded).await, i64::try_from(PAYMENTS).unwrap());
    bank.audit().await;
}

/// I2: payments from one account in one group never use more than it has.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn payments_from_one_account_in_a_group_never_overdraw_it(pool: PgPool) {
    let bank = Bank::new(pool);
    let account = bank.open("shared", 3 * AMOUNT_MINOR).await;
    let mut payments = Vec::new();
    for n in 0..5 {
        let mut order = bank.order(&format!("k{n}"));
        order.source_account = account.clone();
        let p = bank.accept(&order).await;
        payments.push(bank.payment(&p).await);
    }
    let run = first_run();
    let outcomes = join_all(payments.iter().map(|payment| bank.ledger.reserve(payment, &run))).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    let held = outcomes.iter().filter(|outcome| **outcome == ReserveOutcome::Held).count();
    let refused = ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds);
    let refused = outcomes.iter().filter(|outcome| **outcome == refused).count();
    assert_eq!((held, refused), (3, 2));
    let transactions = "SELECT count(DISTINCT xmin::text) FROM holds";
    assert_eq!(bank.number(transactions).await, 1, "a step did not see what the steps before it left");
    bank.audit().await;
}

/// A step that the database refuses fails alone; the others of its group are committed.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_refused_step_of_a_group_fails_alone(pool: PgPool) {
    let bank = Bank::new(pool);
    let payments = payments_at(&bank, Stage::Confirmed).await;
    let bad = &payments[5];
    bank.refuse_rows("journal", &format!("NEW.payment_id = '{}'", bad.id), "23514").await;
    let outcomes = join_all(payments.iter().map(|p| bank.ledger.debit(&p.id))).await;
    for (p, outcome) in payments.iter().zip(outcomes) {
        if p.id == bad.id {
            assert!(matches!(outcome, Err(LedgerError::Refused(_))), "{outcome:?}");
        } else {
            assert_eq!(outcome.unwrap(), DebitOutcome::Done);
        }
    }
    assert_eq!(bank.state(bad).await, "confirmed");
    bank.allow_rows("journal").await;
    assert_eq!(bank.debit(bad).await, DebitOutcome::Done);
    bank.audit().await;
}

/// R31: a group whose commit is refused at the last moment leaves nothing, and each of its steps is made once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn steps_of_a_group_that_is_not_committed_are_made_alone(pool: PgPool) {
    let bank = Bank::new(pool);
    let payments = payments_at(&bank, Stage::Accepted).await;
    at_commit_of_groups(&bank, "operations", "RAISE 'refused by the test' USING ERRCODE = '40001'").await;
    let outcomes = join_all(payments.iter().map(|p| bank.reserve(p))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == ReserveOutcome::Held));
    let alone = "SELECT count(DISTINCT xmin::text) FROM operations WHERE operation_key LIKE '%:reserve'";
    assert_eq!(bank.number(alone).await, PAYMENTS as i64);
    bank.audit().await;
}

/// R14: a group whose COMMIT gets no answer holds up its own steps only; they find what it wrote.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_commit_without_an_answer_delays_no_later_step(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 8).await;
    // Fewer than connections: each of their steps waits on one.
    let payments = payments_at(&bank, Stage::Accepted).await.split_off(PAYMENTS - 3);
    let later = bank.payment_at(Stage::Accepted, "later").await;
    at_commit_of_groups(&bank, "operations", "PERFORM pg_advisory_xact_lock(4711)").await;
    let mut answer = bank.pool.acquire().await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(4711)").execute(&mut *answer).await.unwrap();
    // Read first, so that all of them come at the same moment: one that came later would share a group with the later step.
    let mut inputs = Vec::new();
    for p in &payments {
        inputs.push(bank.payment(p).await);
    }
    let run = crate::support::first_run();
    let group = async { join_all(inputs.iter().map(|payment| bank.ledger.reserve(payment, &run))).await };
    let (outcomes, ()) = join(group, async {
        until_one(&bank, HANGING).await;
        let reserved = tokio::time::timeout(WITHIN, bank.reserve(&later)).await;
        assert_eq!(reserved.expect("a step waits for a group without an answer"), ReserveOutcome::Held);
        assert_eq!(bank.number(HANGING).await, 1, "the group has ended");
        sqlx::query("SELECT pg_advisory_unlock(4711)").execute(&mut *answer).await.unwrap();
    })
    .await;
    assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == ReserveOutcome::Held));
    drop(answer);
    bank.audit().await;
    bank.close().await;
}

/// R14: an attempt whose group's COMMIT was only slow is sent, also where a second one is forbidden: the call finds its own record.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_only_attempt_is_sent_after_a_commit_without_an_answer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 8).await;
    let mut payments = Vec::new();
    for n in 0..3 {
        let mut order = bank.order(&format!("k{n}"));
        order.profile.deduplicates = false;
        payments.push(bank.order_at(Stage::Reserved, order).await);
    }
    // Of the last one it is no longer certain that the record has every attempt: the call must not take its own for all of them.
    let uncertain = payments.last().unwrap();
    let wait_and_mark = format!(
        "PERFORM pg_advisory_xact_lock(4711);
         UPDATE payments SET attempts_uncertain = true WHERE payment_id = '{}'",
        uncertain.id
    );
    at_commit_of_groups(&bank, "submissions", &wait_and_mark).await;
    let mut answer = bank.pool.acquire().await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(4711)").execute(&mut *answer).await.unwrap();
    let (run, now) = (first_run(), at(SWITCH_NOW_MS));
    let attempts = async {
        join_all(payments.iter().map(|p| bank.ledger.record_attempt(&p.id, &run, now, false, None))).await
    };
    let (recorded, ()) = join(attempts, async {
        until_one(&bank, HANGING).await;
        // The calls have given the group up: each waits alone for the row that the group has locked.
        let alone = "SELECT count(*) / 3 FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event <> 'advisory'";
        until_one(&bank, alone).await;
        sqlx::query("SELECT pg_advisory_unlock(4711)").execute(&mut *answer).await.unwrap();
    })
    .await;
    for (p, recorded) in payments.iter().zip(recorded) {
        let (ruling, transfer) = recorded.unwrap();
        let forbidden = AttemptRuling::NotSent(NotSent::SecondAttemptForbidden);
        let expected = if p.id == uncertain.id { forbidden } else { AttemptRuling::Send(1) };
        assert_eq!((ruling, transfer.is_some()), (expected, expected != forbidden));
        let again = bank.ledger.record_attempt(&p.id, &run, now, false, None).await.unwrap();
        assert_eq!(again, (forbidden, None), "another call");
    }
    assert_eq!(bank.number("SELECT count(*) FROM submissions").await, 3);
    drop(answer);
    bank.audit().await;
    bank.close().await;
}

/// A step waits for a lock alone, and the others of its moment do not wait for it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_step_that_must_wait_for_a_lock_delays_no_other(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 8).await;
    let payments = payments_at(&bank, Stage::Accepted).await;
    let (locked, others) = payments.split_first().unwrap();
    let others_held = async { join_all(others.iter().map(|p| bank.reserve(p))).await };
    let (outcome, ()) = behind_a_lock(&bank, locked, bank.reserve(locked), async {
        assert!(others_held.await.iter().all(|outcome| *outcome == ReserveOutcome::Held));
    })
    .await;
    assert_eq!(outcome, ReserveOutcome::Held);
    bank.audit().await;
    bank.close().await;
}

/// Every step writes in a group what it writes alone.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_step_in_a_group_writes_what_it_writes_alone(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 8).await;
    let grouped = bank.payment_at(Stage::Accepted, "grouped").await;
    let alone = bank.payment_at(Stage::Accepted, "alone").await;
    let (run, now) = (crate::support::first_run(), at(SWITCH_NOW_MS));
    for step in ["reserve", "attempt", "answer", "callback", "debit"] {
        for p in [&grouped, &alone] {
            let make = async {
                match step {
                    "reserve" => assert_eq!(bank.reserve(p).await, ReserveOutcome::Held),
                    "attempt" => {
                        let recorded = bank.ledger.record_attempt(&p.id, &run, now, false, Some("m\0")).await;
                        assert!(recorded.unwrap().1.is_some());
                    }
                    "answer" => bank
                        .ledger
                        .record_answer(&p.id, 1, &SendAnswer::Accepted, Some("t\0"), now)
                        .await
                        .unwrap(),
                    "callback" => {
                        let stored = bank.ledger.store_callback(&success(p, &event(p, "s"))).await.unwrap();
                        assert!(matches!(stored, StoreCallbackOutcome::New(Some(_))));
                    }
                    _ => assert_eq!(bank.debit(p).await, DebitOutcome::Done),
                }
            };
            if p.id == alone.id {
                behind_a_lock(&bank, p, make, async {}).await;
            } else {
                make.await;
            }
        }
        assert_eq!(rows(&bank, &grouped).await, rows(&bank, &alone).await, "{step}");
    }
    bank.audit().await;
    bank.close().await;
}

/// Reserve with the first attempt writes what the two steps write one after the other, in one transaction.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn reserve_with_attempt_writes_what_both_steps_write(pool: PgPool) {
    let bank = Bank::new(pool);
    let (run, now) = (crate::support::first_run(), at(SWITCH_NOW_MS));
    let both = bank.payment_at(Stage::Accepted, "both").await;
    let transfer = bank.ledger.reserve_with_attempt(&bank.payment(&both).await, &run, now, Some("m")).await;
    let each = bank.payment_at(Stage::Accepted, "each").await;
    assert_eq!(bank.reserve(&each).await, ReserveOutcome::Held);
    let (_, other) = bank.ledger.record_attempt(&each.id, &run, now, false, Some("m")).await.unwrap();
    assert_eq!(rows(&bank, &both).await, rows(&bank, &each).await);
    let (transfer, other) = (transfer.unwrap(), other.unwrap());
    assert_eq!(
        (transfer.money, transfer.deadline, transfer.destination_account),
        (other.money, other.deadline, other.destination_account)
    );
    let transactions = format!(
        "SELECT count(DISTINCT t) FROM (SELECT xmin::text AS t FROM journal WHERE payment_id = '{id}'
         UNION ALL SELECT xmin::text FROM submissions WHERE payment_id = '{id}') AS rows",
        id = both.id
    );
    assert_eq!(bank.number(&transactions).await, 1);
    bank.audit().await;
}

/// Where one of the two steps is refused or recorded, reserve with the first attempt does nothing, and the steps are made one by one.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn reserve_with_attempt_does_both_or_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    let cancelled = bank.payment_at(Stage::Accepted, "cancelled").await;
    bank.customer_cancel(&cancelled).await;
    let reported = bank.payment_at(Stage::Accepted, "reported").await;
    bank.ledger.store_callback(&success(&reported, &event(&reported, "s"))).await.unwrap();
    let reserved = bank.payment_at(Stage::Reserved, "reserved").await;
    let mut order = bank.order("poor");
    order.source_account = bank.open("poor", AMOUNT_MINOR - 1).await;
    let poor = bank.accept(&order).await;
    for p in [&cancelled, &reported, &reserved, &poor] {
        let (payment, before) = (bank.payment(p).await, rows(&bank, p).await);
        let run = crate::support::first_run();
        let transfer = bank.ledger.reserve_with_attempt(&payment, &run, at(SWITCH_NOW_MS), None).await;
        assert_eq!(transfer, None);
        assert_eq!(rows(&bank, p).await, before);
    }
    bank.audit().await;
}

/// Makes the database run this statement when a transaction with more than one new row of the table commits.
async fn at_commit_of_groups(bank: &Bank, table: &str, statement: &str) {
    bank.sql(&format!(
        "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN
             IF (SELECT count(*) FROM {table} WHERE xmin::text = (txid_current() % (2::bigint ^ 32)::bigint)::text) > 1 THEN
                 {statement};
             END IF;
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION at_commit()"
    ))
    .await;
}

/// Waits until this query counts one or more.
async fn until_one(bank: &Bank, sql: &str) {
    let counted = async { while bank.number(sql).await == 0 {} };
    tokio::time::timeout(WITHIN, counted).await.expect("nothing was counted in time");
}

/// Runs a step while another transaction has locked its payment's row, so that it runs alone; `meanwhile` ends before the lock does.
async fn behind_a_lock<T, M>(
    bank: &Bank,
    p: &Sample,
    step: impl Future<Output = T>,
    meanwhile: impl Future<Output = M>,
) -> (T, M) {
    let mut tx = bank.pool.begin().await.unwrap();
    let lock = format!("SELECT FROM payments WHERE payment_id = '{}' FOR UPDATE", p.id);
    sqlx::query(AssertSqlSafe(lock)).execute(&mut *tx).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE%'";
    let release = async {
        let meanwhile = meanwhile.await;
        until_one(bank, waiting).await;
        tx.rollback().await.unwrap();
        meanwhile
    };
    join(step, release).await
}

/// Everything that is stored about a payment, without its own ids and the times.
async fn rows(bank: &Bank, p: &Sample) -> Vec<String> {
    let sql = format!(
        "SELECT replace(replace(replace(row, '{id}', 'PAYMENT'), '{tx}', 'TX'), '{account}', 'ACCOUNT')
         FROM (
             SELECT 1 AS part, 0::bigint AS n, concat_ws(' ', state, run_id, attempts, submit_deadline, final_status, final_status_source,
                    started_at IS NULL, first_attempt_at IS NULL, ended_at IS NULL) AS row
             FROM payments WHERE payment_id = '{id}'
             UNION ALL SELECT 2, entry_id, concat_ws(' ', state, detail, is_internal) FROM timeline WHERE payment_id = '{id}'
             UNION ALL SELECT 3, 0, concat_ws(' ', operation_key, outcome, reason) FROM operations WHERE payment_id = '{id}'
             UNION ALL SELECT 4, entry_id, concat_ws(' ', operation_key, kind, debit_account, credit_account, amount_minor, currency)
             FROM journal WHERE payment_id = '{id}'
             UNION ALL SELECT 5, sequence, concat_ws(' ', event_id, kind, version, sequence, body - 'end_to_end_id')
             FROM outbox WHERE subject_key = '{id}'
             UNION ALL SELECT 6, attempt, concat_ws(' ', attempt, outcome, marker, transfer_id, answered_at IS NULL)
             FROM submissions WHERE payment_id = '{id}'
             UNION ALL SELECT 7, 0, concat_ws(' ', switch, left(event_id, 1), reference, status, amount_minor, currency, reason,
                    left(convert_from(body, 'UTF8'), 9))
             FROM switch_callbacks WHERE payment_id = '{id}'
             UNION ALL SELECT 8, inbox_id, concat_ws(' ', kind, switch, delivered_at IS NULL, next_delivery_at > received_at)
             FROM inbox WHERE payment_id = '{id}'
             UNION ALL SELECT 9, 0, concat_ws(' ', status, amount_minor) FROM holds WHERE payment_id = '{id}'
         ) AS rows ORDER BY part, n, row",
        id = p.id,
        tx = p.tx,
        account = p.account,
    );
    bank.words(&sql).await
}

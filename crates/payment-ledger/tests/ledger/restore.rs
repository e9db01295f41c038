//! `audit::reconcile::restore`: marking open payments after commits may have been lost, and finding what the record lacks.

use crate::support::{AMOUNT_MINOR, Bank, SWITCH, Sample, Stage, at};
use payment_protocol::ids::{SwitchName, TxId};
use payment_protocol::profile::IdScheme;
use payment_protocol::report::{LineStatus, StatementLine};
use payment_protocol::{SwitchProfile, keys};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// The instant up to which the database is known to be complete.
const SINCE_MS: i64 = 1_750_000_000_000;

/// A payment that ended `offset_ms` after [`SINCE_MS`].
async fn ended(bank: &Bank, stage: Stage, key: &str, offset_ms: i64) -> Sample {
    let p = bank.payment_at(stage, key).await;
    let ended_at = at(SINCE_MS + offset_ms);
    bank.sql(&format!("UPDATE payments SET ended_at = '{ended_at}' WHERE payment_id = '{}'", p.id)).await;
    p
}

/// Ids of the marked payments.
async fn marked(bank: &Bank) -> Vec<String> {
    bank.words("SELECT payment_id FROM payments WHERE attempts_uncertain ORDER BY payment_id").await
}

/// Each open payment was open at the instant or accepted later, and each is marked once. An ended one is never marked.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn every_open_payment_is_marked_once_and_no_ended_one(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut open = vec![];
    for stage in
        [Stage::Accepted, Stage::Fenced, Stage::Reserved, Stage::Sent, Stage::Cancelling, Stage::Void]
    {
        open.push(bank.payment_at(stage, &format!("{stage:?}")).await.id.to_string());
    }
    // Accepted long before the instant, and still open.
    bank.sql(&format!(
        "UPDATE payments SET accepted_at = '{}' WHERE state IN ('reserved', 'cancelling')",
        at(SINCE_MS - 86_400_000)
    ))
    .await;
    for (stage, offset_ms) in [(Stage::Settled, -1), (Stage::Released, 0), (Stage::Rejected, 1)] {
        ended(&bank, stage, &format!("{stage:?}"), offset_ms).await;
    }
    open.sort();
    assert_eq!(bank.ledger.mark_open_payments(at(SINCE_MS)).await.unwrap(), 6);
    assert_eq!(marked(&bank).await, open);
    assert_eq!(bank.ledger.mark_open_payments(at(SINCE_MS)).await.unwrap(), 0, "marked twice");
    let noted = "SELECT payment_id FROM timeline WHERE is_internal AND detail LIKE '%may have lost commits since 2025-06-15T%'
                 ORDER BY payment_id";
    assert_eq!(bank.words(noted).await, open);
    bank.audit().await;
}

/// Stores payments `from` to `to` of three tenants: the first 2,500 are open.
async fn store(bank: &Bank, from: i64, to: i64) {
    bank.sql(&format!(
        "INSERT INTO payments (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, amount_minor,
                               currency, switch, profile_hash, needs_account_lock, request_hash, response_body, workflow_id, state, accepted_at,
                               ended_at, valid_until)
         SELECT 'pay_' || n, 'tx_' || n, 'tenant-' || n % 3, 'client', 'source', 'destination', 100, 'EUR', 'mock', '', false, '',
                '', 'pay_' || n, CASE WHEN n > 2500 THEN 'settled' WHEN n % 2 = 0 THEN 'accepted' ELSE 'submitted' END,
                now() - n * interval '1 second', CASE WHEN n > 2500 THEN now() END, now()
         FROM generate_series({from}, {to}) AS n",
    ))
    .await;
}

/// Marks the payments after the first 700, as an interrupted call left them; returns how many rows of payments were read.
async fn rows_read_to_mark(bank: &Bank) -> i64 {
    bank.sql("UPDATE payments SET attempts_uncertain = split_part(payment_id, '_', 2)::int <= 700 WHERE ended_at IS NULL").await;
    bank.sql("VACUUM ANALYZE payments").await;
    bank.sql("SELECT pg_stat_force_next_flush()").await;
    bank.sql("SELECT pg_stat_reset()").await;
    assert_eq!(bank.ledger.mark_open_payments(at(SINCE_MS)).await.unwrap(), 1_800);
    assert_eq!(marked_count(bank).await, 2_500);
    bank.sql("SELECT pg_stat_force_next_flush()").await;
    bank.number("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'payments'")
        .await
}

async fn marked_count(bank: &Bank) -> i64 {
    bank.number("SELECT count(*) FROM payments WHERE attempts_uncertain AND ended_at IS NULL").await
}

/// Several batches, of which an earlier call has marked some. What is read does not grow with the payments that have ended.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn payments_are_marked_in_batches_by_an_index(_: PgPoolOptions, connect: PgConnectOptions) {
    let connect = connect.options([("enable_seqscan", "off")]);
    let bank = Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap());
    store(&bank, 1, 2_500).await;
    let without_ended = rows_read_to_mark(&bank).await;
    store(&bank, 2_501, 27_500).await;
    let with_ended = rows_read_to_mark(&bank).await;
    assert!(
        with_ended <= without_ended + without_ended / 10,
        "{with_ended} rows were read with ten times as many ended payments, {without_ended} without"
    );
}

/// The end at the instant itself counts; an end with an attempt does not.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn payments_that_ended_without_an_attempt_are_listed_since_the_instant(pool: PgPool) {
    let bank = Bank::new(pool);
    ended(&bank, Stage::Rejected, "before", -1).await;
    let exactly = ended(&bank, Stage::Rejected, "exactly", 0).await;
    let later = ended(&bank, Stage::ReleasedUnreserved, "later", 1).await;
    ended(&bank, Stage::Settled, "sent", 2).await;
    let listed = bank.ledger.ended_without_attempt(at(SINCE_MS), 10).await.unwrap();
    let ids: Vec<_> = listed.iter().map(|one| (one.payment_id.as_str(), one.ended_at)).collect();
    assert_eq!(ids, [(exactly.id.as_str(), at(SINCE_MS)), (later.id.as_str(), at(SINCE_MS + 1))]);
    assert_eq!(bank.ledger.ended_without_attempt(at(SINCE_MS), 1).await.unwrap().len(), 1);
}

/// A line for each transfer, read from the switch in this order.
async fn statement(bank: &Bank, lines: &[(&str, Option<String>)]) {
    let lines: Vec<_> = lines
        .iter()
        .map(|(transfer, reference)| StatementLine {
            cursor: (*transfer).to_owned(),
            transfer_id: (*transfer).to_owned(),
            reference: reference.clone(),
            status: LineStatus::Settled,
            amount_minor: AMOUNT_MINOR,
            currency: "EUR".into(),
            return_id: None,
            finished_at: at(SINCE_MS),
        })
        .collect();
    bank.ledger.store_lines(&SwitchName::new(SWITCH).unwrap(), &lines).await.unwrap();
}

/// A transfer of a payment without an attempt is listed, in pages. One of no payment is another kind of difference.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn transfers_of_payments_without_an_attempt_are_found(pool: PgPool) {
    let bank = Bank::new(pool);
    let reference = |p: &Sample| Some(format!("{}:submit", p.tx));
    let sent = bank.payment_at(Stage::Sent, "sent").await;
    let unsent = bank.payment_at(Stage::Reserved, "unsent").await;
    statement(&bank, &[("t1", reference(&sent)), ("t2", Some("tx_nobody:submit".into()))]).await;
    let before = bank.words("SELECT (clock_timestamp() AT TIME ZONE 'UTC')::text || 'Z'").await;
    let since = before[0].replace(' ', "T").parse().unwrap();
    assert_eq!(bank.ledger.first_line_since(since).await.unwrap(), None);
    statement(&bank, &[("t3", None), ("t4", reference(&unsent))]).await;

    let first = bank.ledger.first_line_since(since).await.unwrap().unwrap();
    let page = bank.ledger.transfers_without_attempt(first - 1, 1).await.unwrap();
    assert_eq!((page.transfers.len(), page.last), (0, Some(first)));
    let page = bank.ledger.transfers_without_attempt(first, 10).await.unwrap();
    let found: Vec<_> =
        page.transfers.iter().map(|t| (t.payment_id.as_str(), t.transfer_id.as_str())).collect();
    assert_eq!(found, [(unsent.id.as_str(), "t4")]);
    let page = bank.ledger.transfers_without_attempt(page.last.unwrap(), 10).await.unwrap();
    assert_eq!((page.transfers.len(), page.last), (0, None));
}

/// A workflow that has ended and whose payment is gone is found by its id, that of a recovery workflow too.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn ended_workflows_of_payments_without_a_row_are_found(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "k").await;
    let ids = [p.id.to_string(), format!("{}:resume:1", p.id), "pay_gone".into(), "pay_gone:resume:1".into()];
    let found = bank.ledger.ended_workflows_without_payment(&ids).await.unwrap();
    let origins: Vec<_> = found.iter().map(|finding| finding.origin.as_str()).collect();
    assert_eq!(origins, ["pay_gone", "pay_gone:resume:1"]);
}

/// The client of a lost payment repeats its request. The payment has the id of the first one, so it is not paid again by itself.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_lost_payment_that_is_accepted_again_is_marked(pool: PgPool) {
    let bank = Bank::new(pool);
    let order = bank.order("k");
    let lost = [order.payment_id.to_string()];
    let found = bank.ledger.ended_workflows_without_payment(&lost).await.unwrap();
    bank.ledger.open_findings(&found).await.unwrap();
    let other = bank.payment_at(Stage::Accepted, "other").await;
    let again = bank.order_at(Stage::Accepted, order).await;
    assert_eq!(marked(&bank).await, lost);
    for (p, resume) in [(&again, 1), (&other, 0)] {
        let resumed = bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap().unwrap();
        assert_eq!(resumed.payment.resume, resume);
    }
}

/// The workflow of a lost payment is lost, too, and the switch lists the transfer: the payment is sent again only where the switch surely
/// recognises the repeat.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_lost_payment_that_the_switch_lists_is_marked_when_it_is_accepted_again(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut expected = Vec::new();
    for (scheme, deduplicates, ended_s, is_marked) in [
        (IdScheme::Plain, false, 0, true),
        (IdScheme::Plain, true, 4_900, false),
        (IdScheme::Plain, true, 5_100, true),
        (IdScheme::Upi, true, 5_100, true),
        (IdScheme::SctInst, true, 5_100, true),
        (IdScheme::Upi, true, 0, false),
    ] {
        let mut order = bank.order(&format!("{scheme:?} {deduplicates} {ended_s}"));
        let participant = if scheme == IdScheme::Upi { "DEM" } else { "DEMODEFFXXX" };
        order.profile = SwitchProfile {
            id_scheme: scheme,
            participant: Some(participant.into()),
            deduplicates,
            retention_s: 10_000,
            ..order.profile
        };
        let tx_id = TxId::derive(&order.payment_id);
        // The first acceptance was at another time.
        let rail_id = order.profile.mint(&tx_id, at(SINCE_MS), 0).unwrap();
        let name = rail_id.map_or(keys::submit(&tx_id).to_string(), |id| id.to_string());
        let line = format!(
            "INSERT INTO statement_lines (switch, cursor, transfer_id, reference, status, amount_minor, currency, finished_at)
             VALUES ('{SWITCH}', '{name}', 't', '{name}', 'SETTLED', 1, 'EUR', now() - interval '{ended_s} s')"
        );
        bank.sql(&line).await;
        let again = bank.order_at(Stage::Accepted, order).await;
        if is_marked {
            expected.push(again.id.to_string());
        }
    }
    bank.payment_at(Stage::Accepted, "other").await;
    expected.sort();
    assert_eq!(marked(&bank).await, expected);
}

//! R22: one clock is ten minutes ahead or behind: ours (payments-api, payment-worker, background-worker), the database's or
//! the switch's. Leases and idempotency keys depend on the database's clock, the SLA on workflow time, the submit deadline on
//! the switch's clock, and only the tolerance for callbacks on ours. Temporal's clock is correct in all tests.
//!
//! The clocks of processes are offset by a preloaded library (`testkit::preload`), so this file is Linux only.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{future::try_join_all, try_join};
use idempotency::{ClaimOutcome, Fingerprint, IdempotencyKey, IdempotencyOptions, KeyScope, StoredResponse};
use postgres_kit::Pool;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use testkit::cluster::Cluster;
use testkit::preload::Preload;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback, http};

const OFFSET_S: i64 = 600;
/// Accepted inaccuracy of an offset: headers have whole seconds, and the machine may be busy.
const OFFSET_TOLERANCE_S: i64 = 60;
const SLA: Duration = Duration::from_secs(15);
/// Accepted rounding of a duration: the switch and Temporal round their times.
const ROUNDING: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for one step: much less than the offset.
const WITHIN: Duration = Duration::from_secs(60);

/// Offset of each clock, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Clocks {
    ours_s: i64,
    database_s: i64,
    switch_s: i64,
}

#[tokio::test]
async fn r22_our_services_clock_off_by_ten_minutes_changes_no_outcome() -> anyhow::Result<()> {
    let with_offset = |ours_s| assert_unaffected("our-clock", Clocks { ours_s, ..Clocks::default() });
    try_join_all([OFFSET_S, -OFFSET_S].map(with_offset)).await?;
    Ok(())
}

#[tokio::test]
async fn r22_the_database_clock_off_by_ten_minutes_changes_no_outcome() -> anyhow::Result<()> {
    let with_offset =
        |database_s| assert_unaffected("database-clock", Clocks { database_s, ..Clocks::default() });
    try_join_all([OFFSET_S, -OFFSET_S].map(with_offset)).await?;
    Ok(())
}

#[tokio::test]
async fn r22_the_switch_clock_off_by_ten_minutes_changes_no_outcome() -> anyhow::Result<()> {
    let with_offset = |switch_s| assert_unaffected("switch-clock", Clocks { switch_s, ..Clocks::default() });
    try_join_all([OFFSET_S, -OFFSET_S].map(with_offset)).await?;
    Ok(())
}

/// Checks everything that depends on a clock, concurrently in one system.
async fn assert_unaffected(name: &str, clocks: Clocks) -> anyhow::Result<()> {
    let mut options = SystemOptions::default()
        .with_profile("sla_ms", u64::try_from(SLA.as_millis())?)
        .with_profile("submit_deadline_ms", u64::try_from(DEADLINE.as_millis())?)
        .with_profile("attempt_timeout_ms", 1_500)
        .with_profile("submit_budget_ms", 8_200)
        .with_profile("tombstones", false);
    options.shape = json!({"tombstone": false});
    let mut cluster = match clocks.database_s {
        0 => None,
        offset_s => Some(Cluster::start("clock", Preload::Clock { offset_s }).await?),
    };
    options.database_url = cluster.as_ref().map(|cluster| cluster.url.clone());
    options.preload = (clocks.ours_s != 0).then_some(Preload::Clock { offset_s: clocks.ours_s });
    let system = System::start(name, options).await?;
    system.switch.set_clock_offset(clocks.switch_s * 1_000).await?;
    assert_offsets(&system, clocks).await?;

    // Paused until the behaviour for each payment is set.
    system.worker.pause()?;
    let hold = json!({"outcome": "hold"});
    // The switch refuses cancels, so that only the callback decides.
    let refuses = json!({"outcome": "hold", "cancel": [{"fault": "refuse", "times": "always"}]});
    let settles = accept(&system, "1.00", json!({})).await?;
    let called_back = accept(&system, "2.00", refuses).await?;
    let timed_out = accept(&system, "4.00", hold).await?;
    let late = accept(&system, "8.00", json!({"submit": late_submits()})).await?;
    let in_process = json!([{"fault": "in_process", "times": "always"}]);
    let cancelled = accept(&system, "16.00", json!({"outcome": "hold", "cancel": in_process})).await?;
    system.worker.resume()?;
    try_join!(
        assert_settles(&system, &settles, clocks),
        assert_callback_tolerance(&system, &called_back, clocks),
        assert_sla_expires(&system, &timed_out),
        assert_deadline_respected(&system, &late),
        assert_key_lease_and_expiry(&system, &cancelled),
    )
    .with_context(|| format!("{clocks:?}"))?;
    if cluster.is_some() {
        assert_idle_holder_is_disconnected(&system).await?;
    }
    let audit = system.audit().await?;
    ensure!(audit.debited == 2 && audit.open == 0, "{clocks:?}: {audit:?}");
    ensure!(system.available().await? == OPENING_MINOR - 300, "{clocks:?}");
    if let Some(cluster) = &mut cluster {
        cluster.discard();
    }
    Ok(())
}

/// Verifies the injected fault itself; without it the test would pass when no clock is wrong.
async fn assert_offsets(system: &System, clocks: Clocks) -> anyhow::Result<()> {
    for (process, off_s) in [
        (&system.api, clocks.ours_s),
        (&system.worker, clocks.ours_s),
        (&system.background_worker, clocks.ours_s),
        (&system.mock_switch, clocks.switch_s),
    ] {
        let response = http().get(format!("{}/health", process.url())).send().await?;
        let date = response.headers().get("date").context("the response has no Date header")?.to_str()?;
        assert_offset(&format!("the Date header of {}", process.url()), date, off_s, system).await?;
    }
    let database: String =
        sqlx::query_scalar("SELECT clock_timestamp()::text").fetch_one(&system.database.pool).await?;
    assert_offset("the database's clock", &database, clocks.database_s, system).await
}

/// Compares a timestamp with this process's clock. The database only parses the timestamp.
async fn assert_offset(clock: &str, at: &str, expected_s: i64, system: &System) -> anyhow::Result<()> {
    let true_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let at_s: i64 = sqlx::query_scalar("SELECT extract(epoch FROM $1::text::timestamptz)::bigint")
        .bind(at)
        .fetch_one(&system.database.pool)
        .await?;
    let offset_s = at_s - i64::try_from(true_s)?;
    ensure!(
        (offset_s - expected_s).abs() < OFFSET_TOLERANCE_S,
        "{clock} is off by {offset_s} s, expected {expected_s} s: {at}"
    );
    Ok(())
}

/// The switch signs its callbacks with true time. With our clock off they are refused; then the SLA expires, and the answer to
/// the cancel settles the payment.
async fn assert_settles(system: &System, payment: &AcceptedPayment, clocks: Clocks) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "settled").await?;
    let timeline = system.timeline(&payment.payment_id).await?;
    let is_cancelled = timeline.iter().any(|line| line.starts_with("cancelling"));
    ensure!(is_cancelled == (clocks.ours_s != 0), "{timeline:#?}");
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 1, "expected one submit");
    Ok(())
}

/// A callback is accepted if its timestamp is near our clock's time, and refused if it is ten minutes away.
async fn assert_callback_tolerance(
    system: &System,
    payment: &AcceptedPayment,
    clocks: Clocks,
) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let success = TestCallback::success(&payment.reference, 200);
    for distance_s in [-OFFSET_S, OFFSET_S] {
        ensure!(
            system.post_callback_signed_at(&success, clocks.ours_s + distance_s).await? == 401,
            "accepted at a distance of {distance_s} s"
        );
    }
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    ensure!(system.post_callback_signed_at(&success, clocks.ours_s).await? == 200);
    system.wait_for_state(&payment.payment_id, "settled").await
}

async fn assert_sla_expires(system: &System, payment: &AcceptedPayment) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    let submitted = "SELECT min(happened_at) FROM timeline WHERE payment_id = $1 AND state = 'submitted'";
    let elapsed = duration_between(system, payment, submitted, "cancelling_since").await?;
    ensure!(elapsed > SLA - ROUNDING, "the SLA of {SLA:?} expired after {elapsed:?}");
    ensure!(system.switch.transfer_status(&payment.reference).await?.as_deref() == Some("CANCELLED"));
    Ok(())
}

/// Duration between two timestamps of a payment, which the same clock wrote.
async fn duration_between(
    system: &System,
    payment: &AcceptedPayment,
    from: &'static str,
    to: &'static str,
) -> anyhow::Result<Duration> {
    let sql = format!(
        "SELECT (extract(epoch FROM ({to}) - ({from})) * 1000)::bigint FROM payments WHERE payment_id = $1"
    );
    let elapsed_ms: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&payment.payment_id)
        .fetch_one(&system.database.pool)
        .await?;
    Ok(Duration::from_millis(elapsed_ms.try_into()?))
}

/// Behaviour of submits: the first arrives after its deadline, all others are lost.
fn late_submits() -> Value {
    let late = DEADLINE + Duration::from_secs(2);
    json!([{"delay_ms": u64::try_from(late.as_millis()).unwrap_or(u64::MAX)}, {"fault": "drop_request", "times": "always"}])
}

/// The first submit is delayed until after its deadline; all others are lost. `not_found` releases the hold only when the
/// deadline has passed on the switch's clock, and the switch then refuses the late submit.
async fn assert_deadline_respected(system: &System, payment: &AcceptedPayment) -> anyhow::Result<()> {
    until("the switch receives a submit", WITHIN, || async {
        Ok((system.switch.request_count(&payment.reference, "submit").await? > 0).then_some(()))
    })
    .await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    let released_after = duration_between(system, payment, "first_attempt_at", "ended_at").await?;
    ensure!(released_after > DEADLINE - ROUNDING, "released {released_after:?} after the first attempt");
    until("the switch refuses the late submit", WITHIN, || async {
        Ok(system.switch.transfer_status(&payment.reference).await?.filter(|status| status == "REJECTED"))
    })
    .await?;
    Ok(())
}

/// An idempotency key is live until its expiry and taken until its lease ends, both by the database's clock. Tested with a
/// cancel, whose result depends on the key alone; a payment is also identified by its row.
async fn assert_key_lease_and_expiry(system: &System, payment: &AcceptedPayment) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let key = "the-cancel";
    let cancel = || cancel_under(system, &payment.payment_id, key);
    let first = cancel().await?;
    ensure!((first.0, first.1.as_str()) == (202, "false"), "{first:?}");
    let is_exact: bool = sqlx::query_scalar(
        "SELECT expires_at - clock_timestamp() BETWEEN interval '23:55' AND interval '24:00'
                AND created_on = (clock_timestamp() AT TIME ZONE 'UTC')::date
         FROM idempotency.keys WHERE key = $1",
    )
    .bind(key)
    .fetch_one(&system.database.pool)
    .await?;
    ensure!(is_exact, "the key does not expire 24 hours after its creation");

    set_key(system, key, "expires_at = clock_timestamp() + interval '5 minutes'").await?;
    let live = cancel().await?;
    ensure!(
        (live.0, live.1.as_str(), &live.2) == (202, "true", &first.2),
        "expected a replay five minutes before the expiry: {live:?}"
    );
    // A key lives for a day, so an expired one is in yesterday's partition.
    sqlx::query(CREATE_YESTERDAY).execute(&system.database.pool).await?;
    let aged = "created_on = created_on - 1, created_at = created_at - interval '1 day'";
    set_key(system, key, &format!("{aged}, expires_at = clock_timestamp() - interval '1 second'")).await?;
    let expired = cancel().await?;
    ensure!(
        (expired.0, expired.1.as_str()) == (202, "false"),
        "expected a new claim after the expiry: {expired:?}"
    );

    let held =
        "completed_at = NULL, response_status = NULL, response_body = NULL, lease_until = clock_timestamp()";
    set_key(system, key, &format!("{held} + interval '5 minutes'")).await?;
    ensure!(cancel().await?.0 == 409, "expected 409 while the lease is live");
    set_key(system, key, &format!("{held} - interval '1 second'")).await?;
    let taken_over = cancel().await?;
    ensure!(
        (taken_over.0, taken_over.1.as_str()) == (202, "false"),
        "expected a takeover after the lease: {taken_over:?}"
    );

    // The switch now executes the repeated cancel.
    system.switch.set_behaviour(&payment.reference, json!({"outcome": "hold"})).await?;
    system.wait_for_state(&payment.payment_id, "cancelled").await
}

/// The lease of a claim inside a transaction: PostgreSQL ends an idle holder's session, also with a wrong clock.
async fn assert_idle_holder_is_disconnected(system: &System) -> anyhow::Result<()> {
    let (lease, key) = (Duration::from_millis(500), IdempotencyKey::parse(b"idle-holder")?);
    let scope = KeyScope { tenant: "test", client: "test", key: &key };
    let request = Fingerprint::of("test", "POST", "/", b"");
    let terms = IdempotencyOptions::new(24, lease)?;
    let holder = PgPool::connect(&system.database.url_of("payments-api")?).await?;
    let mut held = Pool::from(holder).begin().await?;
    let claimed = idempotency::claim(&mut held, &scope, &request, &terms).await?;
    ensure!(matches!(claimed, ClaimOutcome::Claimed(_)), "{claimed:?}");
    until("another session takes the key over", WITHIN, || async {
        let mut taker = Pool::from(system.database.pool.clone()).begin().await?;
        let ClaimOutcome::Claimed(lease) = idempotency::claim(&mut taker, &scope, &request, &terms).await?
        else {
            taker.rollback().await?;
            return Ok(None);
        };
        lease.complete(&mut taker, &StoredResponse::new(200, b"taken over")).await?;
        Ok(Some(taker.commit().await?))
    })
    .await?;
    ensure!(held.commit().await.is_err(), "the disconnected holder committed");
    Ok(())
}

/// Makes a payment and sets the switch's behaviour for it.
async fn accept(system: &System, amount: &str, behaviour: Value) -> anyhow::Result<AcceptedPayment> {
    let payment = system.pay(amount).await?;
    system.switch.set_behaviour(&payment.reference, behaviour).await?;
    Ok(payment)
}

/// Creates yesterday's partition if it does not exist.
const CREATE_YESTERDAY: &str = "
    DO $$ DECLARE day date := (now() AT TIME ZONE 'UTC')::date - 1; BEGIN
        EXECUTE format('CREATE TABLE IF NOT EXISTS idempotency.%I PARTITION OF idempotency.keys FOR VALUES FROM (%L) TO (%L)',
                       'keys_' || to_char(day, 'YYYYMMDD'), day, day + 1);
    END $$";

/// Changes the live row of a key as if time had passed.
async fn set_key(system: &System, key: &str, set: &str) -> anyhow::Result<()> {
    let sql = format!("UPDATE idempotency.keys SET {set} WHERE key = $1 AND expires_at > now()");
    let changed =
        sqlx::query(AssertSqlSafe(sql)).bind(key).execute(&system.database.pool).await?.rows_affected();
    ensure!(changed == 1, "expected one live row of {key}, changed {changed}");
    Ok(())
}

/// Cancels under this key; returns status, `Idempotent-Replay` and body.
async fn cancel_under(system: &System, payment_id: &str, key: &str) -> anyhow::Result<(u16, String, String)> {
    let url = format!("{}/api/v1/payments/{payment_id}/cancel", system.api.url());
    let request = http().post(url).bearer_auth(testkit::system::API_KEY).header("Idempotency-Key", key);
    let response = request.send().await?;
    let replay = response.headers().get("Idempotent-Replay").map(|value| value.to_str().map(str::to_owned));
    Ok((response.status().as_u16(), replay.transpose()?.unwrap_or_default(), response.text().await?))
}

//! R22: a clock is ten minutes off, ahead or behind: ours (webhook, worker, relay), the database's, the switch's.
//! Leases, keys and the SLA rest on the database's and on workflow time, submit's deadline on the switch's clock, and
//! only the tolerance for callbacks on our own. Temporal's clock is left alone.
//!
//! Wall clocks of processes are set off by a preloaded library (`testkit::preload`), so this file is Linux only.

use std::str::FromStr as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{future::try_join_all, try_join};
use idempotency::{ClaimOutcome, Fingerprint, IdempotencyKey, IdempotencyOptions, Scope, StoredResponse};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use testkit::cluster::Cluster;
use testkit::preload::Preload;
use testkit::system::{Accepted, OPENING_MINOR};
use testkit::wait::until;
use testkit::{Callback, Options, System, http};

const OFF_S: i64 = 600;
/// How well "ten minutes off" is met: headers have whole seconds, and this machine may be busy.
const SLACK_S: i64 = 60;
const SLA: Duration = Duration::from_secs(10);
/// How much sooner something may be written down than it was counted from: the switch and Temporal round their times.
const ROUNDED: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(5);
/// How long a step may take: far less than the clocks are off.
const WITHIN: Duration = Duration::from_secs(60);

/// How far which clock is off, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Clocks {
    ours_s: i64,
    database_s: i64,
    switch_s: i64,
}

#[tokio::test]
async fn r22_our_own_clock_is_ten_minutes_off() -> anyhow::Result<()> {
    let off = |ours_s| see_all("our-clock", Clocks { ours_s, ..Clocks::default() });
    try_join_all([OFF_S, -OFF_S].map(off)).await?;
    Ok(())
}

#[tokio::test]
async fn r22_the_databases_clock_is_ten_minutes_off() -> anyhow::Result<()> {
    let off = |database_s| see_all("database-clock", Clocks { database_s, ..Clocks::default() });
    try_join_all([OFF_S, -OFF_S].map(off)).await?;
    Ok(())
}

#[tokio::test]
async fn r22_the_switchs_clock_is_ten_minutes_off() -> anyhow::Result<()> {
    let off = |switch_s| see_all("switch-clock", Clocks { switch_s, ..Clocks::default() });
    try_join_all([OFF_S, -OFF_S].map(off)).await?;
    Ok(())
}

/// Everything that rests on a clock, at once in one system.
async fn see_all(name: &str, clocks: Clocks) -> anyhow::Result<()> {
    let mut options = Options::default()
        .profile("sla_ms", u64::try_from(SLA.as_millis())?)
        .profile("submit_deadline_ms", u64::try_from(DEADLINE.as_millis())?)
        .profile("attempt_timeout_ms", 500)
        .profile("submit_budget_ms", 4_200)
        .profile("tombstones", false);
    options.shape = json!({"tombstone": false});
    let cluster = match clocks.database_s {
        0 => None,
        offset_s => Some(Cluster::start("clock", Preload::Clock { offset_s }).await?),
    };
    options.database_url = cluster.as_ref().map(|cluster| cluster.url.clone());
    options.preload = (clocks.ours_s != 0).then_some(Preload::Clock { offset_s: clocks.ours_s });
    let system = System::start(name, options).await?;
    system.switch.set_clock_off(clocks.switch_s * 1_000).await?;
    each_clock_is_off(&system, clocks).await?;

    // The worker stands still until the switch knows how to treat each payment.
    system.worker.pause()?;
    let hold = json!({"outcome": "hold"});
    // Its callbacks decide, however late they come.
    let refuses = json!({"outcome": "hold", "cancel": [{"fault": "refuse", "times": "always"}]});
    let settles = accept(&system, "1.00", json!({})).await?;
    let told = accept(&system, "2.00", refuses).await?;
    let timed_out = accept(&system, "4.00", hold).await?;
    let late = accept(&system, "8.00", json!({"submit": late_submits()})).await?;
    let in_process = json!([{"fault": "in_process", "times": "always"}]);
    let cancelled = accept(&system, "16.00", json!({"outcome": "hold", "cancel": in_process})).await?;
    system.worker.go_on()?;
    try_join!(
        it_settles(&system, &settles, clocks),
        the_callbacks_tolerance_is_about_our_clock(&system, &told, clocks),
        the_sla_passes_into_a_release(&system, &timed_out),
        the_deadline_is_the_switchs(&system, &late),
        a_key_keeps_its_lease_and_its_time_to_live(&system, &cancelled),
    )
    .with_context(|| format!("{clocks:?}"))?;
    if cluster.is_some() {
        a_holder_that_stands_still_is_cut_off(&system).await?;
    }
    let audit = system.audit().await?;
    ensure!(audit.debited == 2 && audit.open == 0, "{clocks:?}: {audit:?}");
    ensure!(system.available().await? == OPENING_MINOR - 300, "{clocks:?}");
    Ok(())
}

/// Without this, a fault that is not there would prove everything.
async fn each_clock_is_off(system: &System, clocks: Clocks) -> anyhow::Result<()> {
    for (process, off_s) in [
        (&system.api, clocks.ours_s),
        (&system.worker, clocks.ours_s),
        (&system.background_worker, clocks.ours_s),
        (&system.mock_switch, clocks.switch_s),
    ] {
        let answer = http().get(format!("{}/health", process.url())).send().await?;
        let date = answer.headers().get("date").context("an answer without a Date")?.to_str()?;
        is_off(&format!("the Date of {}", process.url()), date, off_s, system).await?;
    }
    let database: String =
        sqlx::query_scalar("SELECT clock_timestamp()::text").fetch_one(&system.database.pool).await?;
    is_off("the database's clock", &database, clocks.database_s, system).await
}

/// Compares by the arithmetic of a database whose own clock does not matter for it.
async fn is_off(what: &str, at: &str, off_s: i64, system: &System) -> anyhow::Result<()> {
    let true_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let at_s: i64 = sqlx::query_scalar("SELECT extract(epoch FROM $1::text::timestamptz)::bigint")
        .bind(at)
        .fetch_one(&system.database.pool)
        .await?;
    let found_s = at_s - i64::try_from(true_s)?;
    ensure!((found_s - off_s).abs() < SLACK_S, "{what} is {found_s} s off, not {off_s}: {at}");
    Ok(())
}

/// The switch signs its callbacks with true time. Where we refuse them, the SLA leads to asking, and the answer
/// settles.
async fn it_settles(system: &System, payment: &Accepted, clocks: Clocks) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "settled").await?;
    let timeline = system.timeline(&payment.payment_id).await?;
    let asked = timeline.iter().any(|line| line.starts_with("cancelling"));
    ensure!(asked == (clocks.ours_s != 0), "{timeline:#?}");
    ensure!(system.switch.requests(&payment.reference, "submit").await? == 1, "sent once");
    Ok(())
}

/// A callback is believed when it was signed at our clock's time, and not when that is ten minutes away.
async fn the_callbacks_tolerance_is_about_our_clock(
    system: &System,
    payment: &Accepted,
    clocks: Clocks,
) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let success = Callback::success(&payment.reference, 200);
    for away_s in [-OFF_S, OFF_S] {
        ensure!(system.tell_at(&success, clocks.ours_s + away_s).await? == 401, "{away_s} s away");
    }
    system.switch.decide(&payment.reference, "settle").await?;
    ensure!(system.tell_at(&success, clocks.ours_s).await? == 200);
    system.wait_for_state(&payment.payment_id, "settled").await
}

async fn the_sla_passes_into_a_release(system: &System, payment: &Accepted) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    let submitted = "SELECT min(happened_at) FROM timeline WHERE payment_id = $1 AND state = 'submitted'";
    let lasted = between(system, payment, submitted, "cancelling_since").await?;
    ensure!(lasted > SLA - ROUNDED, "its SLA was over after {lasted:?}");
    ensure!(system.switch.status(&payment.reference).await?.as_deref() == Some("CANCELLED"));
    Ok(())
}

/// Time between two instants of a payment, by the one clock that wrote both.
async fn between(
    system: &System,
    payment: &Accepted,
    from: &'static str,
    to: &'static str,
) -> anyhow::Result<Duration> {
    let sql = format!(
        "SELECT (extract(epoch FROM ({to}) - ({from})) * 1000)::bigint FROM payments WHERE payment_id = $1"
    );
    let lasted_ms: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&payment.payment_id)
        .fetch_one(&system.database.pool)
        .await?;
    Ok(Duration::from_millis(lasted_ms.try_into()?))
}

/// The first submit arrives after its deadline, and no other arrives.
fn late_submits() -> Value {
    let late = DEADLINE + Duration::from_secs(2);
    json!([{"delay_ms": u64::try_from(late.as_millis()).unwrap_or(u64::MAX)}, {"fault": "drop_request", "times": "always"}])
}

/// The first submit stands still on its way and lands after its deadline; no other arrives. "Not found" is believed
/// when the deadline has passed on the switch's clock, and the late submit is then refused there.
async fn the_deadline_is_the_switchs(system: &System, payment: &Accepted) -> anyhow::Result<()> {
    until("a submit is under way", WITHIN, || async {
        Ok((system.switch.requests(&payment.reference, "submit").await? > 0).then_some(()))
    })
    .await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    let believed_after = between(system, payment, "first_attempt_at", "ended_at").await?;
    ensure!(believed_after > DEADLINE - ROUNDED, "believed after {believed_after:?}");
    until("the late submit was refused", WITHIN, || async {
        Ok(system.switch.status(&payment.reference).await?.filter(|status| status == "REJECTED"))
    })
    .await?;
    Ok(())
}

/// A key is live until its expiry and held until its lease ends, both by the database's clock; a cancel shows it,
/// since unlike a payment it is kept nowhere else.
async fn a_key_keeps_its_lease_and_its_time_to_live(
    system: &System,
    payment: &Accepted,
) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let key = "the-cancel";
    let cancel = || cancel_under(system, &payment.payment_id, key);
    let first = cancel().await?;
    ensure!((first.0, first.1.as_str()) == (202, "false"), "{first:?}");
    let kept: bool = sqlx::query_scalar(
        "SELECT expires_at - clock_timestamp() BETWEEN interval '23:55' AND interval '24:00'
                AND created_on = (clock_timestamp() AT TIME ZONE 'UTC')::date
         FROM idempotency_keys WHERE key = $1",
    )
    .bind(key)
    .fetch_one(&system.database.pool)
    .await?;
    ensure!(kept, "kept for 24 hours from now");

    set_key(system, key, "expires_at = clock_timestamp() + interval '5 minutes'").await?;
    let live = cancel().await?;
    ensure!((live.0, live.1.as_str(), &live.2) == (202, "true", &first.2), "five minutes left: {live:?}");
    // A key is kept for a day at least, so one that has expired is of yesterday.
    sqlx::query(YESTERDAY).execute(&system.database.pool).await?;
    let aged = "created_on = created_on - 1, created_at = created_at - interval '1 day'";
    set_key(system, key, &format!("{aged}, expires_at = clock_timestamp() - interval '1 second'")).await?;
    let expired = cancel().await?;
    ensure!((expired.0, expired.1.as_str()) == (202, "false"), "expired a second ago: {expired:?}");

    let held =
        "completed_at = NULL, response_status = NULL, response_body = NULL, lease_until = clock_timestamp()";
    set_key(system, key, &format!("{held} + interval '5 minutes'")).await?;
    ensure!(cancel().await?.0 == 409, "held for five minutes more");
    set_key(system, key, &format!("{held} - interval '1 second'")).await?;
    let taken_over = cancel().await?;
    ensure!((taken_over.0, taken_over.1.as_str()) == (202, "false"), "its lease is over: {taken_over:?}");

    // The switch was asked again and again meanwhile, and now does as it is asked.
    system.switch.behave_for(&payment.reference, json!({"outcome": "hold"})).await?;
    system.wait_for_state(&payment.payment_id, "cancelled").await
}

/// The lease of a transaction: PostgreSQL cuts off a holder that stands still, also when its clock is wrong.
async fn a_holder_that_stands_still_is_cut_off(system: &System) -> anyhow::Result<()> {
    let (lease, key) = (Duration::from_millis(500), IdempotencyKey::parse(b"stands-still")?);
    let scope = Scope { tenant: "test", client: "test", key: &key };
    let request = Fingerprint::of("test", "POST", "/", b"");
    let terms = IdempotencyOptions::new(24, lease)?;
    let mut holder = PgConnectOptions::from_str(&system.database.url)?.connect().await?;
    let mut held = holder.begin().await?;
    let claimed = idempotency::claim(&mut held, &scope, &request, &terms).await?;
    ensure!(matches!(claimed, ClaimOutcome::Claimed(_)), "{claimed:?}");
    until("another one takes the key over", WITHIN, || async {
        let mut taker = system.database.pool.begin().await?;
        let ClaimOutcome::Claimed(lease) = idempotency::claim(&mut taker, &scope, &request, &terms).await?
        else {
            taker.rollback().await?;
            return Ok(None);
        };
        lease.complete(&mut taker, &StoredResponse::new(200, b"taken over")).await?;
        Ok(Some(taker.commit().await?))
    })
    .await?;
    ensure!(held.commit().await.is_err(), "who was cut off commits nothing");
    Ok(())
}

/// Accepts a payment and tells the switch how to treat it.
async fn accept(system: &System, amount: &str, behaviour: Value) -> anyhow::Result<Accepted> {
    let payment = system.pay(amount).await?;
    system.switch.behave_for(&payment.reference, behaviour).await?;
    Ok(payment)
}

/// Makes the partition of yesterday, if it is not there.
const YESTERDAY: &str = "
    DO $$ DECLARE day date := (now() AT TIME ZONE 'UTC')::date - 1; BEGIN
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF idempotency_keys FOR VALUES FROM (%L) TO (%L)',
                       'idempotency_keys_' || to_char(day, 'YYYYMMDD'), day, day + 1);
    END $$";

/// Changes the live row of a key, as time would.
async fn set_key(system: &System, key: &str, set: &str) -> anyhow::Result<()> {
    let sql = format!("UPDATE idempotency_keys SET {set} WHERE key = $1 AND expires_at > now()");
    let changed =
        sqlx::query(AssertSqlSafe(sql)).bind(key).execute(&system.database.pool).await?.rows_affected();
    ensure!(changed == 1, "{changed} rows of {key}");
    Ok(())
}

/// Status, `Idempotent-Replay` and body of a cancel under this key.
async fn cancel_under(system: &System, payment_id: &str, key: &str) -> anyhow::Result<(u16, String, String)> {
    let url = format!("{}/api/v1/payments/{payment_id}/cancel", system.api.url());
    let request = http().post(url).bearer_auth(testkit::system::API_KEY).header("Idempotency-Key", key);
    let answer = request.send().await?;
    let replay = answer.headers().get("Idempotent-Replay").map(|value| value.to_str().map(str::to_owned));
    Ok((answer.status().as_u16(), replay.transpose()?.unwrap_or_default(), answer.text().await?))
}

//! Each process runs under a login of its own, with the rights that its statements need (R36): a missing right fails the other tests, and
//! a right that no statement uses is found here.

use std::str::FromStr as _;
use std::time::Duration;

use payment_ledger::access::service_roles::SERVICE_ROLES;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _};
use testkit::cluster::Cluster;
use testkit::system::API_KEY;
use testkit::wait::until;
use testkit::{NatsServer, System, SystemOptions};
use uuid::Uuid;

/// Time limit for the processes' periodic work.
const WITHIN: Duration = Duration::from_secs(60);

/// The rights to change rows, for which PostgreSQL counted no statement of the role. An update is also the `DO UPDATE` of an insert, and a
/// row lock.
const UNUSED: &str = r#"
    WITH granted AS (
        SELECT grantee::text, privilege_type::text, table_name::text FROM information_schema.role_table_grants
        WHERE table_schema = 'public' AND privilege_type IN ('INSERT', 'DELETE')
        UNION SELECT grantee::text, privilege_type::text, table_name::text FROM information_schema.column_privileges
        WHERE table_schema = 'public' AND privilege_type = 'UPDATE'),
    ran AS (
        SELECT r.rolname::text, lower(s.query) AS query FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid
        WHERE s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database()))
    SELECT concat_ws(' ', grantee, privilege_type, table_name) FROM granted
    WHERE grantee = ANY ($1) AND NOT EXISTS (
        SELECT FROM ran
        WHERE rolname = grantee AND query ~ CASE privilege_type
            WHEN 'INSERT' THEN '\minsert into ' || table_name || '\M'
            WHEN 'DELETE' THEN '\mdelete from ' || table_name || '\M'
            ELSE '\mupdate ' || table_name || '\M|\minsert into ' || table_name || '\M.*\mdo update\M|'
                 || '\m(from|join) ' || table_name || '\M.*\mfor (no key )?(update|share|key share)\M' END)"#;

/// Rights that the payments of this test do not use, and what uses them.
const RARE: &[(&str, &[&str])] = &[
    (
        "a customer's account is restored: an advance, or a release of an amount that was never sent (tests/rails/restores.rs)",
        &[
            "background_worker INSERT inbox",
            "background_worker INSERT journal",
            "background_worker INSERT operations",
            "background_worker INSERT outbox",
            "background_worker INSERT outbox_keys",
            "background_worker INSERT timeline",
            "background_worker UPDATE accounts",
            "background_worker UPDATE limit_days",
            "background_worker UPDATE limit_uses",
            "background_worker UPDATE outbox_keys",
            "background_worker UPDATE payments",
        ],
    ),
    ("a workflow refuses a confirmed decision", &["background_worker UPDATE decisions"]),
    ("the hold audit finds a difference", &["background_worker INSERT exceptions"]),
    ("a consumer gives an event up", &["notifier INSERT parked_deliveries"]),
    (
        "a reconciliation, which this system is not scheduled to run (tests/faults/reconciliation)",
        &[
            "payment_worker DELETE reconciled_payments",
            "payment_worker DELETE running_workflows",
            "payment_worker INSERT reconciled_payments",
            "payment_worker INSERT reconciliation_runs",
            "payment_worker INSERT returns",
            "payment_worker INSERT running_workflows",
            "payment_worker INSERT statement_cursors",
            "payment_worker INSERT statement_lines",
            "payment_worker UPDATE reconciliation_runs",
            "payment_worker UPDATE returns",
            "payment_worker UPDATE statement_cursors",
        ],
    ),
    (
        "a reconciliation with a window, or one that finds a drift (tests/faults/reconciliation)",
        &["payctl_reconcile INSERT exceptions", "payctl_reconcile INSERT reconciled_payments"],
    ),
    ("a payment needs an operator", &["payment_worker INSERT alerts"]),
    (
        "operators decide (operator_api.rs)",
        &[
            "operator_api INSERT decisions",
            "operator_api INSERT exceptions",
            "operator_api INSERT inbox",
            "operator_api INSERT journal",
            "operator_api INSERT operations",
            "operator_api INSERT outbox",
            "operator_api INSERT outbox_keys",
            "operator_api INSERT timeline",
            "operator_api UPDATE accounts",
            "operator_api UPDATE decisions",
            "operator_api UPDATE exceptions",
            "operator_api UPDATE inbox",
            "operator_api UPDATE outbox_keys",
            "operator_api UPDATE payments",
            "operator_api UPDATE returns",
        ],
    ),
    ("an account has limits", &["payment_worker INSERT limit_days", "payment_worker INSERT limit_uses"]),
    (
        "a recall whose answer takes days",
        &["payment_worker INSERT recalls", "payment_worker UPDATE recalls", "payments_api UPDATE recalls"],
    ),
    ("a workflow that lost its signal is started again", &["payment_worker UPDATE inbox"]),
    ("a report contradicts the records", &["payments_api INSERT exceptions"]),
    (
        "a tenant changes an endpoint, or replays a delivery",
        &["payments_api UPDATE webhook_deliveries", "payments_api UPDATE webhook_endpoints"],
    ),
];

#[tokio::test]
async fn r36_each_process_uses_the_rights_that_it_has() -> anyhow::Result<()> {
    let mut cluster = Cluster::start_counting("rights").await?;
    let broker = NatsServer::start("rights-broker").await?;
    let options = SystemOptions {
        database_url: Some(cluster.url.clone()),
        broker_url: broker.url(),
        sandbox_amounts: true,
        ..SystemOptions::default().with_long_attempts().with_profile("has_statement", true)
    };
    let mut system = System::start("rights", options).await?;
    let _notifier = system.start_process("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN").await?;
    sqlx::query("CREATE EXTENSION pg_stat_statements").execute(&system.database.pool).await?;
    let created = testkit::http()
        .post(format!("{}/api/v1/webhook-endpoints", system.api.url()))
        .bearer_auth(API_KEY)
        .header("Idempotency-Key", Uuid::new_v4().to_string())
        .json(&json!({"url": "http://127.0.0.1:9/hook", "kinds": ["transfer_sent"]}))
        .send()
        .await?;
    anyhow::ensure!(created.status() == 201, "the endpoint was not created: {}", created.text().await?);

    // Settles; is refused at submit; settles after a false FAILURE.
    for (amount, state) in [("5.00", "settled"), ("90.06", "failed"), ("90.08", "settled")] {
        let payment = system.pay(amount).await?;
        system.wait_for_state(&payment.payment_id, state).await?;
    }
    // Is cancelled by the customer.
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let held = system.pay("5.01").await?;
    system.wait_for_state(&held.payment_id, "submitted").await?;
    system.cancel(&held.payment_id).await?.error_for_status()?;
    system.wait_for_state(&held.payment_id, "cancelled").await?;
    // Settles, and a part of it comes back.
    system.switch.set_default_behaviour(json!({})).await?;
    let returned = system.pay("5.02").await?;
    system.wait_for_state(&returned.payment_id, "settled").await?;
    system.switch.return_part(&returned.reference, "r-1", 100).await?;
    let recorded = async |count: i64| {
        until(&format!("{count} returns are recorded"), WITHIN, || async {
            let stored =
                sqlx::query_scalar::<_, i64>("SELECT count(*) FROM returns WHERE booked_at IS NOT NULL");
            Ok((stored.fetch_one(&system.database.pool).await? == count).then_some(()))
        })
        .await
    };
    recorded(1).await?;
    // Another part comes back, which a statement shows and no callback reports; a payment is open.
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let open = system.pay("5.03").await?;
    system.wait_for_state(&open.payment_id, "submitted").await?;
    system.api.stop().await?;
    system.switch.return_part(&returned.reference, "r-2", 100).await?;
    let mut payctl = system.command("payctl");
    payctl.env("PAYMENTS_DATABASE__URL", system.database.url_of("payctl-reconcile")?);
    let checked = payctl.args(["restore-check", "--since", "1h"]).output().await?;
    let shown = String::from_utf8_lossy(&checked.stdout);
    anyhow::ensure!(shown.contains("marked 1 open payment"), "{checked:?}");
    anyhow::ensure!(shown.contains("a return of 1 payment that is not recorded yet"), "{shown}");
    anyhow::ensure!(shown.contains("no drift"), "{shown}");
    let stored = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM returns");
    assert_eq!(stored.fetch_one(&system.database.pool).await?, 1);
    system.api.restart().await?;
    system.cancel(&open.payment_id).await?.error_for_status()?;
    system.wait_for_state(&open.payment_id, "cancelled").await?;

    let rare: Vec<&str> = RARE.iter().flat_map(|(_, rights)| *rights).copied().collect();
    let unused = async || -> anyhow::Result<Vec<String>> {
        let mut found: Vec<String> =
            sqlx::query_scalar(UNUSED).bind(&SERVICE_ROLES[..]).fetch_all(&system.database.pool).await?;
        found.sort();
        Ok(found)
    };
    let unexplained = async || -> anyhow::Result<Vec<String>> {
        let unused = unused().await?.into_iter();
        Ok(unused.filter(|right| !rare.contains(&right.as_str())).collect())
    };
    // The rounds of the background-worker and the deliveries of the notifier come by themselves. The comparison names what did not.
    let all_used =
        until("the rights are used", WITHIN, || async { Ok(unexplained().await?.is_empty().then_some(())) })
            .await;
    assert_eq!(unexplained().await?, [""; 0], "{all_used:?}");
    // The callback of the second return, which the switch repeats since payments-api is back.
    recorded(2).await?;
    system.audit().await?;
    cluster.discard();
    Ok(())
}

/// What payments-api, the process at the public border, must not do where another process or an operator would run it.
const TRAPS: &[&str] = &[
    "CREATE TABLE idempotency.trap (n int)",
    "CREATE FUNCTION idempotency.trap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE OPERATOR idempotency.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)",
    "CREATE TRIGGER trap AFTER DELETE ON idempotency.keys FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
    "CREATE RULE trap AS ON DELETE TO idempotency.keys DO INSTEAD NOTHING",
    "ALTER TABLE idempotency.keys ENABLE ROW LEVEL SECURITY",
    "DROP FUNCTION idempotency.claim",
    "DROP TABLE idempotency.keys",
    "TRUNCATE idempotency.keys",
    "UPDATE idempotency.keys SET request_hash = ''",
    "SET ROLE idempotency_keys",
    "SET ROLE payment_worker",
    "SET SESSION AUTHORIZATION payment_worker_login",
];

#[tokio::test]
async fn r36_payments_api_sets_no_trap_in_the_schema_of_idempotency_keys() -> anyhow::Result<()> {
    let system = System::start("traps", SystemOptions::default()).await?;
    let mut api = PgConnectOptions::from_str(&system.database.url_of("payments-api")?)?.connect().await?;
    for sql in TRAPS {
        let refused = sqlx::raw_sql(*sql).execute(&mut api).await;
        let code = refused.err().and_then(|error| Some(error.as_database_error()?.code()?.into_owned()));
        assert_eq!(code.as_deref(), Some("42501"), "{sql}");
    }
    // Its login without its role has no rights at all.
    sqlx::raw_sql("SET ROLE NONE").execute(&mut api).await?;
    assert!(sqlx::raw_sql("SELECT FROM payments").execute(&mut api).await.is_err());
    // What it needs of the schema: a partition that is missing.
    sqlx::raw_sql("RESET ROLE").execute(&mut api).await?;
    let last = "SELECT format('DROP TABLE %s', max(inhrelid::regclass::text)) FROM pg_inherits WHERE inhparent = 'idempotency.keys'::regclass";
    let drop_last: String = sqlx::query_scalar(last).fetch_one(&system.database.pool).await?;
    sqlx::raw_sql(AssertSqlSafe(drop_last)).execute(&system.database.pool).await?;
    let created: i32 =
        sqlx::query_scalar("SELECT idempotency.create_partitions()").fetch_one(&mut api).await?;
    assert_eq!(created, 1);
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.audit().await?;
    Ok(())
}

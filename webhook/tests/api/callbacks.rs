//! `POST /callbacks/{switch}`: verification, storage, and that a refused callback stores nothing.

use futures::future::join_all;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use webhook_signature::{ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};

use crate::support::{
    Api, NORTH, NORTH_SECRET, NORTH_SECRET_OLD, SOUTH, SOUTH_SECRET, Signed, report, signed,
};

/// Sets the payment to submitted, so that a SUCCESS is plausible.
async fn set_submitted(api: &Api, payment_id: &str) {
    let update =
        "UPDATE payments SET state = 'submitted', attempts = 1, first_attempt_at = now(), run_id = 'r'
                  WHERE payment_id = $1";
    sqlx::query(update).bind(payment_id).execute(&api.pool).await.unwrap();
}

fn success(tx_id: &str) -> Vec<u8> {
    report(tx_id, "SUCCESS").to_string().into_bytes()
}

/// Callbacks with an invalid signature, by what is wrong with them.
fn unauthentic_callbacks(valid: impl Fn() -> Signed, tx_id: &str) -> Vec<(&'static str, Signed)> {
    let with = |change: &dyn Fn(&mut Signed)| {
        let mut callback = valid();
        change(&mut callback);
        callback
    };
    vec![
        (
            "unsigned",
            with(&|c| {
                c.headers.remove(SIGNATURE_HEADER);
            }),
        ),
        (
            "no id",
            with(&|c| {
                c.headers.remove(ID_HEADER);
            }),
        ),
        (
            "no timestamp",
            with(&|c| {
                c.headers.remove(TIMESTAMP_HEADER);
            }),
        ),
        (
            "not base64",
            with(&|c| {
                c.headers.insert(SIGNATURE_HEADER, "v1,?".into());
            }),
        ),
        (
            "altered byte",
            with(&|c| {
                *c.body.last_mut().unwrap() = b' ';
            }),
        ),
        (
            "altered amount",
            with(&|c| {
                c.body = String::from_utf8(c.body.clone()).unwrap().replace("1250", "1251").into_bytes();
            }),
        ),
        (
            "another event's id",
            with(&|c| {
                c.headers.insert(ID_HEADER, "evt_2".into());
            }),
        ),
        (
            "another time",
            with(&|c| {
                let t: i64 = c.headers[TIMESTAMP_HEADER].parse().unwrap();
                c.headers.insert(TIMESTAMP_HEADER, (t - 1).to_string());
            }),
        ),
        ("other switch's secret", signed(SOUTH_SECRET, "evt_1", 0, success(tx_id))),
        ("stale", signed(NORTH_SECRET, "evt_1", 360, success(tx_id))),
        ("from the future", signed(NORTH_SECRET, "evt_1", -360, success(tx_id))),
    ]
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r21_a_callback_with_an_invalid_signature_is_refused_stores_nothing(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.accepted_payment("k").await;
    set_submitted(&api, &id).await;
    let before = api.row_counts().await;
    let valid = || signed(NORTH_SECRET, "evt_1", 0, success(&tx_id));
    for (case, callback) in unauthentic_callbacks(valid, &tx_id) {
        api.callback(NORTH, callback).await.assert_problem(401, "invalid_signature", case);
    }
    for switch in ["unknown", "a%20b"] {
        api.callback(switch, valid()).await.assert_problem(404, "unknown_switch", switch);
    }
    assert_eq!(api.row_counts().await, before);
    assert_eq!(api.callback(NORTH, valid()).await.status, 200, "expected the valid callback to be accepted");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r17_a_repeated_callback_is_stored_once_and_answered_200(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.accepted_payment("k").await;
    set_submitted(&api, &id).await;
    let mut body = report(&tx_id, "SUCCESS");
    body["unknown_field"] = json!({"x": 1});
    let body = body.to_string();
    let send = |secret| api.callback(NORTH, signed(secret, "evt_1", 0, body.clone()));
    let responses =
        join_all((0..100).map(|n| send(if n % 2 == 0 { NORTH_SECRET } else { NORTH_SECRET_OLD }))).await;
    assert!(
        responses.iter().all(|response| response.status == 200 && response.json == json!({"stored": true})),
        "{responses:?}"
    );

    let rows = api.row_counts().await;
    assert_eq!((rows["switch_callbacks"], rows["inbox"], rows["exceptions"]), (1, 1, 0));
    let final_status: Option<String> =
        sqlx::query_scalar("SELECT final_status FROM payments").fetch_one(&api.pool).await.unwrap();
    assert_eq!(final_status, None, "the debit asks the switch first");
    let undelivered: i64 = sqlx::query_scalar("SELECT count(*) FROM inbox WHERE delivered_at IS NULL")
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert_eq!(
        undelivered, 1,
        "expected the message to wait for the background worker, since Temporal is unreachable"
    );
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r21b_a_contradicting_callback_is_stored_as_an_exception(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.accepted_payment("k").await;
    let (unsent, unsent_tx) = api.accepted_payment("l").await;
    set_submitted(&api, &id).await;
    let with = |field: &str, value: Value| {
        let mut body = report(&tx_id, "SUCCESS");
        body[field] = value;
        body.to_string()
    };
    #[rustfmt::skip]
    let table = [
        ("evt_1", NORTH, NORTH_SECRET, report("tx_unheard_of", "SUCCESS").to_string(), Some("callback_for_unknown_payment")),
        ("evt_2", NORTH, NORTH_SECRET, with("reference", json!("not one of ours")),    Some("callback_for_unknown_payment")),
        ("evt_3", NORTH, NORTH_SECRET, with("reference", json!("a\u{0}b")),            Some("callback_for_unknown_payment")),
        // The debit asks the switch first, whose answer decides.
        ("evt_4", NORTH, NORTH_SECRET, with("amount_minor", json!(1_251)),             None),
        ("evt_5", NORTH, NORTH_SECRET, with("currency", json!("USD")),                 None),
        ("evt_6", SOUTH, SOUTH_SECRET, report(&tx_id, "SUCCESS").to_string(),          Some("callback_from_other_switch")),
        ("evt_7", NORTH, NORTH_SECRET, report(&unsent_tx, "SUCCESS").to_string(),      Some("settled_without_attempt")),
        ("evt_1", NORTH, NORTH_SECRET, with("reason", json!("another body")),          Some("callback_event_id_reused")),
    ];
    for (event, switch, secret, body, exception) in table {
        let before: Vec<String> = api.exceptions().await;
        let response = api.callback(switch, signed(secret, event, 0, body.clone())).await;
        assert_eq!(
            (response.status.as_u16(), &response.json),
            (200, &json!({"stored": true})),
            "{event} {body}"
        );
        let mut expected = before;
        expected.extend(exception.map(str::to_owned));
        expected.sort();
        assert_eq!(api.exceptions().await, expected, "{event} {body}");
    }
    let states: Vec<String> =
        sqlx::query_scalar("SELECT state FROM payments WHERE payment_id IN ($1, $2) AND ended_at IS NULL")
            .bind(&id)
            .bind(&unsent)
            .fetch_all(&api.pool)
            .await
            .unwrap();
    assert_eq!(states.len(), 2, "expected no exception to end a payment");
    assert_eq!(api.count("journal").await, 3, "expected no entries except the funding");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r23_a_signed_unreadable_callback_is_400_and_stores_nothing(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.accepted_payment("k").await;
    set_submitted(&api, &id).await;
    let before = api.row_counts().await;
    let with = |field: &str, value: Value| {
        let mut body = report(&tx_id, "SUCCESS");
        body[field] = value;
        body.to_string()
    };
    let bodies = [
        String::new(),
        "{".into(),
        "null".into(),
        with("status", json!("success")),
        with("status", json!("MAYBE")),
        with("status", json!({"SUCCESS": null})),
        with("posting", json!({"posted": null})),
        json!(["transfer.completed"]).to_string(),
        json!(["transfer.completed", format!("{tx_id}:submit"), "SUCCESS", 1250, "EUR"]).to_string(),
        with("type", json!("transfer.recalled")),
        with("amount_minor", json!("1250")),
        with("amount_minor", json!(12.5)),
        with("reference", Value::Null),
    ];
    for body in bodies {
        let response = api.callback(NORTH, signed(NORTH_SECRET, "evt_1", 0, body.clone())).await;
        response.assert_problem(400, "unreadable_callback", &body);
    }
    let odd_id = api.callback(NORTH, signed(NORTH_SECRET, "evt/1", 0, success(&tx_id))).await;
    odd_id.assert_problem(400, "unreadable_callback", "event id");
    let latin = api.callback(NORTH, signed(NORTH_SECRET, "evt_1", 0, b"\xff\xfe".to_vec())).await;
    latin.assert_problem(400, "unreadable_callback", "not UTF-8");
    assert_eq!(api.row_counts().await, before);
    let readable = api.callback(NORTH, signed(NORTH_SECRET, "evt_1", 0, success(&tx_id))).await;
    assert_eq!(readable.status, 200, "expected the event id to be unused");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_answers_503_to_a_callback_if_the_database_is_unavailable(pool: PgPool) {
    let lost = PgPoolOptions::new().connect_lazy_with(pool.connect_options().as_ref().clone());
    lost.close().await;
    let api = Api::with_options(lost, json!({}));
    let response = api.callback(NORTH, signed(NORTH_SECRET, "evt_1", 0, success("tx_1"))).await;
    response.assert_problem(503, "store_unavailable", "no database");
}

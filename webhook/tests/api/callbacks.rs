//! `POST /callbacks/{switch}`: what is believed, what is stored, and that nothing else leaves a trace.

use futures::future::join_all;
use serde_json::{Value, json};
use service_kit::signature::{ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::support::{
    Api, NORTH, NORTH_SECRET, NORTH_SECRET_OLD, SOUTH, SOUTH_SECRET, Signed, report, signed,
};

/// Marks that the payment was sent, so that a SUCCESS can be true.
async fn sent(api: &Api, payment_id: &str) {
    let update =
        "UPDATE payments SET state = 'submitted', attempts = 1, first_attempt_at = now(), run_id = 'r'
                  WHERE payment_id = $1";
    sqlx::query(update).bind(payment_id).execute(&api.pool).await.unwrap();
}

fn success(tx_id: &str) -> Vec<u8> {
    report(tx_id, "SUCCESS").to_string().into_bytes()
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r21_what_is_not_authentic_is_refused_without_a_trace(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.paid("k").await;
    sent(&api, &id).await;
    let before = api.trace().await;
    let good = || signed(NORTH_SECRET, "evt_1", 0, success(&tx_id));
    let with = |change: &dyn Fn(&mut Signed)| {
        let mut callback = good();
        change(&mut callback);
        callback
    };
    let cases = [
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
        ("other switch's secret", signed(SOUTH_SECRET, "evt_1", 0, success(&tx_id))),
        ("stale", signed(NORTH_SECRET, "evt_1", 360, success(&tx_id))),
        ("from the future", signed(NORTH_SECRET, "evt_1", -360, success(&tx_id))),
    ];
    for (case, callback) in cases {
        api.callback(NORTH, callback).await.assert_problem(401, "invalid_signature", case);
    }
    for switch in ["nobody", "a%20b"] {
        api.callback(switch, good()).await.assert_problem(404, "unknown_switch", switch);
    }
    assert_eq!(api.trace().await, before);
    assert_eq!(api.callback(NORTH, good()).await.status, 200, "the good one is");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r17_a_callback_is_stored_once_and_answered_200_each_time(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.paid("k").await;
    sent(&api, &id).await;
    let mut body = report(&tx_id, "SUCCESS");
    body["a_field_we_do_not_know"] = json!({"x": 1});
    let body = body.to_string();
    let send = |secret| api.callback(NORTH, signed(secret, "evt_1", 0, body.clone()));
    let answers =
        join_all((0..16).map(|n| send(if n % 2 == 0 { NORTH_SECRET } else { NORTH_SECRET_OLD }))).await;
    assert!(
        answers.iter().all(|answer| answer.status == 200 && answer.json == json!({"stored": true})),
        "{answers:?}"
    );

    let trace = api.trace().await;
    assert_eq!((trace["switch_callbacks"], trace["inbox"], trace["exceptions"]), (1, 1, 0));
    let final_status: Option<String> =
        sqlx::query_scalar("SELECT final_status FROM payments").fetch_one(&api.pool).await.unwrap();
    assert_eq!(final_status.as_deref(), Some("settled"));
    let undelivered: i64 = sqlx::query_scalar("SELECT count(*) FROM inbox WHERE delivered_at IS NULL")
        .fetch_one(&api.pool)
        .await
        .unwrap();
    assert_eq!(undelivered, 1, "Temporal is unreachable: the relay tells the workflow");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r21b_what_does_not_fit_is_stored_as_an_exception(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.paid("k").await;
    let (unsent, unsent_tx) = api.paid("l").await;
    sent(&api, &id).await;
    let with = |field: &str, value: Value| {
        let mut body = report(&tx_id, "SUCCESS");
        body[field] = value;
        body.to_string()
    };
    #[rustfmt::skip]
    let table = [
        ("evt_1", NORTH, NORTH_SECRET, report("tx_unheard_of", "SUCCESS").to_string(), "callback_for_unknown_payment"),
        ("evt_2", NORTH, NORTH_SECRET, with("reference", json!("not one of ours")),    "callback_for_unknown_payment"),
        ("evt_3", NORTH, NORTH_SECRET, with("reference", json!("a\u{0}b")),            "callback_for_unknown_payment"),
        ("evt_4", NORTH, NORTH_SECRET, with("amount_minor", json!(1_251)),             "confirmation_mismatch"),
        ("evt_5", NORTH, NORTH_SECRET, with("currency", json!("USD")),                 "confirmation_mismatch"),
        ("evt_6", SOUTH, SOUTH_SECRET, report(&tx_id, "SUCCESS").to_string(),          "callback_from_other_switch"),
        ("evt_7", NORTH, NORTH_SECRET, report(&unsent_tx, "SUCCESS").to_string(),      "settled_without_attempt"),
        ("evt_1", NORTH, NORTH_SECRET, with("reason", json!("another body")),          "callback_event_id_reused"),
    ];
    for (event, switch, secret, body, exception) in table {
        let before: Vec<String> = api.exceptions().await;
        let answer = api.callback(switch, signed(secret, event, 0, body.clone())).await;
        assert_eq!((answer.status.as_u16(), &answer.json), (200, &json!({"stored": true})), "{event} {body}");
        let mut expected = before;
        expected.push(exception.to_owned());
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
    assert_eq!(states.len(), 2, "no exception ends a payment");
    assert_eq!(api.count("journal").await, 3, "no money moved but the funding");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r23_an_authentic_body_that_cannot_be_read_is_400_and_keeps_nothing_back(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.paid("k").await;
    sent(&api, &id).await;
    let before = api.trace().await;
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
        with("type", json!("transfer.recalled")),
        with("amount_minor", json!("1250")),
        with("amount_minor", json!(12.5)),
        with("reference", Value::Null),
    ];
    for body in bodies {
        let answer = api.callback(NORTH, signed(NORTH_SECRET, "evt_1", 0, body.clone())).await;
        answer.assert_problem(400, "unreadable_callback", &body);
    }
    let odd_id = api.callback(NORTH, signed(NORTH_SECRET, "evt/1", 0, success(&tx_id))).await;
    odd_id.assert_problem(400, "unreadable_callback", "event id");
    let latin = api.callback(NORTH, signed(NORTH_SECRET, "evt_1", 0, b"\xff\xfe".to_vec())).await;
    latin.assert_problem(400, "unreadable_callback", "not UTF-8");
    assert_eq!(api.trace().await, before);
    let good = api.callback(NORTH, signed(NORTH_SECRET, "evt_1", 0, success(&tx_id))).await;
    assert_eq!(good.status, 200, "the event id is free for the readable body");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn without_the_store_it_is_503_so_that_the_switch_sends_again(pool: PgPool) {
    let lost = PgPoolOptions::new().connect_lazy_with(pool.connect_options().as_ref().clone());
    lost.close().await;
    let api = Api::with(lost, json!({}));
    let answer = api.callback(NORTH, signed(NORTH_SECRET, "evt_1", 0, success("tx_1"))).await;
    answer.assert_problem(503, "store_unavailable", "no database");
}

//! `POST /api/v1/payments`: the contract of S4.1, and every refusal.

use axum::body::Body;
use axum::http::Request;
use futures::future::join_all;
use idempotency::{ClaimOutcome, Fingerprint, IdempotencyKey, IdempotencyOptions, KeyScope};
use postgres_kit::Pool;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::support::{
    ACME, ACME_ROTATED, ACME_TILL, Api, GLOBEX, PAYMENTS, config_without_north, order, order_with,
};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s4_1_a_new_payment_is_answered_201_and_its_replay_200(pool: PgPool) {
    let api = Api::new(pool).await;
    let first = api.pay("k", &order_with("end_to_end_id", json!("invoice 1"))).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.header("idempotent-replay"), "false");
    let id = first.json["payment_id"].as_str().unwrap();
    assert_eq!(first.header("location"), format!("{PAYMENTS}/{id}"));
    let expected = json!({
        "payment_id": id, "transaction_id": first.json["transaction_id"], "status": "accepted", "amount": "12.50",
        "currency": "EUR", "source_account": "acme-eur", "destination_account": "DE02120300",
        "end_to_end_id": "invoice 1", "created_at": first.json["created_at"],
    });
    assert_eq!(first.json, expected);

    let retry = api.pay("k", &order_with("end_to_end_id", json!("invoice 1"))).await;
    assert_eq!(retry.status, 200);
    assert_eq!(retry.header("idempotent-replay"), "true");
    assert_eq!(retry.header("location"), first.header("location"));
    assert_eq!(retry.bytes, first.bytes);

    let rows = api.row_counts().await;
    assert_eq!((rows["payments"], rows["idempotency.keys"], rows["timeline"]), (1, 1, 1));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s4_1_a_reused_idempotency_key_is_422_for_another_order_else_a_replay(pool: PgPool) {
    let api = Api::new(pool).await;
    let first = api.pay("k", &order()).await;
    for spelling in [
        r#"{"currency":"EUR", "amount":12.5, "source_account":"acme-eur", "destination_account":"DE02120300"}"#,
        r#"{"currency":"EUR","amount":"12.50","source_account":"acme-eur","destination_account":"DE02120300","end_to_end_id":null}"#,
    ] {
        let retry = api.post(ACME, PAYMENTS, "k", spelling).await;
        assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &first.bytes), "{spelling}");
    }
    for (field, value) in [
        ("amount", json!("12.51")),
        ("destination_account", json!("DE02120301")),
        ("source_account", json!("unheard-of")),
        ("end_to_end_id", json!("x")),
    ] {
        api.pay("k", &order_with(field, value)).await.assert_problem(422, "payload_mismatch", field);
    }
    assert_eq!(api.count("payments").await, 1);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s4_1_an_idempotency_key_in_use_is_answered_409_with_retry_after(pool: PgPool) {
    let api = Api::new(pool).await;
    let key = IdempotencyKey::parse(b"k").unwrap();
    let scope = KeyScope { tenant: "acme", client: "shop", key: &key };
    let mut holder = Pool::from(api.pool.clone()).begin().await.unwrap();
    let request = Fingerprint::of("acme", "POST", PAYMENTS, b"another");
    let outcome =
        idempotency::claim(&mut holder, &scope, &request, &IdempotencyOptions::default()).await.unwrap();
    assert!(matches!(outcome, ClaimOutcome::Claimed(_)));

    let response = api.pay("k", &order()).await;
    response.assert_problem(409, "transaction_in_progress", "held");
    assert_eq!(response.header("retry-after"), "1");
    holder.rollback().await.unwrap();
    assert_eq!(api.pay("k", &order()).await.status, 201);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r25_of_64_duplicate_payment_requests_one_is_answered_201(pool: PgPool) {
    let api = Api::new(pool).await;
    let body = order();
    let responses = join_all((0..64).map(|_| api.pay("k", &body))).await;
    let count = |status: u16| responses.iter().filter(|response| response.status == status).count();
    assert_eq!(count(201), 1);
    assert_eq!(count(201) + count(200) + count(409), 64);
    assert_eq!(api.count("payments").await, 1);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s4_2_an_idempotency_key_belongs_to_its_client_across_api_keys(pool: PgPool) {
    let api = Api::new(pool).await;
    let body = order().to_string();
    assert_eq!(api.post(ACME, PAYMENTS, "k", &body).await.status, 201);
    assert_eq!(api.post(ACME_ROTATED, PAYMENTS, "\"k\"", &body).await.status, 200, "the same client");
    assert_eq!(api.post(ACME_TILL, PAYMENTS, "k", &body).await.status, 201, "another client");
    let globex = order_with("source_account", json!("globex-eur")).to_string();
    assert_eq!(api.post(GLOBEX, PAYMENTS, "k", &globex).await.status, 201, "another tenant");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_1_a_pruned_idempotency_key_neither_pays_twice_nor_matches_another(pool: PgPool) {
    let api = Api::new(pool).await;
    let first = api.pay("k", &order()).await;
    sqlx::query("DELETE FROM idempotency.keys").execute(&api.pool).await.unwrap();

    let retry = api.pay("k", &order()).await;
    assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &first.bytes));
    assert_eq!(retry.header("idempotent-replay"), "true");
    let other = api.pay("k", &order_with("amount", json!("1.00"))).await;
    other.assert_problem(422, "payload_mismatch", "other amount");
    let unroutable = api.pay("k", &order_with("destination_account", json!("XX1"))).await;
    unroutable.assert_problem(422, "payload_mismatch", "an order that would be refused if it were new");
    assert_eq!(api.count("payments").await, 1);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_idempotent_replay_is_independent_of_later_configuration(pool: PgPool) {
    let api = Api::new(pool).await;
    let first = api.pay("k", &order()).await;
    let changed = Api::with_config(api.pool.clone(), config_without_north());
    changed.pay("new", &order()).await.assert_problem(422, "no_route", "a new payment");

    let retry = changed.pay("k", &order()).await;
    assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &first.bytes), "with the key");
    sqlx::query("DELETE FROM idempotency.keys").execute(&api.pool).await.unwrap();
    let retry = changed.pay("k", &order()).await;
    assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &first.bytes), "after the key was pruned");
}

/// The table of request body, status and code; each stores no row and uses up no key.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn invalid_payment_requests_are_refused_and_store_nothing(pool: PgPool) {
    let api = Api::new(pool).await;
    let before = api.row_counts().await;
    let changed = |field: &str, value: Value| order_with(field, value).to_string();
    let amount = |raw: &str| order().to_string().replace("\"12.50\"", raw);
    let long = "a".repeat(65);
    #[rustfmt::skip]
    let table = [
        (String::new(),                                        400, "malformed_json"),
        ("{".into(),                                           400, "malformed_json"),
        ("[]".into(),                                          400, "malformed_json"),
        // An array in the order of the fields is not the documented object.
        (r#"["1.00","EUR","ALICE","FR-BOB",null]"#.into(),     400, "malformed_json"),
        ("\u{1}".into(),                                       400, "malformed_json"),
        (format!("{} ", order()) + "x",                        400, "malformed_json"),
        (changed("amount", Value::Null),                       400, "malformed_json"),
        (changed("currency", Value::Null),                     400, "malformed_json"),
        (changed("source_account", json!(7)),                  400, "malformed_json"),
        (changed("unknown_field", json!(1)),                   400, "malformed_json"),
        (changed("end_to_end_id", json!(1)),                   400, "malformed_json"),
        (order().to_string().replacen('{', "{\"amount\":1,", 1), 400, "malformed_json"),
        (amount("null"),                                       400, "malformed_json"),
        (amount("true"),                                       400, "malformed_json"),
        (amount("[1]"),                                        400, "malformed_json"),
        (amount("{\"$serde_json::private::RawValue\":\"1\"}"), 400, "malformed_json"),
        (amount("01"),                                         400, "malformed_json"),
        (amount("NaN"),                                        400, "malformed_json"),
        (amount("0"),                                          422, "invalid_amount"),
        (amount("\"0.00\""),                                   422, "invalid_amount"),
        (amount("-1"),                                         422, "invalid_amount"),
        (amount("\"-0.01\""),                                  422, "invalid_amount"),
        (amount("1e3"),                                        422, "invalid_amount"),
        (amount("1E-2"),                                       422, "invalid_amount"),
        (amount("\"1e3\""),                                    422, "invalid_amount"),
        (amount("\"\""),                                       422, "invalid_amount"),
        (amount("\" 1\""),                                     422, "invalid_amount"),
        (amount("\"1,00\""),                                   422, "invalid_amount"),
        (amount("\"+1\""),                                     422, "invalid_amount"),
        (amount("\"\\u0661\""),                                422, "invalid_amount"),
        (amount("12.501"),                                     422, "invalid_amount"),
        (amount("1000000000000.01"),                           422, "invalid_amount"),
        (amount(&"9".repeat(400)),                             422, "invalid_amount"),
        (changed("currency", json!("eur")),                    422, "invalid_currency"),
        (changed("currency", json!("")),                       422, "invalid_currency"),
        (changed("currency", json!("ZZZ")),                    422, "invalid_currency"),
        (changed("currency", json!("XAU")),                    422, "invalid_currency"),
        (changed("source_account", json!("")),                 422, "invalid_account"),
        (changed("source_account", json!("a b")),              422, "invalid_account"),
        (changed("source_account", json!("a\u{0}b")),          422, "invalid_account"),
        (changed("destination_account", json!(long)),          422, "invalid_account"),
        (changed("destination_account", json!("acme-eur")),    422, "same_account"),
        (changed("end_to_end_id", json!("")),                  422, "invalid_end_to_end_id"),
        (changed("end_to_end_id", json!("x".repeat(36))),      422, "invalid_end_to_end_id"),
        (changed("end_to_end_id", json!("a\u{0}")),            422, "invalid_end_to_end_id"),
        (changed("end_to_end_id", json!(" a")),                422, "invalid_end_to_end_id"),
        (changed("destination_account", json!("XX1")),         422, "no_route"),
        (amount("10000.01"),                                   422, "over_limit"),
        (changed("source_account", json!("unknown")),           422, "unknown_account"),
        (changed("source_account", json!("globex-eur")),       422, "unknown_account"),
        (changed("source_account", json!("internal:holding:EUR")), 422, "unknown_account"),
        (changed("source_account", json!("acme-jpy")),         422, "wrong_currency"),
    ];
    for (body, status, code) in &table {
        api.post(ACME, PAYMENTS, "k", body).await.assert_problem(*status, code, body);
    }
    assert_eq!(api.row_counts().await, before);
    assert_eq!(api.pay("k", &order()).await.status, 201, "expected the key to be unused");
}

/// Headers, status and code.
type HeaderCase<'a> = (&'a [(&'a str, &'a str)], u16, &'a str);

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn headers_of_a_payment_request_are_checked_before_its_body(pool: PgPool) {
    let api = Api::new(pool).await;
    sqlx::query("UPDATE api_keys SET revoked_at = now() WHERE key_hash = $1")
        .bind(payments_api::key_hash(ACME_TILL).to_vec())
        .execute(&api.pool)
        .await
        .unwrap();
    let before = api.row_counts().await;
    let (auth, key) = ("authorization", "idempotency-key");
    let acme = format!("Bearer {ACME}");
    let (revoked, long) = (format!("Bearer {ACME_TILL}"), "k".repeat(256));
    #[rustfmt::skip]
    let table: [HeaderCase; 12] = [
        (&[],                                        401, "unauthorized"),
        (&[(auth, "Bearer unknown")],                 401, "unauthorized"),
        (&[(auth, "Basic YTpi")],                    401, "unauthorized"),
        (&[(auth, "Bearer ")],                       401, "unauthorized"),
        (&[(auth, &revoked), (key, "k")],            401, "unauthorized"),
        (&[(auth, &acme), (auth, &acme), (key, "k")], 401, "unauthorized"),
        (&[(auth, &acme)],                           400, "idempotency_key_missing"),
        (&[(auth, &acme), (key, "")],                400, "idempotency_key_malformed"),
        (&[(auth, &acme), (key, "a b")],             400, "idempotency_key_malformed"),
        (&[(auth, &acme), (key, &long)],             400, "idempotency_key_malformed"),
        (&[(auth, &acme), (key, "a"), (key, "b")],   400, "idempotency_key_malformed"),
        (&[(auth, &acme), (key, "k")],               415, "unsupported_media_type"),
    ];
    for (headers, status, code) in table {
        let mut request = Request::post(PAYMENTS);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = api.send(request.body(Body::from("not JSON")).unwrap()).await;
        response.assert_problem(status, code, &format!("{headers:?}"));
        let challenge = match (status, headers) {
            (401, [(_, "Bearer unknown"), ..]) => "Bearer error=\"invalid_token\"",
            (401, [(_, key), _]) if *key == revoked => "Bearer error=\"invalid_token\"",
            (401, _) => "Bearer",
            _ => "",
        };
        assert_eq!(response.header("www-authenticate"), challenge, "{headers:?}");
    }
    assert_eq!(api.row_counts().await, before);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r13_a_payment_without_the_database_is_503_and_its_retry_succeeds(pool: PgPool) {
    let api = Api::new(pool.clone()).await;
    let lost = PgPoolOptions::new().connect_lazy_with(pool.connect_options().as_ref().clone());
    lost.close().await;
    let response = Api::with_options(lost, json!({})).pay("k", &order()).await;
    response.assert_problem(503, "store_unavailable", "no database");
    assert_eq!(response.header("retry-after"), "1");
    assert_eq!(api.pay("k", &order()).await.status, 201);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_concurrent_payments_succeed_with_one_database_connection(pool: PgPool) {
    let api = Api::new(pool.clone()).await;
    let options = pool.connect_options().as_ref().clone();
    let narrow = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let one = Api::with_options(narrow.clone(), json!({}));
    let bodies: Vec<_> = (0..16).map(|n| (format!("k{n}"), order())).collect();
    let responses = join_all(bodies.iter().map(|(key, body)| one.pay(key, body))).await;
    assert!(responses.iter().all(|response| response.status == 201));
    one.pay("k0", &order_with("amount", json!("1"))).await.assert_problem(422, "payload_mismatch", "k0");
    assert_eq!(api.count("payments").await, 16);
    one.stopping.cancel();
    narrow.close().await;
}

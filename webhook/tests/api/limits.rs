//! Rate limits: counted per client, not for retries, with headers on every counted response.

use payment_ledger::access::api_keys::ApiKeyScope;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::{
    ACME, ACME_ROTATED, ACME_TILL, Api, ApiResponse, GLOBEX, PAYMENTS, config_without_north, order,
    order_with,
};

/// More requests than any bucket of these tests holds.
const MANY: usize = 500;

/// A process with low rates.
fn with_rates(api: &Api, writes: Value, reads: Value) -> Api {
    Api::with_options(api.pool.clone(), json!({"writes": writes, "reads": reads}))
}

fn rate(burst: u32) -> Value {
    json!({"per_s": 1, "burst": burst})
}

/// The parameter `name` of the header `RateLimit`.
#[track_caller]
fn rate_limit(response: &ApiResponse, name: &str) -> u32 {
    let field = response.header("ratelimit");
    let number = field.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    number.unwrap_or_else(|| panic!("{name} in {field:?}")).parse().unwrap()
}

#[track_caller]
fn assert_rate_limited(response: &ApiResponse, policy: &str, case: &str) {
    response.assert_problem(429, "rate_limited", case);
    let wait = response.header("retry-after");
    assert_eq!(wait, "1", "{case}");
    assert_eq!(response.header("ratelimit"), format!("\"{policy}\";r=0;t={wait}"), "{case}");
}

/// Creates payments until one is refused, and returns that response with its key.
async fn pay_until_refused(api: &Api, api_key: &str) -> (ApiResponse, String) {
    for n in 0..MANY {
        let key = format!("until-{n}");
        let response = api.post(api_key, PAYMENTS, &key, &order().to_string()).await;
        if response.status == 429 {
            return (response, key);
        }
    }
    panic!("expected a refusal within {MANY} payments");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_8_an_idempotent_retry_is_not_counted_and_never_rate_limited(pool: PgPool) {
    let api = with_rates(&Api::new(pool).await, rate(3), rate(3));
    let first = api.pay("k", &order()).await;
    assert_eq!((first.status.as_u16(), rate_limit(&first, "r")), (201, 2));
    let id = first.json["payment_id"].as_str().unwrap().to_owned();
    for _ in 0..20 {
        let retry = api.pay("k", &order()).await;
        assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &first.bytes));
        assert_eq!(retry.header("ratelimit"), "", "expected the retry not to be counted");
        api.pay("k", &order_with("amount", json!("1"))).await.assert_problem(422, "payload_mismatch", "k");
    }
    let cancel = format!("{PAYMENTS}/{id}/cancel");
    let cancelled = api.post(ACME, &cancel, "c", "").await;
    assert_eq!(cancelled.status, 202);
    assert!(
        rate_limit(&cancelled, "r") >= 1,
        "expected one token each for the payment and the cancel: {cancelled:?}"
    );

    let (refused, key) = pay_until_refused(&api, ACME).await;
    assert_rate_limited(&refused, "writes", "a new payment");
    let before = api.row_counts().await;
    for _ in 0..20 {
        let retry = api.pay("k", &order()).await;
        assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &first.bytes));
        let retry = api.post(ACME, &cancel, "c", "").await;
        assert_eq!((retry.status.as_u16(), &retry.bytes), (202, &cancelled.bytes));
    }
    assert_eq!(api.row_counts().await, before);
    // The refused request left its key unused: another process accepts a different order under it.
    let wide = Api::with_options(api.pool.clone(), json!({}));
    assert_eq!(wide.pay(&key, &order_with("amount", json!("1"))).await.status, 201);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_rate_limit_bucket_belongs_to_one_client_with_all_its_api_keys(pool: PgPool) {
    let wide = Api::new(pool).await;
    let api = with_rates(&wide, rate(20), rate(2));
    let (refused, key) = pay_until_refused(&api, ACME).await;
    assert_eq!(refused.header("ratelimit-policy"), "\"writes\";q=20;w=20");
    // The client's other key uses the same bucket, which may have gained a token but is not full.
    let response = api.post(ACME_ROTATED, PAYMENTS, &format!("{key}-2"), &order().to_string()).await;
    assert!(response.status == 429 || rate_limit(&response, "r") < 10, "{response:?}");

    for other in [ACME_TILL, GLOBEX] {
        let body =
            order_with("source_account", json!(if other == GLOBEX { "globex-eur" } else { "acme-eur" }));
        let response = api.post(other, PAYMENTS, "k", &body.to_string()).await;
        assert_eq!((response.status.as_u16(), rate_limit(&response, "r")), (201, 19), "{other}");
    }
    // Reads have their own bucket.
    let read = api.get(ACME, PAYMENTS).await;
    assert_eq!((read.status.as_u16(), read.header("ratelimit-policy")), (200, "\"reads\";q=2;w=2"));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn every_counted_api_response_has_rate_limit_headers(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.accepted_payment("k").await;
    wide.create_key("reader", "acme", "desk", &[ApiKeyScope::Read]).await;
    let api = with_rates(&wide, json!({"per_s": 2, "burst": 9}), rate(MANY as u32));
    for (path, status) in [
        (PAYMENTS.to_owned(), 200),
        (format!("{PAYMENTS}/{id}"), 200),
        (format!("{PAYMENTS}/pay_0"), 404),
        (format!("{PAYMENTS}?limit=x"), 400),
        ("/api/v1/accounts/acme-eur".to_owned(), 200),
        ("/api/v1/accounts/unknown".to_owned(), 404),
    ] {
        let response = api.get("reader", &path).await;
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.header("ratelimit-policy"), "\"reads\";q=500;w=500", "{path}");
        assert!(
            (490..500).contains(&rate_limit(&response, "r")) && rate_limit(&response, "t") <= 10,
            "{response:?}"
        );
        assert_eq!(response.header("retry-after"), "", "{path}");
    }
    let unroutable = order_with("destination_account", json!("XX1"));
    let refused = api.pay("u", &unroutable).await;
    refused.assert_problem(422, "no_route", "counted, since it was executed up to the refusal");
    assert_eq!(refused.header("ratelimit-policy"), "\"writes\";q=9;w=5");
    for uncounted in [
        api.get("unknown", PAYMENTS).await,
        api.get("", "/health").await,
        api.pay("v", &order_with("amount", json!("x"))).await,
        api.post(ACME, PAYMENTS, "a b", "").await,
    ] {
        assert_eq!(uncounted.header("ratelimit"), "", "{uncounted:?}");
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn api_reads_over_the_rate_limit_are_refused(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.accepted_payment("k").await;
    let api = with_rates(&wide, rate(2), rate(2));
    let mut refused = Vec::new();
    for _ in 0..MANY {
        for path in [PAYMENTS, &format!("{PAYMENTS}/{id}"), "/api/v1/accounts/acme-eur"] {
            let response = api.get(ACME, path).await;
            if response.status == 429 {
                assert_rate_limited(&response, "reads", path);
                refused.push(path.to_owned());
            }
        }
        refused.sort();
        refused.dedup();
        if refused.len() == 3 {
            return;
        }
    }
    panic!("expected a refusal of every route, got {refused:?}");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_refuses_an_invalid_rate_limit_at_start_up(pool: PgPool) {
    let mut config = config_without_north();
    config.api.reads.burst = 0;
    let error = payments_api::router(config, pool.clone().into(), pool.into(), Default::default())
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("the configuration section [api.reads] requires 1 <= per_s"), "{error}");
}

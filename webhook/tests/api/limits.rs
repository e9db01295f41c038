//! How much a client may do: counted for each client, never for a repeat, and told on every answer.

use payment_ledger::access::api_keys::Scope;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::{
    ACME, ACME_ROTATED, ACME_TILL, Answer, Api, GLOBEX, PAYMENTS, config_without_north, order, order_with,
};

/// More requests than any bucket here holds.
const MANY: usize = 500;

/// A process whose clients may do little.
fn narrow(api: &Api, writes: Value, reads: Value) -> Api {
    Api::with(api.pool.clone(), json!({"writes": writes, "reads": reads}))
}

fn rate(burst: u32) -> Value {
    json!({"per_s": 1, "burst": burst})
}

/// The number behind `name=` in the field `RateLimit`.
#[track_caller]
fn told(answer: &Answer, name: &str) -> u32 {
    let field = answer.header("ratelimit");
    let number = field.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    number.unwrap_or_else(|| panic!("{name} in {field:?}")).parse().unwrap()
}

#[track_caller]
fn assert_rate_limited(answer: &Answer, policy: &str, case: &str) {
    answer.assert_problem(429, "rate_limited", case);
    let wait = answer.header("retry-after");
    assert_eq!(wait, "1", "{case}");
    assert_eq!(answer.header("ratelimit"), format!("\"{policy}\";r=0;t={wait}"), "{case}");
}

/// Makes new payments until one is refused, and gives that answer with its key.
async fn pay_until_refused(api: &Api, api_key: &str) -> (Answer, String) {
    for n in 0..MANY {
        let key = format!("until-{n}");
        let answer = api.post(api_key, PAYMENTS, &key, &order().to_string()).await;
        if answer.status == 429 {
            return (answer, key);
        }
    }
    panic!("nothing was refused");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_8_a_repeat_costs_nothing_and_is_never_refused(pool: PgPool) {
    let api = narrow(&Api::new(pool).await, rate(3), rate(3));
    let first = api.pay("k", &order()).await;
    assert_eq!((first.status.as_u16(), told(&first, "r")), (201, 2));
    let id = first.json["payment_id"].as_str().unwrap().to_owned();
    for _ in 0..20 {
        let repeat = api.pay("k", &order()).await;
        assert_eq!((repeat.status.as_u16(), &repeat.bytes), (200, &first.bytes));
        assert_eq!(repeat.header("ratelimit"), "", "it was not counted");
        api.pay("k", &order_with("amount", json!("1"))).await.assert_problem(422, "payload_mismatch", "k");
    }
    let cancel = format!("{PAYMENTS}/{id}/cancel");
    let cancelled = api.post(ACME, &cancel, "c", "").await;
    assert_eq!(cancelled.status, 202);
    assert!(told(&cancelled, "r") >= 1, "one token each for the payment and the cancel: {cancelled:?}");

    let (refused, key) = pay_until_refused(&api, ACME).await;
    assert_rate_limited(&refused, "writes", "a new payment");
    let before = api.trace().await;
    for _ in 0..20 {
        let repeat = api.pay("k", &order()).await;
        assert_eq!((repeat.status.as_u16(), &repeat.bytes), (200, &first.bytes));
        let repeat = api.post(ACME, &cancel, "c", "").await;
        assert_eq!((repeat.status.as_u16(), &repeat.bytes), (202, &cancelled.bytes));
    }
    assert_eq!(api.trace().await, before);
    // What was refused left its key unused: elsewhere it is carried out, as another order even.
    let wide = Api::with(api.pool.clone(), json!({}));
    assert_eq!(wide.pay(&key, &order_with("amount", json!("1"))).await.status, 201);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_client_is_counted_whatever_key_it_calls_with_and_no_other_is(pool: PgPool) {
    let wide = Api::new(pool).await;
    let api = narrow(&wide, rate(20), rate(2));
    let (refused, key) = pay_until_refused(&api, ACME).await;
    assert_eq!(refused.header("ratelimit-policy"), "\"writes\";q=20;w=20");
    // Its other key finds the same bucket, in which a token may have come meanwhile, and not a full one.
    let answer = api.post(ACME_ROTATED, PAYMENTS, &format!("{key}-2"), &order().to_string()).await;
    assert!(answer.status == 429 || told(&answer, "r") < 10, "{answer:?}");

    for other in [ACME_TILL, GLOBEX] {
        let body =
            order_with("source_account", json!(if other == GLOBEX { "globex-eur" } else { "acme-eur" }));
        let answer = api.post(other, PAYMENTS, "k", &body.to_string()).await;
        assert_eq!((answer.status.as_u16(), told(&answer, "r")), (201, 19), "{other}");
    }
    // Reads have a bucket of their own.
    let read = api.get(ACME, PAYMENTS).await;
    assert_eq!((read.status.as_u16(), read.header("ratelimit-policy")), (200, "\"reads\";q=2;w=2"));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn every_counted_answer_tells_what_is_left(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.paid("k").await;
    wide.make_key("reader", "acme", "desk", &[Scope::Read]).await;
    let api = narrow(&wide, json!({"per_s": 2, "burst": 9}), rate(MANY as u32));
    for (path, status) in [
        (PAYMENTS.to_owned(), 200),
        (format!("{PAYMENTS}/{id}"), 200),
        (format!("{PAYMENTS}/pay_0"), 404),
        (format!("{PAYMENTS}?limit=x"), 400),
        ("/api/v1/accounts/acme-eur".to_owned(), 200),
        ("/api/v1/accounts/nobody".to_owned(), 404),
    ] {
        let answer = api.get("reader", &path).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("ratelimit-policy"), "\"reads\";q=500;w=500", "{path}");
        assert!((490..500).contains(&told(&answer, "r")) && told(&answer, "t") <= 10, "{answer:?}");
        assert_eq!(answer.header("retry-after"), "", "{path}");
    }
    let unroutable = order_with("destination_account", json!("XX1"));
    let refused = api.pay("u", &unroutable).await;
    refused.assert_problem(422, "no_route", "counted, for it was carried out as far as it could be");
    assert_eq!(refused.header("ratelimit-policy"), "\"writes\";q=9;w=5");
    for uncounted in [
        api.get("nobody", PAYMENTS).await,
        api.get("", "/health").await,
        api.pay("v", &order_with("amount", json!("x"))).await,
        api.post(ACME, PAYMENTS, "a b", "").await,
    ] {
        assert_eq!(uncounted.header("ratelimit"), "", "{uncounted:?}");
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn reads_over_the_quota_are_refused(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.paid("k").await;
    let api = narrow(&wide, rate(2), rate(2));
    let mut refused = Vec::new();
    for _ in 0..MANY {
        for path in [PAYMENTS, &format!("{PAYMENTS}/{id}"), "/api/v1/accounts/acme-eur"] {
            let answer = api.get(ACME, path).await;
            if answer.status == 429 {
                assert_rate_limited(&answer, "reads", path);
                refused.push(path.to_owned());
            }
        }
        refused.sort();
        refused.dedup();
        if refused.len() == 3 {
            return;
        }
    }
    panic!("only {refused:?} refused anything");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_rate_that_cannot_be_kept_is_refused_at_the_start(pool: PgPool) {
    let mut config = config_without_north();
    config.api.reads.burst = 0;
    let metrics = service_kit::metrics::install().unwrap();
    let said = payments_api::router(config, pool, metrics, Default::default()).unwrap_err().to_string();
    assert!(said.starts_with("[api.reads] needs 1 <= per_s"), "{said}");
}

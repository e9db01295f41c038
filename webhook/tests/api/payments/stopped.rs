//! The kill switch: new payments are refused, nothing else.

use payment_ledger::admission::kill_switches::KillSwitchTarget;
use payment_protocol::ids::SwitchName;
use payment_protocol::money::parse_currency;
use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, Api, PAYMENTS, order, order_with};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_1_what_is_stopped_takes_no_new_payment_and_burns_no_key(pool: PgPool) {
    let api = Api::new(pool).await;
    let (before, _) = api.paid("before").await;
    let profile = format!("SELECT switch FROM payments WHERE payment_id = '{before}'");
    let switch: String = sqlx::query_scalar(sqlx::AssertSqlSafe(profile)).fetch_one(&api.pool).await.unwrap();
    let corridor = |currency: &str, prefix: &str| KillSwitchTarget::Corridor {
        currency: parse_currency(currency).unwrap(),
        destination_prefix: prefix.into(),
    };
    let yen = {
        let mut yen = order_with("currency", json!("JPY"));
        (yen["source_account"], yen["amount"]) = (json!("acme-jpy"), json!("12"));
        yen
    };
    let (none, all) = ("", "");
    for (n, (target, euro, yens)) in [
        (KillSwitchTarget::Switch(SwitchName::new(switch).unwrap()), "switch_stopped", "switch_stopped"),
        (KillSwitchTarget::Switch(SwitchName::new("another").unwrap()), none, none),
        (corridor("EUR", "DE02"), "corridor_stopped", none),
        (corridor("JPY", all), none, "corridor_stopped"),
        (corridor("EUR", "DE03"), none, none),
    ]
    .into_iter()
    .enumerate()
    {
        let (stop, _) = api.ledger.activate_kill_switch(&target, "ann", "a test").await.unwrap();
        let trace = api.trace().await;
        for (body, code, currency) in [(&order(), euro, "eur"), (&yen, yens, "jpy")] {
            let key = format!("{currency}-{n}");
            let answer = api.pay(&key, body).await;
            if code.is_empty() {
                assert_eq!(answer.status, 201, "{target:?}: {answer:?}");
                continue;
            }
            answer.assert_problem(503, code, &key);
            assert_eq!(answer.header("retry-after"), "60");
        }
        // What was accepted before is answered as ever, and can be cancelled.
        let repeat = api.pay("before", &order()).await;
        assert_eq!(
            (repeat.status.as_u16(), repeat.json["payment_id"].as_str()),
            (200, Some(before.as_str()))
        );
        assert_eq!(api.get(ACME, &format!("{PAYMENTS}/{before}")).await.status, 200);
        if !euro.is_empty() && !yens.is_empty() {
            assert_eq!(api.trace().await, trace, "no trace is left");
        }
        assert!(api.ledger.lift_kill_switch(stop, "bob", "a test").await.unwrap());
        for (body, currency) in [(&order(), "eur"), (&yen, "jpy")] {
            let answer = api.pay(&format!("{currency}-{n}"), body).await;
            assert!([200, 201].contains(&answer.status.as_u16()), "the key was not burnt: {answer:?}");
        }
    }
    let cancel = api.post(ACME, &format!("{PAYMENTS}/{before}/cancel"), "c", "").await;
    assert_eq!(cancel.status, 202);
}

//! Kill switches refuse new payments and nothing else.

use payment_ledger::admission::kill_switches::KillSwitchTarget;
use payment_protocol::ids::SwitchName;
use payment_protocol::money::parse_currency;
use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, Api, PAYMENTS, order, order_with};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_1_a_kill_switch_refuses_payments_and_uses_up_no_idempotency_key(pool: PgPool) {
    let api = Api::new(pool).await;
    let (before, _) = api.accepted_payment("before").await;
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
        activate(&api, &target).await;
        let rows = api.row_counts().await;
        for (body, code, currency) in [(&order(), euro, "eur"), (&yen, yens, "jpy")] {
            let key = format!("{currency}-{n}");
            let response = api.pay(&key, body).await;
            if code.is_empty() {
                assert_eq!(response.status, 201, "{target:?}: {response:?}");
                continue;
            }
            response.assert_problem(503, code, &key);
            assert_eq!(response.header("retry-after"), "60");
        }
        // An earlier payment is replayed as before, and can be cancelled.
        let retry = api.pay("before", &order()).await;
        assert_eq!((retry.status.as_u16(), retry.json["payment_id"].as_str()), (200, Some(before.as_str())));
        assert_eq!(api.get(ACME, &format!("{PAYMENTS}/{before}")).await.status, 200);
        if !euro.is_empty() && !yens.is_empty() {
            assert_eq!(api.row_counts().await, rows, "expected no stored rows");
        }
        let lift = "UPDATE kill_switches SET lifted_by = 'bob', lift_reason = 'a test', lifted_at = now() WHERE lifted_at IS NULL";
        sqlx::query(lift).execute(&api.pool).await.unwrap();
        for (body, currency) in [(&order(), "eur"), (&yen, "jpy")] {
            let response = api.pay(&format!("{currency}-{n}"), body).await;
            assert!(
                [200, 201].contains(&response.status.as_u16()),
                "expected the key to be unused: {response:?}"
            );
        }
    }
    let cancel = api.post(ACME, &format!("{PAYMENTS}/{before}/cancel"), "c", "").await;
    assert_eq!(cancel.status, 202);
}

async fn activate(api: &Api, target: &KillSwitchTarget) {
    let (switch, currency, prefix) = match target {
        KillSwitchTarget::Switch(switch) => (Some(switch.as_str()), None, None),
        KillSwitchTarget::Corridor { currency, destination_prefix } => {
            (None, Some(currency.code()), Some(destination_prefix.as_str()))
        }
    };
    sqlx::query(
        "INSERT INTO kill_switches (switch, currency, destination_prefix, activated_by, reason)
         VALUES ($1, $2, $3, 'ann', 'a test')",
    )
    .bind(switch)
    .bind(currency)
    .bind(prefix)
    .execute(&api.pool)
    .await
    .unwrap();
}

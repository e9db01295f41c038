//! `payctl keys`: create, list, rotate and revoke.

use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::ActiveKey;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::run::payctl;
use crate::staff::Staff;

const REASON: [&str; 2] = ["--reason", "a new client"];
const SHOP: [&str; 6] = ["keys", "create", "--tenant", "acme", "--client", "shop"];

/// The caller of a valid key; `None` if the key is not valid.
async fn valid(staff: &Staff, key: &str) -> Option<ActiveKey> {
    let hash = Sha256::digest(key.as_bytes());
    Ledger::new(staff.pool.clone()).active_api_key(&hash).await.unwrap()
}

/// Two operators create a key: the key and its id.
async fn create(staff: &Staff, args: &[&str]) -> (String, String) {
    let output = staff.both(&[args, &REASON].concat()).await;
    let key = output.lines().next().unwrap().to_owned();
    let id = key.split('_').take(2).collect::<Vec<_>>().join("_");
    (key, id)
}

async fn listed(staff: &Staff, id: &str) -> Value {
    let keys = staff.json(&["keys", "list"]).await;
    keys["api_keys"].as_array().unwrap().iter().find(|key| key["key_id"] == id).unwrap().clone()
}

/// Days from now to a time in a document, rounded.
fn days_to(time: &Value) -> i64 {
    let time: Timestamp = time.as_str().unwrap().parse().unwrap();
    (time.duration_since(Timestamp::now()).as_secs() + 43_200).div_euclid(86_400)
}

#[tokio::test]
async fn payctl_prints_a_new_api_key_once_and_it_is_valid_once_another_operator_confirms_it() {
    let staff = Staff::open().await;
    let output = staff.ann(&[&SHOP[..], &REASON].concat()).await.success();
    let key = output.lines().next().unwrap();
    let id = key.split('_').take(2).collect::<Vec<_>>().join("_");
    assert!(
        output.contains(&format!(
            "\n\nThe first line is the API key {id}. It is not shown again.\nchange chg_"
        )),
        "{output}"
    );
    assert!(valid(&staff, key).await.is_none(), "not before the confirmation");
    let change = crate::staff::proposed(&output);
    staff.bob(&["changes", "confirm", change, "--reason", "seen"]).await.success();
    let active = valid(&staff, key).await.unwrap();
    assert_eq!(
        (active.id.as_str(), active.caller.tenant.as_str(), active.caller.client.as_str()),
        (&*id, "acme", "shop")
    );
    assert_eq!(active.scopes.words(), ["pay", "read"]);

    let secret = key.rsplit('_').next().unwrap();
    assert_eq!(secret.len(), 64);
    let rows =
        "SELECT string_agg(k::text, '') || (SELECT string_agg(c::text, '') FROM changes c) FROM api_keys k";
    let stored: String = sqlx::query_scalar(rows).fetch_one(&staff.pool).await.unwrap();
    for text in [
        staff.ann(&["keys", "list"]).await.success(),
        staff.json(&["keys", "list"]).await.to_string(),
        staff.json(&["changes", "list", "--all"]).await.to_string(),
        stored,
    ] {
        assert!(text.contains(&id) && !text.contains(secret), "{text}");
    }
    let demo = ["demo", "--api-key", key, "--database-url", staff.scratch.url()];
    let output = payctl(&demo).await.refused();
    assert!(output.contains("belongs to client shop of tenant acme"), "{output}");
}

#[tokio::test]
async fn payctl_creates_an_api_key_with_scopes_and_expiry() {
    let staff = Staff::open().await;
    let options = ["--scope", "read", "--scope", "webhooks", "--expires-in-days", "90"];
    let (key, id) = create(&staff, &[&SHOP[..], &options].concat()).await;
    let document = listed(&staff, &id).await;
    assert_eq!((&document["scopes"], &document["status"]), (&json!(["read", "webhooks"]), &json!("active")));
    assert_eq!(days_to(&document["expires_at"]), 90);
    assert_eq!(valid(&staff, &key).await.unwrap().scopes.words(), ["read", "webhooks"]);
    for (wrong, expected) in [
        (&["--scope", "rule"][..], "the scope is unknown; an API key's scope is pay, read or webhooks"),
        (&["--expires-in-days", "0"], "0 is not in 1..=3650"),
    ] {
        let output = staff.ann(&[&SHOP[..], wrong, &REASON].concat()).await.refused();
        assert!(output.contains(expected), "{output}");
    }
    let proposed = staff.json(&[&SHOP[..], &REASON].concat()).await;
    assert_eq!((&proposed["status"], &proposed["kind"]), (&json!("proposed"), &json!("create_api_key")));
    let key = proposed["key"].as_str().unwrap();
    assert!(key.starts_with(proposed["arguments"]["key_id"].as_str().unwrap()), "{proposed}");
}

#[tokio::test]
async fn payctl_rotates_an_api_key_with_overlap_and_revokes_it_permanently() {
    let staff = Staff::open().await;
    let (first, id) = create(&staff, &[&SHOP[..], &["--scope", "pay"]].concat()).await;
    let (second, next) = create(&staff, &["keys", "rotate", &id, "--overlap-hours", "48"]).await;
    let (old, new) = (listed(&staff, &id).await, listed(&staff, &next).await);
    assert_eq!((&new["scopes"], &new["client_id"]), (&json!(["pay"]), &json!("shop")));
    assert_eq!((&old["rotated_to"], days_to(&old["expires_at"])), (&json!(next), 2));
    assert!(valid(&staff, &first).await.is_some() && valid(&staff, &second).await.is_some());
    let again = async |args: &[&str]| staff.ann(&[&["keys"], args, &REASON].concat()).await;
    let output = again(&["rotate", &id]).await.refused();
    assert!(
        output.contains(&format!("API key {id} was rotated before; rotate its successor {next}")),
        "{output}"
    );

    // One operator revokes.
    assert_eq!(again(&["revoke", &id]).await.success(), format!("API key {id} revoked\n"));
    assert!(valid(&staff, &first).await.is_none() && valid(&staff, &second).await.is_some());
    for wrong in ["rotate", "revoke"] {
        let output = again(&[wrong, &id]).await.refused();
        assert!(output.contains(&format!("API key {id} was revoked before")), "{output}");
        let output = again(&[wrong, "pk_000000000000"]).await.refused();
        assert!(output.contains("there is no API key pk_000000000000"), "{output}");
    }
    let (third, _) = create(&staff, &["keys", "rotate", &next, "--overlap-hours", "0"]).await;
    assert!(valid(&staff, &second).await.is_none());
    assert!(valid(&staff, &third).await.is_some());
}

#[tokio::test]
async fn payctl_lists_api_keys_by_tenant_and_client() {
    let staff = Staff::open().await;
    assert_eq!(staff.ann(&["keys", "list"]).await.success(), "no API key matches\n");
    let (_, shop) = create(&staff, &SHOP).await;
    let (_, till) = create(&staff, &["keys", "create", "--tenant", "acme", "--client", "till"]).await;
    let (_, other) = create(&staff, &["keys", "create", "--tenant", "globex", "--client", "shop"]).await;
    staff.ann(&["keys", "revoke", &till, "--reason", "lost"]).await.success();

    let listed = staff.ann(&["keys", "list", "--tenant", "acme"]).await.success();
    let expected = format!(
        "\
key               tenant   client   scopes      status    expires   rotated to   prefix
{shop}   acme     shop     pay, read   active    never                  {shop}
{till}   acme     till     pay, read   revoked                          {till}
"
    );
    assert_eq!(listed, expected);
    let ids = async |args: &[&str]| {
        let listed = staff.json(&[&["keys", "list"], args].concat()).await;
        let keys = listed["api_keys"].as_array().unwrap().iter();
        keys.map(|key| key["key_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["--client", "shop"]).await, [shop.as_str(), &other]);
    assert_eq!(ids(&["--tenant", "globex", "--client", "shop"]).await, [other.as_str()]);
    assert_eq!(ids(&["--tenant", "nobody"]).await, [""; 0]);
}

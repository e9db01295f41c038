//! `keys`: a key through its life, as an operator sees it.

use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::ActiveKey;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;

use crate::run::{Ran, payctl};
use crate::scratch::Scratch;

struct Keys {
    scratch: Scratch,
    pool: PgPool,
}

impl Keys {
    async fn open() -> Self {
        let scratch = Scratch::migrated().await;
        let pool = PgPool::connect(scratch.url()).await.unwrap();
        Self { scratch, pool }
    }

    async fn keys(&self, args: &[&str]) -> Ran {
        payctl(&[&["keys"], args, &["--database-url", self.scratch.url()]].concat()).await
    }

    async fn json(&self, args: &[&str]) -> Value {
        let said = self.keys(&[args, &["--json"]].concat()).await.done();
        serde_json::from_str(&said).unwrap()
    }

    /// Creates a key of acme's shop; the document that shows it.
    async fn create(&self, args: &[&str]) -> Value {
        self.json(&[&["create", "--tenant", "acme", "--client", "shop"], args].concat()).await
    }

    /// What a caller with this key would be.
    async fn good(&self, key: &Value) -> Option<ActiveKey> {
        let hash = Sha256::digest(key.as_str().unwrap().as_bytes());
        Ledger::new(self.pool.clone()).active_api_key(&hash).await.unwrap()
    }

    /// Everything that the database holds of all keys.
    async fn stored(&self) -> String {
        let rows: Vec<String> =
            sqlx::query_scalar("SELECT api_keys::text FROM api_keys").fetch_all(&self.pool).await.unwrap();
        rows.join("\n")
    }
}

fn text(document: &Value, field: &str) -> String {
    document[field].as_str().unwrap().to_owned()
}

/// Days, rounded, from now to a time in a document.
fn days_to(time: &Value) -> i64 {
    let time: Timestamp = time.as_str().unwrap().parse().unwrap();
    (time.duration_since(Timestamp::now()).as_secs() + 43_200).div_euclid(86_400)
}

#[tokio::test]
async fn a_key_is_shown_once_and_is_its_clients() {
    let keys = Keys::open().await;
    let said = keys.keys(&["create", "--tenant", "acme", "--client", "shop"]).await.done();
    let key = said.lines().next().unwrap();
    let id = key.split('_').take(2).collect::<Vec<_>>().join("_");
    let expected = format!(
        "\
{key}

id        {id}
tenant    acme
client    shop
scopes    pay, read
expires   never

The key is in the first line. It is not shown again.
"
    );
    assert_eq!(said, expected);
    let good = keys.good(&key.into()).await.unwrap();
    assert_eq!(
        (good.id.as_str(), good.caller.tenant.as_str(), good.caller.client.as_str()),
        (&*id, "acme", "shop")
    );

    let secret = key.rsplit('_').next().unwrap();
    assert_eq!(secret.len(), 64);
    for listed in
        [keys.keys(&["list"]).await.done(), keys.json(&["list"]).await.to_string(), keys.stored().await]
    {
        assert!(listed.contains(&id) && !listed.contains(secret), "{listed}");
    }
    let demo = ["demo", "--api-key", key, "--database-url", keys.scratch.url()];
    let said = payctl(&demo).await.refused();
    assert!(said.contains("belongs to client shop of tenant acme"), "{said}");
}

#[tokio::test]
async fn scopes_and_an_end_are_given_at_the_start() {
    let keys = Keys::open().await;
    let key = keys.create(&["--scope", "read", "--scope", "operate", "--expires-in-days", "90"]).await;
    assert_eq!((&key["scopes"], &key["status"]), (&json!(["read", "operate"]), &json!("active")));
    assert_eq!(days_to(&key["expires_at"]), 90);
    assert_eq!(keys.good(&key["key"]).await.unwrap().scopes.words(), ["read", "operate"]);
    for (wrong, why) in [
        (&["--scope", "rule"][..], "the scopes are pay, read, webhooks and operate"),
        (&["--expires-in-days", "0"], "0 is not in 1..=3650"),
    ] {
        let create = [&["create", "--tenant", "acme", "--client", "shop"], wrong].concat();
        let said = keys.keys(&create).await.refused();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(keys.json(&["list"]).await["keys"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_rotation_overlaps_and_a_revocation_is_the_end() {
    let keys = Keys::open().await;
    let first = keys.create(&["--scope", "pay"]).await;
    let id = text(&first, "id");
    let second = keys.json(&["rotate", &id, "--overlap-hours", "48"]).await;
    assert_eq!((&second["scopes"], &second["client"]), (&json!(["pay"]), &json!("shop")));
    assert_eq!((&second["replaces"]["id"], days_to(&second["replaces"]["expires_at"])), (&first["id"], 2));
    assert!(keys.good(&first["key"]).await.is_some() && keys.good(&second["key"]).await.is_some());
    let next = text(&second, "id");
    let said = keys.keys(&["rotate", &id]).await.refused();
    assert!(said.contains(&format!("key {id} was rotated before; rotate {next}")), "{said}");

    let said = keys.keys(&["revoke", &id]).await.done();
    assert_eq!(said, format!("key {id} of client shop of tenant acme is revoked\n"));
    assert!(keys.good(&first["key"]).await.is_none() && keys.good(&second["key"]).await.is_some());
    let said = keys.keys(&["revoke", &id]).await.refused();
    assert!(said.contains(&format!("key {id} was revoked before, at 2")), "{said}");
    let said = keys.keys(&["rotate", &id]).await.refused();
    assert!(said.contains(&format!("key {id} is revoked; create a new one")), "{said}");

    let said = keys.keys(&["rotate", &next, "--overlap-hours", "0"]).await.done();
    assert!(said.contains(&format!("\n\nkey {next} is good until 2")), "{said}");
    assert!(keys.good(&second["key"]).await.is_none());
    assert!(keys.good(&said.lines().next().unwrap().into()).await.is_some());
    for wrong in ["rotate", "revoke"] {
        let said = keys.keys(&[wrong, "pk_000000000000"]).await.refused();
        assert!(said.contains("there is no key pk_000000000000; see: payctl keys list"), "{said}");
    }
}

#[tokio::test]
async fn keys_are_listed_by_tenant_and_client() {
    let keys = Keys::open().await;
    assert_eq!(keys.keys(&["list"]).await.done(), "no key\n");
    let shop = text(&keys.create(&[]).await, "id");
    let till = text(&keys.json(&["create", "--tenant", "acme", "--client", "till"]).await, "id");
    let other = text(&keys.json(&["create", "--tenant", "globex", "--client", "shop"]).await, "id");
    keys.keys(&["revoke", &till]).await.done();

    let listed = keys.keys(&["list", "--tenant", "acme"]).await.done();
    let expected = format!(
        "\
key               tenant   client   scopes      status    expires   rotated to   begins with
{shop}   acme     shop     pay, read   active    never                  {shop}
{till}   acme     till     pay, read   revoked                          {till}
"
    );
    assert_eq!(listed, expected);
    let ids = async |args: &[&str]| {
        let listed = keys.json(&[&["list"], args].concat()).await;
        listed["keys"].as_array().unwrap().iter().map(|key| text(key, "id")).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["--client", "shop"]).await, [shop.as_str(), &other]);
    assert_eq!(ids(&["--tenant", "globex", "--client", "shop"]).await, [other.as_str()]);
    assert_eq!(ids(&["--tenant", "nobody"]).await, [""; 0]);
}

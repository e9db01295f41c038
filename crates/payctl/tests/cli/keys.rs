//! `payctl keys`: create, list, rotate and revoke.

use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::ActiveKey;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;

use crate::run::{CommandResult, payctl};
use crate::scratch_database::ScratchDatabase;

struct Keys {
    scratch: ScratchDatabase,
    pool: PgPool,
}

impl Keys {
    async fn open() -> Self {
        let scratch = ScratchDatabase::migrated().await;
        let pool = PgPool::connect(scratch.url()).await.unwrap();
        Self { scratch, pool }
    }

    async fn keys(&self, args: &[&str]) -> CommandResult {
        payctl(&[&["keys"], args, &["--database-url", self.scratch.url()]].concat()).await
    }

    async fn json(&self, args: &[&str]) -> Value {
        let output = self.keys(&[args, &["--json"]].concat()).await.success();
        serde_json::from_str(&output).unwrap()
    }

    /// Creates a key of tenant acme's client shop; returns its document.
    async fn create(&self, args: &[&str]) -> Value {
        self.json(&[&["create", "--tenant", "acme", "--client", "shop"], args].concat()).await
    }

    /// The caller of a valid key; `None` if the key is not valid.
    async fn valid(&self, key: &Value) -> Option<ActiveKey> {
        let hash = Sha256::digest(key.as_str().unwrap().as_bytes());
        Ledger::new(self.pool.clone()).active_api_key(&hash).await.unwrap()
    }

    /// The stored rows of all keys.
    async fn stored(&self) -> String {
        let rows: Vec<String> =
            sqlx::query_scalar("SELECT api_keys::text FROM api_keys").fetch_all(&self.pool).await.unwrap();
        rows.join("\n")
    }
}

fn text(document: &Value, field: &str) -> String {
    document[field].as_str().unwrap().to_owned()
}

/// Days from now to a time in a document, rounded.
fn days_to(time: &Value) -> i64 {
    let time: Timestamp = time.as_str().unwrap().parse().unwrap();
    (time.duration_since(Timestamp::now()).as_secs() + 43_200).div_euclid(86_400)
}

#[tokio::test]
async fn payctl_prints_a_new_api_key_once_and_it_belongs_to_its_client() {
    let keys = Keys::open().await;
    let output = keys.keys(&["create", "--tenant", "acme", "--client", "shop"]).await.success();
    let key = output.lines().next().unwrap();
    let id = key.split('_').take(2).collect::<Vec<_>>().join("_");
    let expected = format!(
        "\
{key}

id        {id}
tenant    acme
client    shop
scopes    pay, read
expires   never

The first line is the API key. It is not shown again.
"
    );
    assert_eq!(output, expected);
    let valid = keys.valid(&key.into()).await.unwrap();
    assert_eq!(
        (valid.id.as_str(), valid.caller.tenant.as_str(), valid.caller.client.as_str()),
        (&*id, "acme", "shop")
    );

    let secret = key.rsplit('_').next().unwrap();
    assert_eq!(secret.len(), 64);
    for listed in
        [keys.keys(&["list"]).await.success(), keys.json(&["list"]).await.to_string(), keys.stored().await]
    {
        assert!(listed.contains(&id) && !listed.contains(secret), "{listed}");
    }
    let demo = ["demo", "--api-key", key, "--database-url", keys.scratch.url()];
    let output = payctl(&demo).await.refused();
    assert!(output.contains("belongs to client shop of tenant acme"), "{output}");
}

#[tokio::test]
async fn payctl_creates_an_api_key_with_scopes_and_expiry() {
    let keys = Keys::open().await;
    let key = keys.create(&["--scope", "read", "--scope", "webhooks", "--expires-in-days", "90"]).await;
    assert_eq!((&key["scopes"], &key["status"]), (&json!(["read", "webhooks"]), &json!("active")));
    assert_eq!(days_to(&key["expires_at"]), 90);
    assert_eq!(keys.valid(&key["key"]).await.unwrap().scopes.words(), ["read", "webhooks"]);
    for (wrong, expected) in [
        (&["--scope", "rule"][..], "the scope is unknown; an API key's scope is pay, read or webhooks"),
        (&["--expires-in-days", "0"], "0 is not in 1..=3650"),
    ] {
        let create = [&["create", "--tenant", "acme", "--client", "shop"], wrong].concat();
        let output = keys.keys(&create).await.refused();
        assert!(output.contains(expected), "{output}");
    }
    assert_eq!(keys.json(&["list"]).await["keys"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn payctl_rotates_an_api_key_with_overlap_and_revokes_it_permanently() {
    let keys = Keys::open().await;
    let first = keys.create(&["--scope", "pay"]).await;
    let id = text(&first, "id");
    let second = keys.json(&["rotate", &id, "--overlap-hours", "48"]).await;
    assert_eq!((&second["scopes"], &second["client"]), (&json!(["pay"]), &json!("shop")));
    assert_eq!((&second["replaces"]["id"], days_to(&second["replaces"]["expires_at"])), (&first["id"], 2));
    assert!(keys.valid(&first["key"]).await.is_some() && keys.valid(&second["key"]).await.is_some());
    let next = text(&second, "id");
    let output = keys.keys(&["rotate", &id]).await.refused();
    assert!(
        output.contains(&format!("API key {id} was rotated before; rotate its successor {next}")),
        "{output}"
    );

    let output = keys.keys(&["revoke", &id]).await.success();
    assert_eq!(output, format!("API key {id} of client shop of tenant acme revoked\n"));
    assert!(keys.valid(&first["key"]).await.is_none() && keys.valid(&second["key"]).await.is_some());
    let output = keys.keys(&["revoke", &id]).await.refused();
    assert!(output.contains(&format!("API key {id} was revoked before, at 2")), "{output}");
    let output = keys.keys(&["rotate", &id]).await.refused();
    assert!(output.contains(&format!("API key {id} is revoked; create a new key")), "{output}");

    let output = keys.keys(&["rotate", &next, "--overlap-hours", "0"]).await.success();
    assert!(output.contains(&format!("\n\nold API key {next} expires at 2")), "{output}");
    assert!(keys.valid(&second["key"]).await.is_none());
    assert!(keys.valid(&output.lines().next().unwrap().into()).await.is_some());
    for wrong in ["rotate", "revoke"] {
        let output = keys.keys(&[wrong, "pk_000000000000"]).await.refused();
        assert!(output.contains("there is no API key pk_000000000000; see: payctl keys list"), "{output}");
    }
}

#[tokio::test]
async fn payctl_lists_api_keys_by_tenant_and_client() {
    let keys = Keys::open().await;
    assert_eq!(keys.keys(&["list"]).await.success(), "no API key matches\n");
    let shop = text(&keys.create(&[]).await, "id");
    let till = text(&keys.json(&["create", "--tenant", "acme", "--client", "till"]).await, "id");
    let other = text(&keys.json(&["create", "--tenant", "globex", "--client", "shop"]).await, "id");
    keys.keys(&["revoke", &till]).await.success();

    let listed = keys.keys(&["list", "--tenant", "acme"]).await.success();
    let expected = format!(
        "\
key               tenant   client   scopes      status    expires   rotated to   prefix
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

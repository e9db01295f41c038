//! `access::api_keys`: a key is valid until it expires, is rotated or revoked, by the database's clock, and never gains rights.

use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use payment_ledger::access::api_keys::{ApiKeyScope, Caller, KeyStatus, KeyView, NewKey, Scopes};
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::ids::{ClientId, KeyId, TenantId};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};

const DAY_S: i64 = 86_400;
/// Time for a statement to reach the database.
const WITHIN: Duration = Duration::from_secs(20);

fn id(n: u32) -> KeyId {
    KeyId::new(format!("pk_{n:012x}")).unwrap()
}

fn hash(n: u32) -> [u8; 32] {
    [u8::try_from(n).unwrap(); 32]
}

fn caller(tenant: &str, client: &str) -> Caller {
    Caller { tenant: TenantId::new(tenant).unwrap(), client: ClientId::new(client).unwrap() }
}

fn pay_and_read() -> Scopes {
    Scopes::new([ApiKeyScope::Pay, ApiKeyScope::Read]).unwrap()
}

/// Stores key `n` for the client `shop` of the tenant `acme`.
async fn store(ledger: &Ledger, n: u32, lifetime_s: Option<i64>) {
    let (id, hash, caller, scopes) = (id(n), hash(n), caller("acme", "shop"), pay_and_read());
    let key =
        NewKey { id: &id, hash: &hash, prefix: id.as_str(), caller: &caller, scopes: &scopes, lifetime_s };
    ledger.insert_api_key(&key).await.unwrap();
}

/// What operators change, without operators. An error says why it is barred.
async fn change(ledger: &Ledger, kind: &str, arguments: Value, hash: &[u8]) -> Result<(), String> {
    let barred = sqlx::query_scalar("SELECT change_bar($1, $2, $3)").bind(kind).bind(&arguments).bind(hash);
    if let Some(why) = barred.fetch_one(ledger.pool()).await.unwrap() {
        return Err(why);
    }
    let made = sqlx::query("SELECT apply_change('chg_1', $1, $2, $3, 'ann', 'a test')");
    made.bind(kind).bind(&arguments).bind(hash).execute(ledger.pool()).await.unwrap();
    Ok(())
}

async fn rotate(ledger: &Ledger, old: u32, new: u32, overlap_s: i64) -> Result<(), String> {
    let arguments = json!({"key_id": id(old), "successor_id": id(new), "overlap_s": overlap_s});
    change(ledger, "rotate_api_key", arguments, &hash(new)).await
}

async fn rotated(ledger: &Ledger, old: u32, new: u32, overlap_s: i64) -> (KeyView, KeyView) {
    rotate(ledger, old, new, overlap_s).await.unwrap();
    (view(ledger, old).await, view(ledger, new).await)
}

async fn revoke(ledger: &Ledger, n: u32) -> Result<(), String> {
    change(ledger, "revoke_api_key", json!({"key_id": id(n)}), &[]).await
}

#[track_caller]
fn barred(outcome: Result<(), String>, why: &str) {
    assert!(outcome.as_ref().is_err_and(|text| text.contains(why)), "{outcome:?}");
}

/// Asks a clone of the ledger, as each request of a process has one.
async fn is_valid(ledger: &Ledger, n: u32) -> bool {
    let ledger = ledger.clone();
    ledger.active_api_key(&hash(n)).await.unwrap().is_some()
}

async fn view(ledger: &Ledger, n: u32) -> KeyView {
    let keys = ledger.api_keys(None, None).await.unwrap();
    keys.into_iter().find(|key| key.id == id(n)).unwrap()
}

/// Seconds from the key's creation to its expiry.
fn lifetime_s(view: &KeyView) -> i64 {
    view.expires_at.unwrap().duration_since(view.created_at).as_secs()
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_api_key_is_found_by_its_hash_with_its_scopes(pool: PgPool) {
    let ledger = Ledger::new(pool);
    store(&ledger, 1, None).await;
    let key = ledger.active_api_key(&hash(1)).await.unwrap().unwrap();
    assert_eq!((key.id, key.caller, key.scopes), (id(1), caller("acme", "shop"), pay_and_read()));
    assert!(!is_valid(&ledger, 2).await);

    // Storing the same key for another tenant and with more scopes changes nothing.
    let (other, all, this) = (caller("globex", "shop"), Scopes::all(), hash(1));
    let again =
        NewKey { id: &id(2), hash: &this, prefix: "x", caller: &other, scopes: &all, lifetime_s: None };
    ledger.insert_api_key(&again).await.unwrap();
    let key = ledger.active_api_key(&hash(1)).await.unwrap().unwrap();
    assert_eq!((key.id, key.caller, key.scopes), (id(1), caller("acme", "shop"), pay_and_read()));
    // Another key under an existing id is refused.
    let (one, hash) = (id(1), hash(3));
    let taken = NewKey { id: &one, hash: &hash, ..again };
    assert!(matches!(ledger.insert_api_key(&taken).await, Err(LedgerError::Refused(_))));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_api_key_expires_by_the_databases_clock(pool: PgPool) {
    let ledger = Ledger::new(pool.clone());
    store(&ledger, 1, Some(DAY_S)).await;
    assert!(is_valid(&ledger, 1).await);
    assert_eq!(lifetime_s(&view(&ledger, 1).await), DAY_S);
    sqlx::query("UPDATE api_keys SET expires_at = clock_timestamp()").execute(&pool).await.unwrap();
    assert!(!is_valid(&ledger, 1).await);
    assert_eq!(view(&ledger, 1).await.status, KeyStatus::Expired);
    barred(rotate(&ledger, 1, 2, 0).await, "is expired");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn rotated_api_keys_overlap_and_rotation_never_extends_their_life(pool: PgPool) {
    let ledger = Ledger::new(pool);
    store(&ledger, 1, None).await;
    let (old, new) = rotated(&ledger, 1, 2, DAY_S).await;
    assert_eq!((old.rotated_to.clone(), new.rotated_to.clone()), (Some(id(2)), None));
    assert_eq!((&new.caller, &new.scopes, new.expires_at), (&old.caller, &old.scopes, None));
    assert!((DAY_S - 60..=DAY_S + 60).contains(&lifetime_s(&old)), "{old:?}");
    assert!(
        is_valid(&ledger, 1).await && is_valid(&ledger, 2).await,
        "both keys must be valid during the overlap"
    );
    barred(rotate(&ledger, 1, 3, DAY_S).await, "rotate its successor pk_000000000002");
    barred(rotate(&ledger, 9, 3, DAY_S).await, "there is no API key");
    assert!(!is_valid(&ledger, 3).await, "a refused rotation stored a key");

    // Without overlap the old key expires at once.
    rotate(&ledger, 2, 3, 0).await.unwrap();
    assert!(!is_valid(&ledger, 2).await && is_valid(&ledger, 3).await);

    // The overlap ends with the old key's expiry; the successor has the old key's lifetime.
    store(&ledger, 4, Some(3_600)).await;
    let (old, new) = rotated(&ledger, 4, 5, DAY_S).await;
    assert_eq!((lifetime_s(&old), lifetime_s(&new)), (3_600, 3_600));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_api_key_revocation_is_immediate_and_final(pool: PgPool) {
    let ledger = Ledger::new(pool);
    store(&ledger, 1, None).await;
    rotate(&ledger, 1, 2, DAY_S).await.unwrap();
    revoke(&ledger, 1).await.unwrap();
    assert_eq!(view(&ledger, 1).await.status, KeyStatus::Revoked);
    assert!(
        !is_valid(&ledger, 1).await && is_valid(&ledger, 2).await,
        "expected the successor to stay valid"
    );
    barred(revoke(&ledger, 1).await, "was revoked before");
    barred(revoke(&ledger, 9).await, "there is no API key");
    barred(rotate(&ledger, 1, 3, DAY_S).await, "was revoked before");
    store(&ledger, 1, None).await;
    assert!(!is_valid(&ledger, 1).await, "storing the key again made it valid");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_ledger_lists_api_keys_by_tenant_and_client(pool: PgPool) {
    let ledger = Ledger::new(pool);
    for (n, tenant, client) in [(3, "globex", "shop"), (1, "acme", "shop"), (2, "acme", "till")] {
        let (id, hash, caller, scopes) = (id(n), hash(n), caller(tenant, client), Scopes::all());
        let key =
            NewKey { id: &id, hash: &hash, prefix: "p", caller: &caller, scopes: &scopes, lifetime_s: None };
        ledger.insert_api_key(&key).await.unwrap();
    }
    let listed = async |tenant: Option<&str>, client: Option<&str>| {
        let tenant = tenant.map(|tenant| TenantId::new(tenant).unwrap());
        let client = client.map(|client| ClientId::new(client).unwrap());
        let keys = ledger.api_keys(tenant.as_ref(), client.as_ref()).await.unwrap();
        keys.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, None).await, [id(1), id(2), id(3)]);
    assert_eq!(listed(Some("acme"), None).await, [id(1), id(2)]);
    assert_eq!(listed(None, Some("shop")).await, [id(1), id(3)]);
    assert_eq!(listed(Some("acme"), Some("till")).await, [id(2)]);
    assert_eq!(listed(Some("nobody"), None).await, []);
}

/// The database refuses to change a key's owner or hash, to add scopes, to extend its life, to undelete or to delete it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_rejects_forbidden_changes_to_an_api_key(pool: PgPool) {
    let ledger = Ledger::new(pool.clone());
    store(&ledger, 1, Some(DAY_S)).await;
    rotate(&ledger, 1, 2, DAY_S).await.unwrap();
    store(&ledger, 3, None).await;
    revoke(&ledger, 3).await.unwrap();
    let (first, revoked) = ("WHERE id = 'pk_000000000001'", "WHERE id = 'pk_000000000003'");
    for statement in [
        format!("UPDATE api_keys SET tenant_id = 'globex' {first}"),
        format!("UPDATE api_keys SET client_id = 'till' {first}"),
        format!("UPDATE api_keys SET scopes = '{{pay,read,webhooks}}' {first}"),
        format!("UPDATE api_keys SET key_hash = 'x' {first}"),
        format!("UPDATE api_keys SET id = 'pk_00000000000a' {first}"),
        format!("UPDATE api_keys SET expires_at = NULL {first}"),
        format!("UPDATE api_keys SET expires_at = expires_at + interval '1 s' {first}"),
        format!("UPDATE api_keys SET rotated_to = NULL {first}"),
        format!("UPDATE api_keys SET rotated_to = 'pk_000000000003' {first}"),
        format!("UPDATE api_keys SET revoked_at = NULL {revoked}"),
        format!("UPDATE api_keys SET revoked_at = revoked_at + interval '1 h' {revoked}"),
        format!("DELETE FROM api_keys {revoked}"),
        "TRUNCATE api_keys".into(),
        "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes)
         VALUES ('pk_00000000000b', 'b', 'p', 't', 'c', '{}')"
            .into(),
        "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes)
         VALUES ('pk_00000000000b', 'b', 'p', 't', 'c', '{pay,rule}')"
            .into(),
    ] {
        let error = sqlx::query(AssertSqlSafe(statement.clone())).execute(&pool).await.unwrap_err();
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
        assert!(code.starts_with("23"), "{statement}: {error}");
    }
    sqlx::query(AssertSqlSafe(format!("UPDATE api_keys SET expires_at = now() {first}")))
        .execute(&pool)
        .await
        .expect("the expiry can be brought forward");
}

/// While one lookup waits for the database, the others wait for the next statement, without a connection; a caller that goes away ends none
/// of them.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_lookups_of_api_keys_share_a_statement(pool: PgPool) {
    let ledger = Ledger::new(pool.clone());
    store(&ledger, 1, None).await;
    store(&ledger, 2, None).await;
    let mut revocation = pool.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE api_keys").execute(&mut *revocation).await.unwrap();

    let mut first = Box::pin(is_valid(&ledger, 2));
    assert!(poll!(&mut first).is_pending());
    let is_waiting = async { while waiting_statements(&pool).await == 0 {} };
    tokio::time::timeout(WITHIN, is_waiting).await.expect("the first lookup waits for the lock");
    let mut others = Box::pin(join_all([1, 2, 3, 1, 2, 3].map(|n| is_valid(&ledger, n))));
    assert!(poll!(&mut others).is_pending());
    drop(first);
    // Those of the revocation and of the first lookup remain; others may still be on their way back to the pool.
    let only_two_are_used = async {
        while pool.size() as usize - pool.num_idle() > 2 {
            assert!(poll!(&mut others).is_pending());
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WITHIN, only_two_are_used).await.expect("the waiting lookups use no connection");
    sqlx::query("UPDATE api_keys SET revoked_at = now() WHERE key_hash = $1")
        .bind(hash(1))
        .execute(&mut *revocation)
        .await
        .unwrap();
    revocation.commit().await.unwrap();
    assert_eq!(others.await, [false, true, false, false, true, false]);
    assert!(is_valid(&ledger, 2).await);
}

/// Statements of this database that wait for a lock.
async fn waiting_statements(pool: &PgPool) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    sqlx::query_scalar(count).fetch_one(pool).await.unwrap()
}

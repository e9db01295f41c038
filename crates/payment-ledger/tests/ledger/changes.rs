//! `operator::changes`: what operators change with one pair of eyes or two, in their sessions, with the rights of operator-api only.

use crate::support::{Bank, account_id, log_in, operator_api};
use iso_currency::Currency;
use jiff::{SignedDuration, Timestamp};
use payment_ledger::access::api_keys::{ApiKeyScope, KeyStatus, Scopes};
use payment_ledger::access::operators::{OperatorIdentity, OperatorRole};
use payment_ledger::admission::kill_switches::KillSwitchTarget;
use payment_ledger::admission::limits::{LimitBounds, LimitScope};
use payment_ledger::operator::changes::{
    Change, ChangeError, ChangeFilter, ChangeStatus, ChangeView, ChangedKey,
};
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::ids::{AccountId, ClientId, KeyId, SwitchName, TenantId};
use payment_protocol::money::Money;
use sha2::{Digest as _, Sha256};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const OPEN: ChangeFilter = ChangeFilter { only_open: true, limit: 10 };

/// Ann proposes, bob confirms, eve reads; max has both roles; amy and abe are administrators. Each acts with the rights of operator-api in a session.
struct Staff {
    owner: Bank,
    api: Bank,
    ann: Ledger,
    bob: Ledger,
    eve: Ledger,
    max: Ledger,
    amy: Ledger,
    abe: Ledger,
}

impl Staff {
    async fn new(connect: &PgConnectOptions) -> Self {
        use OperatorRole::{Administrator, Approver, Operator, Viewer};
        let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
        let api = operator_api(connect).await;
        for (name, roles) in [
            ("ann", &[Operator][..]),
            ("bob", &[Approver]),
            ("eve", &[Viewer]),
            ("max", &[Operator, Approver]),
            ("amy", &[Administrator]),
            ("abe", &[Administrator]),
        ] {
            owner.create_operator(name, roles).await;
        }
        let acting = async |name| api.ledger.acting_in(log_in(&api.ledger, name).await);
        let (ann, bob, eve, max) =
            (acting("ann").await, acting("bob").await, acting("eve").await, acting("max").await);
        let (amy, abe) = (acting("amy").await, acting("abe").await);
        Self { owner, api, ann, bob, eve, max, amy, abe }
    }

    async fn read(&self, id: &str) -> ChangeView {
        self.api.ledger.change(id).await.unwrap().unwrap()
    }

    /// Proposes a change of one operator: it is made at once.
    async fn made_by_one(&self, change: Change) -> ChangeView {
        let id = self.ann.propose_change(&change, "a customer's letter").await.unwrap();
        let view = self.read(&id).await;
        assert_eq!((view.status, view.needs_two), (ChangeStatus::Done, false), "{view:?}");
        assert_eq!(view.confirmed_by.as_deref(), Some("ann"));
        view
    }

    /// Proposes a change of two operators: nothing is changed before another one confirms it.
    async fn proposed(&self, change: &Change) -> String {
        let id = self.ann.propose_change(change, "a customer's letter").await.unwrap();
        let view = self.read(&id).await;
        assert_eq!((view.status, view.needs_two), (ChangeStatus::Proposed, true), "{view:?}");
        // A repeat is the same proposal.
        assert_eq!(self.ann.propose_change(change, "a customer's letter").await.unwrap(), id);
        id
    }

    async fn confirmed(&self, id: &str) {
        self.bob.confirm_change(id, "seen").await.unwrap();
        // A repeat has no further effect.
        self.bob.confirm_change(id, "seen").await.unwrap();
        let view = self.read(id).await;
        assert_eq!((view.status, view.confirmed_by.as_deref()), (ChangeStatus::Done, Some("bob")));
    }

    async fn barred(&self, change: Change) -> String {
        match self.ann.propose_change(&change, "r").await {
            Err(ChangeError::Barred(why)) => why,
            other => panic!("{change:?}: {other:?}"),
        }
    }

    /// Waits until a statement waits for a lock.
    async fn waits_for_a_lock(&self) {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while self.owner.number(waiting).await == 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn available(&self, account: &AccountId) -> i64 {
        let account = self.api.ledger.account(&tenant(), account).await.unwrap();
        account.unwrap().available_minor
    }
}

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn eur(minor: i64) -> Money {
    Money::from_minor(minor, Currency::EUR).unwrap()
}

fn key(digit: char) -> ChangedKey {
    let id = KeyId::new(format!("pk_{}", digit.to_string().repeat(12))).unwrap();
    ChangedKey { id, hash: [u8::try_from(digit).unwrap(); 32] }
}

#[track_caller]
fn not_allowed<T: std::fmt::Debug>(outcome: Result<T, ChangeError>) {
    match outcome {
        Err(ChangeError::Ledger(error)) => assert!(error.is_not_allowed(), "{error:?}"),
        other => panic!("{other:?}"),
    }
}

/// An account is opened and frozen by one operator; money and its use take two.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_deposit_and_an_unfreeze_take_two_operators(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let (tenant, account) = (tenant(), account_id("acc-new"));
    let open =
        Change::OpenAccount { tenant: tenant.clone(), account: account.clone(), currency: Currency::EUR };
    // A repeat opens nothing.
    for _ in 0..2 {
        staff.made_by_one(open.clone()).await;
    }
    let elsewhere =
        Change::OpenAccount { tenant: tenant.clone(), account: account.clone(), currency: Currency::JPY };
    assert!(staff.barred(elsewhere).await.contains("exists already"));

    let fund =
        |minor| Change::FundAccount { tenant: tenant.clone(), account: account.clone(), money: eur(minor) };
    let id = staff.proposed(&fund(1_000)).await;
    assert_eq!(staff.available(&account).await, 0, "nothing is deposited by one operator");
    for operator in [&staff.ann, &staff.eve] {
        not_allowed(operator.confirm_change(&id, "r").await);
    }
    staff.confirmed(&id).await;
    assert_eq!(staff.available(&account).await, 1_000, "deposited once");
    // Four eyes, also for who has both roles.
    let own = staff.max.propose_change(&fund(500), "r").await.unwrap();
    let refused = staff.max.confirm_change(&own, "r").await;
    assert!(matches!(refused, Err(ChangeError::SameOperator(_))), "{refused:?}");
    staff.ann.withdraw_change(&own, "a mistake").await.unwrap();
    staff.bob.withdraw_change(&own, "a mistake").await.unwrap();
    let refused = staff.bob.confirm_change(&own, "r").await;
    assert!(matches!(refused, Err(ChangeError::Barred(_))), "{refused:?}");
    assert_eq!(staff.available(&account).await, 1_000);

    let freeze = Change::FreezeAccount { tenant: tenant.clone(), account: account.clone() };
    let unfreeze = Change::UnfreezeAccount { tenant: tenant.clone(), account: account.clone() };
    assert!(staff.barred(unfreeze.clone()).await.contains("is not frozen"));
    staff.made_by_one(freeze.clone()).await;
    assert!(staff.barred(freeze).await.contains("is frozen already"));
    let id = staff.proposed(&unfreeze).await;
    let status = async || staff.api.ledger.account(&tenant, &account).await.unwrap().unwrap().status;
    assert_eq!(status().await, "frozen");
    let open = staff.api.ledger.changes(OPEN).await.unwrap();
    assert_eq!(open.iter().map(|change| &change.change_id).collect::<Vec<_>>(), [&id]);
    staff.confirmed(&id).await;
    assert_eq!(status().await, "active");

    let other = TenantId::new("other").unwrap();
    let foreign = Change::FundAccount { tenant: other, account: account.clone(), money: eur(1) };
    assert!(staff.barred(foreign).await.contains("has no account"));
    let yen = Money::from_minor(1, Currency::JPY).unwrap();
    let wrong = Change::FundAccount { tenant, account, money: yen };
    assert!(staff.barred(wrong).await.contains("is in EUR, not in JPY"));
    staff.owner.audit().await;
}

/// An emergency stop takes one operator, its end two; a limit is lowered by one operator, and raised by two.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_stops_money_takes_one_operator_and_what_lets_it_move_two(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let staff = Staff::new(&connect).await;
    let stop = Change::ActivateKillSwitch(KillSwitchTarget::Switch(SwitchName::new("mock").unwrap()));
    staff.made_by_one(stop.clone()).await;
    assert!(staff.barred(stop).await.contains("does so already"));
    let corridor = KillSwitchTarget::Corridor { currency: Currency::EUR, destination_prefix: "FR".into() };
    staff.made_by_one(Change::ActivateKillSwitch(corridor)).await;
    let active = staff.api.ledger.kill_switches(false, 10).await.unwrap();
    assert_eq!((active.len(), active[1].activated_by.as_str()), (2, "ann"));
    let lift = Change::LiftKillSwitch { kill_switch_id: active[1].kill_switch_id };
    let id = staff.proposed(&lift).await;
    assert_eq!(staff.api.ledger.kill_switches(false, 10).await.unwrap().len(), 2);
    staff.confirmed(&id).await;
    assert_eq!(staff.api.ledger.kill_switches(false, 10).await.unwrap().len(), 1);
    assert!(staff.barred(lift).await.contains("is not active"));

    let account = account_id("acc-limited");
    let limit = |per_day_minor, per_day_count| Change::SetLimit {
        scope: LimitScope::Account(account.clone()),
        currency: Currency::EUR,
        bounds: LimitBounds { per_payment_minor: None, per_day_minor, per_day_count },
    };
    assert!(staff.barred(limit(Some(1), None)).await.contains("there is no account"));
    staff
        .made_by_one(Change::OpenAccount {
            tenant: tenant(),
            account: account.clone(),
            currency: Currency::EUR,
        })
        .await;
    staff.made_by_one(limit(Some(1_000), None)).await;
    staff.made_by_one(limit(Some(900), Some(5))).await;
    let in_force = async || staff.api.ledger.limits(10).await.unwrap().first().map(|limit| limit.bounds);
    for (raised, bounds) in [
        (limit(Some(901), Some(5)), Some((Some(901), Some(5)))),
        // Lower and higher at once.
        (limit(Some(1), Some(6)), Some((Some(1), Some(6)))),
        (limit(None, None), None),
    ] {
        let before = in_force().await;
        let id = staff.proposed(&raised).await;
        assert_eq!(in_force().await, before);
        staff.confirmed(&id).await;
        let after = in_force().await.map(|limit| (limit.per_day_minor, limit.per_day_count));
        assert_eq!(after, bounds);
    }
}

/// A key authenticates nobody before another operator confirms it, and is revoked by one.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_api_key_takes_two_operators_and_its_revocation_one(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let scopes = Scopes::new([ApiKeyScope::Pay, ApiKeyScope::Read]).unwrap();
    let client = ClientId::new("shop").unwrap();
    let create = |key: ChangedKey| Change::CreateApiKey {
        key,
        tenant: tenant(),
        client: client.clone(),
        scopes: scopes.clone(),
        lifetime_s: Some(3_600),
    };
    let (one, two) = (key('1'), key('2'));
    let id = staff.proposed(&create(one.clone())).await;
    assert!(
        staff.owner.ledger.active_api_key(&one.hash).await.unwrap().is_none(),
        "not before the confirmation"
    );
    staff.confirmed(&id).await;
    let active = staff.owner.ledger.active_api_key(&one.hash).await.unwrap().unwrap();
    assert_eq!((active.caller.client, active.scopes), (client.clone(), scopes.clone()));
    assert!(staff.barred(create(one.clone())).await.contains("exists already"));

    let rotate = Change::RotateApiKey { key_id: one.id.clone(), successor: two.clone(), overlap_s: 60 };
    let id = staff.proposed(&rotate).await;
    staff.confirmed(&id).await;
    assert!(staff.barred(rotate).await.contains("rotated before"));
    staff.made_by_one(Change::RevokeApiKey { key_id: two.id.clone() }).await;
    assert!(staff.owner.ledger.active_api_key(&two.hash).await.unwrap().is_none());
    let keys = staff.api.ledger.api_keys(None, None).await.unwrap();
    let status: Vec<_> = keys.iter().map(|key| (&key.id, key.status)).collect();
    assert_eq!(status, [(&one.id, KeyStatus::Active), (&two.id, KeyStatus::Revoked)]);
    let unknown = Change::RevokeApiKey { key_id: KeyId::new("pk_000000000000").unwrap() };
    assert!(staff.barred(unknown).await.contains("there is no API key"));
}

/// Another Temporal namespace than the recorded one takes two operators; a proposal that another one came before is stale.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn another_temporal_namespace_takes_two_operators(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let accept = |id: &str| Change::AcceptTemporalNamespace { namespace_id: id.into() };
    let recorded = async |connected| staff.owner.ledger.temporal_namespace(connected).await.unwrap();
    assert_eq!(recorded("first").await, "first");
    assert_eq!(recorded("other").await, "first");
    assert!(staff.barred(accept("first")).await.contains("the accepted one already"));
    assert!(staff.barred(accept(" ")).await.contains("has an id"));
    let (other, third) = (staff.proposed(&accept("other")).await, staff.proposed(&accept("third")).await);
    assert_eq!(recorded("other").await, "first");
    staff.confirmed(&other).await;
    assert_eq!(recorded("first").await, "other");
    assert_eq!(staff.read(&third).await.status, ChangeStatus::Withdrawn);
    // An earlier one may be accepted again.
    let back = staff.proposed(&accept("first")).await;
    staff.confirmed(&back).await;
    let history =
        "SELECT concat_ws(' ', number, namespace_id, accepted_by) FROM temporal_namespaces ORDER BY number";
    assert_eq!(staff.owner.words(history).await, ["1 first payment-worker", "2 other bob", "3 first bob"]);
}

/// Nobody gets back what is erased: two operators, and once until it is done.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_erasure_takes_two_operators(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let (tenant, account) = (tenant(), account_id("acc-new"));
    let erase = Change::EraseAccount { tenant: tenant.clone(), account: account.clone() };
    assert!(staff.barred(erase.clone()).await.contains("has no account"));
    let open = Change::OpenAccount { tenant, account: account.clone(), currency: Currency::EUR };
    staff.made_by_one(open).await;
    let (id, twice) = (staff.proposed(&erase).await, staff.max.propose_change(&erase, "r").await.unwrap());
    let erasure = async || staff.api.ledger.erasure(&account).await.unwrap();
    assert_eq!(erasure().await, None, "nothing is erased by one operator");
    staff.confirmed(&id).await;
    assert_eq!(erasure().await.map(|erasure| (erasure.payments, erasure.done_at)), Some((0, None)));
    assert_eq!(staff.read(&twice).await.status, ChangeStatus::Withdrawn);
    assert!(staff.barred(erase.clone()).await.contains("goes on"));
    staff.owner.sql("UPDATE erasures SET next_look_at = '-infinity'").await;
    while staff.owner.ledger.go_on_with_erasure(std::time::Duration::ZERO).await.unwrap().is_some() {}
    assert!(erasure().await.is_some_and(|erasure| erasure.done_at.is_some()));
    let again = staff.proposed(&erase).await;
    staff.confirmed(&again).await;
    assert!(erasure().await.is_some_and(|erasure| erasure.done_at.is_none()));
}

/// Events and webhook deliveries take one operator, who is recorded with the reason; what is not there is refused in words.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn events_and_webhook_deliveries_take_one_operator(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let endpoint = format!("whe_{}", "1".repeat(32));
    sqlx::raw_sql(
        "INSERT INTO webhook_endpoints (endpoint_id, tenant_id, url, secret_check)
             VALUES ('whe_11111111111111111111111111111111', 'acme', 'https://x.example/', ''), ('whe_22222222222222222222222222222222', 'acme', 'https://x.example/', '');
         INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, state, ended_at, next_attempt_at, lease)
             VALUES ('whe_11111111111111111111111111111111', 'failed', 'k', '{}', 'failed', now(), now(), NULL),
                    ('whe_11111111111111111111111111111111', 'in flight', 'k', '{}', 'pending', NULL, now() + interval '1 hour', gen_random_uuid());
         INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body, published_at, parked_at, rejections, rejection)
             VALUES ('parked', 'k', 1, 'key', 1, '{}', NULL, now(), 5, 'too large'), ('published', 'k', 1, 'other', 1, '{}', now(), NULL, 0, NULL);
         INSERT INTO parked_deliveries (consumer, stream, stream_sequence, published_at, subject, payload, reason, deliveries)
             VALUES ('notifier', 'PAYMENTS', 7, now(), 's', '{', 'not an event', 5)",
    )
    .execute(staff.owner.ledger.pool())
    .await
    .unwrap();
    let (since, until) = (Timestamp::UNIX_EPOCH, Timestamp::now() + SignedDuration::from_secs(30));
    let replay =
        |event: &str| Change::ReplayDelivery { endpoint_id: endpoint.clone(), event_id: event.into() };
    let replay_failed =
        Change::ReplayFailedDeliveries { endpoint_id: endpoint.clone(), since, failed_before: until };
    let disable = Change::DisableEndpoint { endpoint_id: endpoint.clone() };
    let enable = Change::EnableEndpoint { endpoint_id: endpoint.clone() };
    let retry = Change::RetryEvent { event_id: "parked".into() };
    let republish = Change::RepublishEvents { since, published_before: until };
    let discard =
        Change::DiscardMessage { consumer: "notifier".into(), stream: "PAYMENTS".into(), stream_sequence: 7 };

    assert_eq!(staff.made_by_one(replay_failed.clone()).await.detail.as_deref(), Some("1 queued"));
    assert_eq!(staff.made_by_one(replay_failed.clone()).await.detail.as_deref(), Some("0 queued"));
    staff.made_by_one(replay("failed")).await;
    assert!(staff.barred(replay("in flight")).await.contains("it is in flight"));
    staff.made_by_one(disable.clone()).await;
    for refused in [replay("failed"), replay_failed] {
        assert!(staff.barred(refused).await.contains("is disabled"));
    }
    assert_eq!(staff.made_by_one(enable.clone()).await.detail, None);
    assert!(staff.barred(enable).await.contains("is not disabled"));
    let unknown = Change::DisableEndpoint { endpoint_id: "whe_3".into() };
    assert!(staff.barred(unknown).await.contains("there is no webhook endpoint whe_3"));

    staff.made_by_one(retry.clone()).await;
    assert_eq!(staff.barred(retry).await, "event parked is not parked");
    assert_eq!(staff.made_by_one(republish.clone()).await.detail.as_deref(), Some("1 queued"));
    assert_eq!(staff.made_by_one(republish).await.detail.as_deref(), Some("0 queued"));
    for (since, published_before) in [(since, until + SignedDuration::from_mins(1)), (until, since)] {
        let wrong = staff.barred(Change::RepublishEvents { since, published_before }).await;
        assert!(wrong.contains("not in the future"), "{wrong}");
    }
    staff.made_by_one(discard.clone()).await;
    assert!(staff.barred(discard).await.contains("is not parked"));

    for (changed, expected) in [
        (
            "SELECT count(*) || ' ' || min(endpoint_id) FROM webhook_endpoints WHERE status = 'active'",
            format!("2 {endpoint}"),
        ),
        (
            "SELECT string_agg(event_id, ' ' ORDER BY event_id) FROM webhook_deliveries WHERE state = 'pending' AND failed_attempts = 0",
            "failed in flight".into(),
        ),
        (
            "SELECT count(*)::text FROM outbox WHERE published_at IS NULL AND parked_at IS NULL AND rejections = 0",
            "2".into(),
        ),
        (
            "SELECT concat_ws(' ', discarded_by, discarded_reason) FROM parked_deliveries",
            "ann a customer's letter".into(),
        ),
    ] {
        assert_eq!(staff.owner.words(changed).await, [expected], "{changed}");
    }
    not_allowed(staff.bob.propose_change(&disable, "r").await);
}

/// A proposal that became impossible is refused at its confirmation, changes nothing, and can be withdrawn.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_change_that_became_impossible_is_refused_at_its_confirmation(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let staff = Staff::new(&connect).await;
    let (one, two) = (key('1'), key('2'));
    let create = |key: &ChangedKey| Change::CreateApiKey {
        key: key.clone(),
        tenant: tenant(),
        client: ClientId::new("shop").unwrap(),
        scopes: Scopes::all(),
        lifetime_s: None,
    };
    let created = staff.proposed(&create(&one)).await;
    staff.confirmed(&created).await;
    let rotation =
        staff.proposed(&Change::RotateApiKey { key_id: one.id.clone(), successor: two, overlap_s: 0 }).await;
    staff.made_by_one(Change::RevokeApiKey { key_id: one.id }).await;
    let refused = staff.bob.confirm_change(&rotation, "r").await;
    assert!(matches!(&refused, Err(ChangeError::Barred(why)) if why.contains("revoked")), "{refused:?}");
    staff.bob.withdraw_change(&rotation, "the key is revoked").await.unwrap();
    assert_eq!(staff.read(&rotation).await.withdrawn_by.as_deref(), Some("bob"));
    let unknown = staff.bob.confirm_change("chg_\0", "r").await;
    assert!(matches!(unknown, Err(ChangeError::Unknown(_))), "{unknown:?}");
    for reason in ["", " \n", "a\u{202e}b", "a\0b", &"x".repeat(2_001)] {
        let unreasoned = staff.bob.confirm_change(&created, reason).await;
        assert!(matches!(unreasoned, Err(ChangeError::Text(_))), "{reason:?}: {unreasoned:?}");
        let unreasoned = staff.ann.propose_change(&create(&key('3')), reason).await;
        assert!(matches!(unreasoned, Err(ChangeError::Text(_))), "{reason:?}: {unreasoned:?}");
    }
}

/// Confirmations at the same moment make the change once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_confirmations_deposit_once(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let account = account_id("acc-new");
    let open = Change::OpenAccount { tenant: tenant(), account: account.clone(), currency: Currency::EUR };
    staff.made_by_one(open).await;
    let fund = Change::FundAccount { tenant: tenant(), account: account.clone(), money: eur(7) };
    let id = staff.proposed(&fund).await;
    let outcomes = futures::future::join_all((0..8).map(|n| {
        let operator = if n % 2 == 0 { &staff.bob } else { &staff.max };
        operator.confirm_change(&id, "seen")
    }));
    let done = outcomes.await.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(done, 4, "those of one operator");
    assert_eq!(staff.available(&account).await, 7);
    staff.owner.audit().await;
}

/// Without a session, with one that has ended or without the role nothing is changed; the role cannot go around the functions; the audit log
/// names who acted, and has no hash of a key.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_change_is_bound_to_the_session_of_its_operator(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let account = account_id("acc-new");
    let open = Change::OpenAccount { tenant: tenant(), account: account.clone(), currency: Currency::EUR };
    not_allowed(staff.api.ledger.propose_change(&open, "r").await);
    not_allowed(staff.bob.propose_change(&open, "r").await);
    not_allowed(staff.eve.propose_change(&open, "r").await);
    staff.made_by_one(open).await;
    let freeze = Change::FreezeAccount { tenant: tenant(), account: account.clone() };
    staff.made_by_one(freeze).await;
    let unfreeze = staff.proposed(&Change::UnfreezeAccount { tenant: tenant(), account }).await;
    not_allowed(staff.eve.withdraw_change(&unfreeze, "r").await);
    let new_key = Change::CreateApiKey {
        key: key('1'),
        tenant: tenant(),
        client: ClientId::new("shop").unwrap(),
        scopes: Scopes::all(),
        lifetime_s: None,
    };
    staff.proposed(&new_key).await;
    for sql in [
        "UPDATE accounts SET status = 'active'",
        "UPDATE changes SET status = 'done'",
        "INSERT INTO changes (kind, arguments, needs_two, reason, proposed_by) VALUES ('freeze_account', '{}', false, 'r', 'ann')",
        "SELECT key_hash FROM changes",
        "SELECT key_hash FROM api_keys",
        "SELECT apply_change('chg_1', 'unfreeze_account', '{\"account_id\": \"acc-new\"}', NULL, 'ann', 'r')",
        "SELECT lock_changes('', '{}')",
        "DO $$ BEGIN LOCK TABLE change_lock IN ACCESS SHARE MODE; END $$",
        "SELECT make_change('chg_1', 'ann', 'r', true)",
        "INSERT INTO kill_switches (switch, activated_by, reason) VALUES ('mock', 'ann', 'r')",
        "INSERT INTO limits (scope, scope_id, currency, set_by, reason) VALUES ('tenant', 'acme', 'EUR', 'ann', 'r')",
        "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes) VALUES ('pk_000000000000', '', '', 'a', 'b', '{pay}')",
    ] {
        assert_eq!(staff.api.refused(sql).await.0, "42501", "{sql}");
    }
    for sql in ["UPDATE changes SET reason = 'another'", "DELETE FROM changes", "TRUNCATE changes"] {
        assert_eq!(staff.owner.refused(sql).await.0, "23001", "{sql}");
    }
    staff.owner.sql("UPDATE operator_sessions SET ended_at = clock_timestamp() WHERE operator = 'bob'").await;
    not_allowed(staff.bob.confirm_change(&unfreeze, "r").await);
    assert_eq!(staff.read(&unfreeze).await.status, ChangeStatus::Proposed);

    let named = staff
        .owner
        .number("SELECT count(*) FROM audit_log WHERE object = 'accounts' AND action = 'update' AND operator = 'ann' AND login <> 'ann'")
        .await;
    assert_eq!(named, 1, "the freeze");
    let hashes = staff.owner.number("SELECT count(*) FROM audit_log WHERE after ? 'key_hash'").await;
    assert_eq!(hashes, 0);
    let ledger = staff.owner.ledger.clone();
    assert!(matches!(
        ledger.propose_change(&new_key, "r").await,
        Err(ChangeError::Ledger(LedgerError::Unavailable(_)))
    ));
}

/// A stop is not lifted by the confirmation of an earlier proposal, and a limit is raised by nothing that did not know it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_newer_change_withdraws_the_open_ones_about_the_same(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let account = account_id("acc-new");
    let open = Change::OpenAccount { tenant: tenant(), account: account.clone(), currency: Currency::EUR };
    staff.made_by_one(open).await;
    let freeze = Change::FreezeAccount { tenant: tenant(), account: account.clone() };
    let unfreeze = Change::UnfreezeAccount { tenant: tenant(), account: account.clone() };
    staff.made_by_one(freeze.clone()).await;
    let (first, second) =
        (staff.proposed(&unfreeze).await, staff.max.propose_change(&unfreeze, "r").await.unwrap());
    staff.confirmed(&first).await;
    staff.made_by_one(freeze).await;
    let stale = staff.bob.confirm_change(&second, "r").await;
    assert!(matches!(&stale, Err(ChangeError::Barred(why)) if why.contains("withdrawn by bob")), "{stale:?}");
    assert!(staff.read(&second).await.detail.unwrap().contains(&first));
    let status = staff.api.ledger.account(&tenant(), &account).await.unwrap().unwrap().status;
    assert_eq!(status, "frozen");

    let limit = |per_day_minor| Change::SetLimit {
        scope: LimitScope::Account(account.clone()),
        currency: Currency::EUR,
        bounds: LimitBounds { per_day_minor: Some(per_day_minor), ..LimitBounds::default() },
    };
    staff.made_by_one(limit(1_000)).await;
    let raise = staff.proposed(&limit(5_000)).await;
    assert_eq!(staff.read(&raise).await.before.unwrap()["per_day_minor"], 1_000);
    staff.made_by_one(limit(0)).await;
    let stale = staff.bob.confirm_change(&raise, "r").await;
    assert!(matches!(stale, Err(ChangeError::Barred(_))), "{stale:?}");
    assert_eq!(staff.api.ledger.limits(1).await.unwrap()[0].bounds.per_day_minor, Some(0));
}

/// Neither a proposal of long ago nor one of an operator who may not propose any more is confirmed.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_old_proposal_and_one_of_a_disabled_operator_are_not_confirmed(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let staff = Staff::new(&connect).await;
    let create = |digit| Change::CreateApiKey {
        key: key(digit),
        tenant: tenant(),
        client: ClientId::new("shop").unwrap(),
        scopes: Scopes::all(),
        lifetime_s: None,
    };
    let (old, orphan) = (staff.proposed(&create('1')).await, staff.proposed(&create('2')).await);
    let age = "SET LOCAL session_replication_role = replica;
        UPDATE changes SET proposed_at = proposed_at - interval '7 days 1 second' WHERE change_id = ";
    staff.owner.sql(&format!("{age} '{old}'")).await;
    let refused = staff.bob.confirm_change(&old, "r").await;
    assert!(
        matches!(&refused, Err(ChangeError::Barred(why)) if why.contains("older than 7 days")),
        "{refused:?}"
    );
    staff.owner.ledger.disable_operator("ann").await.unwrap();
    let refused = staff.bob.confirm_change(&orphan, "r").await;
    assert!(
        matches!(&refused, Err(ChangeError::Barred(why)) if why.contains("may not propose")),
        "{refused:?}"
    );
    assert_eq!(staff.api.ledger.api_keys(None, None).await.unwrap(), []);
}

/// The session counts at the moment of the change, not at that of the call: it ends while the call waits for another operator's.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_session_that_ends_while_its_change_waits_changes_nothing(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let staff = Staff::new(&connect).await;
    let account = account_id("acc-new");
    let open = Change::OpenAccount { tenant: tenant(), account: account.clone(), currency: Currency::EUR };
    staff.made_by_one(open).await;
    let fund = Change::FundAccount { tenant: tenant(), account: account.clone(), money: eur(7) };
    let id = staff.proposed(&fund).await;
    let mut other = staff.owner.pool.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE change_lock IN EXCLUSIVE MODE").execute(&mut *other).await.unwrap();
    let confirming = staff.bob.confirm_change(&id, "r");
    let ended = async {
        staff.waits_for_a_lock().await;
        sqlx::raw_sql(
            "UPDATE operator_sessions SET ended_at = clock_timestamp() WHERE operator = 'bob'; COMMIT",
        )
        .execute(&mut *other)
        .await
        .unwrap();
    };
    let (outcome, ()) = tokio::join!(confirming, ended);
    not_allowed(outcome);
    assert_eq!(staff.available(&account).await, 0);
    // An emergency stop does not wait.
    sqlx::raw_sql("BEGIN; LOCK TABLE change_lock IN EXCLUSIVE MODE").execute(&mut *other).await.unwrap();
    let stop = Change::ActivateKillSwitch(KillSwitchTarget::Switch(SwitchName::new("mock").unwrap()));
    staff.made_by_one(stop).await;
    sqlx::raw_sql("COMMIT").execute(&mut *other).await.unwrap();
}

/// What a process that is taken over may send in place of arguments changes nothing, and is refused with a text.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn malformed_arguments_of_a_change_are_refused(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let proof = async |name| {
        let session = log_in(&staff.api.ledger, name).await;
        Sha256::digest(session.expose().as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let (operator, administrator) = (proof("ann").await, proof("amy").await);
    // A word, a function of the database that makes the change, and a constraint.
    let (barred, refused, unknown) = ("P0001", "23001", "23514");
    for (kind, arguments, code) in [
        ("freeze_account", "{}", barred),
        ("freeze_account", "null", barred),
        ("freeze_account", "[]", barred),
        ("freeze_account", r#"{"account_id": "nobody"}"#, barred),
        ("unfreeze_account", "{}", barred),
        ("fund_account", r#"{"account_id": "nobody", "currency": "EUR", "amount_minor": 5}"#, barred),
        ("open_account", r#"{"account_id": "", "tenant_id": "", "currency": "EUR"}"#, barred),
        ("open_account", r#"{"account_id": "a", "tenant_id": "t"}"#, barred),
        ("open_account", r#"{"account_id": "internal:x", "tenant_id": "t", "currency": "EUR"}"#, barred),
        ("open_account", r#"{"account_id": "a", "tenant_id": "t", "currency": "eur"}"#, barred),
        ("set_limit", r#"{"scope": "tenant", "scope_id": "acme", "currency": "EUR "}"#, barred),
        ("revoke_api_key", "{}", barred),
        ("accept_temporal_namespace", "{}", barred),
        ("disable_endpoint", "{}", refused),
        ("enable_endpoint", "{}", refused),
        ("replay_delivery", "{}", refused),
        ("replay_failed_deliveries", "{}", refused),
        ("retry_event", "{}", refused),
        ("discard_message", "{}", refused),
        ("republish_events", "{}", refused),
        ("anything", "{}", unknown),
        ("create_operator", "{}", barred),
        ("create_operator", r#"{"name": "Ann", "roles": ["viewer"], "issuer": "i", "subject": "s"}"#, barred),
        ("create_operator", r#"{"name": "a b", "roles": ["viewer"], "issuer": "i", "subject": "s"}"#, barred),
        ("create_operator", r#"{"name": "zoe", "roles": ["viewer"]}"#, barred),
        ("create_operator", r#"{"name": "zoe", "roles": [], "issuer": "i", "subject": "s"}"#, barred),
        ("create_operator", r#"{"name": "zoe", "roles": ["root"], "issuer": "i", "subject": "s"}"#, barred),
        ("set_operator_roles", r#"{"name": "ann"}"#, barred),
        ("set_operator_roles", r#"{"name": "ann", "roles": ["viewer", null]}"#, barred),
        ("set_operator_identity", r#"{"name": "ann", "issuer": "i", "subject": "two words"}"#, barred),
        ("set_operator_roles", r#"{"name": "ann", "roles": {"viewer": 1}}"#, barred),
        ("set_operator_roles", r#"{"name": "zoe", "roles": ["viewer"]}"#, barred),
        ("set_operator_identity", r#"{"name": "ann", "issuer": "i"}"#, barred),
        ("disable_operator", "{}", barred),
    ] {
        let proof = if kind.contains("operator") { &administrator } else { &operator };
        let sql = format!(
            "SELECT set_config('payments.operator_session', '{proof}', false);
             DO $$ DECLARE refused text; BEGIN
                 SELECT refusal INTO refused FROM propose_change('{kind}', '{arguments}', NULL, 'r');
                 IF refused IS NOT NULL THEN RAISE EXCEPTION USING MESSAGE = refused, ERRCODE = 'P0001'; END IF;
             END $$"
        );
        assert_eq!(staff.api.refused(&sql).await.0, code, "{kind} {arguments}");
    }
    assert_eq!(staff.owner.number("SELECT count(*) FROM changes").await, 0);
}

/// Two administrators create an operator and change what one may do; one disables an operator. Nobody else does, and administrators do nothing
/// else.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn administrators_manage_operators_and_nothing_else(_: PgPoolOptions, connect: PgConnectOptions) {
    use OperatorRole::{Administrator, Approver, Operator};
    let staff = Staff::new(&connect).await;
    let identity = |subject: &str| OperatorIdentity::new("https://login.example", subject).unwrap();
    let create =
        Change::CreateOperator { name: "zoe".into(), roles: vec![Approver], identity: identity("7") };
    for other in [&staff.ann, &staff.bob, &staff.max, &staff.api.ledger] {
        not_allowed(other.propose_change(&create, "r").await);
    }
    let open =
        Change::OpenAccount { tenant: tenant(), account: account_id("acc-1"), currency: Currency::EUR };
    not_allowed(staff.amy.propose_change(&open, "r").await);
    let proposed = async |change: &Change| {
        let id = staff.amy.propose_change(change, "a new colleague").await.unwrap();
        assert_eq!(staff.read(&id).await.status, ChangeStatus::Proposed, "{change:?}");
        assert!(matches!(staff.amy.confirm_change(&id, "r").await, Err(ChangeError::SameOperator(_))));
        // Who approves payments does not make operators, and reads why.
        for outcome in [staff.bob.confirm_change(&id, "r").await, staff.bob.withdraw_change(&id, "r").await] {
            assert!(
                matches!(outcome, Err(ChangeError::Role(why)) if why.contains("takes the role administrator"))
            );
        }
        not_allowed(staff.eve.confirm_change(&id, "r").await);
        id
    };
    let operator = async |name: &str| {
        let operators = staff.api.ledger.operators().await.unwrap();
        operators.into_iter().find(|operator| operator.name == name)
    };
    let id = proposed(&create).await;
    assert_eq!(operator("zoe").await, None);
    staff.abe.confirm_change(&id, "seen").await.unwrap();
    let zoe = operator("zoe").await.unwrap();
    assert_eq!((zoe.roles, zoe.identity), (vec![Approver], Some(identity("7"))));

    // An identity is one operator.
    let again = Change::CreateOperator { name: "zed".into(), roles: vec![Approver], identity: identity("7") };
    let move_it = Change::SetOperatorIdentity { name: "ann".into(), identity: identity("7") };
    for change in [again, move_it] {
        let refused = staff.amy.propose_change(&change, "r").await;
        assert!(
            matches!(refused, Err(ChangeError::Barred(why)) if why.contains("operator zoe exists already"))
        );
    }

    // Roles at once, in open sessions; another login ends them. What is done withdraws what was open about the same operator.
    let raise = Change::SetOperatorRoles { name: "bob".into(), roles: vec![Operator, Approver] };
    let (id, login) =
        (proposed(&raise).await, Change::SetOperatorIdentity { name: "bob".into(), identity: identity("8") });
    let stale = proposed(&login).await;
    staff.abe.confirm_change(&id, "seen").await.unwrap();
    assert_eq!(staff.read(&stale).await.status, ChangeStatus::Withdrawn);
    let bob = operator("bob").await.unwrap();
    assert_eq!((bob.roles, bob.identity, bob.open_sessions), (vec![Operator, Approver], None, 1));
    staff.bob.propose_change(&open, "r").await.unwrap();
    let id = proposed(&login).await;
    staff.abe.confirm_change(&id, "seen").await.unwrap();
    let bob = operator("bob").await.unwrap();
    assert_eq!((bob.identity, bob.open_sessions), (Some(identity("8")), 0));
    not_allowed(staff.bob.propose_change(&open, "r").await);

    let unknown = staff.amy.confirm_change("chg_nothing", "r").await;
    assert!(matches!(unknown, Err(ChangeError::Unknown(_))));
    let oneself = staff.amy.propose_change(&Change::DisableOperator { name: "amy".into() }, "r").await;
    assert!(matches!(oneself, Err(ChangeError::Barred(why)) if why.contains("nobody disables themselves")));

    // Out at once, also an administrator, whose proposals nobody confirms any more.
    let more = Change::SetOperatorRoles { name: "eve".into(), roles: vec![Administrator] };
    let id = staff.abe.propose_change(&more, "r").await.unwrap();
    let out = staff
        .amy
        .propose_change(&Change::DisableOperator { name: "abe".into() }, "left the bank")
        .await
        .unwrap();
    let out = staff.read(&out).await;
    assert_eq!((out.status, out.needs_two), (ChangeStatus::Done, false));
    assert!(operator("abe").await.unwrap().disabled_at.is_some());
    not_allowed(staff.abe.propose_change(&more, "another reason").await);
    let refused = staff.amy.confirm_change(&id, "r").await;
    assert!(matches!(refused, Err(ChangeError::Barred(why)) if why.contains("may not propose any more")));
    let refused = staff.amy.propose_change(&Change::DisableOperator { name: "abe".into() }, "r").await;
    assert!(matches!(refused, Err(ChangeError::Barred(why)) if why.contains("is disabled")));
}

/// Who confirms a login of their own ends the session that confirms it, and is who did it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_audit_log_names_who_ended_the_own_session(_: PgPoolOptions, connect: PgConnectOptions) {
    let staff = Staff::new(&connect).await;
    let identity = OperatorIdentity::new("https://login.example", "9").unwrap();
    // On another machine.
    log_in(&staff.api.ledger, "abe").await;
    for name in ["bob", "abe"] {
        let login = Change::SetOperatorIdentity {
            name: name.into(),
            identity: OperatorIdentity::new("https://login.example", name).unwrap(),
        };
        let id = staff.amy.propose_change(&login, "r").await.unwrap();
        staff.abe.confirm_change(&id, "seen").await.unwrap();
    }
    not_allowed(
        staff.abe.propose_change(&Change::SetOperatorIdentity { name: "bob".into(), identity }, "r").await,
    );
    let ended = "SELECT operator || ' ' || split_part(subject, '/', 1) FROM audit_log
                 WHERE object = 'operator_sessions' AND action = 'update' ORDER BY entry_id";
    assert_eq!(staff.owner.words(ended).await, ["abe bob", "abe abe", "abe abe"]);
}

/// A login that is under way when its operator gets another login opens no session that outlives the change.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_login_under_way_does_not_outlive_a_change_of_its_operator(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let staff = Staff::new(&connect).await;
    let identity = |subject: &str| OperatorIdentity::new("https://login.example", subject).unwrap();
    let login =
        |subject: &str| Change::SetOperatorIdentity { name: "bob".into(), identity: identity(subject) };
    staff.owner.ledger.set_operator_login("bob", &identity("old").into()).await.unwrap();
    let id = staff.amy.propose_change(&login("new"), "r").await.unwrap();
    let mut under_way = staff.owner.pool.acquire().await.unwrap();
    sqlx::raw_sql(
        "BEGIN; SELECT open_operator_session_of_identity('https://login.example', 'old', sha256('t'), repeat('0', 64), NULL)",
    )
    .execute(&mut *under_way)
    .await
    .unwrap();
    let confirming = staff.abe.confirm_change(&id, "seen");
    let committing = async {
        staff.waits_for_a_lock().await;
        sqlx::raw_sql("COMMIT").execute(&mut *under_way).await.unwrap();
    };
    let (confirmed, ()) = tokio::join!(confirming, committing);
    confirmed.unwrap();
    let open = "SELECT count(*) FROM operator_sessions WHERE operator = 'bob' AND ended_at IS NULL";
    assert_eq!(staff.owner.number(open).await, 0);
}

//! `audit::log` and its seal: each operator action is recorded by the database itself, and no entry changes or goes unnoticed.

use crate::support::{Bank, Stage, account_id};
use iso_currency::Currency;
use payment_ledger::admission::limits::{LimitBounds, LimitScope};
use payment_ledger::audit::log::{AuditEntry, AuditFilter};
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// The entries since the last call, oldest first.
async fn new_entries(bank: &Bank, seen: &mut i64) -> Vec<AuditEntry> {
    let mut entries = bank.ledger.audit_log(&AuditFilter::default(), 1_000).await.unwrap();
    entries.retain(|entry| entry.entry_id > *seen);
    entries.reverse();
    *seen = entries.last().map_or(*seen, |entry| entry.entry_id);
    entries
}

/// What an entry says, without its number and time.
fn summary(entry: &AuditEntry) -> (String, Option<&str>, Option<&str>, Value, Value) {
    let AuditEntry { action, object, subject, before, after, .. } = entry;
    (
        format!("{action} {object} {subject}"),
        entry.operator.as_deref(),
        entry.reason.as_deref(),
        before.clone().unwrap_or_default(),
        after.clone().unwrap_or_default(),
    )
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn each_operator_action_is_recorded_with_who_why_before_and_after(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let connect = connect.application_name("payctl ann@ops-1");
    let bank = Bank::new(PgPoolOptions::new().max_connections(2).connect_with(connect).await.unwrap());
    let mut seen = 0;

    bank.open("one", 500).await;
    let entries = new_entries(&bank, &mut seen).await;
    let deposit = entries.iter().find(|entry| entry.object == "journal").unwrap();
    assert_eq!(deposit.after.as_ref().unwrap()["amount_minor"], 500);
    assert!(
        entries.iter().any(|entry| (entry.object.as_str(), entry.subject.as_str()) == ("accounts", "one"))
    );
    assert_eq!(deposit.program, "payctl ann@ops-1");
    assert!(!deposit.login.is_empty() && deposit.before.is_none());

    bank.sql("UPDATE accounts SET status = 'frozen' WHERE account_id = 'one'").await;
    // What changes nothing is no action.
    bank.sql("UPDATE accounts SET status = 'frozen' WHERE account_id = 'one'").await;
    let entries = new_entries(&bank, &mut seen).await;
    let frozen: Vec<_> = entries.iter().map(summary).collect();
    let change =
        ("update accounts one".into(), None, None, json!({"status": "active"}), json!({"status": "frozen"}));
    assert_eq!(frozen, [change]);

    bank.sql(
        "INSERT INTO kill_switches (currency, destination_prefix, activated_by, reason) VALUES ('EUR', 'FR', 'Ann', 'fraud');
         UPDATE kill_switches SET lifted_by = 'Bob', lift_reason = 'over', lifted_at = now()",
    )
    .await;
    let number = bank.number("SELECT kill_switch_id FROM kill_switches").await;
    let bounds = LimitBounds { per_day_count: Some(3), ..LimitBounds::default() };
    let scope = LimitScope::Account(account_id("one"));
    bank.set_limit(&scope, Currency::EUR, bounds, "new customer").await;
    let entries = new_entries(&bank, &mut seen).await;
    let who: Vec<_> = entries
        .iter()
        .map(|entry| {
            let (what, by, why, ..) = summary(entry);
            format!("{what} by {} because {}", by.unwrap(), why.unwrap())
        })
        .collect();
    assert_eq!(
        who,
        [
            format!("insert kill_switches {number} by Ann because fraud"),
            format!("update kill_switches {number} by Bob because over"),
            "insert limits account/one/EUR by Ann because new customer".to_owned(),
        ]
    );

    bank.sql(
        "INSERT INTO api_keys (key_hash, id, prefix, tenant_id, client_id, scopes)
         VALUES ('\\xabcd', 'pk_000000000000', 'pk_0', 'acme', 'shop', '{pay}')",
    )
    .await;
    bank.sql("UPDATE api_keys SET revoked_at = now()").await;
    let entries = new_entries(&bank, &mut seen).await;
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|entry| entry.subject == "pk_000000000000"));
    assert!(!format!("{entries:?}").contains("abcd"), "the hash of an API key is in the audit log");

    let p = bank.payment_at(Stage::Sent, "p").await;
    bank.needs_operator(&p, OperatorReason::NoCancelOrQuery).await;
    new_entries(&bank, &mut seen).await;
    let decision = bank.decide(&p, Action::Debit).await;
    let entries = new_entries(&bank, &mut seen).await;
    assert!(
        entries.iter().all(|entry| (&*entry.object, &*entry.subject) == ("decisions", decision.as_str()))
    );
    let names: Vec<_> = entries.iter().filter_map(|entry| entry.operator.as_deref()).collect();
    assert_eq!(names, ["Ann", "Bob"], "{entries:#?}");

    let of_ann =
        AuditFilter { operator: Some("ann".into()), object: Some("limits".into()), ..AuditFilter::default() };
    assert_eq!(bank.ledger.audit_log(&of_ann, 10).await.unwrap().len(), 1);
    let of_row = AuditFilter { subject: Some("one".into()), ..AuditFilter::default() };
    assert_eq!(bank.ledger.audit_log(&of_row, 10).await.unwrap().len(), 2);
    let future = AuditFilter { since: Some(jiff::Timestamp::MAX), ..AuditFilter::default() };
    assert_eq!(bank.ledger.audit_log(&future, 10).await.unwrap(), []);
}

/// A payment's own steps are nobody's action, and cost no entry.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_steps_of_a_payment_write_no_entry_of_the_audit_log(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.payment_at(Stage::Settled, "quiet").await;
    let entries = new_entries(&bank, &mut 0).await;
    let objects: Vec<_> = entries.iter().map(|entry| entry.object.as_str()).collect();
    assert_eq!(objects, ["accounts", "journal"], "the opened account and its deposit: {entries:#?}");
}

/// A statement that tampers, and the findings that it must lead to.
const TAMPERINGS: &[(&str, &[(&str, &str)])] = &[
    (
        "UPDATE audit_log SET reason = 'harmless' WHERE entry_id = 3",
        &[("audit_log_entry_changed", "audit log entry 3")],
    ),
    (
        "UPDATE audit_log SET after = '{\"status\": \"active\"}' WHERE entry_id = 2",
        &[("audit_log_entry_changed", "audit log entry 2")],
    ),
    (
        "UPDATE audit_log SET operator = NULL WHERE entry_id = 4",
        &[("audit_log_entry_changed", "audit log entry 4")],
    ),
    ("DELETE FROM audit_log WHERE entry_id = 3", &[("audit_log_entry_missing", "audit log entry 3")]),
    (
        "INSERT INTO audit_log (login, program, object, subject, action, after) VALUES ('l', 'p', 'limits', 's', 'insert', '{}')",
        &[("audit_log_entry_inserted", "audit log entry ")],
    ),
    (
        "DELETE FROM audit_log_seals WHERE entry_id = 3; DELETE FROM audit_log WHERE entry_id = 3",
        &[("audit_log_chain_broken", "audit log position 4")],
    ),
    (
        "UPDATE audit_log_seals SET hash = sha256('x') WHERE position = 2",
        &[
            ("audit_log_entry_changed", "audit log entry 2"),
            ("audit_log_chain_broken", "audit log position 3"),
        ],
    ),
    ("INSERT INTO audit_log_unsealed VALUES (999)", &[("audit_log_entry_missing", "audit log entry 999")]),
    // The newest entry, with its seal: found by the head that was recorded elsewhere.
    (
        "DELETE FROM audit_log_seals WHERE entry_id = 4; DELETE FROM audit_log WHERE entry_id = 4",
        &[("head_unknown", "HEAD")],
    ),
];

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_verification_finds_each_kind_of_tampering_with_the_audit_log(pool: PgPool) {
    let bank = Bank::new(pool);
    let size = BatchSize::new(2);
    bank.sql("INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor) VALUES ('a', 't', 'customer', 'EUR', 0)").await;
    bank.sql("UPDATE accounts SET status = 'frozen' WHERE account_id = 'a'").await;
    for reason in ["first", "second"] {
        let scope = LimitScope::Account(account_id("a"));
        bank.set_limit(&scope, Currency::EUR, LimitBounds::default(), reason).await;
    }
    assert_eq!(bank.ledger.verify(None).await.unwrap().audit_log_unsealed, 4);
    assert_eq!(
        bank.refused("DELETE FROM audit_log_unsealed").await.1,
        "an unsealed entry cannot be deleted from audit_log_unsealed: seal it first"
    );
    let full = SealOutcome::Batch { entries: 2, is_full: true };
    for outcome in [full, full, SealOutcome::NothingToSeal] {
        assert_eq!(bank.ledger.seal_audit_log(size).await.unwrap(), outcome);
    }
    let verified = bank.ledger.verify(None).await.unwrap();
    assert_eq!((verified.audit_log_entries, verified.audit_log_unsealed, verified.found), (4, 0, 0));
    let head = verified.audit_log_head.unwrap();
    assert_eq!(bank.ledger.verify(Some(head)).await.unwrap().findings, []);
    let tables = ["audit_log", "audit_log_seals", "audit_log_unsealed"];
    for table in tables {
        bank.sql(&format!("CREATE TABLE saved_{table} AS TABLE {table}")).await;
    }
    for (statement, expected) in TAMPERINGS {
        bank.damage((*statement).to_owned()).await;
        let found = bank.ledger.verify(Some(head)).await.unwrap().findings;
        for (kind, subject) in *expected {
            let subject = subject.replace("HEAD", &head.to_string());
            let is_found =
                found.iter().any(|finding| finding.kind == *kind && finding.subject.starts_with(&subject));
            assert!(is_found, "{statement}\n{kind} {subject} is not among {found:#?}");
        }
        for table in tables {
            let back = format!(
                "DELETE FROM {table}; INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE saved_{table}"
            );
            bank.damage(back).await;
        }
    }
    assert_eq!(bank.ledger.verify(Some(head)).await.unwrap().findings, [], "the restored log has findings");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_the_audit_log_is_append_only_for_its_owner_too(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.open("one", 1).await;
    while let SealOutcome::Batch { .. } = bank.ledger.seal_audit_log(BatchSize::new(10)).await.unwrap() {}
    for statement in [
        "UPDATE audit_log SET reason = ''",
        "DELETE FROM audit_log",
        "TRUNCATE audit_log",
        "UPDATE audit_log_seals SET hash = hash",
        "DELETE FROM audit_log_seals",
        "TRUNCATE audit_log_seals",
        "TRUNCATE audit_log_unsealed",
    ] {
        let (_, reason) = bank.refused(statement).await;
        assert!(reason.contains("append-only"), "{statement}: {reason}");
    }
}

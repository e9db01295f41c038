//! `payctl audit`: what operators did, from the audit log.

use jiff::Timestamp;
use payment_ledger::audit::log::{AuditEntry, AuditFilter};
use serde_json::{Value, json};

use crate::age;
use crate::database::DatabaseArgs;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{self as tables, Align, Table};

/// List what operators did, newest first: who, from where, why, and what changed
///
/// The database writes the audit log with each change of accounts, deposits, decisions, exceptions, limits, kill switches, API keys,
/// webhook endpoints, parked messages and Temporal namespaces, whichever program makes it. `payctl ledger verify` finds entries that
/// were changed or removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Show only what was done since then: an instant like 2026-01-31T12:00:00Z, or an age like 48h
    #[arg(long, value_name = "INSTANT|AGE", value_parser = age::parse_since)]
    since: Option<Timestamp>,
    /// Show only what this operator did; names are compared without regard to case
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Show only changes of this table, like accounts, decisions or api_keys
    #[arg(long, value_name = "TABLE")]
    object: Option<String>,
    /// Show only changes of the row with this key, like an account, a decision or the id of an API key
    #[arg(long, value_name = "KEY")]
    subject: Option<String>,
    /// Show at most this many entries, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let filter =
        AuditFilter { since: args.since, object: args.object, subject: args.subject, operator: args.by };
    let entries = args.database.ledger().await?.audit_log(&filter, args.limit).await?;
    if args.json {
        let entries: Vec<Value> = entries.iter().map(document).collect();
        out.write_json(&json!({ "entries": entries }))?;
    } else if entries.is_empty() {
        out.write_line("no entry of the audit log matches")?;
    } else {
        out.write_line(table(&entries))?;
        tables::note_limit(entries.len(), args.limit, out)?;
    }
    Ok(CommandOutcome::Success)
}

fn table(entries: &[AuditEntry]) -> Table<7> {
    let left = Align::Left;
    let mut table = Table::new([
        ("entry", Align::Right),
        ("time", left),
        ("operator", left),
        ("session", left),
        ("action", left),
        ("change", left),
        ("reason", left),
    ]);
    for entry in entries {
        table.row([
            &entry.entry_id.to_string(),
            &format!("{:.0}", entry.recorded_at),
            entry.operator.as_deref().unwrap_or_default(),
            &session(entry),
            &format!("{} {} {}", entry.action, entry.object, entry.subject),
            &change(entry),
            entry.reason.as_deref().unwrap_or_default(),
        ]);
    }
    table
}

/// The program and the login of a session, and its address if it has one.
fn session(entry: &AuditEntry) -> String {
    let address = entry.address.as_deref().map(|address| format!(" from {address}")).unwrap_or_default();
    format!("{} as {}{address}", entry.program, entry.login)
}

/// What an update changed, as `column: before -> after`. An insert and a delete are whole rows, which `--json` shows.
fn change(entry: &AuditEntry) -> String {
    let (Some(Value::Object(before)), Some(Value::Object(after))) = (&entry.before, &entry.after) else {
        return String::new();
    };
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let changes = before
        .iter()
        .map(|(column, before)| format!("{column}: {} -> {}", text(Some(before)), text(after.get(column))));
    changes.collect::<Vec<_>>().join(", ")
}

fn document(entry: &AuditEntry) -> Value {
    json!({
        "entry_id": entry.entry_id,
        "recorded_at": entry.recorded_at,
        "operator": entry.operator,
        "reason": entry.reason,
        "login": entry.login,
        "address": entry.address,
        "program": entry.program,
        "object": entry.object,
        "subject": entry.subject,
        "action": entry.action,
        "before": entry.before,
        "after": entry.after,
        "is_sealed": entry.is_sealed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payctl_audit_shows_the_columns_that_an_update_changed() {
        let entry = AuditEntry {
            entry_id: 7,
            recorded_at: Timestamp::UNIX_EPOCH,
            operator: None,
            reason: None,
            login: "payments".into(),
            address: Some("10.0.0.1".into()),
            program: "payctl ann@ops-1".into(),
            object: "accounts".into(),
            subject: "DE-ALICE-EUR".into(),
            action: "update".into(),
            before: Some(json!({"status": "active", "closed": null})),
            after: Some(json!({"status": "frozen", "closed": 1})),
            is_sealed: false,
        };
        assert_eq!(change(&entry), "closed: none -> 1, status: active -> frozen");
        assert_eq!(session(&entry), "payctl ann@ops-1 as payments from 10.0.0.1");
        assert_eq!(change(&AuditEntry { before: None, ..entry }), "");
    }
}

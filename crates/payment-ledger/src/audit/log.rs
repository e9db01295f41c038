//! The audit log, as operators read it: who did what, from where, why, and what changed. Triggers of the database write it, with every
//! change of an object that operators manage; [`super::seal`] makes a changed or removed entry evident.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use serde_json::Value;

use crate::{Ledger, LedgerError};

/// Which entries to read. `None` of a field: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Recorded at or after this time.
    pub since: Option<Timestamp>,
    /// Of this table.
    pub object: Option<String>,
    /// Of this row, by its key: an account, a payment's decision, a key's id.
    pub subject: Option<String>,
    /// With this operator's name, in any case.
    pub operator: Option<String>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Number of the entry. Numbers of transactions that were rolled back are missing.
    pub entry_id: i64,
    /// When the change was made.
    pub recorded_at: Timestamp,
    /// The operator that the changed row names; `None` if it names none.
    pub operator: Option<String>,
    /// The reason that the changed row gives.
    pub reason: Option<String>,
    /// Login of the database session.
    pub login: String,
    /// Address of the session's client; `None` for a socket of the machine.
    pub address: Option<String>,
    /// Name of the client's program; `payctl`'s has the user and the machine.
    pub program: String,
    /// Table of the changed row.
    pub object: String,
    /// Key of the changed row.
    pub subject: String,
    /// `insert`, `update` or `delete`.
    pub action: String,
    /// The row before, of an update its changed columns; `None` of an insert.
    pub before: Option<Value>,
    /// The row after, of an update its changed columns; `None` of a delete.
    pub after: Option<Value>,
    /// Whether the entry has its place in the hash chain.
    pub is_sealed: bool,
}

impl Ledger {
    /// The newest `limit` entries that match, newest first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn audit_log(&self, filter: &AuditFilter, limit: i64) -> Result<Vec<AuditEntry>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT l.entry_id, l.recorded_at, l.operator, l.reason, l.login, l.address, l.program, l.object, l.subject,
                      l.action, l.before, l.after,
                      EXISTS (SELECT FROM audit_log_seals s WHERE s.entry_id = l.entry_id) AS "is_sealed!"
               FROM audit_log l
               WHERE ($1::timestamptz IS NULL OR l.recorded_at >= $1) AND ($2::text IS NULL OR l.object = $2)
                 AND ($3::text IS NULL OR l.subject = $3) AND ($4::text IS NULL OR lower(l.operator) = lower($4))
               ORDER BY l.entry_id DESC LIMIT $5"#,
            filter.since.map(|since| since.to_sqlx()) as _,
            filter.object.as_deref(),
            filter.subject.as_deref(),
            filter.operator.as_deref(),
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| AuditEntry {
                entry_id: row.entry_id,
                recorded_at: row.recorded_at.to_jiff(),
                operator: row.operator,
                reason: row.reason,
                login: row.login,
                address: row.address,
                program: row.program,
                object: row.object,
                subject: row.subject,
                action: row.action,
                before: row.before,
                after: row.after,
                is_sealed: row.is_sealed,
            })
            .collect())
    }
}

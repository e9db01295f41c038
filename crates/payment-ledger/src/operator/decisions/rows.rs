//! Rows of decisions: read, inserted, closed, and put into the inbox of their payment.

use payment_protocol::PaymentState;
use payment_protocol::action::OperatorAction;
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use postgres_kit::Connection;
use postgres_kit::text::replace_nul;

use super::{DecisionRefusedError, DecisionStatus, DecisionView};
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, writes};

/// Columns of a decision.
pub(crate) struct DecisionRow {
    decision_id: String,
    payment_id: Option<String>,
    exception_id: Option<i64>,
    action: String,
    reason: String,
    evidence: Option<String>,
    proposed_by: String,
    proposed_at: jiff_sqlx::Timestamp,
    confirmed_by: Option<String>,
    confirmed_at: Option<jiff_sqlx::Timestamp>,
    confirm_reason: Option<String>,
    status: String,
    outcome: Option<serde_json::Value>,
    detail: Option<String>,
    closed_at: Option<jiff_sqlx::Timestamp>,
}

/// A proposal to insert.
pub(crate) struct NewDecision<'a> {
    pub(crate) action: OperatorAction,
    pub(crate) exception_id: Option<i64>,
    pub(crate) by: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) evidence: Option<&'a str>,
}

impl DecisionRow {
    pub(crate) fn view(self) -> Result<DecisionView, LedgerError> {
        let id = self.decision_id;
        let unreadable =
            |column: &'static str, value: String| LedgerError::Unreadable { id: id.clone(), column, value };
        Ok(DecisionView {
            decision_id: decision_id(&id)?,
            payment_id: self.payment_id,
            exception_id: self.exception_id,
            action: OperatorAction::parse(&self.action)
                .ok_or_else(|| unreadable("action", self.action.clone()))?,
            reason: self.reason,
            evidence: self.evidence,
            proposed_by: self.proposed_by,
            proposed_at: self.proposed_at.to_jiff(),
            confirmed_by: self.confirmed_by,
            confirmed_at: self.confirmed_at.map(|at| at.to_jiff()),
            confirm_reason: self.confirm_reason,
            status: DecisionStatus::parse(&self.status)
                .ok_or_else(|| unreadable("status", self.status.clone()))?,
            outcome: self
                .outcome
                .map(|json| {
                    serde_json::from_value(json.clone()).map_err(|_| unreadable("outcome", json.to_string()))
                })
                .transpose()?,
            detail: self.detail,
            closed_at: self.closed_at.map(|at| at.to_jiff()),
        })
    }
}

impl Ledger {
    /// A transaction in which an operator decides: the database knows the operator's session, if this ledger acts in one.
    pub(crate) async fn begin_decision(&self) -> Result<LedgerTransaction, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        if let Some(session) = &self.operator_session {
            sqlx::query_scalar!("SELECT set_config('payments.operator_session', $1, true)", session.proof())
                .fetch_one(&mut *tx)
                .await?;
        }
        Ok(tx)
    }

    /// One decision.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn decision(&self, decision_id: &DecisionId) -> Result<Option<DecisionView>, LedgerError> {
        find(&mut self.pool.acquire().await?, decision_id).await
    }

    /// A payment's decisions, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn decisions(&self, payment_id: &PaymentId) -> Result<Vec<DecisionView>, LedgerError> {
        of_payment(&mut self.pool.acquire().await?, payment_id).await
    }
}

/// One decision.
pub(crate) async fn find(
    connection: &mut Connection,
    decision_id: &DecisionId,
) -> Result<Option<DecisionView>, LedgerError> {
    sqlx::query_as!(
        DecisionRow,
        "SELECT decision_id, payment_id, exception_id, action, reason, evidence, proposed_by, proposed_at, confirmed_by,
                confirmed_at, confirm_reason, status, outcome, detail, closed_at
         FROM decisions WHERE decision_id = $1",
        decision_id.as_str(),
    )
    .fetch_optional(connection)
    .await?
    .map(DecisionRow::view)
    .transpose()
}

/// A payment's decisions, oldest first.
pub(crate) async fn of_payment(
    connection: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Vec<DecisionView>, LedgerError> {
    sqlx::query_as!(
        DecisionRow,
        "SELECT decision_id, payment_id, exception_id, action, reason, evidence, proposed_by, proposed_at, confirmed_by,
                confirmed_at, confirm_reason, status, outcome, detail, closed_at
         FROM decisions WHERE payment_id = $1 ORDER BY proposed_at, decision_id",
        payment_id.as_str(),
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(DecisionRow::view)
    .collect()
}

/// Longest operator name, in characters.
const NAME_MAX: usize = 64;
/// Longest reason or evidence, in characters.
pub(crate) const TEXT_MAX: usize = 2_000;

/// Checks and trims an operator's name and reason. A name is limited to the characters of a login, so that no two spellings
/// look the same.
///
/// # Errors
/// [`DecisionRefusedError`]: a name or reason that is missing, too long or has invalid characters.
pub(super) fn validate_operator_and_reason(
    by: &str,
    reason: &str,
) -> Result<(String, String), DecisionRefusedError> {
    let by = by.trim();
    if by.is_empty() {
        return Err(DecisionRefusedError::MissingOperator);
    }
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || " ._-@".contains(character);
    if by.len() > NAME_MAX || !by.chars().all(is_allowed) || canonical_name(by).is_empty() {
        return Err(DecisionRefusedError::InvalidOperator);
    }
    Ok((by.to_owned(), validate_reason(reason)?))
}

/// Checks and trims an operator's reason.
///
/// # Errors
/// [`DecisionRefusedError`]: a reason that is missing, too long or has invisible characters.
pub(crate) fn validate_reason(reason: &str) -> Result<String, DecisionRefusedError> {
    checked_text("the reason", reason)?.ok_or(DecisionRefusedError::MissingReason)
}

/// Checks the name of an operator who logs in: the first character is a letter or a digit, and there are no spaces.
///
/// # Errors
/// [`DecisionRefusedError`]: no name, or another one.
pub fn validate_operator_name(name: &str) -> Result<(), DecisionRefusedError> {
    let (trimmed, _) = validate_operator_and_reason(name, "a login")?;
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    let is_login = trimmed == name && !name.contains(' ') && starts_well;
    if is_login { Ok(()) } else { Err(DecisionRefusedError::InvalidOperator) }
}

/// A text trimmed and checked; `None` if it is empty. Bounded, and without invisible characters.
pub(crate) fn checked_text(field: &'static str, text: &str) -> Result<Option<String>, DecisionRefusedError> {
    let text = text.trim();
    if text.chars().count() > TEXT_MAX {
        return Err(DecisionRefusedError::TooLong(field));
    }
    if text.chars().any(is_invisible) {
        return Err(DecisionRefusedError::InvisibleCharacters(field));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Whether a character is invisible or changes the direction of text. Line breaks and tabs are allowed.
#[must_use]
pub fn is_invisible(character: char) -> bool {
    let is_format = matches!(character, '\u{00AD}' | '\u{061C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}');
    is_format || (character.is_control() && character != '\n' && character != '\t')
}

/// Whether two names are one operator's: case, punctuation and spaces are ignored.
pub(crate) fn is_same_operator(one: &str, other: &str) -> bool {
    canonical_name(one) == canonical_name(other)
}

fn canonical_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|character| character.to_ascii_lowercase()).collect()
}

/// Inserts a proposal.
pub(crate) async fn insert(
    tx: &mut Connection,
    payment_id: &PaymentId,
    new: &NewDecision<'_>,
) -> Result<DecisionId, LedgerError> {
    let id = sqlx::query_scalar!(
        "INSERT INTO decisions (decision_id, payment_id, exception_id, action, reason, evidence, proposed_by)
         VALUES ('dec_' || left(replace(gen_random_uuid()::text, '-', ''), 20), $1, $2, $3, $4, $5, $6)
         RETURNING decision_id",
        payment_id.as_str(),
        new.exception_id,
        new.action.as_str(),
        new.reason,
        new.evidence,
        new.by,
    )
    .fetch_one(&mut *tx)
    .await?;
    decision_id(&id)
}

/// Parses a decision id that the table stores.
pub(crate) fn decision_id(text: &str) -> Result<DecisionId, LedgerError> {
    DecisionId::new(text).map_err(|_| LedgerError::Unreadable {
        id: text.to_owned(),
        column: "decision_id",
        value: text.to_owned(),
    })
}

/// Closes an open decision with its outcome. One that is closed already stays as it is.
pub(crate) async fn close(
    tx: &mut Connection,
    decision_id: &DecisionId,
    status: DecisionStatus,
    outcome: Option<&DecisionOutcome>,
    detail: &str,
) -> Result<(), LedgerError> {
    let outcome = outcome
        .map(serde_json::to_value)
        .transpose()
        .map_err(|error| LedgerError::Unreadable {
            id: decision_id.to_string(),
            column: "outcome",
            value: error.to_string(),
        })?
        .map(writes::replace_nul_json);
    sqlx::query!(
        "UPDATE decisions SET status = $2, outcome = $3, detail = $4, closed_at = clock_timestamp()
         WHERE decision_id = $1 AND closed_at IS NULL",
        decision_id.as_str(),
        status.as_str(),
        outcome,
        &*replace_nul(detail),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Puts a confirmed decision into the inbox. Due after one second: the process that took the confirmation delivers it first.
pub(crate) async fn insert_message(
    tx: &mut Connection,
    payment_id: &PaymentId,
    decision: Decision,
) -> Result<InboxMessage, LedgerError> {
    sqlx::query!(
        "INSERT INTO inbox (payment_id, kind, decision_id, next_delivery_at)
         VALUES ($1, 'decision', $2, clock_timestamp() + interval '1 second')",
        payment_id.as_str(),
        decision.decision_id.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    message(tx, payment_id, decision).await
}

/// The inbox message of a decision.
pub(crate) async fn message(
    tx: &mut Connection,
    payment_id: &PaymentId,
    decision: Decision,
) -> Result<InboxMessage, LedgerError> {
    let row = sqlx::query!(
        r#"SELECT i.inbox_id, p.workflow_id, p.ended_at IS NOT NULL AS "ended!"
           FROM inbox i JOIN payments p USING (payment_id)
           WHERE i.kind = 'decision' AND i.decision_id = $1"#,
        decision.decision_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(InboxMessage {
        inbox_id: row.inbox_id,
        payment_id: payment_id.clone(),
        workflow_id: row.workflow_id,
        ended: row.ended,
        kind: InboxMessageKind::Decision(decision),
    })
}

/// Makes a confirmed and unapplied decision due again: the run that received it may be gone.
pub(crate) async fn reopen_delivery(tx: &mut Connection, payment_id: &PaymentId) -> Result<(), LedgerError> {
    sqlx::query!(
        "UPDATE inbox i SET delivered_at = NULL, next_delivery_at = clock_timestamp()
         FROM decisions d
         WHERE d.payment_id = $1 AND d.status = 'confirmed' AND i.decision_id = d.decision_id AND i.kind = 'decision'
           AND i.delivered_at IS NOT NULL",
        payment_id.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Appends a decision's event to the payment's timeline.
pub(crate) async fn append_timeline(
    tx: &mut Connection,
    payment_id: &PaymentId,
    state: PaymentState,
    decision_id: &DecisionId,
    event: &str,
) -> Result<(), LedgerError> {
    writes::append_internal_timeline(tx, payment_id, state, &format!("decision {decision_id}: {event}")).await
}

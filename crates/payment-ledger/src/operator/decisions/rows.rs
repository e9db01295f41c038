//! Decisions as rows: read, written, closed, and put before the payment's workflow.

use payment_protocol::PaymentState;
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use sqlx::PgConnection;

use super::{DecisionRefused, DecisionStatus, DecisionView, OperatorAction};
use crate::{Ledger, LedgerError, writes};

/// Columns of a decision.
pub(crate) struct Row {
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

/// What a proposal writes.
pub(crate) struct New<'a> {
    pub(crate) deed: OperatorAction,
    pub(crate) exception_id: Option<i64>,
    pub(crate) by: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) evidence: Option<&'a str>,
}

impl Row {
    pub(crate) fn view(self) -> Result<DecisionView, LedgerError> {
        let id = self.decision_id;
        let unreadable =
            |column: &'static str, value: String| LedgerError::Unreadable { id: id.clone(), column, value };
        Ok(DecisionView {
            decision_id: decision_id(&id)?,
            payment_id: self.payment_id,
            exception_id: self.exception_id,
            deed: OperatorAction::parse(&self.action)
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
    /// One decision.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn decision(&self, decision_id: &DecisionId) -> Result<Option<DecisionView>, LedgerError> {
        find(&mut *self.pool.acquire().await?, decision_id).await
    }

    /// A payment's decisions, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn decisions(&self, payment_id: &PaymentId) -> Result<Vec<DecisionView>, LedgerError> {
        of_payment(&mut *self.pool.acquire().await?, payment_id).await
    }
}

/// One decision, as it stands now.
pub(crate) async fn find(
    connection: &mut PgConnection,
    decision_id: &DecisionId,
) -> Result<Option<DecisionView>, LedgerError> {
    sqlx::query_as!(
        Row,
        "SELECT decision_id, payment_id, exception_id, action, reason, evidence, proposed_by, proposed_at, confirmed_by,
                confirmed_at, confirm_reason, status, outcome, detail, closed_at
         FROM decisions WHERE decision_id = $1",
        decision_id.as_str(),
    )
    .fetch_optional(connection)
    .await?
    .map(Row::view)
    .transpose()
}

/// A payment's decisions, oldest first.
pub(crate) async fn of_payment(
    connection: &mut PgConnection,
    payment_id: &PaymentId,
) -> Result<Vec<DecisionView>, LedgerError> {
    sqlx::query_as!(
        Row,
        "SELECT decision_id, payment_id, exception_id, action, reason, evidence, proposed_by, proposed_at, confirmed_by,
                confirmed_at, confirm_reason, status, outcome, detail, closed_at
         FROM decisions WHERE payment_id = $1 ORDER BY proposed_at, decision_id",
        payment_id.as_str(),
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(Row::view)
    .collect()
}

/// Longest name.
const NAME_MAX: usize = 64;
/// Longest reason or evidence, in characters.
pub(crate) const WORDS_MAX: usize = 2_000;

/// Who decides and why, trimmed and as the table can hold it. A name is one that a login has, so that no two spellings
/// look the same.
///
/// # Errors
/// [`DecisionRefused`]: a name or reason that is missing, too long or cannot be read.
pub fn said(by: &str, reason: &str) -> Result<(String, String), DecisionRefused> {
    let by = by.trim();
    if by.is_empty() {
        return Err(DecisionRefused::NoName);
    }
    let fits = |letter: char| letter.is_ascii_alphanumeric() || " ._-@".contains(letter);
    if by.len() > NAME_MAX || !by.chars().all(fits) || person(by).is_empty() {
        return Err(DecisionRefused::BadName);
    }
    match words("the reason", reason)? {
        None => Err(DecisionRefused::NoReason),
        Some(reason) => Ok((by.to_owned(), reason)),
    }
}

/// What people wrote, trimmed; none when nothing is left. Bounded, and without characters that nobody sees.
pub(crate) fn words(what: &'static str, text: &str) -> Result<Option<String>, DecisionRefused> {
    let text = text.trim();
    if text.chars().count() > WORDS_MAX {
        return Err(DecisionRefused::TooLong(what));
    }
    if text.chars().any(is_unseen) {
        return Err(DecisionRefused::Hidden(what));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Whether a character is not seen, or turns the text around it. Line breaks and tabs are seen.
#[must_use]
pub fn is_unseen(letter: char) -> bool {
    let formats = matches!(letter, '\u{00AD}' | '\u{061C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}');
    formats || (letter.is_control() && letter != '\n' && letter != '\t')
}

/// Whether two names are one person's: case, points and spaces make no other.
pub(crate) fn same_person(one: &str, other: &str) -> bool {
    person(one) == person(other)
}

fn person(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Writes a proposal down.
pub(crate) async fn insert(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    new: &New<'_>,
) -> Result<DecisionId, LedgerError> {
    let id = sqlx::query_scalar!(
        "INSERT INTO decisions (decision_id, payment_id, exception_id, action, reason, evidence, proposed_by)
         VALUES ('dec_' || left(replace(gen_random_uuid()::text, '-', ''), 20), $1, $2, $3, $4, $5, $6)
         RETURNING decision_id",
        payment_id.as_str(),
        new.exception_id,
        new.deed.as_str(),
        new.reason,
        new.evidence,
        new.by,
    )
    .fetch_one(&mut *tx)
    .await?;
    decision_id(&id)
}

/// Reads an id from the table.
pub(crate) fn decision_id(text: &str) -> Result<DecisionId, LedgerError> {
    DecisionId::new(text).map_err(|_| LedgerError::Unreadable {
        id: text.to_owned(),
        column: "decision_id",
        value: text.to_owned(),
    })
}

/// Closes an open decision with what came of it. A closed one stays as it is.
pub(crate) async fn close(
    tx: &mut PgConnection,
    decision_id: &DecisionId,
    status: DecisionStatus,
    outcome: Option<&DecisionOutcome>,
    detail: &str,
) -> Result<bool, LedgerError> {
    let outcome = outcome
        .map(serde_json::to_value)
        .transpose()
        .map_err(|error| LedgerError::Unreadable {
            id: decision_id.to_string(),
            column: "outcome",
            value: error.to_string(),
        })?
        .map(writes::storable_json);
    let closed = sqlx::query!(
        "UPDATE decisions SET status = $2, outcome = $3, detail = $4, closed_at = clock_timestamp()
         WHERE decision_id = $1 AND closed_at IS NULL",
        decision_id.as_str(),
        status.as_str(),
        outcome,
        &*writes::storable(detail),
    )
    .execute(&mut *tx)
    .await?;
    Ok(closed.rows_affected() > 0)
}

/// Puts a confirmed decision into the inbox. The relay leaves it alone for a second, which the process that took the
/// confirmation has to deliver it.
pub(crate) async fn put_notice(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    decision: Decision,
) -> Result<InboxMessage, LedgerError> {
    sqlx::query!(
        "INSERT INTO inbox (payment_id, kind, decision_id, deliver_at)
         VALUES ($1, 'decision', $2, clock_timestamp() + interval '1 second')",
        payment_id.as_str(),
        decision.decision_id.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    message(tx, payment_id, decision).await
}

/// The message that is in the inbox for a decision.
pub(crate) async fn message(
    tx: &mut PgConnection,
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

/// Lets a confirmed decision that no run has carried out be told again: the run that was told may be gone.
pub(crate) async fn reopen_delivery(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "UPDATE inbox i SET delivered_at = NULL, deliver_at = clock_timestamp()
         FROM decisions d
         WHERE d.payment_id = $1 AND d.status = 'confirmed' AND i.decision_id = d.decision_id AND i.kind = 'decision'
           AND i.delivered_at IS NOT NULL",
        payment_id.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Writes into the payment's timeline what happened to a decision.
pub(crate) async fn tell(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    state: PaymentState,
    decision_id: &DecisionId,
    told: &str,
) -> Result<(), LedgerError> {
    writes::internal(tx, payment_id, state, &format!("decision {decision_id}: {told}")).await
}

//! What a step writes, and the statements that write it for many payments: one for steps, one for callbacks.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use payment_protocol::PaymentState;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::RunId;
use payment_protocol::keys::StepKey;
use payment_protocol::rail_id::RailId;
use postgres_kit::Connection;
use postgres_kit::text::replace_nul;
use uuid::Uuid;

use crate::LedgerError;
use crate::events::StateEvent;
use crate::row_lock::LockedPayment;
use crate::switch::callbacks::Callback;

/// What a step writes for its payment.
#[derive(Default)]
pub(crate) struct Changes {
    /// The state that the payment enters, with its event.
    pub(crate) state: Option<PaymentState>,
    /// The run that reserved the amount; its start is the payment's, if none is recorded.
    pub(crate) run: Option<RunId>,
    pub(crate) attempt: Option<NewAttempt>,
    pub(crate) accepted_attempt: Option<AcceptedAttempt>,
    pub(crate) final_status: Option<(FinalStatus, &'static str)>,
    /// Whether a callback says that the transfer settled, which the debit must ask the switch to confirm.
    pub(crate) money_reported: bool,
    /// The journal entries, in the order in which they are posted.
    pub(crate) postings: Vec<Posting>,
    /// A line of the timeline before the other one, in a state that the payment passes through.
    pub(crate) line_before: Option<(PaymentState, String)>,
    /// A line of the timeline, in the state that the payment has or enters.
    pub(crate) line: Option<String>,
    /// A callback to store, with the message to the payment's workflow. Beside it only the state, the final status, `money_reported` and
    /// the lines are written.
    pub(crate) callback: Option<Callback>,
}

/// A submit attempt, before it is sent.
pub(crate) struct NewAttempt {
    pub(crate) number: i32,
    pub(crate) submit_deadline: Timestamp,
    pub(crate) rail_id: Option<RailId>,
    pub(crate) token: Uuid,
    pub(crate) marker: Option<String>,
}

/// An attempt that the switch accepted.
pub(crate) struct AcceptedAttempt {
    pub(crate) number: i32,
    pub(crate) transfer_id: Option<String>,
}

/// A journal entry and the operation that it is the outcome of.
pub(crate) struct Posting {
    pub(crate) key: StepKey,
    pub(crate) kind: &'static str,
    pub(crate) debit: String,
    pub(crate) credit: String,
}

/// What the database assigned.
pub(crate) struct Written {
    /// The inbox rows of stored callbacks, in the order of the callbacks.
    pub(crate) inbox_ids: Vec<i64>,
}

/// Values of one column.
fn column<T, V>(rows: &[T], value: impl Fn(&T) -> V) -> Vec<V> {
    rows.iter().map(value).collect()
}

/// Writes the changes of different payments, whose rows are locked, in one statement for the ledger's tables (one more if there are
/// both steps and callbacks, which no process has) and one for the outbox.
///
/// # Errors
/// [`LedgerError`]: the transaction must not be committed. Also if a row to change was not there, for example the record of an
/// answered attempt.
pub(crate) async fn write(
    tx: &mut Connection,
    all: &[(&LockedPayment, &Changes)],
) -> Result<Written, LedgerError> {
    let written = write_rows(tx, all).await?;
    let mut events = Vec::new();
    for (locked, changes) in all {
        if let Some(state) = changes.state
            && let Some(event) = StateEvent::without_reason(locked, state)?
        {
            events.push(event);
        }
    }
    let events: Vec<_> = events.iter().map(StateEvent::as_new).collect();
    outbox::append_all(tx, &events).await?;
    Ok(written)
}

async fn write_rows(tx: &mut Connection, all: &[(&LockedPayment, &Changes)]) -> Result<Written, LedgerError> {
    let (callbacks, steps): (Vec<_>, Vec<_>) =
        all.iter().copied().partition(|(_, changes)| changes.callback.is_some());
    if !steps.is_empty() {
        write_steps(tx, &steps).await?;
    }
    if callbacks.is_empty() {
        return Ok(Written { inbox_ids: Vec::new() });
    }
    write_callbacks(tx, &callbacks).await
}

/// The lines of the timeline.
fn lines<'a>(all: &[(&'a LockedPayment, &'a Changes)]) -> Vec<(&'a LockedPayment, PaymentState, &'a str)> {
    all.iter()
        .flat_map(|(locked, changes)| {
            let before = changes.line_before.as_ref().map(|(state, line)| (*locked, *state, line.as_str()));
            let state = changes.state.unwrap_or(locked.facts.state);
            before.into_iter().chain(changes.line.as_deref().map(|line| (*locked, state, line)))
        })
        .collect()
}

fn id(locked: &LockedPayment) -> String {
    locked.payment_id.to_string()
}

/// A row is missing that the facts promised, or the record of an attempt: nothing is committed, and the step is made alone.
const INCOMPLETE: LedgerError = LedgerError::Unavailable(sqlx::Error::RowNotFound);

/// Writes the steps of payment-worker.
async fn write_steps(tx: &mut Connection, all: &[(&LockedPayment, &Changes)]) -> Result<(), LedgerError> {
    let payments: Vec<_> = all.iter().filter(|(_, changes)| changes.moves_payment()).collect();
    let attempts: Vec<_> =
        all.iter().filter_map(|(locked, changes)| Some((*locked, changes.attempt.as_ref()?))).collect();
    let accepted: Vec<_> = all
        .iter()
        .filter_map(|(locked, changes)| Some((*locked, changes.accepted_attempt.as_ref()?)))
        .collect();
    let postings: Vec<_> = all
        .iter()
        .flat_map(|(locked, changes)| changes.postings.iter().map(move |posting| (*locked, posting)))
        .collect();
    let lines = lines(all);
    let row = sqlx::query!(
        r#"WITH payment AS (
               UPDATE payments p
               SET state = coalesce(c.state, p.state),
                   run_id = coalesce(c.run_id, p.run_id),
                   started_at = coalesce(p.started_at, CASE WHEN c.run_id IS NOT NULL THEN clock_timestamp() END),
                   attempts = coalesce(c.attempts, p.attempts),
                   first_attempt_at = coalesce(p.first_attempt_at, CASE WHEN c.attempts IS NOT NULL THEN clock_timestamp() END),
                   submit_deadline = coalesce(c.submit_deadline, p.submit_deadline),
                   rail_id = coalesce(p.rail_id, c.rail_id),
                   final_status = coalesce(c.final_status, p.final_status),
                   final_status_source = coalesce(c.final_status_source, p.final_status_source),
                   ended_at = CASE WHEN c.ends THEN clock_timestamp() ELSE p.ended_at END,
                   updated_at = clock_timestamp()
               FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::timestamptz[], $6::text[], $7::text[], $8::bool[],
                           $25::text[])
                        AS c (payment_id, state, run_id, attempts, submit_deadline, final_status, final_status_source, ends, rail_id)
               WHERE p.payment_id = ANY ($1) AND p.payment_id = c.payment_id
               RETURNING 1),
           attempt AS (
               INSERT INTO submissions (payment_id, attempt, marker, token)
               SELECT * FROM unnest($9::text[], $10::int[], $11::text[], $26::uuid[])),
           answer AS (
               UPDATE submissions s
               SET outcome = 'accepted', answered_at = clock_timestamp(), transfer_id = coalesce(s.transfer_id, c.transfer_id)
               FROM unnest($12::text[], $13::int[], $14::text[]) AS c (payment_id, attempt, transfer_id)
               -- ANY: a plan from when the table was small would read all of it for each group.
               WHERE s.payment_id = ANY ($12) AND s.payment_id = c.payment_id AND s.attempt = c.attempt AND s.outcome IS NULL
               RETURNING 1),
           operation AS (
               INSERT INTO operations (operation_key, payment_id, outcome)
               SELECT operation_key, payment_id, 'done' FROM unnest($15::text[], $16::text[]) AS c (operation_key, payment_id)),
           entry AS (
               INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
               SELECT * FROM unnest($15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::bigint[], $21::text[])),
           line AS (
               INSERT INTO timeline (payment_id, state, detail) SELECT * FROM unnest($22::text[], $23::text[], $24::text[]))
           SELECT (SELECT count(*) FROM payment) AS "payments!", (SELECT count(*) FROM answer) AS "answers!""#,
        &column(&payments, |(locked, _)| id(locked)),
        &column(&payments, |(_, changes)| changes.state.map(PaymentState::as_str)) as &[Option<&str>],
        &column(&payments, |(_, changes)| changes.run.as_ref().map(RunId::as_str)) as &[Option<&str>],
        &column(&payments, |(_, changes)| changes.attempt.as_ref().map(|attempt| attempt.number)) as &[Option<i32>],
        &column(&payments, |(_, changes)| changes.attempt.as_ref().map(|attempt| attempt.submit_deadline.to_sqlx()))
            as &[Option<jiff_sqlx::Timestamp>],
        &column(&payments, |(_, changes)| changes.final_status.map(|(status, _)| status.as_str())) as &[Option<&str>],
        &column(&payments, |(_, changes)| changes.final_status.map(|(_, source)| source)) as &[Option<&str>],
        &column(&payments, |(_, changes)| changes.state.is_some_and(|state| state.end().is_some())),
        &column(&attempts, |(locked, _)| id(locked)),
        &column(&attempts, |(_, attempt)| attempt.number),
        &column(&attempts, |(_, attempt)| attempt.marker.as_deref().map(|marker| replace_nul(marker).into_owned()))
            as &[Option<String>],
        &column(&accepted, |(locked, _)| id(locked)),
        &column(&accepted, |(_, attempt)| attempt.number),
        &column(&accepted, |(_, attempt)| attempt.transfer_id.as_deref().map(|id| replace_nul(id).into_owned()))
            as &[Option<String>],
        &column(&postings, |(_, posting)| posting.key.to_string()),
        &column(&postings, |(locked, _)| id(locked)),
        &column(&postings, |(_, posting)| posting.kind) as &[&str],
        &column(&postings, |(_, posting)| posting.debit.clone()),
        &column(&postings, |(_, posting)| posting.credit.clone()),
        &column(&postings, |(locked, _)| locked.money.amount_minor()),
        &column(&postings, |(locked, _)| locked.money.currency().code()) as &[&str],
        &column(&lines, |(locked, ..)| id(locked)),
        &column(&lines, |(_, state, _)| state.as_str()) as &[&str],
        &column(&lines, |(.., detail)| replace_nul(detail).into_owned()),
        &column(&payments, |(_, changes)| changes.attempt.as_ref()?.rail_id.as_ref().map(RailId::as_str)) as &[Option<&str>],
        &column(&attempts, |(_, attempt)| attempt.token),
    )
    .fetch_one(tx)
    .await?;
    let is_complete = row.payments == payments.len() as i64 && row.answers == accepted.len() as i64;
    if is_complete { Ok(()) } else { Err(INCOMPLETE) }
}

/// Writes the callbacks that payments-api stores. A statement of their own: the role of payments-api may change no attempt, and
/// PostgreSQL checks the rights of every part of a statement, also of one that writes no row.
async fn write_callbacks(
    tx: &mut Connection,
    all: &[(&LockedPayment, &Changes)],
) -> Result<Written, LedgerError> {
    let payments: Vec<_> = all.iter().filter(|(_, changes)| changes.moves_payment()).collect();
    let callbacks: Vec<_> =
        all.iter().filter_map(|(locked, changes)| Some((*locked, changes.callback.as_ref()?))).collect();
    let lines = lines(all);
    let row = sqlx::query!(
        r#"WITH payment AS (
               UPDATE payments p
               SET state = coalesce(c.state, p.state),
                   final_status = coalesce(c.final_status, p.final_status),
                   final_status_source = coalesce(c.final_status_source, p.final_status_source),
                   money_reported_at = coalesce(
                       p.money_reported_at, CASE WHEN c.money_reported THEN clock_timestamp() END),
                   updated_at = clock_timestamp()
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bool[])
                        AS c (payment_id, state, final_status, final_status_source, money_reported)
               WHERE p.payment_id = ANY ($1) AND p.payment_id = c.payment_id
               RETURNING 1),
           line AS (
               INSERT INTO timeline (payment_id, state, detail) SELECT * FROM unnest($6::text[], $7::text[], $8::text[])),
           callback AS (
               INSERT INTO switch_callbacks
                   (switch, event_id, payment_id, reference, status, amount_minor, currency, reason, body)
               SELECT * FROM unnest($9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::text[],
                                    $16::text[], $17::bytea[])),
           message AS (
               -- Due after one second: the process that stored the callback delivers it first.
               INSERT INTO inbox (payment_id, kind, switch, event_id, next_delivery_at)
               SELECT payment_id, 'callback', switch, event_id, clock_timestamp() + interval '1 second'
               FROM unnest($9::text[], $10::text[], $11::text[]) AS c (switch, event_id, payment_id)
               RETURNING inbox_id, payment_id)
           SELECT (SELECT count(*) FROM payment) AS "payments!",
                  ARRAY(SELECT inbox_id FROM message ORDER BY array_position($11::text[], payment_id)) AS "inbox_ids!""#,
        &column(&payments, |(locked, _)| id(locked)),
        &column(&payments, |(_, changes)| changes.state.map(PaymentState::as_str)) as &[Option<&str>],
        &column(&payments, |(_, changes)| changes.final_status.map(|(status, _)| status.as_str())) as &[Option<&str>],
        &column(&payments, |(_, changes)| changes.final_status.map(|(_, source)| source)) as &[Option<&str>],
        &column(&payments, |(_, changes)| changes.money_reported),
        &column(&lines, |(locked, ..)| id(locked)),
        &column(&lines, |(_, state, _)| state.as_str()) as &[&str],
        &column(&lines, |(.., detail)| replace_nul(detail).into_owned()),
        &column(&callbacks, |(_, callback)| callback.switch.to_string()),
        &column(&callbacks, |(_, callback)| callback.event_id.to_string()),
        &column(&callbacks, |(locked, _)| id(locked)),
        &column(&callbacks, |(_, callback)| replace_nul(&callback.reference).into_owned()),
        &column(&callbacks, |(_, callback)| callback.status.as_str()) as &[&str],
        &column(&callbacks, |(_, callback)| callback.amount_minor),
        &column(&callbacks, |(_, callback)| replace_nul(&callback.currency).into_owned()),
        &column(&callbacks, |(_, callback)| callback.reason.as_deref().map(|reason| replace_nul(reason).into_owned()))
            as &[Option<String>],
        &column(&callbacks, |(_, callback)| callback.body.clone()),
    )
    .fetch_one(tx)
    .await?;
    let is_complete = row.payments == payments.len() as i64 && row.inbox_ids.len() == callbacks.len();
    if is_complete { Ok(Written { inbox_ids: row.inbox_ids }) } else { Err(INCOMPLETE) }
}

impl Changes {
    /// Whether the row of the payment itself changes.
    fn moves_payment(&self) -> bool {
        self.state.is_some()
            || self.run.is_some()
            || self.attempt.is_some()
            || self.final_status.is_some()
            || self.money_reported
    }
}

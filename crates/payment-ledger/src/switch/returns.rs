//! Returns of settled transfers by messages of their own, and reports of where the money is. A return is booked once, under
//! `{tx_id}:return:{return_id}`, to the bearer of the amount; its conditions are in [`payment_protocol::returns::book`]. A report of the
//! posting moves no money.

use payment_protocol::exception::ExceptionKind;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::{EventId, PaymentId, ReturnId, SwitchName};
use payment_protocol::keys;
use payment_protocol::returns::{self, Charge, Charged, PostingReport, ReturnReport, ReturnRuling};
use payment_protocol::rules::{self, Bearer};
use postgres_kit::Connection;
use postgres_kit::text::replace_nul;

use super::callbacks::{Received, ReceivedReport, StoreCallbackOutcome, receive, receive_from_own_switch};
use super::final_status::describe_posting;
use crate::accounts::{self, InternalAccount, JournalPosting};
use crate::charged::{account_of, party_of, postings};
use crate::events::{self, BookedReturn};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::stored_id::read_id;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, writes};

impl Ledger {
    /// Stores the return that a switch sent in an authentic callback, and books it or keeps it until the debit.
    ///
    /// # Errors
    /// [`LedgerError`]: not stored, or unknown; the switch repeats the callback.
    pub async fn store_return(
        &self,
        event_id: &EventId,
        report: &ReturnReport,
        body: &[u8],
    ) -> Result<StoreCallbackOutcome, LedgerError> {
        let received = ReceivedReport {
            switch: &report.switch,
            event_id,
            reference: &report.reference,
            status: "RETURN",
            amount_minor: report.amount_minor,
            currency: &report.currency,
            reason: report.reason.as_deref(),
            reason_code: None,
            body,
        };
        let tx_id = self.named_transaction(received.switch, received.reference).await?;
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let outcome = match receive(&mut tx, &received, tx_id.as_ref()).await? {
            Received::Before(outcome) => outcome,
            Received::Unknown => StoreCallbackOutcome::New(None),
            Received::New(locked) => {
                record(&mut tx, &locked, report).await?;
                StoreCallbackOutcome::New(None)
            }
        };
        tx.commit().await?;
        Ok(outcome)
    }

    /// Stores a report of where the money of a settled transfer is. It moves none, and no workflow waits for it.
    ///
    /// # Errors
    /// [`LedgerError`]: not stored, or unknown; the switch repeats the callback.
    pub async fn store_posting(
        &self,
        switch: &SwitchName,
        event_id: &EventId,
        report: &PostingReport,
        body: &[u8],
    ) -> Result<StoreCallbackOutcome, LedgerError> {
        let received = ReceivedReport {
            switch,
            event_id,
            reference: &report.reference,
            status: "POSTING",
            amount_minor: report.amount_minor,
            currency: &report.currency,
            reason: report.reason.as_deref(),
            reason_code: Some(report.posting.as_str()),
            body,
        };
        let tx_id = self.named_transaction(received.switch, received.reference).await?;
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let reported = "reported where the money is";
        let outcome = match receive_from_own_switch(&mut tx, &received, tx_id.as_ref(), reported).await? {
            Received::Before(outcome) => outcome,
            Received::New(locked) => {
                let line = format!("the switch reports: {}", describe_posting(report.posting));
                writes::append_timeline(&mut tx, &locked.payment_id, locked.facts.state, &line).await?;
                StoreCallbackOutcome::New(None)
            }
            Received::Unknown => StoreCallbackOutcome::New(None),
        };
        tx.commit().await?;
        Ok(outcome)
    }

    /// The returns of these payments that the statements show as lines of their own, and that are not stored as they are listed. One that has or
    /// had an exception is not among them.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn unrecorded_parts(
        &self,
        payments: &[PaymentId],
    ) -> Result<Vec<(PaymentId, ReturnReport)>, LedgerError> {
        let ids: Vec<&str> = payments.iter().map(PaymentId::as_str).collect();
        let rows = sqlx::query!(
            r#"SELECT l.payment_id AS "payment_id!", l.reference AS "reference!", l.switch AS "switch!", l.return_id AS "return_id!",
                      l.amount_minor AS "amount_minor!", l.currency AS "currency!"
               FROM (SELECT p.payment_id, p.tx_id || ':submit' AS reference, s.switch, s.return_id, s.amount_minor, s.currency, s.line_id
                     FROM payments p
                     JOIN statement_lines s ON s.switch = p.switch AND s.reference = coalesce(p.rail_id, p.tx_id || ':submit')
                     WHERE p.payment_id = ANY ($1) AND s.status = 'RETURNED' AND s.return_id IS NOT NULL
                     UNION
                     SELECT p.payment_id, p.tx_id || ':submit', s.switch, s.return_id, s.amount_minor, s.currency, s.line_id
                     FROM payments p JOIN submissions m ON m.payment_id = p.payment_id
                     JOIN statement_lines s ON s.switch = p.switch AND s.transfer_id = m.transfer_id AND s.reference IS NULL
                     WHERE p.payment_id = ANY ($1) AND s.status = 'RETURNED' AND s.return_id IS NOT NULL) AS l
               WHERE NOT EXISTS (SELECT FROM returns r
                                 WHERE (r.switch, r.return_id, r.payment_id, r.amount_minor, r.currency)
                                     = (l.switch, l.return_id, l.payment_id, l.amount_minor, l.currency))
                 AND NOT EXISTS (SELECT FROM exceptions e
                                 WHERE e.payment_id = l.payment_id AND e.kind = 'return_differs'
                                   AND e.origin = l.switch || ':' || l.return_id)
               ORDER BY l.line_id"#,
            &ids as &[&str],
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let unreadable = |column: &'static str, value: &str| LedgerError::Unreadable {
                    id: row.payment_id.clone(),
                    column,
                    value: value.to_owned(),
                };
                let report = ReturnReport {
                    switch: SwitchName::new(row.switch.as_str())
                        .map_err(|_| unreadable("switch", &row.switch))?,
                    return_id: ReturnId::new(row.return_id.as_str())
                        .map_err(|_| unreadable("return_id", &row.return_id))?,
                    reference: row.reference.clone(),
                    amount_minor: row.amount_minor,
                    currency: row.currency.clone(),
                    reason: None,
                };
                Ok((read_id(&row.payment_id)?, report))
            })
            .collect()
    }

    /// Records the returns that [`Ledger::unrecorded_parts`] finds; returns their number.
    ///
    /// # Errors
    /// [`LedgerError`]: some are not recorded; repeat.
    pub async fn record_listed_returns(&self, payments: &[PaymentId]) -> Result<usize, LedgerError> {
        let unrecorded = self.unrecorded_parts(payments).await?;
        for (payment_id, report) in &unrecorded {
            let mut tx = LedgerTransaction::begin(&self.pool).await?;
            let locked = lock_payment(&mut tx, payment_id).await?;
            record(&mut tx, &locked, report).await?;
            tx.commit().await?;
        }
        Ok(unrecorded.len())
    }
}

/// Stores a return, and books it or keeps it until the debit. A return that is stored is not booked again, whichever message repeats it.
async fn record(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    report: &ReturnReport,
) -> Result<(), LedgerError> {
    let payment_id = &locked.payment_id;
    let origin = format!("{}:{}", report.switch, report.return_id);
    let earlier = sqlx::query!(
        "SELECT payment_id, amount_minor, currency FROM returns WHERE switch = $1 AND return_id = $2",
        report.switch.as_str(),
        report.return_id.as_str(),
    )
    .fetch_optional(&mut **tx)
    .await?;
    if let Some(earlier) = earlier {
        let is_same = earlier.payment_id == payment_id.as_str()
            && earlier.amount_minor == report.amount_minor
            && earlier.currency == report.currency;
        if !is_same {
            let detail = format!(
                "the return {origin} was reported before with {} minor units of {} for {}",
                earlier.amount_minor, earlier.currency, earlier.payment_id
            );
            tx.open_exception(Some(payment_id), ExceptionKind::ReturnDiffers, &origin, &detail).await?;
        }
        return Ok(());
    }
    let reason = report.reason.as_deref().map(replace_nul);
    sqlx::query!(
        "INSERT INTO returns (switch, return_id, payment_id, amount_minor, currency, reason) VALUES ($1, $2, $3, $4, $5, $6)",
        report.switch.as_str(),
        report.return_id.as_str(),
        payment_id.as_str(),
        report.amount_minor,
        &*replace_nul(&report.currency),
        reason.as_deref(),
    )
    .execute(&mut **tx)
    .await?;
    let is_open = locked.facts.state.end().is_none();
    if is_open && !rules::has_left(&locked.facts) && report.switch == locked.profile.switch {
        let detail =
            format!("the switch reported the return {origin} of a payment without a recorded attempt");
        let kind = ExceptionKind::SettledWithoutAttempt;
        tx.open_exception(Some(payment_id), kind, &format!("{payment_id}:{origin}"), &detail).await?;
    }
    let charge = charge(tx, locked, is_open).await?;
    let amount = format!("{} minor units of {}", report.amount_minor, report.currency);
    let detail = match returns::book(&charge, &locked.profile.switch, locked.money, report) {
        ReturnRuling::Book(bearer) => {
            return book(tx, locked, &report.return_id, report.amount_minor, bearer).await;
        }
        ReturnRuling::Keep => {
            keep(tx, payment_id).await?;
            let line = format!("the switch returns {amount}, which is paid out with the debit");
            return writes::append_timeline(tx, payment_id, locked.facts.state, &line).await;
        }
        ReturnRuling::NothingOwed => {
            let line = format!("{amount} came back; the return was known, and nothing was charged");
            return writes::append_internal_timeline(tx, payment_id, locked.facts.state, &line).await;
        }
        ReturnRuling::Differs(difference) => {
            format!("the return {origin} of {amount} differs from the payment in {difference}")
        }
        ReturnRuling::Uncharged => {
            keep(tx, payment_id).await?;
            format!(
                "the return {origin} of {amount} is of a payment that was not charged, which is {}",
                locked.facts.state
            )
        }
        ReturnRuling::Exceeds => format!(
            "the return {origin} of {amount} is more than was charged and not returned of the payment, which is {}",
            locked.facts.state
        ),
    };
    tx.open_exception(Some(payment_id), ExceptionKind::ReturnDiffers, &origin, &detail).await
}

/// The origin of the exception that asks to credit back what came back after a debit.
pub(super) fn after_debit_origin(payment_id: &PaymentId) -> String {
    format!("{payment_id}:returned")
}

/// Marks that a return waits for a charge.
async fn keep(tx: &mut Connection, payment_id: &PaymentId) -> Result<(), LedgerError> {
    sqlx::query!("UPDATE payments SET has_unbooked_return = true WHERE payment_id = $1", payment_id.as_str())
        .execute(tx)
        .await?;
    Ok(())
}

/// Books the returns that were kept until the debit, in the transaction of the debit and after its entries. One whose exception
/// operators have closed is theirs. A return of the whole transfer that found no attempt is theirs too, as is one that no query confirmed: the
/// debit came although it is on record, so an exception asks them to credit the money back if the switch says so.
pub(crate) async fn book_kept(tx: &mut LedgerTransaction, locked: &LockedPayment) -> Result<(), LedgerError> {
    if locked.facts.returned_without_attempt || locked.facts.return_to_confirm {
        let payment_id = &locked.payment_id;
        let detail = if locked.facts.return_to_confirm {
            "debited although a callback had reported a return, which no answer of the switch confirms: the return came after the answer, or the switch contradicts its callback"
        } else {
            "debited although the switch had reported a return without a recorded attempt"
        };
        let origin = after_debit_origin(payment_id);
        tx.open_exception(Some(payment_id), ExceptionKind::ReturnedAfterDebit, &origin, detail).await?;
    }
    if !locked.facts.has_unbooked_return {
        return Ok(());
    }
    let kept = sqlx::query!(
        "SELECT return_id, amount_minor FROM returns r
         WHERE payment_id = $1 AND switch = $2 AND currency = $3 AND booked_at IS NULL
           AND NOT EXISTS (SELECT FROM exceptions e
                           WHERE e.payment_id = r.payment_id AND e.kind = 'return_differs'
                             AND e.origin IN (r.switch || ':' || r.return_id, r.payment_id || ':unbooked')
                             AND e.closed_at IS NOT NULL)
         ORDER BY received_at, return_id",
        locked.payment_id.as_str(),
        locked.profile.switch.as_str(),
        locked.money.currency().code(),
    )
    .fetch_all(&mut **tx)
    .await?;
    for row in kept {
        let return_id = ReturnId::new(row.return_id.as_str()).map_err(|_| LedgerError::Unreadable {
            id: locked.payment_id.to_string(),
            column: "return_id",
            value: row.return_id.clone(),
        })?;
        let report = ReturnReport {
            switch: locked.profile.switch.clone(),
            return_id,
            reference: locked.expected().reference.to_string(),
            amount_minor: row.amount_minor,
            currency: locked.money.currency().code().to_owned(),
            reason: None,
        };
        let charge = charge(tx, locked, false).await?;
        // Each was kept alone: together they may be more than is charged now.
        match returns::book(&charge, &locked.profile.switch, locked.money, &report) {
            ReturnRuling::Book(bearer) => {
                book(tx, locked, &report.return_id, report.amount_minor, bearer).await?;
            }
            ReturnRuling::Exceeds
            | ReturnRuling::Uncharged
            | ReturnRuling::Keep
            | ReturnRuling::NothingOwed
            | ReturnRuling::Differs(_) => {
                let origin = format!("{}:{}", report.switch, report.return_id);
                let detail = format!(
                    "the return {origin} of {} minor units of {} is more than was charged and not returned",
                    report.amount_minor, report.currency
                );
                let kind = ExceptionKind::ReturnDiffers;
                tx.open_exception(Some(&locked.payment_id), kind, &origin, &detail).await?;
            }
        }
    }
    sqlx::query!(
        "UPDATE payments SET has_unbooked_return = false WHERE payment_id = $1",
        locked.payment_id.as_str(),
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// A payment ends without a charge: money that came back of it, without the return of the whole transfer on record, is for operators.
pub(crate) async fn close_kept(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
) -> Result<(), LedgerError> {
    let is_returned = locked.facts.final_status == Some(FinalStatus::Returned);
    if !locked.facts.has_unbooked_return || is_returned {
        return Ok(());
    }
    let payment_id = &locked.payment_id;
    let detail = "money of the payment came back, and nothing was charged";
    let origin = format!("{payment_id}:unbooked");
    tx.open_exception(Some(payment_id), ExceptionKind::ReturnDiffers, &origin, detail).await
}

/// What is charged of the payment now.
async fn charge(tx: &mut Connection, locked: &LockedPayment, is_open: bool) -> Result<Charge, LedgerError> {
    let charged = postings(tx, locked).await?;
    Ok(Charge {
        bearer: charged.bearer(),
        is_open,
        is_returned: locked.facts.final_status == Some(FinalStatus::Returned),
        returned_minor: charged.returned_minor,
    })
}

/// Posts escrow -> the bearer, with its line in the timeline and its event.
async fn book(
    tx: &mut Connection,
    locked: &LockedPayment,
    return_id: &ReturnId,
    amount_minor: i64,
    bearer: Charged,
) -> Result<(), LedgerError> {
    let LockedPayment { payment_id, tx_id, .. } = locked;
    let money = locked.part(amount_minor)?;
    let key = keys::book_return(tx_id, return_id);
    writes::record_done(tx, key.as_str(), payment_id).await?;
    let posting = JournalPosting {
        key: key.as_str(),
        payment_id: Some(payment_id),
        kind: "return",
        debit: &InternalAccount::Escrow.account(money.currency()),
        credit: &account_of(bearer, locked),
        money,
    };
    accounts::post(tx, posting).await?;
    let total_minor = sqlx::query_scalar!(
        r#"WITH booked AS (
               UPDATE returns SET booked_at = clock_timestamp()
               WHERE payment_id = $1 AND switch = $2 AND return_id = $3)
           SELECT returned_minor FROM payments WHERE payment_id = $1"#,
        payment_id.as_str(),
        locked.profile.switch.as_str(),
        return_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    let credited = party_of(bearer);
    let line = match credited {
        Bearer::Customer => format!("{money} came back and was credited to the account"),
        Bearer::Bank => format!("{money} came back"),
    };
    writes::append_timeline(tx, payment_id, locked.final_state(), &line).await?;
    let digest = return_id.digest();
    let booked = BookedReturn { digest, amount_minor, total_minor, credited, is_correction: false };
    events::append_returned(tx, locked, &booked).await
}

//! Debit: holding -> escrow, once, after the switch's SUCCESS. Refused for good if the account was
//! frozen after the hold was opened: Path C (S0.10). Where the recall that follows takes days, the bank is charged instead. A hold that the bank bears is debited whatever the account's status: the
//! customer's account was restored, and is only asked to pay the bank's claim.

use std::borrow::Cow;

use payment_protocol::exception::ExceptionKind;
use payment_protocol::facts::{FinalStatus, HoldStatus};
use payment_protocol::ids::PaymentId;
use payment_protocol::keys::{self, StepKey};
use payment_protocol::port::DebitOutcome;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{self, Bearer, DebitRuling, FinalStatusRuling};
use payment_protocol::{Payment, PaymentState};
use postgres_kit::Connection;

use crate::accounts::{self, InternalAccount, JournalPosting, LockedAccount};
use crate::group_commit::changes::{self, Changes, Posting};
use crate::group_commit::{GroupStep, Target};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::release::release_hold;
use crate::switch::final_status::{FinalStatusSource, settled_line, write_settled};
use crate::switch::{recalls, returns};
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, claims, writes};

impl Ledger {
    /// The payment as it was accepted, and whether the switch must be queried before its debit. Read without a lock: the debit rules
    /// again.
    ///
    /// # Errors
    /// [`LedgerError`]: nothing is known; repeat.
    pub async fn before_debit(&self, payment_id: &PaymentId) -> Result<(Payment, bool), LedgerError> {
        let (payment, is_decided) = self.accepted_and_decided(payment_id).await?;
        let needs_query = !is_decided && payment.profile.confirms_by_query(payment.money);
        Ok((payment, needs_query))
    }

    /// Debits the hold, once, under `{tx_id}:debit` (S0.7).
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn debit(&self, payment_id: &PaymentId) -> Result<DebitOutcome, LedgerError> {
        self.debit_with(payment_id, None).await
    }

    /// As [`Ledger::debit`], and records the SUCCESS that the switch answered to a query just now.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn debit_confirmed(
        &self,
        payment_id: &PaymentId,
        confirmed: &SettledReport,
    ) -> Result<DebitOutcome, LedgerError> {
        self.debit_with(payment_id, Some(confirmed)).await
    }

    async fn debit_with(
        &self,
        payment_id: &PaymentId,
        confirmed: Option<&SettledReport>,
    ) -> Result<DebitOutcome, LedgerError> {
        let step = DebitStep { payment_id: payment_id.clone(), confirmed: confirmed.cloned() };
        match self.group.run(step).await {
            Some(outcome) => Ok(outcome),
            None => self.debit_alone(payment_id, confirmed).await,
        }
    }

    async fn debit_alone(
        &self,
        payment_id: &PaymentId,
        confirmed: Option<&SettledReport>,
    ) -> Result<DebitOutcome, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let mut locked = lock_payment(&mut tx, payment_id).await?;
        if let Some(report) = confirmed {
            write_settled(&mut tx, &locked, report, FinalStatusSource::Query, None).await?;
            locked = lock_payment(&mut tx, payment_id).await?;
        }
        let outcome = match rules::debit(&locked.facts) {
            DebitRuling::Debit => return debit_now(tx, &locked).await,
            DebitRuling::Already => DebitOutcome::Done,
            DebitRuling::Refused(reason) => DebitOutcome::Refused { reason },
            DebitRuling::Returned => DebitOutcome::Returned,
            DebitRuling::NoHold => DebitOutcome::NoHold,
            DebitRuling::Differs => DebitOutcome::Differs,
            DebitRuling::NotConfirmed => DebitOutcome::NotConfirmed,
        };
        let is_unconfirmed =
            outcome == DebitOutcome::NotConfirmed && rules::has_unconfirmed_report(&locked.facts);
        if is_unconfirmed {
            let line = "a callback says that the money left, and the switch's answer to the query does not confirm it yet";
            writes::append_internal_timeline(&mut tx, payment_id, locked.facts.state, line).await?;
        }
        if is_unconfirmed || confirmed.is_some() {
            tx.commit().await?;
        }
        Ok(outcome)
    }
}

/// Debits, or records why the account cannot be debited, and commits.
async fn debit_now(mut tx: LedgerTransaction, locked: &LockedPayment) -> Result<DebitOutcome, LedgerError> {
    let payment_id = &locked.payment_id;
    locked.require_hold(Some(HoldStatus::Open))?;
    if rules::bearer(&locked.facts) == Bearer::Bank {
        debit_borne_hold(&mut tx, locked).await?;
        tx.commit().await?;
        return Ok(DebitOutcome::Done);
    }
    // A kept return is credited in the same transaction, so the account is locked as for that.
    let account = sqlx::query!(
        "SELECT status FROM accounts WHERE account_id = $1 FOR NO KEY UPDATE",
        locked.source_account.as_str()
    )
    .fetch_one(&mut *tx)
    .await?;
    if account.status != "active" && locked.profile.recalls_after_end() {
        charge_bank(&mut tx, locked, &account.status).await?;
        tx.commit().await?;
        return Ok(DebitOutcome::Done);
    }
    if account.status != "active" {
        let reason = format!("{}_account", account.status);
        let key = keys::debit(&locked.tx_id);
        writes::record_refused(&mut tx, key.as_str(), payment_id, &reason).await?;
        let detail = format!("the switch settled the transfer, and the account cannot be debited: {reason}");
        writes::append_timeline(&mut tx, payment_id, PaymentState::Confirmed, &detail).await?;
        tx.commit().await?;
        return Ok(DebitOutcome::Refused { reason });
    }
    changes::write(&mut tx, &[(locked, &debit(locked))]).await?;
    writes::end_decisions(&mut tx, payment_id, PaymentState::Settled).await?;
    returns::book_kept(&mut tx, locked).await?;
    tx.commit().await?;
    Ok(DebitOutcome::Done)
}

/// Charges the bank for money that left and that the account may not be debited for, requests the recall, and ends the payment: its answer
/// takes too long to hold the amount for it. The customer owes it until the money comes back: the exception asks operators to collect it.
async fn charge_bank(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    account_status: &str,
) -> Result<(), LedgerError> {
    let LockedPayment { payment_id, tx_id, .. } = locked;
    let release_key = keys::compensate_reserve(tx_id);
    writes::record_done(tx, release_key.as_str(), payment_id).await?;
    release_hold(tx, locked, &release_key).await?;
    let (_, charged) = late_debit(tx, locked, &keys::debit(tx_id)).await?;
    recalls::request(tx, locked).await?;
    let line = format!("transfer sent; {account_status}_account, so the money is recalled: {charged}");
    writes::move_to_state(tx, payment_id, PaymentState::Settled, &line).await?;
    returns::book_kept(tx, locked).await
}

/// Debits a hold that the bank bears, then settles the claim or leaves it open, and ends the payment.
async fn debit_borne_hold(tx: &mut LedgerTransaction, locked: &LockedPayment) -> Result<(), LedgerError> {
    let payment_id = &locked.payment_id;
    let Some(reason) = claims::why_not_collected(tx, locked).await? else {
        changes::write(tx, &[(locked, &debit_and_collect(locked))]).await?;
        writes::end_decisions(tx, payment_id, PaymentState::Settled).await?;
        return returns::book_kept(tx, locked).await;
    };
    let key = keys::debit(&locked.tx_id);
    writes::record_done(tx, key.as_str(), payment_id).await?;
    post_debit(tx, locked, key.as_str()).await?;
    let detail = claims::keep(tx, locked, &reason).await?;
    let line = format!("transfer sent, late: {detail}");
    writes::move_to_state(tx, payment_id, PaymentState::Settled, &line).await?;
    returns::book_kept(tx, locked).await
}

/// Posts holding -> escrow under `key`; the caller records the operation.
pub(crate) async fn post_debit(
    tx: &mut Connection,
    locked: &LockedPayment,
    key: &str,
) -> Result<(), LedgerError> {
    let currency = locked.money.currency();
    let posting = JournalPosting {
        key,
        payment_id: Some(&locked.payment_id),
        kind: "debit",
        debit: &InternalAccount::Holding.account(currency),
        credit: &InternalAccount::Escrow.account(currency),
        money: locked.money,
    };
    accounts::post(tx, posting).await
}

/// Debits money that left without a hold: from the customer if the account may be debited and has the funds, else from
/// the claims account, which opens an exception. Returns who was charged, and in words what was booked.
pub(crate) async fn late_debit(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    key: &StepKey,
) -> Result<(Bearer, String), LedgerError> {
    let LockedPayment { payment_id, source_account, money, .. } = locked;
    writes::record_done(tx, key.as_str(), payment_id).await?;
    let shortfall = claims::why_not_payable(tx, locked, *money).await?;
    let escrow = InternalAccount::Escrow.account(money.currency());
    let claims = InternalAccount::Claims.account(money.currency());
    let debit = if shortfall.is_none() { source_account.as_str() } else { claims.as_str() };
    let posting = JournalPosting {
        key: key.as_str(),
        payment_id: Some(payment_id),
        kind: "late_debit",
        debit,
        credit: &escrow,
        money: *money,
    };
    match &shortfall {
        None => {
            accounts::post(tx, posting).await?;
            Ok((Bearer::Customer, format!("{money} debited late")))
        }
        Some(reason) => {
            accounts::post(tx, posting).await?;
            let detail = format!("{money} charged to the claims account: {reason}");
            tx.open_exception(Some(payment_id), ExceptionKind::DebitedToClaims, key.as_str(), &detail)
                .await?;
            Ok((Bearer::Bank, detail))
        }
    }
}

/// Posts holding -> escrow, and ends the payment.
fn debit(locked: &LockedPayment) -> Changes {
    Changes {
        state: Some(PaymentState::Settled),
        postings: vec![debit_posting(locked)],
        line: Some(format!("transfer sent: {} debited", locked.money)),
        ..Changes::default()
    }
}

/// Posts holding -> escrow of a hold that the bank bears, and collects the amount from the customer.
fn debit_and_collect(locked: &LockedPayment) -> Changes {
    let collect = Posting {
        key: keys::collect(&locked.tx_id),
        kind: "collect",
        debit: locked.source_account.to_string(),
        credit: InternalAccount::Claims.account(locked.money.currency()),
    };
    let collected = claims::collected_line(locked.money);
    Changes {
        state: Some(PaymentState::Settled),
        postings: vec![debit_posting(locked), collect],
        line: Some(format!("transfer sent, late: {collected}")),
        ..Changes::default()
    }
}

fn debit_posting(locked: &LockedPayment) -> Posting {
    let currency = locked.money.currency();
    Posting {
        key: keys::debit(&locked.tx_id),
        kind: "debit",
        debit: InternalAccount::Holding.account(currency),
        credit: InternalAccount::Escrow.account(currency),
    }
}

/// A debit in a group: the account is active, and no operator was asked. One of a hold that the bank bears, if the amount can be
/// collected.
struct DebitStep {
    payment_id: PaymentId,
    confirmed: Option<SettledReport>,
}

impl GroupStep for DebitStep {
    type Outcome = DebitOutcome;

    fn target(&self) -> Target {
        Target::Payment(self.payment_id.clone())
    }

    fn reads_account(&self) -> bool {
        true
    }

    fn decide(
        &self,
        locked: &LockedPayment,
        account: Option<&LockedAccount>,
    ) -> Result<Option<(Changes, DebitOutcome)>, LedgerError> {
        // A SUCCESS that is recorded with the debit must be the first definite report, which nothing contradicts.
        let mut facts = Cow::Borrowed(&locked.facts);
        if let Some(report) = &self.confirmed {
            let answers_us = true;
            let ruling = rules::settled_report(&facts, &locked.expected(), report, answers_us);
            if ruling != FinalStatusRuling::First || locked.success_contradicted {
                return Ok(None);
            }
            facts.to_mut().final_status = Some(FinalStatus::Settled);
        }
        let is_plain = rules::debit(&facts) == DebitRuling::Debit
            && !facts.returned_without_attempt
            && !facts.return_to_confirm
            && !facts.has_unbooked_return
            && !locked.needed_operator
            && !locked.decision_open;
        let Some(account) = account.filter(|account| is_plain && account.is_active) else { return Ok(None) };
        let mut changes = match rules::bearer(&locked.facts) {
            Bearer::Customer => debit(locked),
            Bearer::Bank if rules::collects(&locked.facts, &locked.profile) && account.can_pay(locked) => {
                debit_and_collect(locked)
            }
            Bearer::Bank => return Ok(None),
        };
        locked.require_hold(Some(HoldStatus::Open))?;
        if self.confirmed.is_some() {
            let source = FinalStatusSource::Query;
            changes.final_status = Some((FinalStatus::Settled, source.as_str()));
            changes.line_before = Some((PaymentState::Confirmed, settled_line(source, None)));
        }
        Ok(Some((changes, DebitOutcome::Done)))
    }
}

//! Debit: holding -> escrow, once, after the switch's SUCCESS. Refused for good if the account was
//! frozen after the hold was opened: Path C (S0.10). Where the recall that follows takes days, the bank is charged instead. A hold that the bank bears is debited whatever the account's status: the
//! customer's account was restored, and is only asked to pay the bank's claim.

use payment_protocol::PaymentState;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::facts::HoldStatus;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys::{self, StepKey};
use payment_protocol::port::DebitOutcome;
use payment_protocol::rules::{self, Bearer, DebitRuling};
use sqlx::PgConnection;

use crate::accounts::{self, InternalAccount, JournalPosting, LockedAccount};
use crate::group_commit::changes::{self, Changes, Posting};
use crate::group_commit::{GroupStep, Target};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::release::release_hold;
use crate::switch::{recalls, returns};
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, claims, writes};

impl Ledger {
    /// Debits the hold, once, under `{tx_id}:debit` (S0.7).
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn debit(&self, payment_id: &PaymentId) -> Result<DebitOutcome, LedgerError> {
        match self.group.run(DebitStep(payment_id.clone())).await {
            Some(outcome) => Ok(outcome),
            None => self.debit_alone(payment_id).await,
        }
    }

    async fn debit_alone(&self, payment_id: &PaymentId) -> Result<DebitOutcome, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        match rules::debit(&locked.facts) {
            DebitRuling::Already => return Ok(DebitOutcome::Done),
            DebitRuling::Refused(reason) => return Ok(DebitOutcome::Refused { reason }),
            DebitRuling::Returned => return Ok(DebitOutcome::Returned),
            DebitRuling::NoHold => return Ok(DebitOutcome::NoHold),
            DebitRuling::Differs => return Ok(DebitOutcome::Differs),
            DebitRuling::NotConfirmed => return Ok(DebitOutcome::NotConfirmed),
            DebitRuling::Debit => {}
        }
        locked.require_hold(Some(HoldStatus::Open))?;
        if rules::bearer(&locked.facts) == Bearer::Bank {
            debit_borne_hold(&mut tx, &locked).await?;
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
            charge_bank(&mut tx, &locked, &account.status).await?;
            tx.commit().await?;
            return Ok(DebitOutcome::Done);
        }
        if account.status != "active" {
            let reason = format!("{}_account", account.status);
            let key = keys::debit(&locked.tx_id);
            writes::record_refused(&mut tx, key.as_str(), payment_id, &reason).await?;
            let detail =
                format!("the switch settled the transfer, and the account cannot be debited: {reason}");
            writes::append_timeline(&mut tx, payment_id, PaymentState::Confirmed, &detail).await?;
            tx.commit().await?;
            return Ok(DebitOutcome::Refused { reason });
        }
        changes::write(&mut tx, &[(&locked, &debit(&locked))]).await?;
        writes::end_decisions(&mut tx, payment_id, PaymentState::Settled).await?;
        returns::book_kept(&mut tx, &locked).await?;
        tx.commit().await?;
        Ok(DebitOutcome::Done)
    }
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
    let charged = late_debit(tx, locked, &keys::debit(tx_id)).await?;
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
    tx: &mut PgConnection,
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
/// the claims account, which opens an exception. Returns in words what was booked.
pub(crate) async fn late_debit(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    key: &StepKey,
) -> Result<String, LedgerError> {
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
            Ok(format!("{money} debited late"))
        }
        Some(reason) => {
            accounts::post(tx, posting).await?;
            let detail = format!("{money} charged to the claims account: {reason}");
            tx.open_exception(Some(payment_id), ExceptionKind::DebitedToClaims, key.as_str(), &detail)
                .await?;
            Ok(detail)
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
struct DebitStep(PaymentId);

impl GroupStep for DebitStep {
    type Outcome = DebitOutcome;

    fn target(&self) -> Target {
        Target::Payment(self.0.clone())
    }

    fn reads_account(&self) -> bool {
        true
    }

    fn decide(
        &self,
        locked: &LockedPayment,
        account: Option<&LockedAccount>,
    ) -> Result<Option<(Changes, DebitOutcome)>, LedgerError> {
        let is_plain = rules::debit(&locked.facts) == DebitRuling::Debit
            && !locked.facts.has_unbooked_return
            && !locked.needed_operator
            && !locked.decision_open;
        let Some(account) = account.filter(|account| is_plain && account.is_active) else { return Ok(None) };
        let changes = match rules::bearer(&locked.facts) {
            Bearer::Customer => debit(locked),
            Bearer::Bank if rules::collects(&locked.facts, &locked.profile) && account.can_pay(locked) => {
                debit_and_collect(locked)
            }
            Bearer::Bank => return Ok(None),
        };
        locked.require_hold(Some(HoldStatus::Open))?;
        Ok(Some((changes, DebitOutcome::Done)))
    }
}

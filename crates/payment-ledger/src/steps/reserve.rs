//! Reserve: source -> holding, once; a refusal is recorded and repeated. And the fence, which refuses
//! a late reserve.

use payment_protocol::cause::ReserveRefusal;
use payment_protocol::facts::ReserveRecord;
use payment_protocol::ids::{PaymentId, RunId};
use payment_protocol::keys;
use payment_protocol::port::{FenceOutcome, ReserveOutcome};
use payment_protocol::rules::{self, ReserveRuling};
use payment_protocol::{Payment, PaymentState};
use postgres_kit::Connection;

use crate::accounts::{InternalAccount, LockedAccount};
use crate::group_commit::changes::{self, Changes, Posting};
use crate::group_commit::{GroupStep, Target};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::workflow_input;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, admission::limits, writes};

impl Ledger {
    /// Holds the amount for `run`, once, under `{payment_id}:reserve` (S0.3).
    ///
    /// Refusals in order of precedence: a customer's cancel, a start past `valid_until`, unknown
    /// account, wrong currency, frozen account, insufficient funds, a limit. Each is recorded.
    /// `payment` is the workflow's; another one than the ledger's opens an exception and changes nothing.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn reserve(&self, payment: &Payment, run: &RunId) -> Result<ReserveOutcome, LedgerError> {
        let step = ReserveStep { payment: payment.clone(), run: run.clone() };
        match self.group.run(step).await {
            Some(outcome) => Ok(outcome),
            None => self.reserve_alone(payment, run).await,
        }
    }

    async fn reserve_alone(&self, payment: &Payment, run: &RunId) -> Result<ReserveOutcome, LedgerError> {
        let payment_id = &payment.payment_id;
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let Some(locked) = workflow_input::lock_same(&mut tx, payment).await? else {
            tx.commit().await?;
            return Ok(ReserveOutcome::Differs);
        };
        let outcome = match rules::reserve(&locked.facts, run, locked.too_late) {
            ReserveRuling::Recorded(ReserveRecord::Held) => return Ok(ReserveOutcome::Held),
            ReserveRuling::Recorded(ReserveRecord::Refused(refusal)) => {
                return Ok(ReserveOutcome::Refused(refusal));
            }
            ReserveRuling::AnotherRun => return Ok(ReserveOutcome::AnotherRun),
            ReserveRuling::Ended(end) => return Ok(ReserveOutcome::Ended(end)),
            ReserveRuling::Refuse(refusal) => Err(refusal),
            ReserveRuling::Try => check_account(&mut tx, &locked).await?,
        };
        let reserved = match outcome {
            Ok(()) => {
                locked.require_hold(None)?;
                changes::write(&mut tx, &[(&locked, &hold(&locked, run))]).await?;
                ReserveOutcome::Held
            }
            Err(refusal) => {
                sqlx::query!(
                    "UPDATE payments SET run_id = $2, started_at = coalesce(started_at, clock_timestamp()) WHERE payment_id = $1",
                    payment_id.as_str(),
                    run.as_str(),
                )
                .execute(&mut *tx)
                .await?;
                refuse(&mut tx, payment_id, refusal).await?;
                ReserveOutcome::Refused(refusal)
            }
        };
        tx.commit().await?;
        Ok(reserved)
    }

    /// Ends a payment that has held and sent nothing, by recording `refusal` under reserve's key: a
    /// later reserve finds the record. Does nothing if a reserve is recorded, or if the payment may have been sent although no
    /// attempt is recorded.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn refuse_unreserved(
        &self,
        payment_id: &PaymentId,
        refusal: ReserveRefusal,
    ) -> Result<(), LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        refuse_locked(&mut tx, &locked, refusal).await?;
        Ok(tx.commit().await?)
    }

    /// Ends the payment of a workflow that found it invalid, as [`Ledger::refuse_unreserved`] does. `payment` is the
    /// workflow's; another one than the ledger's opens an exception and changes nothing.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn reject(&self, payment: &Payment) -> Result<(), LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        if let Some(locked) = workflow_input::lock_same(&mut tx, payment).await? {
            refuse_locked(&mut tx, &locked, ReserveRefusal::Invalid).await?;
        }
        tx.commit().await
    }

    /// Records the fence under reserve's key unless something is recorded there. The first step of a
    /// recovery workflow. `payment` is the workflow's; another one than the ledger's opens an exception and changes nothing.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn fence_reserve(&self, payment: &Payment) -> Result<FenceOutcome, LedgerError> {
        let payment_id = &payment.payment_id;
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let Some(locked) = workflow_input::lock_same(&mut tx, payment).await? else {
            tx.commit().await?;
            return Ok(FenceOutcome::Differs);
        };
        if let Some(end) = locked.facts.state.end() {
            return Ok(FenceOutcome::Ended(end));
        }
        if locked.facts.reserve.is_none() {
            fence(&mut tx, payment_id).await?;
            tx.commit().await?;
        }
        Ok(FenceOutcome::Open(locked.facts.cause))
    }
}

/// Writes the fence only; the payment continues with its release.
pub(crate) async fn fence(tx: &mut Connection, payment_id: &PaymentId) -> Result<(), LedgerError> {
    let key = keys::reserve(payment_id);
    writes::record_refused(tx, key.as_str(), payment_id, ReserveRefusal::Fenced.as_str()).await
}

/// Refuses a payment that has reserved nothing.
async fn refuse_locked(
    tx: &mut Connection,
    locked: &LockedPayment,
    refusal: ReserveRefusal,
) -> Result<(), LedgerError> {
    if rules::may_refuse_unreserved(&locked.facts, refusal) {
        refuse(tx, &locked.payment_id, refusal).await?;
    }
    Ok(())
}

async fn refuse(
    tx: &mut Connection,
    payment_id: &PaymentId,
    refusal: ReserveRefusal,
) -> Result<(), LedgerError> {
    let key = keys::reserve(payment_id);
    writes::record_refused(tx, key.as_str(), payment_id, refusal.as_str()).await?;
    let detail = format!("nothing was charged: {refusal}");
    writes::move_to_state(tx, payment_id, refusal.end().into(), &detail).await
}

/// Locks the account and counts the payment towards its limits, or returns the refusal.
async fn check_account(
    tx: &mut Connection,
    locked: &LockedPayment,
) -> Result<Result<(), ReserveRefusal>, LedgerError> {
    let LockedPayment { money, source_account, .. } = locked;
    let account = sqlx::query!(
        "SELECT tenant_id, kind, status, currency, available_minor FROM accounts WHERE account_id = $1 FOR UPDATE",
        source_account.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?
    .filter(|account| account.tenant_id == locked.tenant_id && account.kind == "customer");
    let Some(account) = account else { return Ok(Err(ReserveRefusal::UnknownAccount)) };
    if account.currency != money.currency().code() {
        return Ok(Err(ReserveRefusal::WrongCurrency));
    }
    if account.status != "active" {
        return Ok(Err(ReserveRefusal::FrozenAccount));
    }
    if account.available_minor.unwrap_or(0) < money.amount_minor() {
        return Ok(Err(ReserveRefusal::InsufficientFunds));
    }
    if !limits::use_limits(tx, locked).await? {
        return Ok(Err(ReserveRefusal::LimitExceeded));
    }
    Ok(Ok(()))
}

/// Posts source -> holding. The entry opens the hold; row_lock.rs checks that they match when it reads them.
fn hold(locked: &LockedPayment, run: &RunId) -> Changes {
    Changes {
        state: Some(PaymentState::Reserved),
        run: Some(run.clone()),
        postings: vec![Posting {
            key: keys::reserve(&locked.payment_id),
            kind: "reserve",
            debit: locked.source_account.to_string(),
            credit: InternalAccount::Holding.account(locked.money.currency()),
        }],
        line: Some(format!("transfer pending: {} held", locked.money)),
        ..Changes::default()
    }
}

/// A reserve in a group: the account can be charged, and no limit bounds it.
pub(crate) struct ReserveStep {
    pub(crate) payment: Payment,
    pub(crate) run: RunId,
}

impl GroupStep for ReserveStep {
    type Outcome = ReserveOutcome;

    fn target(&self) -> Target {
        Target::Payment(self.payment.payment_id.clone())
    }

    fn reads_account(&self) -> bool {
        true
    }

    fn decide(
        &self,
        locked: &LockedPayment,
        account: Option<&LockedAccount>,
    ) -> Result<Option<(Changes, ReserveOutcome)>, LedgerError> {
        let can_charge = |account: &LockedAccount| {
            account.tenant_id == locked.tenant_id
                && account.currency == locked.money.currency().code()
                && account.is_active
                && account.available_minor >= locked.money.amount_minor()
                && !account.may_be_limited
        };
        let is_plain = workflow_input::differences(locked, &self.payment).is_empty()
            && rules::reserve(&locked.facts, &self.run, locked.too_late) == ReserveRuling::Try
            && account.is_some_and(can_charge);
        if !is_plain {
            return Ok(None);
        }
        locked.require_hold(None)?;
        Ok(Some((hold(locked, &self.run), ReserveOutcome::Held)))
    }
}

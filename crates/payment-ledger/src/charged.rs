//! What was charged for a payment whose money left: who bears it now, and what came back.

use payment_protocol::returns::Charged;
use payment_protocol::rules::Bearer;
use postgres_kit::Connection;

use crate::LedgerError;
use crate::accounts::InternalAccount;
use crate::row_lock::LockedPayment;

/// What the journal says about the money of a payment that left.
pub(crate) struct PaymentPostings {
    /// Whether escrow was credited: the customer or the bank is charged.
    pub(crate) debited: bool,
    /// What came back, in minor units.
    pub(crate) returned_minor: i64,
    pub(crate) written_off: bool,
    /// Whether the bank bears the amount.
    pub(crate) has_claim: bool,
}

impl PaymentPostings {
    /// The bearer of the amount; `None` while nothing is charged.
    pub(crate) fn bearer(&self) -> Option<Charged> {
        self.debited.then_some(match (self.has_claim, self.written_off) {
            (true, _) => Charged::Claim,
            (false, true) => Charged::Loss,
            (false, false) => Charged::Customer,
        })
    }
}

/// The party of a bearer, as events name it.
pub(crate) fn party_of(bearer: Charged) -> Bearer {
    match bearer {
        Charged::Customer => Bearer::Customer,
        Charged::Claim | Charged::Loss => Bearer::Bank,
    }
}

/// The account of a bearer.
pub(crate) fn account_of(bearer: Charged, locked: &LockedPayment) -> String {
    let currency = locked.money.currency();
    match bearer {
        Charged::Customer => locked.source_account.to_string(),
        Charged::Claim => InternalAccount::Claims.account(currency),
        Charged::Loss => InternalAccount::Losses.account(currency),
    }
}

/// Reads it under the payment row's lock.
pub(crate) async fn postings(
    tx: &mut Connection,
    locked: &LockedPayment,
) -> Result<PaymentPostings, LedgerError> {
    Ok(sqlx::query_as!(
        PaymentPostings,
        r#"SELECT EXISTS (SELECT FROM journal WHERE payment_id = $1 AND kind IN ('debit', 'late_debit')) AS "debited!",
                  (SELECT returned_minor FROM payments WHERE payment_id = $1) AS "returned_minor!",
                  EXISTS (SELECT FROM journal WHERE payment_id = $1 AND kind = 'write_off') AS "written_off!",
                  EXISTS (SELECT FROM claims WHERE payment_id = $1 AND closed_at IS NULL) AS "has_claim!""#,
        locked.payment_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?)
}

//! The people of the bank: what stands before them, what they decide, and the accounts that show what it cost.

use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use payment_protocol::ids::DecisionId;
use payment_protocol::port::DebitOutcome;

use super::{Bank, Sample, report};

impl Bank {
    /// Lets the payment stand before a person.
    pub(crate) async fn stand(&self, p: &Sample, reason: OperatorReason) {
        self.ledger.needs_operator(&p.id, reason).await.unwrap();
    }

    /// One person proposes, with evidence.
    pub(crate) async fn propose(&self, p: &Sample, action: Action) -> DecisionId {
        let proposed = self.ledger.propose(&p.id, action, "Ann", "it stands", Some("letter 7")).await;
        proposed.unwrap().decision_id
    }

    /// Two people decide.
    pub(crate) async fn decide(&self, p: &Sample, action: Action) -> DecisionId {
        let decision_id = self.propose(p, action).await;
        if action.moves_money() {
            self.ledger.confirm(&decision_id, "Bob", "I agree").await.unwrap();
        }
        decision_id
    }

    /// Ends a payment of a switch that does not call back: it was asked, and settled.
    pub(crate) async fn settle_by_hand(&self, p: &Sample) {
        self.ledger.record_settled(&p.id, &report(p), FinalStatusSource::Query).await.unwrap();
        assert_eq!(self.debit(p).await, DebitOutcome::Done);
    }

    /// What an internal account holds, by its entries.
    pub(crate) async fn internal(&self, name: &str) -> i64 {
        let account = format!("internal:{name}:EUR");
        self.number(&format!(
            "SELECT coalesce(sum(CASE credit_account WHEN '{account}' THEN amount_minor ELSE -amount_minor END), 0)::bigint
             FROM journal WHERE '{account}' IN (debit_account, credit_account)"
        ))
        .await
    }

    /// The number of the payment's newest open exception.
    pub(crate) async fn open_exception(&self, p: &Sample) -> i64 {
        let sql = format!(
            "SELECT max(exception_id) FROM exceptions WHERE payment_id = '{}' AND closed_at IS NULL",
            p.id
        );
        self.number(&sql).await
    }
}

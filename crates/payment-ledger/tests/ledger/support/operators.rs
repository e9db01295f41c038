//! Operators: payments that need them, their decisions, and the internal accounts and exceptions that result.

use payment_ledger::operator::decisions::DecideError;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::action::Correction;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use payment_protocol::ids::DecisionId;
use payment_protocol::port::DebitOutcome;

use super::{Bank, Sample, report};

impl Bank {
    /// Records that the payment needs an operator.
    pub(crate) async fn needs_operator(&self, p: &Sample, reason: OperatorReason) {
        self.ledger.needs_operator(&p.id, reason).await.unwrap();
    }

    /// Proposes an action by one operator, with evidence.
    pub(crate) async fn propose(&self, p: &Sample, action: Action) -> DecisionId {
        let proposed = self.ledger.propose(&p.id, action, "Ann", "undecided", Some("letter 7")).await;
        proposed.unwrap().decision_id
    }

    /// Proposes an action, and confirms it by a second operator if the action moves money.
    pub(crate) async fn decide(&self, p: &Sample, action: Action) -> DecisionId {
        let decision_id = self.propose(p, action).await;
        if action.moves_money() {
            self.ledger.confirm(&decision_id, "Bob", "I agree").await.unwrap();
        }
        decision_id
    }

    /// Books a correction of the payment's newest open exception, by two operators with evidence.
    pub(crate) async fn correct(&self, p: &Sample, correction: Correction) -> Result<(), DecideError> {
        let exception = self.open_exception(p).await;
        let evidence = Some("letter 9");
        let proposed =
            self.ledger.propose_correction(exception, correction, "Ann", "found", evidence).await?;
        self.ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.map(drop)
    }

    /// Ends a payment at a switch without callbacks: records `settled` from a query, and debits.
    pub(crate) async fn settle_by_query(&self, p: &Sample) {
        self.ledger.record_settled(&p.id, &report(p), FinalStatusSource::Query).await.unwrap();
        assert_eq!(self.debit(p).await, DebitOutcome::Done);
    }

    /// Balance of an internal account, as the sum of its entries.
    pub(crate) async fn internal(&self, name: &str) -> i64 {
        let account = format!("internal:{name}:EUR");
        self.number(&format!(
            "SELECT coalesce(sum(CASE credit_account WHEN '{account}' THEN amount_minor ELSE -amount_minor END), 0)::bigint
             FROM journal WHERE '{account}' IN (debit_account, credit_account)"
        ))
        .await
    }

    /// Id of the payment's newest open exception.
    pub(crate) async fn open_exception(&self, p: &Sample) -> i64 {
        let sql = format!(
            "SELECT max(exception_id) FROM exceptions WHERE payment_id = '{}' AND closed_at IS NULL",
            p.id
        );
        self.number(&sql).await
    }

    /// Moves the payment's timestamps `seconds` into the past.
    pub(crate) async fn age(&self, p: &Sample, seconds: i64) {
        self.sql(&format!(
            "UPDATE payments SET accepted_at = accepted_at - interval '{seconds} s', updated_at = updated_at - interval '{seconds} s',
                    needs_operator_since = needs_operator_since - interval '{seconds} s',
                    cancelling_since = cancelling_since - interval '{seconds} s'
             WHERE payment_id = '{}'",
            p.id
        ))
        .await;
    }
}

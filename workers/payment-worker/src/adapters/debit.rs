//! The port of one debit attempt.

use std::time::Duration;

use payment_ledger::LedgerError;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::Payment;
use payment_protocol::debit::DebitPort;
use payment_protocol::keys::Reference;
use payment_protocol::port::DebitOutcome;
use payment_protocol::report::SettledReport;
use payment_protocol::submit::QueryAnswer;

use crate::activities::switch::SwitchActivities;

/// Longest time for which a debit waits for the switch's answer. It holds the workflow task; a slower switch is polled while the
/// payment waits.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The port of one debit attempt.
pub(crate) struct DebitAdapter<'a> {
    pub(crate) switch: &'a SwitchActivities,
    pub(crate) payment: &'a Payment,
    /// Whether the switch must be queried first, as the ledger said.
    pub(crate) needs_query: bool,
}

impl DebitAdapter<'_> {
    async fn query_within_timeout(&self) -> Result<QueryAnswer, LedgerError> {
        let no_answer = |detail: &str| Ok(QueryAnswer::NoAnswer { detail: detail.to_owned() });
        let Some(_permit) = self.switch.local_submits.permit_query(&self.payment.profile.switch) else {
            return no_answer("too many requests to the switch are under way within workflow tasks");
        };
        match tokio::time::timeout(QUERY_TIMEOUT, self.switch.session(self.payment).query()).await {
            Ok(reply) => Ok(reply?.answer),
            Err(_) => no_answer("it gave no answer within a second"),
        }
    }
}

impl DebitPort for DebitAdapter<'_> {
    type Error = LedgerError;

    async fn needs_query(&self) -> Result<bool, LedgerError> {
        Ok(self.needs_query)
    }

    async fn query(&self, _reference: &Reference) -> Result<QueryAnswer, LedgerError> {
        let answer = self.query_within_timeout().await?;
        if let QueryAnswer::NoAnswer { detail } = &answer {
            tracing::warn!(
                payment.id = self.payment.payment_id.as_str(),
                switch = self.payment.profile.switch.as_str(),
                detail,
                "the switch did not answer the query before a debit; the payment polls it"
            );
        }
        Ok(answer)
    }

    async fn debit(&self, confirmed: Option<&SettledReport>) -> Result<DebitOutcome, LedgerError> {
        let (ledger, id) = (&self.switch.ledger, &self.payment.payment_id);
        match confirmed {
            Some(report) => match ledger.debit_confirmed(id, report).await {
                // The debit is for operators; the switch's answer is on record all the same.
                Err(error) if error.is_final() => {
                    ledger.record_settled(id, report, FinalStatusSource::Query).await?;
                    Err(error)
                }
                outcome => outcome,
            },
            None => ledger.debit(id).await,
        }
    }
}

//! What the switch says of a payment's transfer now, by the means that the payment's own profile names.
//! Looking changes nothing there.

use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::reads::explain::PaymentExplanation;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::keys;
use payment_protocol::submit::QueryAnswer;
use serde::Serialize;
use switch_client::statement::STATEMENT_NOT_READ_TO_END;
use switch_client::{LookupKey, SwitchClient, SwitchReply, TransferRef};
use tokio::time::{Instant, timeout};

use crate::bank::Bank;
use crate::document::money;

/// Time for all looks together. A long statement is read on with each.
const TIMEOUT: Duration = Duration::from_secs(15);

/// By what the switch was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Means {
    /// By our reference.
    Query,
    /// By its own id, or in its list of transfers to that account.
    ReadBack,
    /// In its statement, which has ends only.
    Statement,
}

/// The switch's own view.
#[derive(Clone, Debug)]
pub(crate) struct SwitchSays {
    /// By what it was asked.
    pub(crate) means: Means,
    /// What it said; never [`QueryAnswer::NoAnswer`] or [`QueryAnswer::OurFault`].
    pub(crate) answer: QueryAnswer,
    /// Its own id of the transfer.
    pub(crate) transfer_id: Option<String>,
}

impl SwitchSays {
    /// For people.
    pub(crate) fn words(&self) -> String {
        let id = self.transfer_id.as_ref().map(|id| format!(" (its id {id})")).unwrap_or_default();
        match &self.answer {
            QueryAnswer::Settled(report) => {
                format!("settled: {}{id}", money(report.amount_minor, &report.currency))
            }
            QueryAnswer::Pending => format!("pending{id}"),
            QueryAnswer::Void { reason } => format!("dead: {reason}{id}"),
            QueryAnswer::NotFound if self.means == Means::Statement => {
                "no end of it is in the statement".into()
            }
            QueryAnswer::NotFound => "it knows nothing of it".into(),
            QueryAnswer::NoAnswer { detail } | QueryAnswer::OurFault { detail } => detail.clone(),
        }
    }

    /// For programs.
    pub(crate) fn word(&self) -> &'static str {
        match self.answer {
            QueryAnswer::Settled(_) => "settled",
            QueryAnswer::Pending => "pending",
            QueryAnswer::Void { .. } => "void",
            QueryAnswer::NotFound => "not_found",
            QueryAnswer::NoAnswer { .. } | QueryAnswer::OurFault { .. } => "no_answer",
        }
    }
}

/// Asks the switch, within 15 seconds.
///
/// # Errors
/// Why it could not be asked, in words.
pub(super) async fn ask(
    bank: &Bank,
    ledger: &Ledger,
    payment: &PaymentExplanation,
) -> Result<SwitchSays, String> {
    let row = &payment.payment;
    let profile = &row.profile;
    let means = match (profile.needs_account_lock(), profile.has_query, profile.has_statement) {
        (true, true, _) => Means::ReadBack,
        (false, true, _) => Means::Query,
        (_, false, true) => Means::Statement,
        (_, false, false) => return Err("it has neither a query nor a statement".into()),
    };
    let configured = bank.switch(&profile.switch).map_err(|error| format!("{error:#}"))?;
    let client = SwitchClient::new(&configured.options, profile).map_err(|error| error.to_string())?;
    let id = PaymentId::new(row.view.payment_id.as_str()).map_err(|error| error.to_string())?;
    let reference = keys::submit(&TxId::derive(&id));
    let sought = ledger.lookup_key(&id).await.map_err(|error| error.to_string())?;
    let sought = LookupKey {
        reference: reference.clone(),
        marker: sought.marker,
        transfer_id: sought.transfer_id,
        creditor_account: sought.destination_account,
        money: sought.money,
    };
    let look = async {
        match means {
            Means::Query => client.query(TransferRef::Reference(&reference)).await,
            Means::ReadBack => client.query(TransferRef::LookupKey(&sought)).await,
            Means::Statement => read_statement(&client, &sought).await,
        }
    };
    let answered = timeout(TIMEOUT, look).await.map_err(|_| "it gave no answer within 15 s".to_owned())?;
    match answered.answer {
        QueryAnswer::NoAnswer { detail } => Err(format!("it gave no answer: {detail}")),
        QueryAnswer::OurFault { detail } => Err(format!("it refuses to tell: {detail}")),
        answer => Ok(SwitchSays { means, answer, transfer_id: answered.transfer_id }),
    }
}

/// Reads on where the client stopped, since nobody looks a second time here.
async fn read_statement(client: &SwitchClient, sought: &LookupKey) -> SwitchReply<QueryAnswer> {
    let began = Instant::now();
    loop {
        let answered = client.statement(sought).await;
        let again = matches!(&answered.answer, QueryAnswer::NoAnswer { detail } if detail == STATEMENT_NOT_READ_TO_END);
        if !again || began.elapsed() > TIMEOUT {
            return answered;
        }
    }
}

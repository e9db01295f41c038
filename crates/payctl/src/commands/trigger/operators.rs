//! What the demo's operators do in a case, each in a session of its own at operator-api.

use anyhow::Context as _;
use payment_protocol::decision::Action;
use payment_protocol::ids::{AccountId, PaymentId};
use reqwest::Url;
use serde_json::{Value, json};
use service_kit::published::DEMO_OPERATOR_PASSWORD;

use crate::commands::demo;
use crate::operator_api::{ChangeDocument, Credential, DecisionDocument, Login, OperatorClient};
use crate::output::Output;

/// Why the operators act, for the records.
const REASON: &str = "a case of payctl trigger";
/// What to do if an answer is missing.
const IF_UNKNOWN: &str = "the demo's operators may have acted; see payctl changes list --all";

/// The demo's two operators, logged in.
pub(super) struct DemoOperators {
    proposer: OperatorClient,
    approver: OperatorClient,
}

impl DemoOperators {
    /// Logs both in.
    ///
    /// # Errors
    /// A login is refused, or operator-api does not answer.
    pub(super) async fn log_in(operator_api: &Url, out: &mut Output<'_>) -> anyhow::Result<Self> {
        let [first, second] = demo::OPERATORS;
        let proposer = log_in(operator_api, first, out).await?;
        match log_in(operator_api, second, out).await {
            Ok(approver) => Ok(Self { proposer, approver }),
            Err(error) => {
                let _ = proposer.log_out().await;
                Err(error)
            }
        }
    }

    /// Ends both sessions. One that is not ended ends by itself after 30 minutes.
    pub(super) async fn log_out(&self) {
        for client in [&self.proposer, &self.approver] {
            let _ = client.log_out().await;
        }
    }

    /// Freezes an account: one operator suffices.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(super) async fn freeze(&self, tenant: &str, account: &AccountId) -> anyhow::Result<()> {
        self.propose("freeze_account", tenant, account).await.map(drop)
    }

    /// Unfreezes an account: one operator proposes it, the other one confirms it.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(super) async fn unfreeze(&self, tenant: &str, account: &AccountId) -> anyhow::Result<()> {
        let change = self.propose("unfreeze_account", tenant, account).await?;
        let path = format!("changes/{}/confirm", change.change_id);
        self.approver.post::<ChangeDocument>(&path, &json!({"reason": REASON}), IF_UNKNOWN).await?;
        Ok(())
    }

    /// Decides that a payment is debited: one operator proposes it, the other one confirms it. background-worker delivers the confirmed
    /// decision to the workflow. Returns the decision's id.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(super) async fn decide_debit(&self, payment: &PaymentId) -> anyhow::Result<String> {
        let reason = "the switch settled the transfer";
        let proposal = json!({"action": Action::Debit.as_str(), "reason": reason, "evidence": "the book of the demo's mock switch"});
        let proposed: DecisionDocument =
            self.proposer.decide(&format!("payments/{payment}/decisions"), &proposal).await?.document;
        let path = format!("decisions/{}/confirm", proposed.decision_id);
        self.approver.decide::<DecisionDocument>(&path, &json!({"reason": reason})).await?;
        Ok(proposed.decision_id)
    }

    async fn propose(&self, kind: &str, tenant: &str, account: &AccountId) -> anyhow::Result<ChangeDocument> {
        let change: Value = json!({"kind": kind, "tenant_id": tenant, "account_id": account});
        let body = json!({"change": change, "reason": REASON});
        Ok(self.proposer.post("changes", &body, IF_UNKNOWN).await?.document)
    }
}

async fn log_in(operator_api: &Url, name: &str, out: &mut Output<'_>) -> anyhow::Result<OperatorClient> {
    let as_whom = Credential::Password { name: name.into(), password: DEMO_OPERATOR_PASSWORD.into() };
    let session = OperatorClient::log_in(Login { url: operator_api.clone(), as_whom }, out).await;
    let session = session.with_context(|| {
        format!("nothing was triggered: {name}, an operator of the demo, acts in this case and cannot log in")
    })?;
    OperatorClient::new(&session)
}

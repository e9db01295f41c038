//! Requests to the API, as a customer sends them.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ALICE, API_KEY, System};
use crate::wait::until;

/// How long an order waits for an answer other than 503.
const PAY_WITHIN: Duration = Duration::from_secs(60);

/// A payment that the API accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedPayment {
    /// The payment id.
    pub payment_id: String,
    /// The reference of the transfer at the switch.
    pub reference: String,
    /// The idempotency key of the request.
    pub key: String,
}

/// Request body of a payment from [`ALICE`].
#[must_use]
pub fn payment_request(amount: &str) -> Value {
    json!({"amount": amount, "currency": "EUR", "source_account": ALICE, "destination_account": "XX-BOB"})
}

impl System {
    /// Posts a payment under an idempotency key; returns the response whatever its status is.
    ///
    /// # Errors
    /// If the API does not answer.
    pub async fn post_payment(&self, key: &str, body: &Value) -> anyhow::Result<reqwest::Response> {
        let url = format!("{}/api/v1/payments", self.api.url());
        let request = self.http.post(url).bearer_auth(API_KEY).header("Idempotency-Key", key).json(body);
        Ok(request.send().await?)
    }

    /// The account that payments are made from.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Posts a payment of `amount` EUR from [`System::account`].
    ///
    /// # Errors
    /// If the API does not accept it.
    pub async fn pay(&self, amount: &str) -> anyhow::Result<AcceptedPayment> {
        self.pay_to("XX-BOB", amount).await
    }

    /// The same to an account at another bank.
    ///
    /// # Errors
    /// As [`System::pay`].
    pub async fn pay_to(&self, destination: &str, amount: &str) -> anyhow::Result<AcceptedPayment> {
        let mut body = payment_request(amount);
        body["source_account"] = self.account.as_str().into();
        body["destination_account"] = destination.into();
        self.pay_with(&body).await
    }

    /// Posts a payment with this body, again under its key while the API answers that its database is not available (`store_unavailable`).
    ///
    /// # Errors
    /// If the API does not accept it.
    pub async fn pay_with(&self, body: &Value) -> anyhow::Result<AcceptedPayment> {
        let key = Uuid::new_v4().to_string();
        let (status, body) = until("the order is answered", PAY_WITHIN, || async {
            let answer = async {
                let response = self.post_payment(&key, body).await?;
                anyhow::Ok((response.status(), response.json::<Value>().await?))
            };
            // As text: `until` repeats a request whose connection failed.
            let (status, body) = answer.await.map_err(|error| anyhow!("{error:#}"))?;
            Ok((body["code"] != "store_unavailable").then_some((status, body)))
        })
        .await?;
        if status != 201 {
            bail!("the payment was not accepted: {status} {body}");
        }
        let text = |field: &str| {
            body[field]
                .as_str()
                .map(str::to_owned)
                .with_context(|| format!("the response has no {field}: {body}"))
        };
        Ok(AcceptedPayment {
            payment_id: text("payment_id")?,
            reference: format!("{}:submit", text("transaction_id")?),
            key,
        })
    }

    /// The payment as the API shows it.
    ///
    /// # Errors
    /// If the API does not answer with success.
    pub async fn payment(&self, payment_id: &str) -> anyhow::Result<Value> {
        let url = format!("{}/api/v1/payments/{payment_id}", self.api.url());
        Ok(self.http.get(url).bearer_auth(API_KEY).send().await?.error_for_status()?.json().await?)
    }

    /// Why the payment needs an operator, or needed one last, as the bank's own database has it; customers do not see it.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn operator_reason(&self, payment_id: &str) -> anyhow::Result<Option<String>> {
        let query = "SELECT operator_reason FROM payments WHERE payment_id = $1";
        Ok(sqlx::query_scalar(query).bind(payment_id).fetch_one(&self.database.pool).await?)
    }

    /// Requests the payment's cancellation as the customer; returns the response whatever its status is.
    ///
    /// # Errors
    /// If the API does not answer.
    pub async fn cancel(&self, payment_id: &str) -> anyhow::Result<reqwest::Response> {
        let url = format!("{}/api/v1/payments/{payment_id}/cancel", self.api.url());
        let key = Uuid::new_v4().to_string();
        Ok(self.http.post(url).bearer_auth(API_KEY).header("Idempotency-Key", key).send().await?)
    }
}

//! The admin interface of the mock switch: injects faults and reads the transfers that the switch has recorded.

use anyhow::bail;
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use serde_json::Value;

use crate::system::SWITCH_TOKEN;

/// Beginning of the references of transfers that no payment ordered. No reference of the bank begins so.
pub const UNORDERED: &str = "unordered";

/// Client of the mock switch's admin interface.
#[derive(Clone, Debug)]
pub struct SwitchAdmin {
    url: String,
    http: reqwest::Client,
}

/// One transfer as the switch has recorded it.
#[derive(Clone, Debug, Deserialize)]
pub struct SwitchTransfer {
    /// Our reference.
    pub reference: String,
    /// `PENDING`, `SETTLED`, `REJECTED`, `CANCELLED` or `RETURNED`.
    pub status: String,
    /// Amount in minor units; `None` if the row is a tombstone.
    pub amount_minor: Option<i64>,
    /// What came back of a settled transfer in minor units, whole or in parts.
    pub returned_minor: i64,
    /// ISO 4217 code; `None` if the row is a tombstone.
    pub currency: Option<String>,
}

/// A page of the transfers of the switch.
#[derive(Debug, Deserialize)]
struct TransferPage {
    transfers: Vec<SwitchTransfer>,
    /// `after` of the next page; `None` if this is the last one.
    next: Option<i64>,
}

/// Everything the switch has recorded under one reference.
#[derive(Debug, Deserialize)]
struct ReferenceRecord {
    requests: serde_json::Map<String, Value>,
    transfers: Vec<SwitchTransfer>,
    callbacks: Vec<Value>,
}

impl SwitchAdmin {
    /// Client for the admin interface at `url`, with the bearer token of the tests' switches.
    #[must_use]
    pub fn new(url: String) -> Self {
        Self { url, http: crate::http() }
    }

    /// Sets the behaviour for transfers without a behaviour of their own.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn set_default_behaviour(&self, behaviour: Value) -> anyhow::Result<()> {
        self.put("/admin/behaviours/default", &behaviour).await
    }

    /// Sets the behaviour for one transfer.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn set_behaviour(&self, reference: &str, behaviour: Value) -> anyhow::Result<()> {
        self.put(&format!("/admin/behaviours/{reference}"), &behaviour).await
    }

    /// Sets which features the switch offers.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn set_shape(&self, shape: Value) -> anyhow::Result<()> {
        self.put("/admin/shape", &shape).await
    }

    /// Sets the offset of the switch's clock from true time, in milliseconds.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn set_clock_offset(&self, offset_ms: i64) -> anyhow::Result<()> {
        self.put("/admin/clock", &serde_json::json!({"offset_ms": offset_ms})).await
    }

    /// Ends a pending transfer now: `outcome` is `settle` or `reject`.
    ///
    /// # Errors
    /// If the switch does not answer with success, for example because the transfer is not pending.
    pub async fn finish_transfer(&self, reference: &str, outcome: &str) -> anyhow::Result<()> {
        self.post(&format!("/admin/transfers/{reference}/{outcome}"), &serde_json::json!({})).await
    }

    /// Submits a transfer that no payment of the bank ordered; `reference` begins with [`UNORDERED`].
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn submit_unordered(&self, reference: &str, amount_minor: i64) -> anyhow::Result<()> {
        let order = serde_json::json!({"reference": reference, "amount_minor": amount_minor, "currency": "EUR",
            "creditor_account": "XX-NOBODY"});
        self.post("/v1/transfers", &order).await
    }

    /// Makes the receiving bank return a part of a settled transfer's money, by a message of its own.
    ///
    /// # Errors
    /// The switch's answer.
    pub async fn return_part(
        &self,
        reference: &str,
        return_id: &str,
        amount_minor: i64,
    ) -> anyhow::Result<()> {
        let body = serde_json::json!({"return_id": return_id, "amount_minor": amount_minor});
        self.post(&format!("/admin/transfers/{reference}/return"), &body).await
    }

    /// Makes the switch fail over to a copy without the transfer, which still settles.
    ///
    /// # Errors
    /// The switch's answer, for example because it has no such transfer.
    pub async fn forget_transfer(&self, reference: &str) -> anyhow::Result<()> {
        self.post(&format!("/admin/transfers/{reference}/forget"), &serde_json::json!({})).await
    }

    /// Makes the switch report where the money of a settled transfer is.
    ///
    /// # Errors
    /// The switch's answer.
    pub async fn report_posting(&self, reference: &str, posting: &str) -> anyhow::Result<()> {
        self.post(&format!("/admin/transfers/{reference}/posting"), &serde_json::json!({"posting": posting}))
            .await
    }

    /// Gives the receiving bank's answer to a recall: `pending`, `promised` or `refused`.
    ///
    /// # Errors
    /// The switch's answer, for example because it received no recall.
    pub async fn answer_recall(&self, reference: &str, answer: &str) -> anyhow::Result<()> {
        let body = serde_json::json!({"answer": answer});
        self.post(&format!("/admin/transfers/{reference}/recall-answer"), &body).await
    }

    /// Makes the switch send a callback, whatever the transfer's status is.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn send_callback(&self, reference: &str, callback: Value) -> anyhow::Result<()> {
        self.post(&format!("/admin/transfers/{reference}/callback"), &callback).await
    }

    /// All transfers, read in pages.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn transfers(&self) -> anyhow::Result<Vec<SwitchTransfer>> {
        let mut transfers = Vec::new();
        let mut after = Some(0);
        while let Some(id) = after {
            let request = self.request(Method::GET, &format!("/admin/book?limit=10000&after={id}"));
            let page: TransferPage = request.send().await?.error_for_status()?.json().await?;
            transfers.extend(page.transfers);
            after = page.next;
        }
        Ok(transfers)
    }

    /// Status of one transfer; `None` if the switch has no row under this reference.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn transfer_status(&self, reference: &str) -> anyhow::Result<Option<String>> {
        Ok(self.record(reference).await?.transfers.into_iter().next().map(|transfer| transfer.status))
    }

    /// Requests of one `operation` (submit, query, cancel, recall) that the switch received for a reference.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn request_count(&self, reference: &str, operation: &str) -> anyhow::Result<i64> {
        Ok(self.record(reference).await?.requests.get(operation).and_then(Value::as_i64).unwrap_or(0))
    }

    /// The callbacks of one reference with their delivery state.
    ///
    /// # Errors
    /// If the switch does not answer with success.
    pub async fn callbacks(&self, reference: &str) -> anyhow::Result<Vec<Value>> {
        Ok(self.record(reference).await?.callbacks)
    }

    async fn record(&self, reference: &str) -> anyhow::Result<ReferenceRecord> {
        let request = self.request(Method::GET, &format!("/admin/book/{reference}"));
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    async fn put(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        require_success(self.request(Method::PUT, path).json(body).send().await?).await
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        require_success(self.request(Method::POST, path).json(body).send().await?).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(SWITCH_TOKEN)
    }
}

async fn require_success(response: reqwest::Response) -> anyhow::Result<()> {
    if !response.status().is_success() {
        bail!("the switch answered {}: {}", response.status(), response.text().await?);
    }
    Ok(())
}

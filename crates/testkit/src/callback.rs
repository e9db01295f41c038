//! Callbacks that the test itself makes, signs and sends in the name of a switch, whether they are true or not.
//!
//! Signed as Standard Webhooks defines it, by separate code: the test shares none with the service.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;
use uuid::Uuid;

use crate::System;
use crate::system::{OTHER_SECRET, SWITCH_SECRET};

/// A callback about a transfer. [`System::post_callback`] sends it.
#[derive(Clone, Debug)]
pub struct TestCallback {
    /// The switch in the URL.
    pub switch: &'static str,
    /// The secret for the signature.
    pub secret: &'static str,
    /// The switch's id of the event.
    pub event_id: String,
    /// The reference of the transfer.
    pub reference: String,
    /// `SUCCESS` or `FAILURE`.
    pub status: &'static str,
    /// The amount in the callback, in minor units.
    pub amount_minor: i64,
    /// Position in a trace that the switch names; `None` if it names none.
    pub trace_parent: Option<String>,
}

impl TestCallback {
    /// SUCCESS for a transfer in EUR, from the switch `mock` and signed by it, with a new event id.
    #[must_use]
    pub fn success(reference: &str, amount_minor: i64) -> Self {
        Self {
            switch: "mock",
            secret: SWITCH_SECRET,
            event_id: format!("evt-{}", Uuid::new_v4().simple()),
            reference: reference.to_owned(),
            status: "SUCCESS",
            amount_minor,
            trace_parent: None,
        }
    }

    /// As [`TestCallback::success`] with the status FAILURE.
    #[must_use]
    pub fn failure(reference: &str, amount_minor: i64) -> Self {
        Self { status: "FAILURE", ..Self::success(reference, amount_minor) }
    }

    /// The same callback from the switch `other` and signed by it.
    #[must_use]
    pub fn from_other(self) -> Self {
        Self { switch: "other", secret: OTHER_SECRET, ..self }
    }

    fn signature(&self, timestamp_s: u64, body: &str) -> anyhow::Result<String> {
        let key = self.secret.strip_prefix("whsec_").context("the secret does not begin with whsec_")?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(key)?)?;
        mac.update(format!("{}.{timestamp_s}.{body}", self.event_id).as_bytes());
        Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

impl System {
    /// Posts a callback to the API; returns the HTTP status.
    ///
    /// # Errors
    /// If the API does not answer.
    pub async fn post_callback(&self, callback: &TestCallback) -> anyhow::Result<u16> {
        self.post_callback_signed_at(callback, 0).await
    }

    /// As [`System::post_callback`], with a signature dated `offset_s` seconds from now.
    ///
    /// # Errors
    /// If the API does not answer.
    pub async fn post_callback_signed_at(
        &self,
        callback: &TestCallback,
        offset_s: i64,
    ) -> anyhow::Result<u16> {
        Ok(self.callback_request(callback, offset_s)?.send().await?.status().as_u16())
    }

    /// The request of [`System::post_callback_signed_at`].
    ///
    /// # Errors
    /// If the callback's secret is malformed.
    pub fn callback_request(
        &self,
        callback: &TestCallback,
        offset_s: i64,
    ) -> anyhow::Result<reqwest::RequestBuilder> {
        let body = json!({
            "type": "transfer.completed", "reference": callback.reference, "status": callback.status,
            "amount_minor": callback.amount_minor, "currency": "EUR",
        })
        .to_string();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().saturating_add_signed(offset_s);
        let mut request = self
            .http
            .post(format!("{}/callbacks/{}", self.api.url(), callback.switch))
            .header("content-type", "application/json")
            .header("webhook-id", &callback.event_id)
            .header("webhook-timestamp", now_s.to_string())
            .header("webhook-signature", callback.signature(now_s, &body)?)
            .body(body);
        if let Some(position) = &callback.trace_parent {
            request = request.header("traceparent", position);
        }
        Ok(request)
    }
}

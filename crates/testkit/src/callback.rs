//! A switch's voice: callbacks made, signed and sent by the test itself, true or not.
//!
//! Signed as Standard Webhooks has it, by code of its own: the test shares none with the service.

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

/// What a switch says of a transfer. [`System::tell`] sends it.
#[derive(Clone, Debug)]
pub struct Callback {
    /// The switch in the address.
    pub switch: &'static str,
    /// The secret it is signed with.
    pub secret: &'static str,
    /// The switch's id of the event.
    pub event_id: String,
    /// The transfer it is about.
    pub reference: String,
    /// `SUCCESS` or `FAILURE`.
    pub status: &'static str,
    /// The amount it names, in minor units.
    pub amount_minor: i64,
}

impl Callback {
    /// SUCCESS of a transfer in EUR, from the switch `mock` and signed by it, as a new event.
    #[must_use]
    pub fn success(reference: &str, amount_minor: i64) -> Self {
        Self {
            switch: "mock",
            secret: SWITCH_SECRET,
            event_id: format!("evt-{}", Uuid::new_v4().simple()),
            reference: reference.to_owned(),
            status: "SUCCESS",
            amount_minor,
        }
    }

    /// The same as FAILURE.
    #[must_use]
    pub fn failure(reference: &str, amount_minor: i64) -> Self {
        Self { status: "FAILURE", ..Self::success(reference, amount_minor) }
    }

    /// From the switch `other` and signed by it.
    #[must_use]
    pub fn from_other(self) -> Self {
        Self { switch: "other", secret: OTHER_SECRET, ..self }
    }

    fn signature(&self, timestamp_s: u64, body: &str) -> anyhow::Result<String> {
        let key = self.secret.strip_prefix("whsec_").context("a secret begins with whsec_")?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(key)?)?;
        mac.update(format!("{}.{timestamp_s}.{body}", self.event_id).as_bytes());
        Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

impl System {
    /// Sends a callback to the bank; gives the HTTP status of its answer.
    ///
    /// # Errors
    /// No answer.
    pub async fn tell(&self, callback: &Callback) -> anyhow::Result<u16> {
        self.tell_at(callback, 0).await
    }

    /// The same, signed as at `offset_s` seconds from now.
    ///
    /// # Errors
    /// No answer.
    pub async fn tell_at(&self, callback: &Callback, offset_s: i64) -> anyhow::Result<u16> {
        let body = json!({
            "type": "transfer.completed", "reference": callback.reference, "status": callback.status,
            "amount_minor": callback.amount_minor, "currency": "EUR",
        })
        .to_string();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().saturating_add_signed(offset_s);
        let request = self
            .http
            .post(format!("{}/callbacks/{}", self.api.url(), callback.switch))
            .header("content-type", "application/json")
            .header("webhook-id", &callback.event_id)
            .header("webhook-timestamp", now_s.to_string())
            .header("webhook-signature", callback.signature(now_s, &body)?)
            .body(body);
        Ok(request.send().await?.status().as_u16())
    }
}

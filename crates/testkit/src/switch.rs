//! The mock switch, seen by a test: told to misbehave, and asked what its own book says.

use anyhow::bail;
use serde::Deserialize;
use serde_json::Value;

/// Handle on the switch's admin interface.
#[derive(Clone, Debug)]
pub struct SwitchAdmin {
    url: String,
    http: reqwest::Client,
}

/// One transfer in the switch's book.
#[derive(Clone, Debug, Deserialize)]
pub struct BookEntry {
    /// Our reference.
    pub reference: String,
    /// `PENDING`, `SETTLED`, `REJECTED`, `CANCELLED` or `RECALLED`.
    pub status: String,
    /// Minor units; none of a tombstone.
    pub amount_minor: Option<i64>,
    /// ISO 4217 code; none of a tombstone.
    pub currency: Option<String>,
}

/// The switch's book.
#[derive(Debug, Deserialize)]
struct Book {
    transfers: Vec<BookEntry>,
}

/// What the book says of one reference.
#[derive(Debug, Deserialize)]
struct OneReference {
    requests: serde_json::Map<String, Value>,
    transfers: Vec<BookEntry>,
    callbacks: Vec<Value>,
}

impl SwitchAdmin {
    /// Admin interface at `url`.
    #[must_use]
    pub fn new(url: String) -> Self {
        Self { url, http: crate::http() }
    }

    /// Sets how transfers are treated that nothing else is said of.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn behave(&self, behaviour: Value) -> anyhow::Result<()> {
        self.put("/admin/behaviours/default", &behaviour).await
    }

    /// Sets how one transfer is treated.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn behave_for(&self, reference: &str, behaviour: Value) -> anyhow::Result<()> {
        self.put(&format!("/admin/behaviours/{reference}"), &behaviour).await
    }

    /// Changes what the switch can do.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn shape(&self, shape: Value) -> anyhow::Result<()> {
        self.put("/admin/shape", &shape).await
    }

    /// Sets its clock off by so many milliseconds.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn set_clock_off(&self, offset_ms: i64) -> anyhow::Result<()> {
        self.put("/admin/clock", &serde_json::json!({"offset_ms": offset_ms})).await
    }

    /// Settles or rejects a pending transfer now.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn decide(&self, reference: &str, decision: &str) -> anyhow::Result<()> {
        self.post(&format!("/admin/transfers/{reference}/{decision}"), &serde_json::json!({})).await
    }

    /// Sends a callback, true or not.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn send_callback(&self, reference: &str, callback: Value) -> anyhow::Result<()> {
        self.post(&format!("/admin/transfers/{reference}/callback"), &callback).await
    }

    /// Every transfer in the book, up to 10,000.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn book(&self) -> anyhow::Result<Vec<BookEntry>> {
        let url = format!("{}/admin/book?limit=10000", self.url);
        let book: Book = self.http.get(url).send().await?.error_for_status()?.json().await?;
        Ok(book.transfers)
    }

    /// Where one transfer stands; none when the switch has no row of it.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn status(&self, reference: &str) -> anyhow::Result<Option<String>> {
        Ok(self.one(reference).await?.transfers.into_iter().next().map(|transfer| transfer.status))
    }

    /// How often the switch was asked `operation` (submit, query, cancel, recall) for a reference.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn requests(&self, reference: &str, operation: &str) -> anyhow::Result<i64> {
        Ok(self.one(reference).await?.requests.get(operation).and_then(Value::as_i64).unwrap_or(0))
    }

    /// The callbacks of one reference, as the switch tells of them.
    ///
    /// # Errors
    /// What the switch said.
    pub async fn callbacks(&self, reference: &str) -> anyhow::Result<Vec<Value>> {
        Ok(self.one(reference).await?.callbacks)
    }

    async fn one(&self, reference: &str) -> anyhow::Result<OneReference> {
        let url = format!("{}/admin/book/{reference}", self.url);
        Ok(self.http.get(url).send().await?.error_for_status()?.json().await?)
    }

    async fn put(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        checked(self.http.put(format!("{}{path}", self.url)).json(body).send().await?).await
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        checked(self.http.post(format!("{}{path}", self.url)).json(body).send().await?).await
    }
}

async fn checked(answer: reqwest::Response) -> anyhow::Result<()> {
    if !answer.status().is_success() {
        bail!("the switch said {}: {}", answer.status(), answer.text().await?);
    }
    Ok(())
}

//! The port of one submit attempt.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crash_point::crash_point;
use jiff::Timestamp;
use payment_ledger::LedgerError;
use payment_ledger::steps::submit::OutgoingTransfer;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::cancel::VoidReason;
use payment_protocol::ids::{RunId, SwitchName};
use payment_protocol::keys::Reference;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{AskRuling, AttemptRuling, FinalStatusRuling, NotSent};
use payment_protocol::submit::{LoggedSubmission, QueryAnswer, SendAnswer, SubmitPort};
use switch_client::TransferOrder;
use tokio::time::Instant;
use trace_kit::{attribute, set_on_current};

use super::session::SwitchSession;

/// A submit attempt without an outcome; it may be retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubmitAdapterError {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The circuit is open, or the switch's `Retry-After` has not passed. Nothing was recorded or sent.
    #[error(
        "the transfer was not sent: submits to switch {switch} are held back (circuit open or Retry-After); Temporal retries the submit"
    )]
    SubmitsHeldBack {
        /// The switch.
        switch: SwitchName,
    },
    /// The switch is not configured at this worker. Nothing was recorded or sent.
    #[error("the transfer was not sent: {detail}; Temporal retries the submit")]
    SwitchNotConfigured {
        /// What to configure.
        detail: String,
    },
    /// The switch's clock, on which the submit deadline counts, is unknown. Nothing was recorded or sent.
    #[error(
        "the transfer was not sent: the clock of switch {switch}, by which the switch counts the transfer's deadline, is unknown: {detail}; Temporal retries the submit"
    )]
    SwitchClock {
        /// The switch.
        switch: SwitchName,
        /// Why the clock is unknown.
        detail: String,
    },
    /// The listing in which the transfer is looked up later could not be read. Nothing was recorded or sent.
    #[error(
        "the transfer was not sent: the transfer listing of switch {switch} could not be read: {detail}; Temporal retries the submit"
    )]
    ListingUnavailable {
        /// The switch.
        switch: SwitchName,
        /// Why the listing could not be read.
        detail: String,
    },
}

/// What an attempt needs from the switch before it is recorded.
struct Prepared {
    /// The switch's clock.
    switch_now: Timestamp,
    /// The position in the switch's statement, where nothing else shows the transfer.
    marker: Option<String>,
}

/// The port of one submit attempt.
pub(crate) struct SubmitAdapter<'a> {
    pub(crate) session: SwitchSession<'a>,
    pub(crate) run: RunId,
    /// Whether an earlier try of this submit may have sent the transfer, according to Temporal.
    tried_before: bool,
    /// Whether this try began to send the transfer.
    has_sent: AtomicBool,
    /// The longest time for one answer of the switch, in milliseconds.
    slowest_answer_ms: AtomicU64,
    /// The recorded attempt: its number, the order to send, its deadline, and when its record began, by a clock that goes on while the
    /// process is stopped.
    attempt: OnceLock<(u32, TransferOrder, Timestamp, Instant)>,
    /// The switch's own transfer id.
    transfer_id: OnceLock<String>,
}

impl<'a> SubmitAdapter<'a> {
    pub(crate) fn new(session: SwitchSession<'a>, run: RunId, tried_before: bool) -> Self {
        Self {
            session,
            run,
            tried_before,
            has_sent: AtomicBool::new(false),
            slowest_answer_ms: AtomicU64::new(0),
            attempt: OnceLock::new(),
            transfer_id: OnceLock::new(),
        }
    }

    /// Whether it is known that no try of this submit has sent the transfer so far.
    pub(crate) fn sent_nothing(&self) -> bool {
        !self.tried_before && !self.has_sent.load(Ordering::Relaxed)
    }

    /// The longest time that this try waited for one answer of the switch.
    pub(crate) fn slowest_answer(&self) -> Duration {
        Duration::from_millis(self.slowest_answer_ms.load(Ordering::Relaxed))
    }

    /// Reserves for the run and records this attempt, the payment's first, in one transaction. Returns whether it did; otherwise nothing
    /// is known, and the two steps are made one by one.
    pub(crate) async fn reserve_with_attempt(&self) -> bool {
        let SwitchSession { ledger, payment, .. } = self.session;
        let Ok(Prepared { switch_now, marker }) = self.prepare().await else { return false };
        let began = Instant::now();
        let transfer = ledger.reserve_with_attempt(payment, &self.run, switch_now, marker.as_deref()).await;
        transfer.map(|transfer| self.keep_attempt(1, transfer, began)).is_some()
    }

    /// Reads what an attempt needs from the switch before it is recorded.
    async fn prepare(&self) -> Result<Prepared, SubmitAdapterError> {
        let switch = || self.session.payment.profile.switch.clone();
        let client =
            self.session.client().map_err(|detail| SubmitAdapterError::SwitchNotConfigured { detail })?;
        if !client.permits_submit() {
            return Err(SubmitAdapterError::SubmitsHeldBack { switch: switch() });
        }
        let switch_now = client
            .switch_now()
            .await
            .map_err(|detail| SubmitAdapterError::SwitchClock { switch: switch(), detail })?;
        let mut marker = None;
        if self.session.reads_back() {
            // The only attempt is not spent while the listing cannot be read.
            let account = self.session.lookup_key().await?.creditor_account;
            client
                .marker(&account)
                .await
                .map_err(|detail| SubmitAdapterError::ListingUnavailable { switch: switch(), detail })?;
        } else if self.session.reads_statement_only() {
            marker = client.statement_position().await;
        }
        Ok(Prepared { switch_now, marker })
    }

    /// Keeps the attempt, whose record began at that time.
    fn keep_attempt(&self, n: u32, transfer: OutgoingTransfer, began: Instant) {
        let deadline = transfer.deadline;
        // Set once: an adapter serves one attempt.
        let _ = self.attempt.set((n, self.session.order(transfer), deadline, began));
    }

    /// Whether the process was stopped for so long after the record that the submit deadline has passed. The payment may have been cancelled
    /// meanwhile, and operators may have released it; a switch that honours no deadline would accept the transfer all the same.
    fn is_late(&self, record_began: Instant) -> bool {
        record_began.elapsed() >= Duration::from_millis(self.session.payment.profile.submit_deadline_ms)
    }

    /// Waits for an answer of the switch, and remembers how long.
    async fn timed<T>(&self, answer: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let answer = answer.await;
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.slowest_answer_ms.fetch_max(took_ms, Ordering::Relaxed);
        answer
    }

    /// Records the newest listed transfer to the account as the marker. The attempt is recorded and the payment holds
    /// the account lock, so only a transfer after the marker can be this one.
    async fn record_marker(&self, n: u32, order: &TransferOrder) -> Result<(), String> {
        let marker = self.session.client()?.marker(&order.creditor_account).await?;
        let (ledger, id) = (self.session.ledger, &self.session.payment.payment_id);
        let mut recorded = ledger.record_marker(id, n, &marker).await;
        if matches!(recorded, Err(LedgerError::Unavailable(_))) {
            recorded = ledger.record_marker(id, n, &marker).await;
        }
        match recorded {
            Ok(true) => Ok(()),
            Ok(false) => Err("the database lost the record of the attempt".into()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl SubmitPort for SubmitAdapter<'_> {
    type Error = SubmitAdapterError;

    async fn logged(&self) -> Result<Option<LoggedSubmission>, SubmitAdapterError> {
        Ok(self.session.ledger.last_submission(&self.session.payment.payment_id).await?)
    }

    async fn begin_query(&self) -> Result<AskRuling, SubmitAdapterError> {
        Ok(self.session.begin_query().await?)
    }

    async fn query(&self, _reference: &Reference) -> QueryAnswer {
        match self.timed(self.session.query()).await {
            Ok(reply) => reply.answer,
            Err(error) => QueryAnswer::NoAnswer { detail: error.to_string() },
        }
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, SubmitAdapterError> {
        if let Some((n, ..)) = self.attempt.get() {
            return Ok(AttemptRuling::Send(*n));
        }
        let SwitchSession { ledger, payment, .. } = self.session;
        let Prepared { switch_now, marker } = self.prepare().await?;
        let began = Instant::now();
        let (ruling, transfer) = ledger
            .record_attempt(&payment.payment_id, &self.run, switch_now, self.tried_before, marker.as_deref())
            .await?;
        if let (AttemptRuling::Send(n), Some(transfer)) = (ruling, transfer) {
            self.keep_attempt(n, transfer, began);
        }
        Ok(ruling)
    }

    async fn send(&self, _reference: &Reference) -> SendAnswer {
        // The recorded order carries the reference.
        let Some((n, order, _, record_began)) = self.attempt.get() else {
            return SendAnswer::Unknown {
                detail: "the transfer was not sent: the ledger recorded no attempt".into(),
            };
        };
        if self.session.reads_back()
            && let Err(detail) = self.record_marker(*n, order).await
        {
            return SendAnswer::Unknown {
                detail: format!(
                    "the transfer was not sent: the ledger could not record the marker in the switch's transfer listing: {detail}"
                ),
            };
        }
        let client = match self.session.client() {
            Ok(client) => client,
            Err(detail) => return SendAnswer::Unknown { detail },
        };
        crash_point("before sending a submit");
        if self.is_late(*record_began) {
            return SendAnswer::Unknown {
                detail:
                    "the transfer was not sent: its submit deadline passed before the process could send it"
                        .into(),
            };
        }
        self.has_sent.store(true, Ordering::Relaxed);
        set_on_current(attribute::REPLAYED, false);
        let reply = self.timed(client.send(order)).await;
        crash_point("after the answer to a submit");
        if let Some(id) = reply.transfer_id {
            let _ = self.transfer_id.set(id);
        }
        reply.answer
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), SubmitAdapterError> {
        let transfer_id = self.transfer_id.get().map(String::as_str);
        let id = &self.session.payment.payment_id;
        let Some((_, _, deadline, _)) = self.attempt.get() else { return Ok(()) };
        let ledger = self.session.ledger;
        match ledger.record_answer(id, n, answer, transfer_id, *deadline).await {
            // The connection may be lost, as after a restart of the database, and a repeated attempt could not record this answer.
            Err(LedgerError::Unavailable(_)) => {
                Ok(ledger.record_answer(id, n, answer, transfer_id, *deadline).await?)
            }
            recorded => Ok(recorded?),
        }
    }

    async fn record_found(&self) -> Result<Option<NotSent>, SubmitAdapterError> {
        set_on_current(attribute::REPLAYED, true);
        Ok(self.session.ledger.record_transfer_found(&self.session.payment.payment_id).await?)
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, SubmitAdapterError> {
        let id = &self.session.payment.payment_id;
        Ok(self.session.ledger.record_settled(id, report, FinalStatusSource::Query).await?)
    }

    async fn record_returned(&self, report: &SettledReport) -> Result<FinalStatusRuling, SubmitAdapterError> {
        let id = &self.session.payment.payment_id;
        Ok(self.session.ledger.record_returned(id, report, FinalStatusSource::Query).await?)
    }

    async fn record_void(&self, reason: VoidReason) -> Result<FinalStatusRuling, SubmitAdapterError> {
        Ok(self.session.ledger.record_void(&self.session.payment.payment_id, reason).await?)
    }
}

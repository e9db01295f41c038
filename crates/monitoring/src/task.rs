//! The relay's work that must go on when everything else stands still.

use std::time::Duration;

use payment_protocol::text_enum;

text_enum!(
    /// A loop of the relay. Each says when it last succeeded, so that one that fails or hangs is seen.
    BackgroundTask {
        /// Tells workflows what is in the inbox.
        Deliver = "deliver",
        /// Measures what waits.
        Measure = "measure",
        /// Audits what is held.
        AuditHolds = "audit_holds",
        /// Seals the journal.
        Seal = "seal",
        /// Keeps the table of idempotency keys, and the outbox small.
        Keep = "keep",
    }
);

impl BackgroundTask {
    /// After how long without success somebody is called. Several times the pause between two rounds as it is configured
    /// by default, and never less than a minute, which the database may take to come back.
    #[must_use]
    pub fn late_after(self) -> Duration {
        Duration::from_secs(match self {
            Self::Deliver | Self::Measure | Self::Seal => 60,
            Self::AuditHolds => 300,
            // Days are made three ahead: there is time.
            Self::Keep => 1_800,
        })
    }

    /// Notes that a round succeeded, or that the process has begun: until the first success it counts from there.
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 stay far below 2^53")]
    pub fn succeeded(self) {
        let now_s = jiff::Timestamp::now().as_second() as f64;
        metrics::gauge!("background_task_last_success_timestamp_seconds", "task" => self.as_str()).set(now_s);
    }
}

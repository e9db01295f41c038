//! The wake-up notification of the relay.

use postgres_kit::Pool;

use crate::OutboxError;

/// Channel on which relays listen.
pub(crate) const CHANNEL: &str = "outbox_appended";

/// Sends the wake-up notification to the relays of all processes. Call it after the commit and outside any transaction:
/// inside one, NOTIFY serialises all commits. The caller limits the rate.
///
/// # Errors
/// [`OutboxError`]; harmless, since relays also poll.
pub async fn wake_relay(pool: &Pool) -> Result<(), OutboxError> {
    // A notification writes a commit record, which need not wait for the disk.
    sqlx::query!(
        "SELECT set_config('synchronous_commit', 'off', true) AS disk, pg_notify($1, '') AS notified",
        CHANNEL
    )
    .fetch_one(pool)
    .await?;
    Ok(())
}

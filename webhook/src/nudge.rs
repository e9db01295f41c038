//! Wakes the starters of all processes after payments were accepted: a NOTIFY outside the money
//! transaction (inside it, NOTIFY serialises all commits) and at most one per 50 ms.

use std::sync::Arc;
use std::time::Duration;

use payment_ledger::Ledger;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Shortest time between two nudges of one process.
const PAUSE: Duration = Duration::from_millis(50);

/// The handle that accepting routes hold. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Nudge(Arc<Notify>);

impl Nudge {
    /// Starts the task that sends nudges until `stopping`.
    pub(crate) fn start(ledger: Ledger, stopping: CancellationToken) -> Self {
        let wanted = Arc::new(Notify::new());
        tokio::spawn(send(ledger, wanted.clone(), stopping));
        Self(wanted)
    }

    /// Asks for a nudge and does not wait for it. Many askings become one.
    pub(crate) fn ask(&self) {
        self.0.notify_one();
    }
}

async fn send(ledger: Ledger, wanted: Arc<Notify>, stopping: CancellationToken) {
    let nudges = async {
        loop {
            wanted.notified().await;
            if let Err(error) = ledger.wake_starters().await {
                // The starters look by themselves, only a little later.
                tracing::debug!(error = &error as &dyn std::error::Error, "starters were not nudged");
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    stopping.run_until_cancelled(nudges).await;
}

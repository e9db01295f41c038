//! Limits of open streams, in all and for each client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use payment_ledger::access::api_keys::Caller;
use service_kit::problem::Problem;

use super::StreamOptions;

/// `Retry-After` without a free slot; a stream ends with its payment, so a slot is free soon.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The slots of this process.
pub(super) struct StreamSlots {
    options: StreamOptions,
    open: Mutex<OpenStreams>,
}

#[derive(Default)]
struct OpenStreams {
    total: usize,
    /// Number of open streams by client; only clients with an open stream.
    by_client: HashMap<Caller, usize>,
}

impl StreamSlots {
    pub(super) fn new(options: StreamOptions) -> Self {
        Self { options, open: Mutex::default() }
    }

    /// Acquires a slot if one is free.
    ///
    /// # Errors
    /// 429 `too_many_streams` of this client; 503 `overloaded`.
    pub(super) fn acquire(self: &Arc<Self>, caller: &Caller) -> Result<StreamSlot, Problem> {
        let mut open = self.lock();
        let own = open.by_client.get(caller).copied().unwrap_or(0);
        // The client's own limit is checked first, because the client can act on it.
        if own >= self.options.per_client_max {
            let detail = format!(
                "your client has {own} open event streams, which is its limit; close a stream before you open another",
            );
            return Err(refused(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail));
        }
        if open.total >= self.options.max {
            let detail =
                "the payments API is at its limit of open event streams; open the stream again later"
                    .to_owned();
            return Err(refused(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail));
        }
        open.total += 1;
        open.by_client.insert(caller.clone(), own + 1);
        metrics::gauge!("api_event_streams_open").increment(1.0);
        Ok(StreamSlot { slots: self.clone(), caller: caller.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, OpenStreams> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(status: StatusCode, code: &'static str, detail: String) -> Problem {
    metrics::counter!("api_event_streams_refused_total", "code" => code).increment(1);
    Problem::new(status, code, "Too many open streams").detail(detail).retry_after(RETRY_AFTER)
}

/// The slot of one stream, released when dropped.
pub(crate) struct StreamSlot {
    slots: Arc<StreamSlots>,
    caller: Caller,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.slots.lock();
        open.total -= 1;
        if let Some(own) = open.by_client.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                open.by_client.remove(&self.caller);
            }
        }
        metrics::gauge!("api_event_streams_open").decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use payment_protocol::ids::{ClientId, TenantId};

    use super::*;

    fn client(tenant: &str, client: &str) -> Caller {
        Caller { tenant: TenantId::new(tenant).unwrap(), client: ClientId::new(client).unwrap() }
    }

    #[test]
    fn event_stream_slots_are_limited_per_client_and_in_total_and_released() {
        let options = StreamOptions { max: 3, per_client_max: 2, ..StreamOptions::default() };
        let slots = Arc::new(StreamSlots::new(options));
        let code = |caller: &Caller| slots.acquire(caller).err().map(|problem| problem.code);
        let (shop, till, other) = (client("acme", "shop"), client("acme", "till"), client("globex", "shop"));

        let first = slots.acquire(&shop).unwrap();
        let second = slots.acquire(&shop).unwrap();
        assert_eq!(code(&shop).as_deref(), Some("too_many_streams"));
        let third = slots.acquire(&till).unwrap();
        assert_eq!(code(&shop).as_deref(), Some("too_many_streams"), "expected the client's own limit first");
        assert_eq!(
            code(&other).as_deref(),
            Some("overloaded"),
            "expected the limit of the process for another tenant"
        );

        drop(first);
        drop(slots.acquire(&other).unwrap());
        drop((second, third));
        assert!(slots.lock().by_client.is_empty(), "expected clients without streams to be removed");
        assert_eq!(slots.lock().total, 0);
    }
}

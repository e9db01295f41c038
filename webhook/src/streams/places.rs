//! How many streams are open, in all and for each client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use payment_ledger::access::api_keys::Caller;
use service_kit::problem::Problem;

use super::StreamOptions;

/// A stream ends with its payment, so room comes soon.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The room there is.
pub(super) struct Places {
    options: StreamOptions,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// Clients without a stream are not in it.
    by_client: HashMap<Caller, usize>,
}

impl Places {
    pub(super) fn new(options: StreamOptions) -> Self {
        Self { options, taken: Mutex::default() }
    }

    /// One more, if there is room.
    ///
    /// # Errors
    /// 429 `too_many_streams` of this client; 503 `overloaded`.
    pub(super) fn enter(self: &Arc<Self>, caller: &Caller) -> Result<Place, Problem> {
        let mut taken = self.taken();
        let own = taken.by_client.get(caller).copied().unwrap_or(0);
        // A client's own bound comes first: it is the one that can do something about it.
        if own >= self.options.per_client_max {
            let detail = format!("this client may have {} open at once", self.options.per_client_max);
            return Err(refused(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail));
        }
        if taken.all >= self.options.max {
            let detail = "there is no room for one more stream here".to_owned();
            return Err(refused(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail));
        }
        taken.all += 1;
        taken.by_client.insert(caller.clone(), own + 1);
        metrics::gauge!("api_event_streams_open").increment(1.0);
        Ok(Place { places: self.clone(), caller: caller.clone() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(status: StatusCode, code: &'static str, detail: String) -> Problem {
    metrics::counter!("api_event_streams_refused_total", "code" => code).increment(1);
    Problem::new(status, code, "Too many streams at once").detail(detail).retry_after(RETRY_AFTER)
}

/// The place of one stream, free again when this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    caller: Caller,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(own) = taken.by_client.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                taken.by_client.remove(&self.caller);
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
    fn each_client_and_all_together_have_so_many_and_what_is_left_is_free_again() {
        let options = StreamOptions { max: 3, per_client_max: 2, ..StreamOptions::default() };
        let places = Arc::new(Places::new(options));
        let code = |caller: &Caller| places.enter(caller).err().map(|problem| problem.code);
        let (shop, till, other) = (client("acme", "shop"), client("acme", "till"), client("globex", "shop"));

        let first = places.enter(&shop).unwrap();
        let second = places.enter(&shop).unwrap();
        assert_eq!(code(&shop).as_deref(), Some("too_many_streams"));
        let third = places.enter(&till).unwrap();
        assert_eq!(code(&shop).as_deref(), Some("too_many_streams"), "its own bound is the one it is told");
        assert_eq!(code(&other).as_deref(), Some("overloaded"), "the same name, another tenant");

        drop(first);
        drop(places.enter(&other).unwrap());
        drop((second, third));
        assert!(places.taken().by_client.is_empty(), "who left is forgotten");
        assert_eq!(places.taken().all, 0);
    }
}

//! Metrics in Prometheus text format, and the three routes of every process: `/health` (alive), `/ready` (able to work)
//! and `/metrics`. A process that is able to work may still have warnings. Where strangers reach `/ready`, they cause no more than one
//! check a second.
//!
//! A process records values with the `metrics` macros and describes each metric once, as a [`Metric`].

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::problem::Problem;

/// Upper edges of the histogram buckets, in seconds: from a database statement to an SLA.
const BUCKETS_S: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// How often raw histogram samples are folded into their buckets; without it they accumulate while nothing scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// How long `/ready` waits for its check.
const READY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long `/ready` repeats an answer before the next check.
const READY_FOR: Duration = Duration::from_secs(1);

static INSTALLED: Mutex<Option<PrometheusHandle>> = Mutex::new(None);

/// How often a readiness check that fails at the start is repeated, until its warnings are known.
const START_INTERVAL: Duration = Duration::from_secs(1);

/// The answer of a readiness check: `Ok` with warnings if the process can work, `Err` with the reason if it cannot.
pub type ReadinessAnswer = Result<Vec<String>, String>;

/// A readiness check.
pub type Readiness = Pin<Box<dyn Future<Output = ReadinessAnswer> + Send>>;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the process restarts.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

impl Kind {
    /// The type as the `metrics` macros and the documents name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The description of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The unit of the value: events, seconds, minor units.
    pub unit: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Meaning of the value.
    pub meaning: &'static str,
}

impl Metric {
    /// Registers meaning and unit as the help text. Call it after the recorder is installed.
    pub fn describe(&self) {
        let help = format!("{} ({})", self.meaning, self.unit);
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, help),
            Kind::Gauge => metrics::describe_gauge!(self.name, help),
            Kind::Histogram => metrics::describe_histogram!(self.name, help),
        }
    }
}

/// The metrics recorder could not be installed.
#[derive(Debug, thiserror::Error)]
#[error("the metrics recorder of the process could not be installed")]
pub struct MetricsError(#[from] BuildError);

/// The metrics of this process. Cheap to clone; all clones show the same values.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// All metrics in Prometheus text format.
    pub fn render(&self) -> String {
        self.handle.render()
    }
}

/// Installs the process-wide recorder, or returns the one already installed.
///
/// # Errors
/// [`MetricsError`] if a recorder was installed by other code.
pub fn install() -> Result<Metrics, MetricsError> {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = installed.as_ref() {
        return Ok(Metrics { handle: handle.clone() });
    }
    let handle = PrometheusBuilder::new().set_buckets(BUCKETS_S)?.install_recorder()?;
    *installed = Some(handle.clone());
    let upkeep = handle.clone();
    // A thread, not a task: it must outlive every single runtime.
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(UPKEEP_INTERVAL);
            upkeep.run_upkeep();
        }
    });
    Ok(Metrics { handle })
}

/// The routes `/health`, `/ready` and `/metrics`.
pub fn routes(metrics: Metrics, ready: impl Fn() -> Readiness + Clone + Send + Sync + 'static) -> Router {
    let text = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    health_routes(ready).route("/metrics", get(move || async move { (text, metrics.render()) }))
}

/// The routes `/health` and `/ready`.
///
/// `ready` is called at most once a second, however many requests there are, and has 3 s. Its warnings are part of the answer; its `Err`
/// is the reason, returned with status 503.
pub fn health_routes(ready: impl Fn() -> Readiness + Clone + Send + Sync + 'static) -> Router {
    let last = LastCheck::default();
    let readiness = move || {
        let (last, ready) = (last.clone(), ready.clone());
        async move {
            // A client that goes away ends no check: the next one would begin another.
            let answer = tokio::spawn(async move { last.or_check(READY_FOR, ready).await });
            match answer.await.unwrap_or_else(|_| Err("the readiness check panicked".to_owned())) {
                Ok(warnings) if warnings.is_empty() => axum::Json(json!({"status": "ready"})).into_response(),
                Ok(warnings) => axum::Json(json!({"status": "ready", "warnings": warnings})).into_response(),
                Err(reason) => not_ready(reason),
            }
        }
    };
    Router::new()
        .route("/health", get(|| async { axum::Json(json!({"status": "ok"})) }))
        .route("/ready", get(readiness))
}

/// The last answer of a readiness check, and when it was given.
#[derive(Clone, Default)]
struct LastCheck(Arc<tokio::sync::Mutex<Option<(Instant, ReadinessAnswer)>>>);

impl LastCheck {
    /// The last answer if it is younger than `ready_for`, otherwise that of a new check. Requests that come meanwhile wait for it.
    async fn or_check(&self, ready_for: Duration, ready: impl Fn() -> Readiness) -> ReadinessAnswer {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < ready_for
        {
            return answer.clone();
        }
        let answer = tokio::time::timeout(READY_TIMEOUT, ready()).await.unwrap_or_else(|_| {
            Err(format!("the readiness check did not answer within {} s", READY_TIMEOUT.as_secs()))
        });
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// Logs the warnings of the readiness check once: as soon as it succeeds for the first time.
pub async fn log_warnings(ready: impl Fn() -> Readiness, stop: CancellationToken) {
    let first_success = async {
        loop {
            if let Ok(Ok(warnings)) = tokio::time::timeout(READY_TIMEOUT, ready()).await {
                return warnings;
            }
            tokio::time::sleep(START_INTERVAL).await;
        }
    };
    for warning in stop.run_until_cancelled(first_success).await.unwrap_or_default() {
        tracing::warn!("{warning}");
    }
}

fn not_ready(reason: String) -> axum::response::Response {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", "Not ready").detail(reason).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use futures::poll;
    use serde_json::Value;
    use tokio::sync::Semaphore;
    use tower::ServiceExt as _;

    use super::*;

    async fn get_ready(answer: Result<Vec<String>, String>) -> (StatusCode, Value) {
        let ready = move || -> Readiness { Box::pin(std::future::ready(answer.clone())) };
        let router = routes(install().expect("a recorder"), ready);
        let response = router.oneshot(Request::get("/ready").body(Body::empty()).expect("a request")).await;
        let (parts, body) = response.expect("a response").into_parts();
        let body = to_bytes(body, 10_000).await.expect("a body");
        (parts.status, serde_json::from_slice(&body).expect("a JSON document"))
    }

    #[tokio::test]
    async fn an_answer_of_the_readiness_check_is_repeated_for_its_time() {
        let last = LastCheck::default();
        let checks = AtomicU32::new(0);
        let ready = || -> Readiness {
            checks.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Err("no database".to_owned())))
        };
        for (ready_for, expected) in [(Duration::MAX, 1), (Duration::ZERO, 21)] {
            for _ in 0..20 {
                assert_eq!(last.or_check(ready_for, ready).await, Err("no database".to_owned()));
            }
            assert_eq!(checks.load(Ordering::Relaxed), expected);
        }
    }

    #[tokio::test]
    async fn a_client_that_goes_away_ends_no_readiness_check() {
        let checks = Arc::new(AtomicU32::new(0));
        let answers = Arc::new(Semaphore::new(0));
        let (counted, waits) = (checks.clone(), answers.clone());
        let ready = move || -> Readiness {
            counted.fetch_add(1, Ordering::Relaxed);
            let waits = waits.clone();
            Box::pin(async move {
                let _permit = waits.acquire().await;
                Ok(Vec::new())
            })
        };
        let router = health_routes(ready);
        let ask = || router.clone().oneshot(Request::get("/ready").body(Body::empty()).expect("a request"));
        let mut impatient = Box::pin(ask());
        while checks.load(Ordering::Relaxed) == 0 {
            assert!(poll!(&mut impatient).is_pending());
            tokio::task::yield_now().await;
        }
        drop(impatient);
        let patient = ask();
        answers.add_permits(1);
        assert_eq!(patient.await.expect("a response").status(), StatusCode::OK);
        assert_eq!(checks.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_process_with_warnings_is_ready_and_names_them() {
        assert_eq!(get_ready(Ok(Vec::new())).await, (StatusCode::OK, json!({"status": "ready"})));
        let warned = get_ready(Ok(vec!["a setting is off".to_owned()])).await;
        assert_eq!(warned, (StatusCode::OK, json!({"status": "ready", "warnings": ["a setting is off"]})));
        let (status, problem) = get_ready(Err("no database".to_owned())).await;
        assert_eq!((status, &problem["detail"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("no database")));
    }
}

//! The HTTP server of the page: the page itself, what it can offer, and the runs of both engines.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};
use service_kit::bounds::{RequestBounds, bounded};
use service_kit::problem::{Problem, Query};

use crate::bugs::{self, Bug};
use crate::lessons::{LESSONS, Lesson};
use crate::run::{AMOUNT_MINOR, Run};
use crate::schedule::{Fault, Instant, Schedule};
use crate::simulation::{self, DEFAULT_PROFILE, SimulationError};

/// The configuration: environment variables `PLAYGROUND_KEY`, nested keys joined by `__`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the page is served.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// The real processes; without this section the page has the simulation only.
    #[cfg(feature = "real")]
    #[serde(default)]
    pub real: Option<crate::real::Config>,
    /// Where the traces of other processes are received, over OTLP/gRPC; without it the page shows none.
    #[cfg(feature = "real")]
    #[serde(default)]
    pub otlp_listen: Option<SocketAddr>,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8300))
}

const BOUNDS: RequestBounds = RequestBounds {
    body_bytes: 4 * 1024,
    body_timeout: Duration::from_secs(10),
    request_timeout: Duration::from_secs(30),
};

/// What the routes share.
#[derive(Clone)]
pub struct Page {
    /// The engine on the real processes, if this machine runs them.
    #[cfg(feature = "real")]
    pub real: Option<std::sync::Arc<crate::real::Engine>>,
    /// The traces of other processes, if this one receives them.
    #[cfg(feature = "real")]
    pub traces: Option<std::sync::Arc<crate::traces::Traces>>,
}

impl Page {
    /// A page with the simulation only.
    #[must_use]
    pub fn without_real_processes() -> Self {
        Self {
            #[cfg(feature = "real")]
            real: None,
            #[cfg(feature = "real")]
            traces: None,
        }
    }

    fn has_real(&self) -> bool {
        #[cfg(feature = "real")]
        return self.real.is_some();
        #[cfg(not(feature = "real"))]
        false
    }

    fn has_traces(&self) -> bool {
        #[cfg(feature = "real")]
        return self.traces.is_some();
        #[cfg(not(feature = "real"))]
        false
    }
}

/// The routes.
pub fn router(page: Page) -> Router {
    let router = Router::new()
        .route("/", get(|| file("text/html; charset=utf-8", include_str!("page/index.html"))))
        .route("/page.css", get(|| file("text/css; charset=utf-8", include_str!("page/page.css"))))
        .route("/page.js", get(|| file("text/javascript; charset=utf-8", include_str!("page/page.js"))))
        .route("/api/offer", get(offer))
        .route("/api/simulation", get(simulate))
        .route("/health", get(|| async { "ok" }))
        .route("/ready", get(|| async { "ok" }));
    #[cfg(feature = "real")]
    let router = router
        .route("/api/real", axum::routing::post(crate::live::run))
        .route("/traces", get(|| file("text/html; charset=utf-8", include_str!("page/traces.html"))))
        .route("/traces.css", get(|| file("text/css; charset=utf-8", include_str!("page/traces.css"))))
        .route("/traces.js", get(|| file("text/javascript; charset=utf-8", include_str!("page/traces.js"))))
        .route("/api/traces", get(crate::traces::list))
        .route("/api/traces/{trace_id}", get(crate::traces::retrieve));
    bounded(router.with_state(page), BOUNDS)
}

async fn file(kind: &'static str, content: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'self'; img-src 'self' data:"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, content).into_response()
}

/// An instant or a fault, as the page shows it.
#[derive(Serialize)]
struct Word {
    name: &'static str,
    title: &'static str,
    meaning: &'static str,
    /// For a fault: the instants onto which it can be dropped.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    instants: &'static [Instant],
}

/// Everything that the page offers.
#[derive(Serialize)]
struct Offer {
    amount_minor: i64,
    instants: Vec<Word>,
    faults: Vec<Word>,
    lessons: &'static [Lesson],
    profiles: Vec<String>,
    default_profile: &'static str,
    bugs: Vec<Bug>,
    has_real: bool,
    has_traces: bool,
}

async fn offer(State(page): State<Page>) -> Result<axum::Json<Offer>, Problem> {
    let instant =
        |at: &Instant| Word { name: at.as_str(), title: at.title(), meaning: at.meaning(), instants: &[] };
    let fault = |fault: &Fault| Word {
        name: fault.as_str(),
        title: fault.title(),
        meaning: fault.meaning(),
        instants: fault.instants(),
    };
    Ok(axum::Json(Offer {
        amount_minor: AMOUNT_MINOR,
        instants: Instant::ALL.iter().map(instant).collect(),
        faults: Fault::ALL.iter().map(fault).collect(),
        lessons: LESSONS,
        profiles: simulation::profile_names().map_err(|error| refused(&error))?,
        default_profile: DEFAULT_PROFILE,
        bugs: bugs::recorded().map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "recording_unreadable",
                "The recorded sequences cannot be read",
            )
            .detail(error.to_string())
        })?,
        has_real: page.has_real(),
        has_traces: page.has_traces(),
    }))
}

/// A schedule as its link has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    schedule: String,
    #[serde(default = "default_profile")]
    profile: String,
}

fn default_profile() -> String {
    DEFAULT_PROFILE.to_owned()
}

/// Reads a schedule; the problem says what is wrong with it.
pub(crate) fn read_schedule(text: &str) -> Result<Schedule, Problem> {
    text.parse().map_err(|error: crate::schedule::ScheduleError| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_schedule", "The schedule is not accepted")
            .detail(error.to_string())
    })
}

async fn simulate(Query(asked): Query<Asked>) -> Result<axum::Json<Run>, Problem> {
    let schedule = read_schedule(&asked.schedule)?;
    simulation::simulate(&asked.profile, &schedule).map(axum::Json).map_err(|error| refused(&error))
}

/// The page was started without the real processes.
#[cfg(feature = "real")]
pub(crate) fn no_real_processes() -> Problem {
    Problem::new(StatusCode::CONFLICT, "no_real_processes", "This page has no real processes")
        .detail("the page was started alone; start it with ./dev up, or use the simulation")
}

fn refused(error: &SimulationError) -> Problem {
    let (status, code, title) = match error {
        SimulationError::Profile { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, "invalid_profile", "The switch profile is not accepted")
        }
        SimulationError::NotAtThisSwitch { .. } => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "not_at_this_switch",
            "The fault does not happen at this switch",
        ),
        SimulationError::Violation { .. } => {
            (StatusCode::INTERNAL_SERVER_ERROR, "invariant_violated", "An invariant does not hold")
        }
        SimulationError::NoEnd { .. } => {
            (StatusCode::INTERNAL_SERVER_ERROR, "no_end", "The simulated payment did not end")
        }
    };
    Problem::new(status, code, title).detail(error.to_string())
}

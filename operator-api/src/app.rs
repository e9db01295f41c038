//! The shared state, the routes, and the layers around them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use payment_ledger::Ledger;
use payment_protocol::ids::SwitchName;
use postgres_kit::Pool;
use service_kit::bounds::{RequestBounds, bounded};
use service_kit::published;
use service_kit::requests::{self, MeasuredRequest};
use switch_client::config::SwitchOptions;
use switch_client::{CheckedSwitches, SecretsOf};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use workflow_api::UpdateSender;

use crate::config::{Config, SetupError};
use crate::login_rate::LoginRate;
use crate::oidc::Oidc;
use crate::routes::{changes, decisions, docs, exceptions, identities, payments, sessions, settings};

/// Bounds of a request. A decision waits for its outcome for 30 s at most.
const BOUNDS: RequestBounds = RequestBounds {
    body_bytes: 16 * 1024,
    body_timeout: Duration::from_secs(10),
    request_timeout: Duration::from_secs(40),
};

/// Requests that wait for a decision at once: each reads it again and again.
const WAITS_MAX: usize = 64;

/// State shared by all routes.
pub(crate) struct App {
    pub(crate) ledger: Ledger,
    switches: CheckedSwitches,
    /// Delivers confirmed decisions.
    pub(crate) updates: Arc<UpdateSender>,
    /// Whether the demo's passwords, which everybody can read, are accepted: on this machine only.
    pub(crate) accepts_demo_passwords: bool,
    /// The OpenID provider, if one is configured.
    pub(crate) oidc: Option<Oidc>,
    /// How often an address may try to log in.
    pub(crate) logins: LoginRate,
    /// Requests that may wait for a decision at once; the others are answered with how it is.
    pub(crate) waits: Semaphore,
    /// Cancelled when the process stops: waits end.
    pub(crate) stopping: CancellationToken,
}

impl App {
    /// The configured switch of this name, or why it is missing.
    pub(crate) fn switch(&self, name: &SwitchName) -> Result<&SwitchOptions, String> {
        let mut switches = self.switches.iter();
        let found = switches.find(|(configured, ..)| *configured == name);
        found.map(|(_, options, _)| options).ok_or_else(|| format!("switch {name} is not configured"))
    }
}

/// The router of the operators' listener over `pool`. Must be called inside a tokio runtime.
///
/// # Errors
/// [`SetupError`]: the configuration is refused.
pub fn router(config: Config, pool: Pool, stopping: CancellationToken) -> Result<Router, SetupError> {
    let options = config.operator_api;
    let switches = config.switches.check(SecretsOf::Requests)?;
    let listeners =
        [("operator_api.listen", options.listen), ("operator_api.metrics_listen", options.metrics_listen)];
    published::refuse(&listeners, switches.secrets().chain(config.temporal.secrets()))?;
    let ledger = Ledger::new(pool);
    let ready = ledger.readiness();
    let app = Arc::new(App {
        ledger,
        switches,
        updates: Arc::new(UpdateSender::new(config.temporal, "operator-api")),
        accepts_demo_passwords: options.listen.ip().is_loopback(),
        oidc: options.oidc.map(Oidc::new).transpose()?,
        logins: LoginRate::new(),
        waits: Semaphore::new(WAITS_MAX),
        stopping,
    });
    let (api, document) = api_routes().split_for_parts();
    let api = api
        .with_state(app)
        // A login's answer has the session's token.
        .layer(SetResponseHeaderLayer::overriding(CACHE_CONTROL, HeaderValue::from_static("no-store")));
    let mut all = api.merge(service_kit::metrics::health_routes(ready));
    if options.docs {
        all = all.merge(openapi_kit::page(docs::complete(document)));
    }
    Ok(bounded(all, BOUNDS)
        .layer(from_fn(requests::crash_before_answer))
        .layer(from_fn(record_duration))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION])))
}

async fn record_duration(request: Request, next: Next) -> Response {
    let (response, MeasuredRequest { method, route, status, duration }) =
        requests::measure(request, next).await;
    metrics::histogram!("operator_request_duration_seconds", "method" => method, "route" => route, "status" => status)
        .record(duration);
    response
}

/// The OpenAPI document, without a running API.
pub(crate) fn document() -> OpenApi {
    docs::complete(api_routes().into_openapi())
}

fn api_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(docs::description())
        .routes(routes!(sessions::log_in))
        .routes(routes!(identities::retrieve_provider))
        .routes(routes!(identities::log_in_with_id_token))
        .routes(routes!(sessions::current_session, sessions::log_out))
        .routes(routes!(payments::list_waiting_payments))
        .routes(routes!(decisions::propose_decision))
        .routes(routes!(exceptions::open_exception))
        .routes(routes!(exceptions::list_exceptions))
        .routes(routes!(exceptions::decide_exception))
        .routes(routes!(decisions::retrieve_decision))
        .routes(routes!(decisions::confirm_decision))
        .routes(routes!(decisions::withdraw_decision))
        .routes(routes!(changes::propose_change, changes::list_changes))
        .routes(routes!(changes::retrieve_change))
        .routes(routes!(changes::confirm_change))
        .routes(routes!(changes::withdraw_change))
        .routes(routes!(settings::retrieve_account))
        .routes(routes!(settings::list_limits))
        .routes(routes!(settings::list_kill_switches))
        .routes(routes!(settings::list_api_keys))
        .routes(routes!(settings::list_operators))
}

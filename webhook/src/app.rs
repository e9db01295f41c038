//! The shared state, the routes, and the layers around them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, HeaderName};
use axum::middleware::{from_fn, from_fn_with_state};
use idempotency::http::IdempotencyLayer;
use idempotency::{BatchOptions, Batcher, IdempotencyOptions, StoreBreaker};
use outbound_webhooks::CheckedOutboundWebhooks;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::ApiKeyScope;
use payment_protocol::ids::SwitchName;
use postgres_kit::Pool;
use secrecy::ExposeSecret as _;
use service_kit::bounds::bounded;
use service_kit::task::Trigger;
use service_kit::{published, requests};
use switch_client::{CheckedSwitches, SecretsOf, SwitchReports};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;
use webhook_signature::{SIGNATURE_HEADER, Secret};
use workflow_api::Signaller;

use crate::admission::Admission;
use crate::auth::ByApiKey;
use crate::config::{Config, SetupError};
use crate::limits::Limits;
use crate::routes::payments::acceptance::PaymentAcceptance;
use crate::routes::{account_history, accounts, callbacks, docs, payments, webhook_endpoints};
use crate::streams::Streams;
use crate::{admission, idempotent, limits, request_span};

/// Pause between two wake-up notifications of this process, half of it in a quiet moment.
const WAKE_UP_PAUSE: Duration = Duration::from_millis(50);

/// Routes of one path, with their documentation.
type Routes = UtoipaMethodRouter<Arc<App>>;

/// How one switch reports the end of a transfer: no secret and no format of one counts for another.
pub(crate) struct CallbackSource {
    /// The accepted secrets.
    pub(crate) secrets: Vec<Secret>,
    /// Reads its bodies.
    pub(crate) reports: &'static dyn SwitchReports,
}

/// State shared by all routes.
pub(crate) struct App {
    /// For what changes rows, and for what is read on its way.
    pub(crate) ledger: Ledger,
    /// For what clients read, over connections of its own.
    pub(crate) reads: Ledger,
    /// How each switch reports the end of a transfer.
    pub(crate) callback_sources: BTreeMap<SwitchName, CallbackSource>,
    pub(crate) callback_tolerance_s: i64,
    pub(crate) signaller: Signaller,
    /// Wakes the payment workers after payments were accepted.
    pub(crate) wake_starters: Trigger,
    /// Accepts payments in batches.
    pub(crate) acceptances: Batcher<PaymentAcceptance>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) streams: Streams,
    /// Retention and lease of idempotency keys.
    pub(crate) idempotency: IdempotencyOptions,
    pub(crate) breaker: Arc<StoreBreaker>,
    /// Whether the demo's API key, which everybody can read, is accepted: on this machine only.
    pub(crate) accepts_demo_key: bool,
    /// Options of webhook endpoints.
    pub(crate) webhooks: CheckedOutboundWebhooks,
    pub(crate) wait_max: Duration,
    /// One permit for each request that waits with `?wait=`.
    pub(crate) waiters: Semaphore,
    /// Cancelled when the process stops: waits and streams end.
    pub(crate) stopping: CancellationToken,
}

/// The router of the public listener over `pool`, and `reads` for what clients read, with its background tasks until `stopping`. Must be
/// called inside a tokio runtime.
///
/// # Errors
/// [`SetupError`]: the configuration is refused.
pub fn router(
    config: Config,
    pool: Pool,
    reads: Pool,
    stopping: CancellationToken,
) -> Result<Router, SetupError> {
    let bounds = config.api.bounds()?;
    let shows_docs = config.api.docs;
    let admission = Arc::new(Admission::new(&config.api)?);
    let ready = Ledger::new(pool.clone()).readiness();
    let app = start_app(config, pool, Ledger::new(reads), stopping)?;
    let (api, document) =
        api_routes(|routes, scope| idempotent_routes(routes, &app, scope)).split_for_parts();
    let api = api
        .with_state(app)
        // Answers have balances, and the secrets of webhook endpoints.
        .layer(SetResponseHeaderLayer::overriding(CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .layer(from_fn(limits::write_rate_limit_headers))
        .layer(from_fn_with_state(admission, admission::admit));

    let mut all = api.merge(service_kit::metrics::health_routes(ready));
    if shows_docs {
        all = all.merge(openapi_kit::page(docs::complete(document)));
    }
    // The last layer is the outermost: responses of the bounds have a request id, too.
    Ok(bounded(all, bounds)
        .layer(from_fn(requests::crash_before_answer))
        .layer(from_fn(request_span::record_request))
        .layer(from_fn(request_span::record_duration))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(SetSensitiveRequestHeadersLayer::new([
            AUTHORIZATION,
            HeaderName::from_static(SIGNATURE_HEADER),
        ])))
}

/// Exports the limits of the bank's claims, which the alerts compare with the open claims.
#[allow(
    clippy::cast_precision_loss,
    reason = "gauges are doubles: a limit above 2^53 minor units loses its last digits"
)]
fn set_claims_limits(switches: &CheckedSwitches) {
    for (switch, options, _) in switches.iter() {
        if let Some(limit_minor) = options.claims_limit_minor {
            metrics::gauge!("claims_limit_minor", "switch" => switch.to_string()).set(limit_minor as f64);
        }
    }
}

/// Checks the options and starts the background tasks.
fn start_app(
    config: Config,
    pool: Pool,
    reads: Ledger,
    stopping: CancellationToken,
) -> Result<Arc<App>, SetupError> {
    let idempotency = config.api.idempotency()?;
    let switches = config.switches.check(SecretsOf::Callbacks)?;
    let listeners = [("api.listen", config.api.listen), ("api.metrics_listen", config.api.metrics_listen)];
    let secrets = switches.secrets().chain(config.outbound_webhooks.secrets());
    published::refuse(&listeners, secrets.chain(config.temporal.secrets()))?;
    let webhooks = config.outbound_webhooks.check()?;
    let callback_sources = callback_sources(&switches)?;
    callbacks::initialize_metrics(callback_sources.keys());
    set_claims_limits(&switches);
    let breaker = Arc::new(StoreBreaker::default());
    let acceptances = Batcher::start(
        PaymentAcceptance { switches },
        pool.clone(),
        idempotency,
        BatchOptions::default(),
        Arc::clone(&breaker),
        &stopping,
    );
    let limits = Limits::start(&config.api, stopping.clone())?;
    let ledger = Ledger::new(pool);
    let streams = Streams::start(&config.api, reads.clone(), stopping.clone())?;
    Ok(Arc::new(App {
        accepts_demo_key: config.api.listen.ip().is_loopback(),
        wake_starters: start_wake_ups(ledger.clone(), stopping.clone()),
        limits,
        streams,
        signaller: Signaller::new(config.temporal, "payments-api"),
        acceptances,
        breaker,
        callback_sources,
        callback_tolerance_s: i64::from(config.api.callback_tolerance_s),
        idempotency,
        webhooks,
        wait_max: Duration::from_secs(config.api.wait_max_s),
        waiters: Semaphore::new(config.api.waiters_max),
        stopping,
        ledger,
        reads,
    }))
}

/// Wake-up notifications to the payment workers: a NOTIFY outside the transaction of the payment (inside it, NOTIFY serialises
/// all commits), with the pauses of a [`Trigger`].
fn start_wake_ups(ledger: Ledger, stopping: CancellationToken) -> Trigger {
    Trigger::start(WAKE_UP_PAUSE, stopping, move || {
        let ledger = ledger.clone();
        async move {
            if let Err(error) = ledger.wake_starters().await {
                // The payment workers poll, so they only start the payment a little later.
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the payments-api could not send the wake-up notification to the payment-workers; they find the new payments by polling"
                );
            }
        }
    })
}

/// The OpenAPI document, without a running API.
pub(crate) fn document() -> OpenApi {
    docs::complete(api_routes(|routes, _| routes).into_openapi())
}

/// All routes under `/api` and `/callbacks`; `idempotent` adds the idempotency layer to the routes of a scope.
fn api_routes(idempotent: impl Fn(Routes, ApiKeyScope) -> Routes) -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(docs::description())
        .routes(idempotent(
            routes!(payments::create::create_payment, payments::list::list_payments),
            ApiKeyScope::Pay,
        ))
        .routes(routes!(payments::retrieve::retrieve_payment))
        .routes(routes!(payments::events::stream_payment_events))
        .routes(idempotent(routes!(payments::cancel::cancel_payment), ApiKeyScope::Pay))
        .routes(routes!(accounts::retrieve_account))
        .routes(routes!(account_history::retrieve_balance))
        .routes(routes!(account_history::retrieve_statement))
        .routes(routes!(callbacks::receive_callback))
        .merge(webhook_endpoint_routes(|routes| idempotent(routes, ApiKeyScope::Webhooks)))
}

/// Routes of webhook endpoints and their deliveries.
fn webhook_endpoint_routes(idempotent: impl Fn(Routes) -> Routes) -> OpenApiRouter<Arc<App>> {
    use webhook_endpoints::{
        create, delete, deliveries, list, replay, replay_failed, retrieve, rotate_secret, update,
    };
    OpenApiRouter::new()
        .routes(idempotent(routes!(create::create_webhook_endpoint, list::list_webhook_endpoints)))
        .routes(idempotent(routes!(
            retrieve::retrieve_webhook_endpoint,
            update::update_webhook_endpoint,
            delete::delete_webhook_endpoint
        )))
        .routes(idempotent(routes!(rotate_secret::rotate_webhook_secret)))
        .routes(routes!(deliveries::list_webhook_deliveries))
        .routes(idempotent(routes!(replay::replay_webhook_delivery)))
        .routes(idempotent(routes!(replay_failed::replay_failed_webhook_deliveries)))
}

/// Requires an `Idempotency-Key` for the unsafe methods of these routes (S3.1).
fn idempotent_routes((schemas, paths, route): Routes, app: &Arc<App>, scope: ApiKeyScope) -> Routes {
    let identify = ByApiKey { app: Arc::clone(app), scope };
    let layer = IdempotencyLayer::new(identify).with_refusal_response(idempotent::refusal_response);
    (schemas, paths, route.route_layer(layer))
}

fn callback_sources(switches: &CheckedSwitches) -> Result<BTreeMap<SwitchName, CallbackSource>, SetupError> {
    switches
        .iter()
        .map(|(name, options, _)| {
            let secrets = options
                .callback_secrets
                .iter()
                .map(|text| text.expose_secret().parse())
                .collect::<Result<Vec<Secret>, _>>()
                .map_err(|source| SetupError::CallbackSecret { switch: name.to_string(), source })?;
            Ok((name.clone(), CallbackSource { secrets, reports: options.kind.reports() }))
        })
        .collect()
}

//! What the routes share, which routes there are, and what stands around them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{AUTHORIZATION, HeaderName};
use axum::middleware::{from_fn, from_fn_with_state};
use idempotency::http::IdempotencyLayer;
use idempotency::{Batcher, Breaker, Terms, Width};
use outbound_webhooks::CheckedOutboundWebhooks;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::Scope;
use payment_protocol::ids::SwitchName;
use secrecy::ExposeSecret as _;
use service_kit::bounds::bounded;
use service_kit::metrics::Metrics;
use service_kit::signature::{SIGNATURE_HEADER, Secret};
use sqlx::PgPool;
use switch_client::CheckedSwitches;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;
use workflow_api::Signaller;

use crate::auth::ByApiKey;
use crate::config::{Config, SetupError};
use crate::limits::Limits;
use crate::nudge::Nudge;
use crate::routes::payments::acceptance::Acceptances;
use crate::routes::{accounts, callbacks, docs, history, payments, webhook_endpoints};
use crate::streams::Streams;
use crate::{admission, idempotent, limits, observe};

/// What every route may use.
pub(crate) struct App {
    pub(crate) ledger: Ledger,
    /// Secrets that callbacks may be signed with, by switch.
    pub(crate) callback_secrets: BTreeMap<SwitchName, Vec<Secret>>,
    pub(crate) callback_tolerance_s: i64,
    pub(crate) signaller: Signaller,
    pub(crate) nudge: Nudge,
    /// Accepts payments in batches.
    pub(crate) acceptances: Batcher<Acceptances>,
    /// How much each client may do.
    pub(crate) limits: Arc<Limits>,
    /// Who watches payments.
    pub(crate) streams: Streams,
    /// How idempotency keys are kept.
    pub(crate) terms: Terms,
    /// Leaves the store in peace while it does not answer.
    pub(crate) breaker: Arc<Breaker>,
    /// How webhook endpoints are set up.
    pub(crate) webhooks: CheckedOutboundWebhooks,
    pub(crate) wait_max: Duration,
    /// One permit for each request that may wait.
    pub(crate) waiters: Semaphore,
    /// Cancelled when the process is to stop: nobody waits any longer.
    pub(crate) stopping: CancellationToken,
}

/// The whole service over `pool`, until `stopping`. Must be called inside a tokio runtime.
///
/// # Errors
/// [`SetupError`]: the configuration is refused.
pub fn router(
    config: Config,
    pool: PgPool,
    metrics: Metrics,
    stopping: CancellationToken,
) -> Result<Router, SetupError> {
    let bounds = config.api.bounds()?;
    let terms = config.api.terms()?;
    let switches = config.switches.check()?;
    let webhooks = config.outbound_webhooks.check()?;
    let callback_secrets = callback_secrets(&switches)?;
    callbacks::show_from_zero(callback_secrets.keys());
    let breaker = Arc::new(Breaker::default());
    let acceptances = Batcher::start(
        Acceptances { switches },
        pool.clone(),
        terms,
        Width::default(),
        Arc::clone(&breaker),
        &stopping,
    );
    let limits = Limits::start(&config.api, stopping.clone())?;
    let ledger = Ledger::new(pool);
    let streams = Streams::start(&config.api, ledger.clone(), stopping.clone())?;
    let app = Arc::new(App {
        nudge: Nudge::start(ledger.clone(), stopping.clone()),
        limits,
        streams,
        signaller: Signaller::new(config.temporal, "payments-api"),
        acceptances,
        breaker,
        callback_secrets,
        callback_tolerance_s: i64::from(config.api.callback_tolerance_s),
        terms,
        webhooks,
        wait_max: Duration::from_secs(config.api.wait_max_s),
        waiters: Semaphore::new(config.api.waiters_max),
        stopping,
        ledger: ledger.clone(),
    });

    let (api, document) = OpenApiRouter::with_openapi(docs::description())
        .routes(keyed(
            routes!(payments::create::create_payment, payments::list::list_payments),
            &app,
            Scope::Pay,
        ))
        .routes(routes!(payments::read::read_payment))
        .routes(routes!(payments::events::watch_payment))
        .routes(keyed(routes!(payments::cancel::cancel_payment), &app, Scope::Pay))
        .routes(routes!(accounts::read_account))
        .routes(routes!(history::read_balance))
        .routes(routes!(history::read_statement))
        .routes(routes!(callbacks::take_callback))
        .merge(webhook_endpoint_routes(&app))
        .split_for_parts();
    let admission = Arc::new(Semaphore::new(config.api.requests_max));
    let api = api
        .with_state(app)
        .layer(from_fn(limits::tell))
        .layer(from_fn_with_state(admission, admission::admit));

    let ready = move || -> service_kit::metrics::BoxFuture<'static, Result<(), String>> {
        let ledger = ledger.clone();
        Box::pin(async move { ledger.ping().await.map_err(|error| error.to_string()) })
    };
    let all = api.merge(docs::routes(document)).merge(service_kit::metrics::routes(metrics, ready));
    // The last layer is the outermost: an answer of the bounds has its request id too.
    Ok(bounded(all, bounds)
        .layer(from_fn(observe::observe))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(SetSensitiveRequestHeadersLayer::new([
            AUTHORIZATION,
            HeaderName::from_static(SIGNATURE_HEADER),
        ])))
}

/// Where tenants are told of their payments.
fn webhook_endpoint_routes(app: &Arc<App>) -> OpenApiRouter<Arc<App>> {
    use webhook_endpoints::{
        change, create, delete, deliveries, list, read, replay, replay_failed, rotate_secret,
    };
    OpenApiRouter::new()
        .routes(keyed(
            routes!(create::create_webhook_endpoint, list::list_webhook_endpoints),
            app,
            Scope::Webhooks,
        ))
        .routes(keyed(
            routes!(
                read::read_webhook_endpoint,
                change::change_webhook_endpoint,
                delete::delete_webhook_endpoint
            ),
            app,
            Scope::Webhooks,
        ))
        .routes(keyed(routes!(rotate_secret::rotate_webhook_secret), app, Scope::Webhooks))
        .routes(routes!(deliveries::list_webhook_deliveries))
        .routes(keyed(routes!(replay::replay_webhook_delivery), app, Scope::Webhooks))
        .routes(keyed(routes!(replay_failed::replay_failed_webhooks), app, Scope::Webhooks))
}

/// Whatever these routes change is changed once per `Idempotency-Key` (S3.1). Only methods that a route has are
/// asked for one.
fn keyed(
    (schemas, paths, route): UtoipaMethodRouter<Arc<App>>,
    app: &Arc<App>,
    scope: Scope,
) -> UtoipaMethodRouter<Arc<App>> {
    let identify = ByApiKey { app: Arc::clone(app), scope };
    let layer = IdempotencyLayer::new(identify).refusing_by(idempotent::refuse);
    (schemas, paths, route.route_layer(layer))
}

fn callback_secrets(switches: &CheckedSwitches) -> Result<BTreeMap<SwitchName, Vec<Secret>>, SetupError> {
    switches
        .iter()
        .map(|(name, options, _)| {
            let secrets = options
                .callback_secrets
                .iter()
                .map(|text| text.expose_secret().parse())
                .collect::<Result<Vec<Secret>, _>>()
                .map_err(|source| SetupError::CallbackSecret { switch: name.to_string(), source })?;
            Ok((name.clone(), secrets))
        })
        .collect()
}

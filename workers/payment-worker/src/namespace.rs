//! The Temporal namespace that has the open payments' workflows, compared with the connected one. In another namespace every
//! workflow would look lost, and the recovery workflows would cancel live payments.

use std::time::Duration;

use payment_ledger::{Ledger, LedgerError};
use temporalio_client::Client;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use workflow_api::{NamespaceIdError, TemporalOptions};

use crate::until_answered::until_answered;

/// Time for Temporal's description of the namespace.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The connected namespace is not known to be the one of the open payments' workflows.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// It is another one.
    #[error(
        "the Temporal namespace {namespace} at {address} has the id {connected}, but the workflows of open payments are in the \
         namespace with the id {recorded}: here every open payment would look lost, and its recovery workflow would cancel it. \
         Correct [temporal] in the configuration. Only if the old namespace is gone for good, for example because Temporal was \
         restored into a new one, run: payctl temporal-namespace accept {connected} --reason TEXT"
    )]
    Different {
        /// The configured namespace.
        namespace: String,
        /// The configured address.
        address: String,
        /// Id of the connected namespace.
        connected: String,
        /// Id of the recorded namespace.
        recorded: String,
    },
    /// Temporal could not be asked for the id.
    #[error("Temporal did not describe its namespace")]
    Temporal(#[from] NamespaceIdError),
    /// Temporal did not answer in time.
    #[error("Temporal did not describe its namespace within 5 s")]
    Timeout,
    /// The database could not be asked for the recorded id.
    #[error("the ledger could not read the recorded Temporal namespace")]
    Ledger(#[from] LedgerError),
}

/// Compares the connected namespace with the recorded one. The first namespace that is compared is recorded.
///
/// # Errors
/// [`NamespaceError`].
pub(crate) async fn require_recorded(
    client: &Client,
    options: &TemporalOptions,
    ledger: &Ledger,
) -> Result<(), NamespaceError> {
    let connected = timeout(DESCRIBE_TIMEOUT, workflow_api::namespace_id(client, &options.namespace))
        .await
        .map_err(|_| NamespaceError::Timeout)??;
    let recorded = ledger.temporal_namespace(&connected).await?;
    if recorded == connected {
        return Ok(());
    }
    Err(NamespaceError::Different {
        namespace: options.namespace.clone(),
        address: options.address.clone(),
        connected,
        recorded,
    })
}

/// As [`require_recorded`], as soon as Temporal and the database answer; `false` if `stop` comes first.
///
/// # Errors
/// [`NamespaceError::Different`].
pub(crate) async fn wait_for_recorded(
    client: &Client,
    options: &TemporalOptions,
    ledger: &Ledger,
    stop: &CancellationToken,
) -> Result<bool, NamespaceError> {
    let ask = async || match require_recorded(client, options, ledger).await {
        Err(different @ NamespaceError::Different { .. }) => Ok(Err(different)),
        answer => answer.map(Ok),
    };
    let log = |error: &NamespaceError| {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "the payment-worker could not compare the Temporal namespace with the recorded one; it tries again until it can"
        );
    };
    Ok(until_answered(ask, log, stop).await.transpose()?.is_some())
}

//! The device flow (RFC 8628): the operator opens a page on any machine, and payctl waits for the outcome.

use anyhow::Context as _;
use oauth2::{Scope, StandardDeviceAuthorizationResponse};
use secrecy::SecretString;

use super::{LOGIN_TIMEOUT, OidcProvider, id_token};
use crate::output::{Output, escape_control};

/// Gets an ID token while the operator logs in elsewhere.
///
/// # Errors
/// The provider offers no device flow, refuses, does not answer, or the operator takes too long.
pub(in crate::operator_api) async fn log_in_with_device(
    provider: &OidcProvider,
    out: &mut Output<'_>,
) -> anyhow::Result<SecretString> {
    let (client, http) = (provider.client()?, provider.http()?);
    let request = client.exchange_device_code();
    let request = request.context("the OpenID provider offers no device flow; log in without --device")?;
    let request = request.add_scope(Scope::new("openid".into()));
    let details: StandardDeviceAuthorizationResponse =
        request.request_async(&http).await.context("the OpenID provider refused the device flow")?;
    let page = escape_control(details.verification_uri().as_str());
    let code = escape_control(details.user_code().secret());
    out.write_line(format_args!("open {page} in a browser and enter the code {code}"))?;
    let exchange = client.exchange_device_access_token(&details).request_async(
        &http,
        tokio::time::sleep,
        Some(LOGIN_TIMEOUT),
    );
    // The provider says how long to wait between two tries, but not for how long.
    let tokens = tokio::time::timeout(LOGIN_TIMEOUT, exchange).await;
    let tokens = tokens.context("nobody logged in at the OpenID provider within 5 minutes")?;
    let tokens = tokens.context("the OpenID provider gave no token")?;
    id_token(&tokens)
}

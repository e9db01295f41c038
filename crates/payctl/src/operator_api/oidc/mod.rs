//! Logins at the OpenID provider: payctl is an OAuth client without a secret there, and gets an ID token that operator-api checks.
//!
//! | file | question |
//! |---|---|
//! | `browser` | How does an operator log in with a browser on this machine? |
//! | `device` | How does an operator log in with a browser on another machine? |

mod browser;
mod device;

use std::time::Duration;

use anyhow::Context as _;
use oauth2::basic::{
    BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AsyncHttpClient, Client, ClientId, EndpointMaybeSet, EndpointNotSet, EndpointSet, ExtraTokenFields,
    HttpRequest, HttpResponse, StandardRevocableToken, StandardTokenResponse,
};
use reqwest::Url;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::api::http_client;

pub(super) use browser::log_in_with_browser;
pub(super) use device::log_in_with_device;

/// How long an operator may take at the provider.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);
/// Time of each request to the provider.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The provider, as operator-api knows it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OidcProvider {
    client_id: String,
    authorization_endpoint: String,
    token_endpoint: String,
    device_authorization_endpoint: Option<String>,
}

/// What an OpenID provider adds to a token.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct IdToken {
    #[serde(skip_serializing)]
    id_token: Option<SecretString>,
}

impl ExtraTokenFields for IdToken {}

type Tokens = StandardTokenResponse<IdToken, BasicTokenType>;

type OidcClient = Client<
    BasicErrorResponse,
    Tokens,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointSet,
    EndpointMaybeSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

impl OidcProvider {
    fn client(&self) -> anyhow::Result<OidcClient> {
        let no_url = "operator-api names an endpoint of the OpenID provider that is no URL";
        let device = self.device_authorization_endpoint.clone().map(oauth2::DeviceAuthorizationUrl::new);
        Ok(Client::new(ClientId::new(self.client_id.clone()))
            .set_auth_uri(oauth2::AuthUrl::new(self.authorization_endpoint.clone()).context(no_url)?)
            .set_token_uri(oauth2::TokenUrl::new(self.token_endpoint.clone()).context(no_url)?)
            .set_device_authorization_url_option(device.transpose().context(no_url)?))
    }

    /// Calls of the provider. Sends nothing.
    fn http(&self) -> anyhow::Result<impl for<'c> AsyncHttpClient<'c, Error = HttpError> + use<>> {
        let url: Url =
            self.token_endpoint.parse().context("the OpenID provider's token endpoint is no URL")?;
        let http = http_client(&url).context("the OpenID provider cannot be called")?;
        Ok(move |request: HttpRequest| {
            let http = http.clone();
            async move { call(&http, request).await.map_err(HttpError) }
        })
    }
}

/// A call of the provider failed.
#[derive(Debug, thiserror::Error)]
#[error("the OpenID provider gave no answer")]
struct HttpError(#[source] reqwest::Error);

async fn call(http: &reqwest::Client, request: HttpRequest) -> Result<HttpResponse, reqwest::Error> {
    let mut request = reqwest::Request::try_from(request)?;
    *request.timeout_mut() = Some(REQUEST_TIMEOUT);
    let answer = http.execute(request).await?;
    let mut response = HttpResponse::new(vec![]);
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    *response.body_mut() = answer.bytes().await?.to_vec();
    Ok(response)
}

/// The ID token of an answer.
fn id_token(tokens: &Tokens) -> anyhow::Result<SecretString> {
    let token = tokens.extra_fields().id_token.clone();
    token.context("the OpenID provider gave no ID token; its client of payctl must allow the scope openid")
}

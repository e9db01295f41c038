//! Logins at an OpenID provider: which identity an ID token proves.
//!
//! payctl obtains the token from the provider, as an OAuth client without a secret, and sends it here once. What the provider said is
//! checked here alone: its signature, for whom it is, and that it was issued just now.
//!
//! | file | question |
//! |---|---|
//! | `provider` | Where are the provider's endpoints and keys? |
//! | `id_token` | Which identity does a token prove? |
//! | `signature` | Did a key sign a token? |

mod id_token;
mod provider;
mod signature;

use payment_ledger::access::operators::OperatorIdentity;
use secrecy::SecretString;

pub(crate) use id_token::IdTokenRefused;
pub use provider::OidcSetupError;
pub(crate) use provider::{Endpoints, ProviderUnavailable};

use crate::config::OidcOptions;
use provider::Provider;

/// The OpenID provider of the operators.
#[derive(Debug)]
pub(crate) struct Oidc {
    client_id: String,
    provider: Provider,
}

/// Why a token proves nothing here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcError {
    /// The token.
    #[error(transparent)]
    Refused(#[from] IdTokenRefused),
    /// The provider, without whose keys nothing can be said of a token.
    #[error(transparent)]
    Unavailable(#[from] ProviderUnavailable),
}

impl Oidc {
    /// A provider that has not been called yet.
    ///
    /// # Errors
    /// [`OidcSetupError`]: an option is refused.
    pub(crate) fn new(options: OidcOptions) -> Result<Self, OidcSetupError> {
        signature::install();
        let client_id = options.client_id.clone();
        if client_id.is_empty() {
            return Err(OidcSetupError::ClientId);
        }
        Ok(Self { client_id, provider: Provider::new(options)? })
    }

    /// The provider, by its URL.
    pub(crate) fn issuer(&self) -> &str {
        self.provider.issuer()
    }

    /// The client as which operators log in.
    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Where operators log in.
    ///
    /// # Errors
    /// [`ProviderUnavailable`].
    pub(crate) async fn endpoints(&self) -> Result<Endpoints, ProviderUnavailable> {
        Ok(self.provider.known().await?.endpoints.clone())
    }

    /// The identity that a token proves.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(crate) async fn identity(&self, token: &SecretString) -> Result<OperatorIdentity, OidcError> {
        let header = id_token::header(token)?;
        let key_id = header.kid.as_deref();
        let mut known = self.provider.known().await?;
        if key_id.is_some_and(|id| known.keys.find(id).is_none()) {
            // The provider may have another key since.
            known = self.provider.known_after_new_key().await?;
        }
        let key = id_token::key(&known.keys, key_id, header.alg)?;
        Ok(id_token::identity(token, (header.alg, &key), self.issuer(), &self.client_id)?)
    }
}

//! One request that claims its key.

use sqlx::types::Uuid;

use crate::scope::ScopeId;
use crate::{Fingerprint, KeyScope};

/// A request, its key and its fingerprint.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) id: ScopeId,
    pub(crate) tenant: String,
    pub(crate) client: String,
    pub(crate) key: String,
    pub(crate) fingerprint: Fingerprint,
    /// Identifies this request among all requests with the key.
    pub(crate) token: Uuid,
}

impl ClaimRequest {
    pub(crate) fn new(scope: &KeyScope<'_>, fingerprint: &Fingerprint) -> Self {
        Self {
            id: scope.id(),
            tenant: scope.tenant.to_owned(),
            client: scope.client.to_owned(),
            key: scope.key.as_str().to_owned(),
            fingerprint: *fingerprint,
            token: Uuid::new_v4(),
        }
    }
}

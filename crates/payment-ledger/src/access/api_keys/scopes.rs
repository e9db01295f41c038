//! Scopes of API keys.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A permission of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiKeyScope {
    /// Create and cancel payments.
    Pay,
    /// Read payments and accounts.
    Read,
    /// Manage the tenant's webhook endpoints and read their deliveries.
    Webhooks,
}

/// An unknown scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scope is unknown; an API key's scope is pay, read or webhooks")]
pub struct UnknownScope;

impl ApiKeyScope {
    /// Every scope.
    pub const ALL: [Self; 3] = [Self::Pay, Self::Read, Self::Webhooks];

    /// The word, as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pay => "pay",
            Self::Read => "read",
            Self::Webhooks => "webhooks",
        }
    }
}

impl fmt::Display for ApiKeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ApiKeyScope {
    type Err = UnknownScope;

    fn from_str(word: &str) -> Result<Self, UnknownScope> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word).ok_or(UnknownScope)
    }
}

/// The scopes of a key: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes(BTreeSet<ApiKeyScope>);

impl Scopes {
    /// `None` if `scopes` is empty.
    pub fn new(scopes: impl IntoIterator<Item = ApiKeyScope>) -> Option<Self> {
        let scopes: BTreeSet<_> = scopes.into_iter().collect();
        if scopes.is_empty() { None } else { Some(Self(scopes)) }
    }

    /// Every scope.
    #[must_use]
    pub fn all() -> Self {
        Self(ApiKeyScope::ALL.into())
    }

    /// Whether `scope` is included.
    #[must_use]
    pub fn allow(&self, scope: ApiKeyScope) -> bool {
        self.0.contains(&scope)
    }

    /// The words, in the order of [`ApiKeyScope::ALL`].
    #[must_use]
    pub fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|scope| scope.as_str()).collect()
    }

    /// The words, as stored.
    pub(super) fn to_columns(&self) -> Vec<String> {
        self.words().into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_key_scope_is_parsed_from_its_own_text() {
        for scope in ApiKeyScope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(scope));
        }
        for other in ["", "Pay", "pay ", "all"] {
            assert_eq!(other.parse::<ApiKeyScope>(), Err(UnknownScope));
        }
        assert_eq!(Scopes::new([]), None);
        assert_eq!(
            Scopes::new([ApiKeyScope::Read, ApiKeyScope::Pay, ApiKeyScope::Read]).unwrap().words(),
            ["pay", "read"]
        );
    }
}

//! Rules for the URLs of endpoints. The addresses of a host name are checked at each connection ([`crate::address`]).

use std::net::IpAddr;

use reqwest::Url;

use crate::address::AddressPolicy;

/// Longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// Rules for URLs.
#[derive(Clone, Debug)]
pub struct TargetRules {
    /// Whether `http` is permitted.
    pub http: bool,
    /// Permitted ports; empty for all.
    pub ports: Vec<u16>,
    /// Permitted addresses.
    pub addresses: AddressPolicy,
}

/// A URL that conforms to the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(Url);

/// Why a URL is not permitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("the webhook URL must have at most {URL_BYTES_MAX} bytes")]
    TooLong,
    /// Not a URL with a host.
    #[error("the webhook URL is not a URL with a host; write it like https://example.com/hooks")]
    Malformed,
    /// Not `https`.
    #[error("the webhook URL must begin with https://")]
    Scheme,
    /// A user or a password.
    #[error(
        "the webhook URL must contain no user and no password, because it is stored and shown in clear text"
    )]
    UserInfo,
    /// A fragment, which is never sent to a server.
    #[error("the webhook URL must have no fragment (#..)")]
    Fragment,
    /// A port that is not permitted.
    #[error("port {0} of the webhook URL is not permitted; use a port that the bank permits, such as 443")]
    Port(u16),
    /// An address that is not permitted.
    #[error("the address of the webhook URL is not permitted; use a public address")]
    Address,
}

impl Target {
    /// Parses and checks a URL.
    ///
    /// # Errors
    /// [`TargetError`], the first that applies.
    pub fn parse(text: &str, rules: &TargetRules) -> Result<Self, TargetError> {
        if text.len() > URL_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        let url = Url::parse(text).map_err(|_| TargetError::Malformed)?;
        match url.scheme() {
            "https" => {}
            "http" if rules.http => {}
            _ => return Err(TargetError::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::UserInfo);
        }
        if url.fragment().is_some() {
            return Err(TargetError::Fragment);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(TargetError::Malformed)?;
        let port = url.port_or_known_default().ok_or(TargetError::Malformed)?;
        if !rules.ports.is_empty() && !rules.ports.contains(&port) {
            return Err(TargetError::Port(port));
        }
        // A literal address bypasses our resolver. The parser has normalised every spelling of it (0x7f.1, 2130706433).
        let literal: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        if literal.is_some_and(|address| !rules.addresses.permits(address)) {
            return Err(TargetError::Address);
        }
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        Ok(Self(url))
    }

    /// The normalised URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether `url` has the same host, regardless of port and path.
    pub(crate) fn has_host_of(&self, url: &str) -> bool {
        // A trailing dot names the same host.
        fn name(url: &Url) -> Option<&str> {
            url.host_str().map(|host| host.trim_end_matches('.'))
        }
        Url::parse(url).is_ok_and(|url| name(&url) == name(&self.0))
    }

    pub(crate) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    pub(crate) fn url(&self) -> &Url {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(http: bool, ports: &[u16], allowed: &[&str]) -> TargetRules {
        let allowed = allowed.iter().map(|network| network.parse().unwrap()).collect();
        TargetRules { http, ports: ports.to_vec(), addresses: AddressPolicy::new(allowed) }
    }

    #[test]
    fn a_webhook_url_is_accepted_only_if_the_url_rules_permit_it() {
        let strict = rules(false, &[443, 8443], &[]);
        #[rustfmt::skip]
        let table = [
            ("https://bank.example/hooks?tenant=1", Ok("https://bank.example/hooks?tenant=1")),
            ("HTTPS://BANK.example:443", Ok("https://bank.example/")),
            ("https://bank.example:8443/", Ok("https://bank.example:8443/")),
            ("https://8.8.8.8/", Ok("https://8.8.8.8/")),
            ("https://[2606:4700::1111]/", Ok("https://[2606:4700::1111]/")),
            // The addresses of a name are checked at the connection.
            ("https://localhost/", Ok("https://localhost/")),
            ("", Err(TargetError::Malformed)),
            ("bank.example", Err(TargetError::Malformed)),
            ("https://", Err(TargetError::Malformed)),
            ("http://bank.example/", Err(TargetError::Scheme)),
            ("ftp://bank.example/", Err(TargetError::Scheme)),
            ("file:///etc/passwd", Err(TargetError::Scheme)),
            ("https://user@bank.example/", Err(TargetError::UserInfo)),
            ("https://:secret@bank.example/", Err(TargetError::UserInfo)),
            ("https://bank.example/#part", Err(TargetError::Fragment)),
            ("https://bank.example:22/", Err(TargetError::Port(22))),
            ("https://127.0.0.1/", Err(TargetError::Address)),
            ("https://0x7f.1/", Err(TargetError::Address)),
            ("https://2130706433/", Err(TargetError::Address)),
            ("https://127.1/", Err(TargetError::Address)),
            ("https://0177.0.0.1/", Err(TargetError::Address)),
            ("https://169.254.169.254/latest/meta-data", Err(TargetError::Address)),
            ("https://[::1]/", Err(TargetError::Address)),
            ("https://[::ffff:10.0.0.1]/", Err(TargetError::Address)),
            ("https://[64:ff9b::7f00:1]/", Err(TargetError::Address)),
        ];
        for (text, expected) in table {
            let parsed = Target::parse(text, &strict).map(|target| target.as_str().to_owned());
            assert_eq!(parsed, expected.map(str::to_owned), "{text}");
        }
        let long = format!("https://bank.example/{}", "x".repeat(URL_BYTES_MAX));
        assert_eq!(Target::parse(&long, &strict), Err(TargetError::TooLong));
    }

    #[test]
    fn an_http_or_internal_webhook_url_is_accepted_only_if_configured() {
        let relaxed = rules(true, &[], &["127.0.0.0/8"]);
        assert!(Target::parse("http://127.0.0.1:8123/hook", &relaxed).is_ok());
        assert_eq!(Target::parse("http://10.0.0.1/", &relaxed), Err(TargetError::Address));
    }
}

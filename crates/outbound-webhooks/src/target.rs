//! Where an endpoint may stand: what its URL may look like. What its name resolves to is judged when it is connected to
//! ([`crate::address`]).

use std::net::IpAddr;

use reqwest::Url;

use crate::address::Reach;

/// Longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// What URLs may look like.
#[derive(Clone, Debug)]
pub struct TargetRules {
    /// Whether `http` is good, too.
    pub http: bool,
    /// Ports that may be connected to; none means every port.
    pub ports: Vec<u16>,
    /// Addresses that may be.
    pub reach: Reach,
}

/// A URL that keeps the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(Url);

/// Why an endpoint may not stand there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Over [`URL_BYTES_MAX`].
    #[error("a URL has {URL_BYTES_MAX} bytes at most")]
    TooLong,
    /// Not a URL with a host.
    #[error("this is no URL of a host")]
    NoUrl,
    /// Not encrypted.
    #[error("the URL must begin with https://")]
    Scheme,
    /// A user or a password.
    #[error("the URL must have no user and no password: whoever reads it would know them")]
    UserInfo,
    /// What never reaches a server.
    #[error("the URL must have no fragment (#..)")]
    Fragment,
    /// A port that is not on the list.
    #[error("port {0} may not be reached")]
    Port(u16),
    /// An address of our own, or none of the public internet.
    #[error("the address may not be reached")]
    Address,
}

impl Target {
    /// Reads a URL and checks it.
    ///
    /// # Errors
    /// [`TargetError`], the first that applies.
    pub fn read(text: &str, rules: &TargetRules) -> Result<Self, TargetError> {
        if text.len() > URL_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        let url = Url::parse(text).map_err(|_| TargetError::NoUrl)?;
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
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(TargetError::NoUrl)?;
        let port = url.port_or_known_default().ok_or(TargetError::NoUrl)?;
        if !rules.ports.is_empty() && !rules.ports.contains(&port) {
            return Err(TargetError::Port(port));
        }
        // An address needs no look-up, so no resolver of ours would see it. The parser has brought every spelling of one
        // (0x7f.1, 2130706433) into the usual form.
        let literal: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        if literal.is_some_and(|address| !rules.reach.allows(address)) {
            return Err(TargetError::Address);
        }
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        Ok(Self(url))
    }

    /// As text, in its usual form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether `url` leads to the same host, by whatever port and path.
    pub(crate) fn has_host_of(&self, url: &str) -> bool {
        // The root's dot at the end of a name changes nothing.
        fn name(url: &Url) -> Option<&str> {
            url.host_str().map(|host| host.trim_end_matches('.'))
        }
        Url::parse(url).is_ok_and(|url| name(&url) == name(&self.0))
    }

    /// Whether it is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
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
        TargetRules { http, ports: ports.to_vec(), reach: Reach::new(allowed) }
    }

    #[test]
    fn a_url_is_taken_only_where_it_may_lead() {
        let strict = rules(false, &[443, 8443], &[]);
        #[rustfmt::skip]
        let table = [
            ("https://bank.example/hooks?tenant=1", Ok("https://bank.example/hooks?tenant=1")),
            ("HTTPS://BANK.example:443", Ok("https://bank.example/")),
            ("https://bank.example:8443/", Ok("https://bank.example:8443/")),
            ("https://8.8.8.8/", Ok("https://8.8.8.8/")),
            ("https://[2606:4700::1111]/", Ok("https://[2606:4700::1111]/")),
            // A name is judged when it is connected to.
            ("https://localhost/", Ok("https://localhost/")),
            ("", Err(TargetError::NoUrl)),
            ("bank.example", Err(TargetError::NoUrl)),
            ("https://", Err(TargetError::NoUrl)),
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
            let read = Target::read(text, &strict).map(|target| target.as_str().to_owned());
            assert_eq!(read, expected.map(str::to_owned), "{text}");
        }
        let long = format!("https://bank.example/{}", "x".repeat(URL_BYTES_MAX));
        assert_eq!(Target::read(&long, &strict), Err(TargetError::TooLong));
    }

    #[test]
    fn what_is_allowed_is_allowed() {
        let lifted = rules(true, &[], &["127.0.0.0/8"]);
        assert!(Target::read("http://127.0.0.1:8123/hook", &lifted).is_ok());
        assert_eq!(Target::read("http://10.0.0.1/", &lifted), Err(TargetError::Address));
    }
}

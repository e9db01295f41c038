//! The link to a switch: TLS with the authorities and the identity that the configuration names, or plaintext where it accepts that.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use reqwest::{Certificate, ClientBuilder, Identity, Url};

use crate::config::SwitchOptions;

/// A file of the link cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting} = {} cannot be used; name a readable PEM file", path.display())]
pub struct LinkFileError {
    setting: &'static str,
    path: PathBuf,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// How the switch's URL is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Encrypted, to a server that proves its name.
    Tls,
    /// In clear, and within this machine.
    PlaintextWithinMachine,
    /// In clear, to another machine.
    Plaintext,
}

impl Link {
    /// The link of a URL; `None` if it is no HTTP URL with a host.
    pub(crate) fn of(base_url: &str) -> Option<Self> {
        let url: Url = base_url.parse().ok()?;
        let host = url.host_str()?;
        match url.scheme() {
            "https" => Some(Self::Tls),
            "http" if is_this_machine(host) => Some(Self::PlaintextWithinMachine),
            "http" => Some(Self::Plaintext),
            _ => None,
        }
    }
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

impl SwitchOptions {
    /// An HTTP client for the switch, without its timeouts: the authorities that it trusts and the identity that it presents are set, and
    /// it follows no redirect.
    ///
    /// # Errors
    /// [`LinkFileError`]: a configured file cannot be read.
    pub fn http_client(&self) -> Result<ClientBuilder, LinkFileError> {
        // Fails if a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        if Link::of(&self.base_url) != Some(Link::Tls) {
            // Plain HTTP is internal traffic: no certificates, no proxy.
            return Ok(builder.tls_certs_only([]).no_proxy());
        }
        if let Some(path) = &self.ca_path {
            let authorities = read("ca_path", path, Certificate::from_pem_bundle)?;
            if authorities.is_empty() {
                let source = "the file has no certificate".into();
                return Err(LinkFileError { setting: "ca_path", path: path.clone(), source });
            }
            builder = builder.tls_certs_only(authorities);
        }
        if let Some(path) = &self.client_identity_path {
            builder = builder.identity(read("client_identity_path", path, Identity::from_pem)?);
        }
        Ok(builder)
    }
}

fn read<T>(
    setting: &'static str,
    path: &Path,
    parse: fn(&[u8]) -> reqwest::Result<T>,
) -> Result<T, LinkFileError> {
    let failed = |source| LinkFileError { setting, path: path.to_owned(), source };
    let pem = std::fs::read(path).map_err(|error| failed(error.into()))?;
    parse(&pem).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_switch_is_encrypted_or_stays_within_the_machine() {
        for (url, link) in [
            ("https://switch.example", Some(Link::Tls)),
            ("HTTPS://switch.example/api", Some(Link::Tls)),
            ("http://127.0.0.1:8090", Some(Link::PlaintextWithinMachine)),
            ("http://[::1]:8090", Some(Link::PlaintextWithinMachine)),
            ("http://localhost", Some(Link::PlaintextWithinMachine)),
            ("http://localhost.example", Some(Link::Plaintext)),
            ("http://10.0.0.1", Some(Link::Plaintext)),
            ("ftp://switch.example", None),
            ("switch.example", None),
        ] {
            assert_eq!(Link::of(url), link, "{url}");
        }
    }
}

//! The link to a switch: TLS with the authorities and the identity that the configuration names, or plaintext where it accepts that.

use link_kit::{Link, LinkFileError, read_authorities, read_identity};
use reqwest::{Certificate, ClientBuilder, Identity, Url};

use crate::config::SwitchOptions;

/// The link of a URL; `None` if it is no HTTP URL with a host.
pub(crate) fn link_of(base_url: &str) -> Option<Link> {
    let url: Url = base_url.parse().ok()?;
    Link::of_http(url.scheme(), url.host_str()?)
}

impl SwitchOptions {
    /// An HTTP client for the switch, without its timeouts: the authorities that it trusts and the identity that it presents are set, and
    /// it follows no redirect.
    ///
    /// # Errors
    /// [`LinkFileError`]: a configured file cannot be used.
    pub fn http_client(&self) -> Result<ClientBuilder, LinkFileError> {
        // Fails if a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        if link_of(&self.base_url) != Some(Link::Tls) {
            // Plain HTTP is internal traffic: no certificates, no proxy.
            return Ok(builder.tls_certs_only([]).no_proxy());
        }
        if let Some(path) = &self.ca_path {
            let setting = "ca_path";
            let authorities = Certificate::from_pem_bundle(&read_authorities(setting, path)?);
            let authorities = authorities.map_err(|error| LinkFileError::new(setting, path, error))?;
            builder = builder.tls_certs_only(authorities);
        }
        if let Some(path) = &self.client_identity_path {
            let setting = "client_identity_path";
            let identity = Identity::from_pem(&read_identity(setting, path)?);
            builder = builder.identity(identity.map_err(|error| LinkFileError::new(setting, path, error))?);
        }
        Ok(builder)
    }
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
            ("http://10.0.0.1", Some(Link::Plaintext)),
            ("ftp://switch.example", None),
            ("switch.example", None),
        ] {
            assert_eq!(link_of(url), link, "{url}");
        }
    }
}

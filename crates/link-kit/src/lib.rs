//! The links of a process to the parties that it calls: what is encrypted, what stays within the machine, and what would travel in
//! clear to another one. Such a link is refused unless the configuration accepts it.

mod pem;

use std::net::IpAddr;

pub use pem::{LinkFileError, read_authorities, read_identity};

/// How another party is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Encrypted, to a server that proves its name.
    Tls,
    /// In clear, and within this machine.
    PlaintextWithinMachine,
    /// In clear, to another machine.
    Plaintext,
}

impl Link {
    /// The link to a host: a name, or an address with or without brackets.
    #[must_use]
    pub fn to(host: &str, is_encrypted: bool) -> Self {
        if is_encrypted {
            Self::Tls
        } else if is_this_machine(host) {
            Self::PlaintextWithinMachine
        } else {
            Self::Plaintext
        }
    }

    /// The link of an HTTP URL with this scheme and host; `None` for another scheme.
    #[must_use]
    pub fn of_http(scheme: &str, host: &str) -> Option<Self> {
        match scheme {
            "https" => Some(Self::to(host, true)),
            "http" => Some(Self::to(host, false)),
            _ => None,
        }
    }
}

/// Whether a host is this machine: `localhost` or a loopback address, with or without brackets.
#[must_use]
pub fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A link to another machine that anybody on the way can read and change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{setting} leads to another machine without a verified, encrypted link: who is on the way could read and change what is sent; {remedy}, or set {accept} = true if other means protect the link"
)]
pub struct PlaintextRefused {
    /// The setting with the address.
    pub setting: &'static str,
    /// What encrypts the link.
    pub remedy: &'static str,
    /// The setting that accepts the link as it is.
    pub accept: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_encrypted_or_stays_within_the_machine_or_is_plaintext() {
        for (host, link) in [
            ("127.0.0.1", Link::PlaintextWithinMachine),
            ("127.1.2.3", Link::PlaintextWithinMachine),
            ("[::1]", Link::PlaintextWithinMachine),
            ("::1", Link::PlaintextWithinMachine),
            ("localhost", Link::PlaintextWithinMachine),
            ("localhost.example", Link::Plaintext),
            ("10.0.0.1", Link::Plaintext),
            ("0.0.0.0", Link::Plaintext),
            ("", Link::Plaintext),
        ] {
            assert_eq!(Link::to(host, false), link, "{host}");
            assert_eq!(Link::to(host, true), Link::Tls, "{host}");
        }
    }
}

//! The secrets that this repository publishes, for a demonstration on one machine. They protect nothing, so a process that other
//! machines can reach refuses them.

use std::net::SocketAddr;

/// The API key of the demo's client.
pub const DEMO_API_KEY: &str = "demo-key-not-for-production";

/// The password of the demo's operators.
pub const DEMO_OPERATOR_PASSWORD: &str = "demo-operator-not-for-production";

/// The others, of `deploy/demo.toml`: tokens of the switches, secrets of their callbacks, the master key of the outbound webhooks, the key of
/// Temporal's payloads.
const SECRETS: [&str; 6] = [
    "demo-switch-token",
    "demo-sepa-token",
    "whsec_ZGVtby1vbmx5LXNlY3JldC1kby1ub3QtdXNlLWl0ISE=",
    "whsec_ZGVtby1vbmx5LXNlcGEtc2VjcmV0LXByb3RlY3RzLTA=",
    "ZGVtby1vbmx5LW1hc3Rlci1rZXktcHJvdGVjdHMtMCE=",
    "ZGVtby1vbmx5LXBheWxvYWQta2V5LW5vdC1zZWNyZXQ=",
];

/// A published secret in a process that other machines can reach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{setting} is a secret that the demo publishes, and other machines can reach {listener} at {address}; set {setting} to a secret of your own, or {listener} to a loopback address"
)]
pub struct PublishedSecret {
    /// The setting whose value is published.
    pub setting: String,
    /// The setting of an address that other machines can reach.
    pub listener: &'static str,
    /// That address.
    pub address: SocketAddr,
}

/// Whether everybody can read this secret.
#[must_use]
pub fn is_published(secret: &str) -> bool {
    [DEMO_API_KEY, DEMO_OPERATOR_PASSWORD].contains(&secret) || SECRETS.contains(&secret)
}

/// Refuses published secrets if a listener has another address than loopback. Each secret comes with the name of its setting.
///
/// # Errors
/// [`PublishedSecret`]: the first one.
pub fn refuse<'a>(
    listeners: &[(&'static str, SocketAddr)],
    secrets: impl IntoIterator<Item = (String, &'a str)>,
) -> Result<(), PublishedSecret> {
    let Some((listener, address)) = listeners.iter().find(|(_, address)| !address.ip().is_loopback()) else {
        return Ok(());
    };
    match secrets.into_iter().find(|(_, secret)| is_published(secret)) {
        Some((setting, _)) => Err(PublishedSecret { setting, listener, address: *address }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_of_the_demo_configuration_is_known_as_published() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/demo.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let mut found = 0;
        for line in text.lines() {
            let Some((key, value)) = line.split_once(" = ") else { continue };
            if ["api_token", "callback_secrets", "master_key", "payload_keys"].contains(&key) {
                let secret = value.trim_matches(['[', ']', '"']);
                assert!(is_published(secret), "{key} of deploy/demo.toml is not in the list: {secret}");
                found += 1;
            }
        }
        assert_eq!(found, SECRETS.len());
    }

    #[test]
    fn a_published_secret_is_refused_where_other_machines_can_reach_a_listener() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let secret = |text| [("switches.mock.api_token".to_owned(), text)];
        let local =
            [("api.listen", address("127.0.0.1:8080")), ("api.metrics_listen", address("[::1]:9104"))];
        assert_eq!(refuse(&local, secret("demo-switch-token")), Ok(()));
        for listen in ["0.0.0.0:8080", "10.1.2.3:8080", "[::]:8080"] {
            let open = [local[1], ("api.listen", address(listen))];
            assert_eq!(refuse(&open, secret("a secret of our own")), Ok(()));
            let error = refuse(&open, secret("demo-switch-token")).unwrap_err();
            assert_eq!((error.listener, error.address), ("api.listen", address(listen)));
            assert!(
                error.to_string().starts_with("switches.mock.api_token is a secret that the demo publishes")
            );
        }
    }
}

//! The addresses to which deliveries may be sent: public ones, and configured networks.
//!
//! Tenants choose the URLs. Without this check a tenant could make us send requests to internal services (server-side request
//! forgery): a database, a metadata service, the loopback. Each address is checked after the resolution of its name, and the
//! connection goes to the checked address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// IPv4 networks outside the public internet: IANA's special-purpose registry, multicast and reserved networks.
const SPECIAL_V4: [Ipv4Net; 15] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
];

/// The part of IPv6 that is allocated to the public internet. The loopback, link-local, unique local and multicast addresses
/// and NAT64 are outside.
const PUBLIC_V6: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// Special-purpose networks inside it: protocol assignments with Teredo, documentation, and 6to4, which embeds an IPv4
/// address.
const SPECIAL_V6: [Ipv6Net; 4] = [
    v6([0x2001, 0, 0, 0], 23),
    v6([0x2001, 0x0db8, 0, 0], 32),
    v6([0x2002, 0, 0, 0], 16),
    v6([0x3fff, 0, 0, 0], 20),
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6([a, b, c, d]: [u16; 4], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), length)
}

/// The permitted addresses. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    allowed_networks: Arc<[IpNet]>,
}

/// No address of a name is permitted. The error does not contain the addresses, which would reveal our network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the host name of the webhook URL resolves to no permitted address; the tenant must use a host with a public address"
)]
pub struct AddressNotPermittedError;

impl AddressPolicy {
    /// Permits the public internet and these networks.
    #[must_use]
    pub fn new(allowed_networks: Vec<IpNet>) -> Self {
        Self { allowed_networks: allowed_networks.into() }
    }

    /// Whether this address is permitted.
    #[must_use]
    pub fn permits(&self, address: IpAddr) -> bool {
        // An IPv4-mapped IPv6 address reaches the same host as the IPv4 address.
        let address = address.to_canonical();
        is_public(address) || self.allowed_networks.iter().any(|network| network.contains(&address))
    }

    fn permitted(
        &self,
        resolved: impl Iterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, AddressNotPermittedError> {
        let permitted: Vec<_> = resolved.filter(|address| self.permits(address.ip())).collect();
        if permitted.is_empty() { Err(AddressNotPermittedError) } else { Ok(permitted) }
    }
}

/// Whether a canonical address belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            PUBLIC_V6.contains(&address) && !SPECIAL_V6.iter().any(|network| network.contains(&address))
        }
    }
}

impl Resolve for AddressPolicy {
    /// Resolves the name to its permitted addresses.
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.clone();
        Box::pin(async move {
            // The port comes from the URL.
            let resolved = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted: Addrs = Box::new(policy.permitted(resolved)?.into_iter());
            Ok(permitted)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn special_purpose_ip_addresses_are_not_public() {
        #[rustfmt::skip]
        let table = [
            ("8.8.8.8", true), ("1.1.1.1", true), ("9.255.255.255", true), ("11.0.0.0", true),
            ("0.0.0.0", false), ("0.1.2.3", false),
            ("10.0.0.1", false), ("10.255.255.255", false),
            ("100.63.255.255", true), ("100.64.0.0", false), ("100.127.255.255", false), ("100.128.0.0", true),
            ("127.0.0.1", false), ("127.255.255.254", false),
            ("169.253.255.255", true), ("169.254.169.254", false), ("169.255.0.0", true),
            ("172.15.255.255", true), ("172.16.0.0", false), ("172.31.255.255", false), ("172.32.0.0", true),
            ("192.0.0.8", false), ("192.0.1.0", true), ("192.0.2.1", false), ("192.88.99.1", false),
            ("192.167.255.255", true), ("192.168.0.1", false), ("192.169.0.0", true),
            ("198.17.255.255", true), ("198.18.0.0", false), ("198.19.255.255", false), ("198.20.0.0", true),
            ("198.51.100.7", false), ("203.0.113.7", false),
            ("223.255.255.255", true), ("224.0.0.1", false), ("239.255.255.255", false),
            ("240.0.0.1", false), ("255.255.255.255", false),
            ("2606:4700::1111", true), ("2a00:1450::1", true), ("3ffe::1", true),
            ("::", false), ("::1", false), ("::8.8.8.8", false),
            ("::ffff:8.8.8.8", true), ("::ffff:127.0.0.1", false), ("::ffff:169.254.169.254", false),
            ("::ffff:10.0.0.1", false),
            ("64:ff9b::8.8.8.8", false), ("64:ff9b::127.0.0.1", false), ("64:ff9b:1::1", false),
            ("100::1", false),
            ("2001::1", false), ("2001:2::1", false), ("2001:20::1", false), ("2001:1ff::1", false),
            ("2001:200::1", true), ("2001:db8::1", false),
            ("2002:7f00:1::1", false), ("2002:808:808::1", false),
            ("3fff::1", false), ("3fff:fff::1", false), ("3fff:1000::1", true), ("4000::1", false), ("5f00::1", false),
            ("fc00::1", false), ("fdff::1", false), ("fe80::1", false), ("fec0::1", false), ("ff02::1", false),
        ];
        for (text, public) in table {
            assert_eq!(AddressPolicy::default().permits(ip(text)), public, "{text}");
        }
    }

    #[test]
    fn the_webhook_address_policy_permits_public_and_configured_networks() {
        let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap(), "fd00:1::/32".parse().unwrap()]);
        for (text, allowed) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("fd00:1::7", true),
            ("8.8.8.8", true),
            ("10.0.0.1", false),
            ("::1", false),
            ("fd00:2::7", false),
        ] {
            assert_eq!(policy.permits(ip(text)), allowed, "{text}");
        }
    }

    #[test]
    fn only_permitted_addresses_of_a_webhook_host_name_are_used() {
        let addresses =
            |texts: &[&str]| texts.iter().map(|text| SocketAddr::new(ip(text), 0)).collect::<Vec<_>>();
        let only = |texts: &[&str]| AddressPolicy::default().permitted(addresses(texts).into_iter());
        assert_eq!(only(&["10.0.0.1", "8.8.8.8"]), Ok(addresses(&["8.8.8.8"])));
        assert_eq!(only(&["10.0.0.1", "::1"]), Err(AddressNotPermittedError));
        assert_eq!(only(&[]), Err(AddressNotPermittedError));
    }
}

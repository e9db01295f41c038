//! Which addresses may be reached: the public ones, and networks that the bank names.
//!
//! An endpoint's URL is a stranger's word. Whoever may write one would otherwise have us ask what stands behind our own
//! firewall: a database, a metadata service, the loopback. So each address is judged after its name was resolved, and exactly
//! what was judged is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// IPv4 that is not the public internet: IANA's registry of special purposes, multicast and what is reserved.
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

/// The only part of IPv6 that is given out for the public internet. Outside it are the loopback, what is link-local, unique
/// local or multicast, and the ways round to IPv4 (NAT64).
const PUBLIC_V6: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// What is special inside it: protocol assignments with Teredo, documentation, and 6to4, which hides an IPv4 address.
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

/// Which addresses may be reached. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    allowed: Arc<[IpNet]>,
}

/// Nothing behind a name may be reached. Which addresses it has is not said: that would be an answer about our own network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name has no address that may be reached")]
pub struct Unreachable;

impl Reach {
    /// The public internet, and these networks.
    #[must_use]
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed: allowed.into() }
    }

    /// Whether this address may be connected to.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        // An IPv4 address written as IPv6 reaches what the IPv4 address reaches.
        let address = address.to_canonical();
        is_public(address) || self.allowed.iter().any(|network| network.contains(&address))
    }

    fn only_allowed(&self, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, Unreachable> {
        let allowed: Vec<_> = found.filter(|address| self.allows(address.ip())).collect();
        if allowed.is_empty() { Err(Unreachable) } else { Ok(allowed) }
    }
}

/// Whether an address, none of IPv4 in the form of IPv6, belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            PUBLIC_V6.contains(&address) && !SPECIAL_V6.iter().any(|network| network.contains(&address))
        }
    }
}

impl Resolve for Reach {
    /// Looks the name up; what may not be reached is as if it were not there.
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.clone();
        Box::pin(async move {
            // The port is the URL's.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Addrs = Box::new(reach.only_allowed(found)?.into_iter());
            Ok(allowed)
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
    fn each_kind_of_address_is_known() {
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
            assert_eq!(Reach::default().allows(ip(text)), public, "{text}");
        }
    }

    #[test]
    fn a_named_network_is_lifted_and_no_other() {
        let reach = Reach::new(vec!["127.0.0.0/8".parse().unwrap(), "fd00:1::/32".parse().unwrap()]);
        for (text, allowed) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("fd00:1::7", true),
            ("8.8.8.8", true),
            ("10.0.0.1", false),
            ("::1", false),
            ("fd00:2::7", false),
        ] {
            assert_eq!(reach.allows(ip(text)), allowed, "{text}");
        }
    }

    #[test]
    fn of_several_addresses_only_the_allowed_are_left() {
        let found =
            |texts: &[&str]| texts.iter().map(|text| SocketAddr::new(ip(text), 0)).collect::<Vec<_>>();
        let only = |texts: &[&str]| Reach::default().only_allowed(found(texts).into_iter());
        assert_eq!(only(&["10.0.0.1", "8.8.8.8"]), Ok(found(&["8.8.8.8"])));
        assert_eq!(only(&["10.0.0.1", "::1"]), Err(Unreachable));
        assert_eq!(only(&[]), Err(Unreachable));
    }
}

//! What each address has open at once, and its bound: one machine must not use up what all share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// The part of a client's address that counts: an IPv4 address, or the network of an IPv6 address (its first 64 bits), of which one
/// client has all addresses. A request's extension, of the connection's peer: behind a proxy all clients have the proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress(IpAddr);

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self(match address.ip().to_canonical() {
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            ip => ip,
        })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts what each address has open, up to a bound for each. Cheap to clone: the clones count together.
#[derive(Clone, Debug)]
pub struct PeerShares {
    max: usize,
    open: Arc<Mutex<HashMap<PeerAddress, usize>>>,
}

/// One thing that an address has open, until it is dropped.
#[derive(Debug)]
pub struct PeerShare {
    peer: PeerAddress,
    open: Arc<Mutex<HashMap<PeerAddress, usize>>>,
}

impl PeerShares {
    /// At most `max` at once for each address.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, open: Arc::default() }
    }

    /// One more of `peer`, or `None` if it has its share open.
    #[must_use]
    pub fn take(&self, peer: PeerAddress) -> Option<PeerShare> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(peer).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(PeerShare { peer, open: Arc::clone(&self.open) })
    }
}

impl Drop for PeerShare {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = open.entry(self.peer) {
            *count.get_mut() -= 1;
            // The map holds the addresses that have something open, and no others.
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> PeerAddress {
        PeerAddress::from(SocketAddr::new(address.parse().unwrap(), 1))
    }

    #[test]
    fn an_address_has_its_share_and_takes_nothing_of_another() {
        let shares = PeerShares::new(2);
        let (one, other) = (peer("192.0.2.1"), peer("192.0.2.2"));
        let first = shares.take(one);
        let second = shares.take(one);
        assert!(first.is_some() && second.is_some());
        assert!(shares.clone().take(one).is_none(), "the clones count together");
        assert!(shares.take(other).is_some());
        drop(first);
        assert!(shares.take(one).is_some());
        drop(second);
        assert!(shares.open.lock().unwrap().is_empty(), "who has nothing open takes no memory");
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_count_as_one() {
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
    }
}

//! A port that stays reserved for one process, also while that process is not running.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// A port on 127.0.0.1, reserved until the value is dropped.
///
/// The operating system would soon assign the port of a killed process to another one, and a restart on it would fail. On
/// Linux a bound socket that does not listen reserves the port: automatic assignment skips it, and a process that binds to
/// this very port with `SO_REUSEADDR` can still listen. On other systems nothing reserves the port.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    number: u16,
    #[cfg(target_os = "linux")]
    _reservation: TcpSocket,
}

impl ReservedPort {
    /// Reserves a free port.
    ///
    /// # Errors
    /// If no port is free.
    pub(crate) fn reserve() -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).context("no local port could be reserved")?;
        let number = socket.local_addr()?.port();
        Ok(Self {
            number,
            #[cfg(target_os = "linux")]
            _reservation: socket,
        })
    }

    /// The port number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_reserved_test_port_can_be_listened_on_repeatedly() {
        let port = ReservedPort::reserve().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        for _ in 0..3 {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let (client, server) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
            drop((client.unwrap(), server.unwrap()));
        }
    }
}

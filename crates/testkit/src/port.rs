//! A port that stays one process's, also while that process is dead.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// A port on 127.0.0.1, kept until it is dropped.
///
/// Ports that the system gives out would soon be somebody else's when their process is killed, and it could not be
/// started again. On Linux a socket that is bound and does not listen keeps it: whoever asks for this very port may
/// listen beside it, as servers do that set `SO_REUSEADDR`, and nobody is given it who asks for any. Elsewhere nothing
/// keeps it.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    #[cfg(target_os = "linux")]
    _kept: TcpSocket,
}

impl Port {
    /// A free one.
    ///
    /// # Errors
    /// The system has none.
    pub(crate) fn free() -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).context("no port is free")?;
        let number = socket.local_addr()?.port();
        Ok(Self {
            number,
            #[cfg(target_os = "linux")]
            _kept: socket,
        })
    }

    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_port_that_is_kept_is_listened_on_again_and_again() {
        let port = Port::free().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        for _ in 0..3 {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let (client, server) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
            drop((client.unwrap(), server.unwrap()));
        }
    }
}

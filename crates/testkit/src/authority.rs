//! Certificates of a test's own: an authority, what it certifies, and a server that speaks TLS before another one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

/// A private certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub struct Certified {
    /// The certificate, in PEM.
    pub pem: String,
    /// Its private key, in PEM.
    pub key_pem: String,
    der: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    /// A new authority, which nobody trusts yet.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new([])?;
        // Two authorities of one name would be taken for one with a wrong signature.
        params.distinguished_name.push(DnType::CommonName, Uuid::new_v4().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// The authority's own certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for this name or address.
    ///
    /// # Errors
    /// If the name cannot be in a certificate.
    pub fn certify(&self, name: &str) -> anyhow::Result<Certified> {
        self.certify_with(name, |_| {})
    }

    /// A certificate for this name or address that has expired.
    ///
    /// # Errors
    /// As [`Authority::certify`].
    pub fn certify_expired(&self, name: &str) -> anyhow::Result<Certified> {
        self.certify_with(name, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }

    fn certify_with(&self, name: &str, change: fn(&mut CertificateParams)) -> anyhow::Result<Certified> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([name.to_owned()])?;
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Certified {
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            der: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }

    /// The verifier of clients with a certificate of this authority.
    ///
    /// # Errors
    /// If the authority's certificate cannot be used.
    pub fn verifier(&self) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone())?;
        Ok(WebPkiClientVerifier::builder_with_provider(roots.into(), default_provider().into()).build()?)
    }
}

impl Certified {
    /// Certificate and key as a client's identity: both in one text.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{}{}", self.pem, self.key_pem)
    }

    /// A server with this certificate that speaks these protocols over TLS; with a verifier, it demands a certificate of its clients.
    ///
    /// # Errors
    /// If the certificate cannot be used.
    pub fn acceptor(
        &self,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        protocols: &[&[u8]],
    ) -> anyhow::Result<TlsAcceptor> {
        let config = ServerConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()?;
        let config = match clients {
            Some(verifier) => config.with_client_cert_verifier(verifier),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(vec![self.der.clone()], self.key.clone_key())?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config).into())
    }
}

/// A file that is removed when it is dropped.
#[derive(Debug)]
pub struct PemFile(PathBuf);

impl PemFile {
    /// A file with this text.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(text: &str) -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("instant-payments-{}.pem", Uuid::new_v4().simple()));
        std::fs::write(&path, text)?;
        Ok(Self(path))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PemFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server that takes encrypted connections and passes them on in clear. It stops when it is dropped.
#[derive(Debug)]
pub struct TlsFront {
    /// Its address.
    pub address: SocketAddr,
    task: AbortHandle,
}

impl TlsFront {
    /// Starts the server before the one at `behind`.
    ///
    /// # Errors
    /// If no port can be opened.
    pub async fn start(acceptor: TlsAcceptor, behind: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            // The connections end with this task.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let mut client = acceptor.accept(stream).await?;
                    let mut server = TcpStream::connect(behind).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok(Self { address, task: task.abort_handle() })
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

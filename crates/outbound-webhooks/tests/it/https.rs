//! HTTPS endpoints and trusted certificate authorities.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use outbound_webhooks::OutboundWebhooksOptions;
use outbound_webhooks::deliveries::DeliveryState;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sqlx::PgPool;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::server::TlsStream;
use uuid::Uuid;

use crate::support::{TestEndpoint, TestWebhooks, options, status};

/// A private certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Webhooks whose senders trust this authority.
    fn webhooks(&self, pool: PgPool) -> TestWebhooks {
        let file = std::env::temp_dir().join(format!("authority-{}.pem", Uuid::new_v4().simple()));
        std::fs::write(&file, self.0.pem()).unwrap();
        let options = OutboundWebhooksOptions { allow_http: false, ca_path: Some(file.clone()), ..options() };
        let options = options.check().unwrap();
        std::fs::remove_file(file).unwrap();
        TestWebhooks { pool, options }
    }

    /// A server with a certificate of this authority for `name`.
    async fn server(&self, name: &str) -> TestEndpoint {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        let config = ServerConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        TestEndpoint::on(Encrypted(listener, Arc::new(config).into()), "https", |_, _| status(200))
    }
}

struct Encrypted(TcpListener, TlsAcceptor);

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((connection, from)) = self.0.accept().await else { continue };
            // A client that does not trust the certificate disconnects here.
            if let Ok(connection) = self.1.accept(connection).await {
                return (connection, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_webhook_deliveries_trust_a_configured_certificate_authority(pool: PgPool) {
    let authority = Authority::new();
    let webhooks = authority.webhooks(pool);
    let server = authority.server("127.0.0.1").await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await.id;
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    webhooks.wait_for_delivery(&endpoint, "delivered", |one| one.state == DeliveryState::Delivered).await;
    let [request] = &server.requests()[..] else {
        panic!("expected one request, got {:?}", server.requests())
    };
    assert!(request.has_valid_signature(&webhooks.secret(&endpoint, 1)));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_webhook_endpoint_with_an_untrusted_certificate_gets_nothing(pool: PgPool) {
    let authority = Authority::new();
    let webhooks = authority.webhooks(pool);
    // A certificate of an untrusted authority, and a certificate for another name.
    for (n, server) in [Authority::new().server("127.0.0.1").await, authority.server("bank.example").await]
        .iter()
        .enumerate()
    {
        let tenant = format!("tenant-{n}");
        let endpoint = webhooks.endpoint(&tenant, &server.url("hook"), &[]).await.id;
        webhooks.publish(&tenant, &format!("e{n}"), "happened").await;
        let sender = webhooks.sender();
        let delivery =
            webhooks.wait_for_delivery(&endpoint, "failed", |one| one.state == DeliveryState::Failed).await;
        sender.stop().await;
        assert_eq!(delivery.attempts[0].error.as_deref(), Some("no connection"));
        assert!(server.requests().is_empty(), "expected no request, got {:?}", server.requests());
    }
}

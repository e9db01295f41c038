//! Endpoints over https, which all are outside of tests: whose certificates are believed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use outbound_webhooks::OutboundWebhooksOptions;
use outbound_webhooks::deliveries::DeliveryState;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sqlx::PgPool;
use support::{Book, Receiver, options, status};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::server::TlsStream;
use uuid::Uuid;

/// A certificate authority of a bank's own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A book whose senders believe it.
    fn book(&self, pool: PgPool) -> Book {
        let file = std::env::temp_dir().join(format!("authority-{}.pem", Uuid::new_v4().simple()));
        std::fs::write(&file, self.0.pem()).unwrap();
        let options = OutboundWebhooksOptions { allow_http: false, ca_file: Some(file.clone()), ..options() };
        let options = options.check().unwrap();
        std::fs::remove_file(file).unwrap();
        Book { pool, options }
    }

    /// A server with a certificate of this authority's for `name`.
    async fn server(&self, name: &str) -> Receiver {
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
        Receiver::on(Encrypted(listener, Arc::new(config).into()), "https", |_, _| status(200))
    }
}

struct Encrypted(TcpListener, TlsAcceptor);

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((connection, from)) = self.0.accept().await else { continue };
            // Who does not believe us hangs up here.
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
async fn s3_5_an_authority_of_the_banks_own_is_believed_when_it_is_named(pool: PgPool) {
    let authority = Authority::new();
    let book = authority.book(pool);
    let receiver = authority.server("127.0.0.1").await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await.id;
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    book.until_one(&endpoint, "delivered", |one| one.state == DeliveryState::Delivered).await;
    let [came] = &receiver.came()[..] else { panic!("{:?}", receiver.came()) };
    assert!(came.is_good(&book.secret(&endpoint, 1)));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_stranger_with_a_certificate_is_told_nothing(pool: PgPool) {
    let authority = Authority::new();
    let book = authority.book(pool);
    // One that nobody has named, and a name that is another's.
    for (n, receiver) in [Authority::new().server("127.0.0.1").await, authority.server("bank.example").await]
        .iter()
        .enumerate()
    {
        let tenant = format!("tenant-{n}");
        let endpoint = book.endpoint(&tenant, &receiver.url("hook"), &[]).await.id;
        book.happens(&tenant, &format!("e{n}"), "happened").await;
        let sender = book.sender();
        let delivery = book.until_one(&endpoint, "given up", |one| one.state == DeliveryState::Failed).await;
        sender.stop().await;
        assert_eq!(delivery.attempts[0].error.as_deref(), Some("no connection"));
        assert!(receiver.came().is_empty(), "not even a header: {:?}", receiver.came());
    }
}

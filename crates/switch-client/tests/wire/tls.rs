//! Encrypted links: the client sends nothing to a server that does not prove its name, and proves the bank's own where the switch wants it.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, server::danger::ClientCertVerifier};
use uuid::Uuid;

use crate::calls::{Call, client_of, profile};
use crate::server::response;

/// A private certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
struct Certified {
    der: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for this name.
    fn certify(&self, name: &str, change: fn(&mut CertificateParams)) -> Certified {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Certified { der: certificate.der().clone(), pem: certificate.pem(), key }
    }

    /// The verifier of clients with a certificate of this authority.
    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        WebPkiClientVerifier::builder_with_provider(roots.into(), default_provider().into()).build().unwrap()
    }
}

/// A file with this text.
fn file(text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("link-{}.pem", Uuid::new_v4().simple()));
    std::fs::write(&path, text).unwrap();
    path
}

/// A switch with this certificate that gives the definite answer to a submit; with a verifier it demands a certificate of its client.
/// Returns its URL.
async fn serve(certified: &Certified, verifier: Option<Arc<dyn ClientCertVerifier>>) -> String {
    let config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match verifier {
        Some(verifier) => config.with_client_cert_verifier(verifier),
        None => config.with_no_client_auth(),
    };
    let key = PrivatePkcs8KeyDer::from(certified.key.serialize_der()).into();
    let acceptor: TlsAcceptor =
        Arc::new(config.with_single_cert(vec![certified.der.clone()], key).unwrap()).into();
    let (status, body) = Call::Submit.definite();
    let answer = response(status, &serde_json::to_vec(&body).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            // One read has the whole request: it is far shorter than a record.
            if stream.read(&mut [0; 16_384]).await.is_ok_and(|length| length > 0) {
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    url
}

/// The word of a submit's outcome at a switch with these options.
async fn submitted(options: &Value) -> String {
    let mut options = options.clone();
    options["profile"] = profile();
    Call::Submit.make(&client_of(&options).unwrap()).await.word
}

#[tokio::test]
async fn a_switch_that_does_not_prove_its_name_gets_no_transfer() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let ca_path = file(&ours.0.pem());
    let expired = |params: &mut CertificateParams| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    };
    let unknown = Call::Submit.unknown_outcome();
    for (case, certified, outcome) in [
        ("the name of the URL", ours.certify("127.0.0.1", |_| {}), Call::Submit.definite_outcome()),
        ("another name", ours.certify("bank.example", |_| {}), unknown),
        ("expired", ours.certify("127.0.0.1", expired), unknown),
        ("another authority", foreign.certify("127.0.0.1", |_| {}), unknown),
    ] {
        let url = serve(&certified, None).await;
        assert_eq!(submitted(&json!({"base_url": url, "ca_path": ca_path})).await, outcome, "{case}");
    }
    // Without a file the authorities of the operating system are trusted, which do not know ours.
    let url = serve(&ours.certify("127.0.0.1", |_| {}), None).await;
    assert_eq!(submitted(&json!({"base_url": url})).await, unknown);
}

#[tokio::test]
async fn a_switch_may_demand_the_banks_certificate() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    let ca_path = file(&ours.0.pem());
    let url = serve(&ours.certify("127.0.0.1", |_| {}), Some(ours.verifier())).await;
    let unknown = Call::Submit.unknown_outcome();
    assert_eq!(submitted(&json!({"base_url": url, "ca_path": ca_path})).await, unknown);
    for (authority, outcome) in [(&ours, Call::Submit.definite_outcome()), (&foreign, unknown)] {
        let bank = authority.certify("bank.example", |_| {});
        let identity = file(&format!("{}{}", bank.pem, bank.key.serialize_pem()));
        let options = json!({"base_url": url, "ca_path": ca_path, "client_identity_path": identity});
        assert_eq!(submitted(&options).await, outcome);
    }
}

#[tokio::test]
async fn a_file_of_a_link_that_cannot_be_read_is_named() {
    for setting in ["ca_path", "client_identity_path"] {
        let mut options = json!({"base_url": "https://switch.example", "profile": profile()});
        options[setting] = file("no certificate").to_str().unwrap().into();
        let error = client_of(&options).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(setting) && cause.ends_with("name a readable PEM file"), "{cause}");
    }
}

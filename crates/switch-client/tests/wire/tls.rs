//! Encrypted links: the client sends nothing to a server that does not prove its name, and proves the bank's own where the switch wants it.

use std::sync::Arc;

use rustls::server::danger::ClientCertVerifier;
use serde_json::{Value, json};
use testkit::authority::{Authority, Certified, PemFile};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::calls::{Call, client_of, profile};
use crate::server::response;

/// A switch with this certificate that gives the definite answer to a submit; with a verifier it demands a certificate of its client.
/// Returns its URL.
async fn serve(certified: &Certified, verifier: Option<Arc<dyn ClientCertVerifier>>) -> String {
    let acceptor = certified.acceptor(verifier, &[]).unwrap();
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
    let (ours, foreign) = (Authority::new().unwrap(), Authority::new().unwrap());
    let ca = PemFile::new(&ours.pem()).unwrap();
    let unknown = Call::Submit.unknown_outcome();
    for (case, certified, outcome) in [
        ("the name of the URL", ours.certify("127.0.0.1"), Call::Submit.definite_outcome()),
        ("another name", ours.certify("bank.example"), unknown),
        ("expired", ours.certify_expired("127.0.0.1"), unknown),
        ("another authority", foreign.certify("127.0.0.1"), unknown),
    ] {
        let url = serve(&certified.unwrap(), None).await;
        assert_eq!(submitted(&json!({"base_url": url, "ca_path": ca.path()})).await, outcome, "{case}");
    }
    // Without a file the authorities of the operating system are trusted, which do not know ours.
    let url = serve(&ours.certify("127.0.0.1").unwrap(), None).await;
    assert_eq!(submitted(&json!({"base_url": url})).await, unknown);
}

#[tokio::test]
async fn a_switch_may_demand_the_banks_certificate() {
    let (ours, foreign) = (Authority::new().unwrap(), Authority::new().unwrap());
    let ca = PemFile::new(&ours.pem()).unwrap();
    let url = serve(&ours.certify("127.0.0.1").unwrap(), Some(ours.verifier().unwrap())).await;
    let unknown = Call::Submit.unknown_outcome();
    assert_eq!(submitted(&json!({"base_url": url, "ca_path": ca.path()})).await, unknown);
    for (authority, outcome) in [(&ours, Call::Submit.definite_outcome()), (&foreign, unknown)] {
        let identity = PemFile::new(&authority.certify("bank.example").unwrap().identity()).unwrap();
        let options = json!({"base_url": url, "ca_path": ca.path(), "client_identity_path": identity.path()});
        assert_eq!(submitted(&options).await, outcome);
    }
}

#[tokio::test]
async fn a_file_of_a_link_that_cannot_be_read_is_named() {
    for setting in ["ca_path", "client_identity_path"] {
        let mut options = json!({"base_url": "https://switch.example", "profile": profile()});
        let file = PemFile::new("no certificate").unwrap();
        options[setting] = file.path().to_str().unwrap().into();
        let error = client_of(&options).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(setting) && cause.ends_with("name a readable PEM file"), "{cause}");
    }
}

//! The links to PostgreSQL, Temporal and the broker: encrypted, to a server that proves its name; in clear to another machine only if
//! the configuration accepts it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use outbox::nats::{Broker, BrokerOptions};
use payment_ledger::connect_options;
use sqlx::{ConnectOptions as _, Connection as _};
use testkit::authority::{Authority, Certified, PemFile, TlsFront};
use testkit::cluster::Cluster;
use testkit::environment::TestEnvironment;
use testkit::system::LinkFiles;
use testkit::wait::until;
use testkit::{NatsServer, System, SystemOptions};
use tokio::process::Command;
use workflow_api::TemporalOptions;

/// The name by which the tests know every server.
const HERE: &str = "127.0.0.1";
/// Time limit for a connection, and for a process that should not start.
const WITHIN: Duration = Duration::from_secs(60);
/// The configuration of `./dev up`.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/demo.toml");

/// A server's certificates, each with the reason for which a client refuses it; `None` if it does not.
fn certificates(
    ours: &Authority,
    foreign: &Authority,
) -> anyhow::Result<[(Certified, Option<&'static str>); 4]> {
    Ok([
        (ours.certify(HERE)?, None),
        (ours.certify("bank.example")?, Some("not valid for name")),
        (ours.certify_expired(HERE)?, Some("certificate expired")),
        (foreign.certify(HERE)?, Some("UnknownIssuer")),
    ])
}

/// An error with everything that caused it.
fn chain(error: impl Into<anyhow::Error>) -> String {
    format!("{:?}", error.into())
}

/// The address of the real Temporal server.
fn temporal_address() -> anyhow::Result<SocketAddr> {
    let url = TestEnvironment::load()?.temporal_address;
    url.strip_prefix("http://")
        .context("the Temporal server has no plain address")?
        .parse()
        .map_err(Into::into)
}

/// A Temporal server with this certificate, which demands one of `clients`.
async fn encrypted_temporal(certified: &Certified, clients: &Authority) -> anyhow::Result<TlsFront> {
    let acceptor = certified.acceptor(Some(clients.verifier()?), &[b"h2"])?;
    Ok(TlsFront::start(acceptor, temporal_address()?).await?)
}

/// The URL of a PostgreSQL server whose certificate is verified.
fn verified(cluster: &Cluster, ca: &Path) -> String {
    cluster.url.replace("sslmode=require", &format!("sslmode=verify-full&sslrootcert={}", ca.display()))
}

#[tokio::test]
async fn a_payment_settles_over_encrypted_links() -> anyhow::Result<()> {
    let (ours, bank) = (Authority::new()?, Authority::new()?);
    let server = ours.certify(HERE)?;
    let (ca, identity) =
        (PemFile::new(&ours.pem())?, PemFile::new(&bank.certify("bank.example")?.identity())?);
    let mut cluster = Cluster::start_encrypted("encrypted", &server).await?;
    let broker = NatsServer::start_encrypted("encrypted-broker", &server, &bank).await?;
    let temporal = encrypted_temporal(&server, &bank).await?;
    let options = SystemOptions {
        database_url: Some(verified(&cluster, ca.path())),
        temporal_address: Some(format!("https://{}", temporal.address)),
        broker_url: broker.url(),
        link_files: Some(LinkFiles {
            ca_path: ca.path().to_owned(),
            client_identity_path: identity.path().to_owned(),
        }),
        ..SystemOptions::default()
    };
    let system = System::start("encrypted", options).await?;
    let notifier = system.start_process("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN").await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    until("the customer is notified", WITHIN, async || {
        let payment = system.payment(&payment.payment_id).await?;
        let notified = payment["notifications"].as_array().context("no notifications")?;
        Ok(notified.iter().any(|one| one["kind"] == "transfer_sent").then_some(()))
    })
    .await
    .with_context(|| notifier.log_tail())?;
    let in_clear: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE backend_type = 'client backend' AND NOT ssl",
    )
    .fetch_one(&system.database.pool)
    .await?;
    assert_eq!(in_clear, 0);
    cluster.discard();
    Ok(())
}

#[tokio::test]
async fn a_database_that_does_not_prove_its_name_gets_no_password() -> anyhow::Result<()> {
    let (ours, foreign) = (Authority::new()?, Authority::new()?);
    let ca = PemFile::new(&ours.pem())?;
    let mut cluster = Cluster::start_encrypted("unproven", &ours.certify(HERE)?).await?;
    for (certified, refused) in certificates(&ours, &foreign)? {
        cluster.set_certificate(&certified).await?;
        let connected = connect_options(&verified(&cluster, ca.path()), false)?.connect().await;
        match (connected, refused) {
            (Ok(connection), None) => connection.close().await?,
            (Err(error), Some(reason)) => {
                let error = chain(error);
                assert!(error.contains(reason), "{reason}: {error}");
            }
            (connected, _) => panic!("{refused:?}: {connected:?}"),
        }
    }
    cluster.discard();
    Ok(())
}

#[tokio::test]
async fn a_temporal_that_does_not_prove_its_name_gets_no_call() -> anyhow::Result<()> {
    let (ours, foreign) = (Authority::new()?, Authority::new()?);
    let ca = PemFile::new(&ours.pem())?;
    let (bank, other) = (
        PemFile::new(&ours.certify("bank.example")?.identity())?,
        PemFile::new(&foreign.certify("bank.example")?.identity())?,
    );
    let connect = async |front: &TlsFront, identity: Option<&PemFile>| {
        let options = TemporalOptions {
            address: format!("https://{}", front.address),
            ca_path: Some(ca.path().to_owned()),
            client_identity_path: identity.map(|file| file.path().to_owned()),
            allow_clear_payloads: true,
            ..TemporalOptions::default()
        };
        options.connect("test").await.map(drop)
    };
    for (certified, refused) in certificates(&ours, &foreign)? {
        let front = encrypted_temporal(&certified, &ours).await?;
        match (connect(&front, Some(&bank)).await, refused) {
            (Ok(()), None) => {}
            (Err(error), Some(reason)) => {
                let error = chain(error);
                assert!(error.contains(reason), "{reason}: {error}");
            }
            (connected, _) => panic!("{refused:?}: {connected:?}"),
        }
    }
    let front = encrypted_temporal(&ours.certify(HERE)?, &ours).await?;
    for identity in [None, Some(&other)] {
        assert!(connect(&front, identity).await.is_err(), "a client without a certificate of the bank's");
    }
    Ok(())
}

#[tokio::test]
async fn a_broker_that_does_not_prove_its_name_gets_no_event() -> anyhow::Result<()> {
    let (ours, foreign) = (Authority::new()?, Authority::new()?);
    let ca = PemFile::new(&ours.pem())?;
    let bank = PemFile::new(&ours.certify("bank.example")?.identity())?;
    let connect = async |server: &NatsServer, identity: Option<&PemFile>, expects_refusal: bool| {
        let url = server.url();
        let options = BrokerOptions {
            url,
            ca_path: Some(ca.path().to_owned()),
            client_identity_path: identity.map(|file| file.path().to_owned()),
            ..BrokerOptions::default()
        };
        let before = server.count_in_log(NatsServer::REFUSED)?;
        let broker = Broker::connect(&options, "test").await?;
        until("the connection is made or refused", WITHIN, async || {
            if broker.ensure_connected().is_ok() {
                return Ok(Some(true));
            }
            // A handshake with a client that stands still for two seconds is refused, too; that client connects again.
            Ok((expects_refusal && server.count_in_log(NatsServer::REFUSED)? > before).then_some(false))
        })
        .await
    };
    for (certified, refused) in certificates(&ours, &foreign)? {
        let server = NatsServer::start_encrypted("unproven", &certified, &ours).await?;
        let connected = connect(&server, Some(&bank), refused.is_some()).await?;
        assert_eq!(connected, refused.is_none(), "{refused:?}");
    }
    let server = NatsServer::start_encrypted("unproven", &ours.certify(HERE)?, &ours).await?;
    assert!(!connect(&server, None, true).await?, "a client without a certificate of the bank's");
    Ok(())
}

/// A link of a process that would be in clear: the setting of its address, such an address, and the setting that accepts it.
const IN_CLEAR: [(&str, &str, &str); 3] = [
    ("PAYMENTS_DATABASE__URL", "postgres://payments@10.255.255.1/payments", "database.allow_plaintext"),
    ("PAYMENTS_TEMPORAL__ADDRESS", "http://10.255.255.1:7233", "temporal.allow_plaintext"),
    ("PAYMENTS_BROKER__URL", "nats://10.255.255.1:4222", "broker.allow_plaintext"),
];

#[tokio::test]
async fn no_process_starts_with_a_link_in_clear_to_another_machine() -> anyhow::Result<()> {
    let binaries = TestEnvironment::load()?.binaries;
    let [database, temporal, broker] = IN_CLEAR;
    for (process, links) in [
        ("payments-api", &[database, temporal][..]),
        ("payment-worker", &[database, temporal]),
        ("background-worker", &[database, temporal, broker]),
        ("notifier", &[database, broker]),
        ("operator-api", &[database, temporal]),
    ] {
        for (setting, address, accept) in links {
            let mut command = Command::new(binaries.join(process));
            command.env("PAYMENTS_CONFIG", CONFIG).env(setting, address).kill_on_drop(true);
            for listener in [
                "API__LISTEN",
                "API__METRICS_LISTEN",
                "WORKER__METRICS_LISTEN",
                "OPERATOR_API__LISTEN",
                "OPERATOR_API__METRICS_LISTEN",
            ] {
                command.env(format!("PAYMENTS_{listener}"), "127.0.0.1:0");
            }
            for listener in ["BACKGROUND_WORKER", "NOTIFIER"] {
                command.env(format!("PAYMENTS_{listener}__METRICS_LISTEN"), "127.0.0.1:0");
            }
            let ended = command.stdin(Stdio::null()).output();
            let output = tokio::time::timeout(WITHIN, ended)
                .await
                .with_context(|| format!("{process} runs with {setting}={address}"))??;
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            ensure!(!output.status.success(), "{process} {setting}");
            ensure!(said.iter().any(|text| text.contains(accept)), "{process} {setting}: {said:?}");
        }
    }
    Ok(())
}

//! What strangers and one tenant cost the payments of others: payments in a closed load while many requests come from another address of
//! this machine, compared with the same load before.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use serde_json::{Map, Value, json};
use sqlx::PgPool;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Args;
use super::load::{self, Load, Order, Payer};
use crate::common::{print_now, round2};

/// Address of the attackers: another one than that of the switch and of the payers.
const ATTACKERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Requests of an attack under way at once.
const REQUESTS: usize = 64;
/// Connections of an attack that keeps them open: more than one address may have.
const CONNECTIONS: usize = 1_500;
/// Payments of each measurement, and how many are in flight.
const PAYMENTS: usize = 400;
const IN_FLIGHT: usize = 8;
/// Pause between two bytes of a slow body.
const BYTE_PAUSE: Duration = Duration::from_secs(1);
/// Longest time for what an attacker awaits.
const WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
enum Attack {
    /// Reads with API keys that nobody has.
    UnknownKeys,
    /// Callbacks with fresh headers and a signature that is not the switch's.
    ForgedCallbacks,
    /// The same, whose bodies arrive byte by byte.
    SlowCallbacks,
    /// Connections that never send a whole head.
    IdleConnections,
    /// Long lists of payments, by a tenant with a key.
    Reads,
}

impl Attack {
    const ALL: [Self; 5] =
        [Self::UnknownKeys, Self::ForgedCallbacks, Self::SlowCallbacks, Self::IdleConnections, Self::Reads];

    fn name(self) -> &'static str {
        match self {
            Self::UnknownKeys => "unknown_keys",
            Self::ForgedCallbacks => "forged_callbacks",
            Self::SlowCallbacks => "slow_callbacks",
            Self::IdleConnections => "idle_connections",
            Self::Reads => "reads",
        }
    }

    fn width(self) -> usize {
        match self {
            Self::UnknownKeys | Self::ForgedCallbacks | Self::Reads => REQUESTS,
            Self::SlowCallbacks | Self::IdleConnections => CONNECTIONS,
        }
    }
}

/// Where and with which key the attackers send.
struct Target {
    http: reqwest::Client,
    base: String,
    address: SocketAddr,
    key: String,
}

/// Measures each attack against the load without one.
pub(super) async fn measure(args: &Args, pool: &PgPool, payer: &Payer) -> anyhow::Result<Value> {
    let base = args.api.trim_end_matches('/').to_owned();
    let http = reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .local_address(IpAddr::V4(ATTACKERS))
        .timeout(WITHIN)
        .build()?;
    let host = base.strip_prefix("http://").context("--api must be an http: URL of this machine")?;
    let target = Target { http, address: host.parse()?, key: args.api_key.clone(), base };
    ensure!(target.address.ip().is_loopback(), "attacks are for an API of this machine");
    let mut measured = Map::new();
    let quiet = payer.closed(&Order::default(), PAYMENTS, IN_FLIGHT).await?;
    let alone = figures(pool, &quiet).await?;
    for attack in Attack::ALL {
        print_now(&format!("{PAYMENTS} payments during the attack {}\n", attack.name()))?;
        let stop = CancellationToken::new();
        let attackers = join_all((0..attack.width()).map(|_| repeat(attack, &target, &stop)));
        let payments = async {
            let load = payer.closed(&Order::default(), PAYMENTS, IN_FLIGHT).await;
            stop.cancel();
            load
        };
        let (counts, load) = tokio::join!(attackers, payments);
        let mut during = figures(pool, &load?).await?;
        for figure in ["accepted_p99_ms", "ended_p99_ms"] {
            let ratio = during[figure].as_f64().unwrap_or(0.0) / alone[figure].as_f64().unwrap_or(1.0);
            during[format!("{figure}_ratio")] = json!(round2(ratio));
        }
        during["attempts"] = json!(counts.iter().sum::<u64>());
        measured.insert(attack.name().into(), during);
    }
    measured.insert("none".into(), alone);
    Ok(measured.into())
}

async fn figures(pool: &PgPool, load: &Load) -> anyhow::Result<Value> {
    let ends = load::ends(pool, &load.payment_ids).await?;
    ensure!(ends.lost == 0 && ends.compensated == 0, "a payment was lost or compensated");
    let mut accept_ms = load.accept_ms.clone();
    accept_ms.sort_by(f64::total_cmp);
    let at = |percent: usize| accept_ms.get((accept_ms.len() * percent / 100).min(accept_ms.len() - 1));
    Ok(json!({
        "accepted_p50_ms": at(50).copied().map(round2),
        "accepted_p99_ms": at(99).copied().map(round2),
        "ended_p50_ms": round2(ends.p50_ms),
        "ended_p99_ms": round2(ends.p99_ms),
    }))
}

/// Attempts until `stop`, and their number. An attempt that fails is what the attack is for.
async fn repeat(attack: Attack, target: &Target, stop: &CancellationToken) -> u64 {
    let mut attempts = 0;
    while !stop.is_cancelled() {
        attempts += 1;
        let attempt = async {
            match attack {
                Attack::UnknownKeys => {
                    let key = format!("pk_{}_{}", &hex()[..12], hex());
                    list(target, &key, "limit=1").await
                }
                Attack::Reads => list(target, &target.key, "limit=100").await,
                Attack::ForgedCallbacks => forge(target).await,
                Attack::SlowCallbacks => slow(target, stop).await,
                Attack::IdleConnections => idle(target, stop).await,
            }
        };
        tokio::select! {
            attempt = attempt => if attempt.is_err() {
                // A refused connection is retried at once by nobody who wants to be quick.
                tokio::time::sleep(Duration::from_millis(20)).await;
            },
            () = stop.cancelled() => {}
        }
    }
    attempts
}

async fn list(target: &Target, key: &str, query: &str) -> anyhow::Result<()> {
    let url = format!("{}/api/v1/payments?{query}", target.base);
    target.http.get(url).bearer_auth(key).send().await?.bytes().await?;
    Ok(())
}

async fn forge(target: &Target) -> anyhow::Result<()> {
    let url = format!("{}/callbacks/mock", target.base);
    let mut request = target.http.post(url).body("{}").header("content-type", "application/json");
    for (name, value) in forged_headers() {
        request = request.header(name, value);
    }
    request.send().await?.bytes().await?;
    Ok(())
}

/// Headers that are checked before the body is read, and pass.
fn forged_headers() -> [(&'static str, String); 3] {
    [
        ("webhook-id", format!("evt-{}", hex())),
        ("webhook-timestamp", jiff::Timestamp::now().as_second().to_string()),
        ("webhook-signature", format!("v1,{}=", "A".repeat(43))),
    ]
}

fn hex() -> String {
    Uuid::new_v4().simple().to_string()
}

async fn connect(target: &Target) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((ATTACKERS, 0)))?;
    Ok(timeout(WITHIN, socket.connect(target.address)).await??)
}

async fn slow(target: &Target, stop: &CancellationToken) -> anyhow::Result<()> {
    let mut stream = connect(target).await?;
    let mut head =
        "POST /callbacks/mock HTTP/1.1\r\nhost: bank\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n"
            .to_owned();
    for (name, value) in forged_headers() {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut answer = [0; 1];
    while !stop.is_cancelled() {
        tokio::select! {
            // An answer ends the attempt, and so does the end of the connection.
            _ = stream.read(&mut answer) => anyhow::bail!("answered"),
            () = tokio::time::sleep(BYTE_PAUSE) => stream.write_all(b" ").await?,
        }
    }
    Ok(())
}

async fn idle(target: &Target, stop: &CancellationToken) -> anyhow::Result<()> {
    let mut stream = connect(target).await?;
    stream.write_all(b"POST /api/v1/payments HTTP/1.1\r\nhost: ").await?;
    let mut answer = [0; 1];
    tokio::select! {
        _ = stream.read(&mut answer) => anyhow::bail!("closed"),
        () = stop.cancelled() => Ok(()),
    }
}

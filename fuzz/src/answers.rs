//! A switch's answers, over HTTP: whatever it sends, an answer is definite only if it names our transfer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use payment_protocol::cancel::CancelAnswer;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::keys;
use payment_protocol::money::Money;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::{QueryAnswer, SendAnswer};
use serde_json::{Value, json};
use switch_client::{HttpJsonClient, SecretsOf, Switches, TransferOrder, TransferRef};
use tokio::runtime::Runtime;

/// Statuses that an input chooses from by its first byte.
const STATUSES: [u16; 10] = [200, 202, 201, 204, 400, 401, 404, 409, 422, 503];

struct Bench {
    runtime: Runtime,
    client: HttpJsonClient,
    response: Arc<Mutex<Vec<u8>>>,
}

static BENCH: LazyLock<Bench> = LazyLock::new(Bench::new);

impl Bench {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().unwrap());
        let response = Arc::new(Mutex::new(Vec::new()));
        let served = Arc::clone(&response);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                std::thread::spawn(move || serve(connection, &served));
            }
        });
        let profile = json!({"strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
            "tombstones": true, "honours_deadline": true, "max_skew_ms": 0, "can_cancel": true, "can_recall": true,
            "has_callback": true, "has_statement": true, "breaker_failures": 1_000_000_000u32});
        let options = json!({"mock": {"base_url": url, "api_token": "t", "callback_secrets": ["whsec_x"], "profile": profile}});
        let switches: Switches = serde_json::from_value(options).unwrap();
        let checked = switches.check(SecretsOf::Requests).unwrap();
        let (_, options, profile) = checked.iter().next().unwrap();
        let client = HttpJsonClient::new(options, profile).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, client, response }
    }
}

/// Answers every request of a connection with the current response.
fn serve(connection: TcpStream, response: &Mutex<Vec<u8>>) {
    let Ok(mut answers) = connection.try_clone() else { return };
    let mut requests = BufReader::new(connection);
    loop {
        let mut body_bytes = 0;
        let mut line = String::new();
        loop {
            line.clear();
            match requests.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line.trim().is_empty() => break,
                Ok(_) => {
                    if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        body_bytes = length.trim().parse().unwrap_or(0);
                    }
                }
            }
        }
        let mut body = vec![0; body_bytes];
        if requests.read_exact(&mut body).is_err() {
            return;
        }
        let bytes = response.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if answers.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// What stands for our reference in an input, so that the inputs can be read.
const OUR_REFERENCE: &str = "OUR_REFERENCE";

/// The first byte chooses the status, the rest is the body. Each call is made, and a definite answer compared with what the body says.
pub(crate) fn check(input: &[u8]) -> bool {
    let Some((choice, body)) = input.split_first() else { return false };
    let status = STATUSES[usize::from(*choice) % STATUSES.len()];
    let tx = TxId::derive(&PaymentId::new("pay_1").unwrap());
    let reference = keys::submit(&tx);
    let body = match std::str::from_utf8(body) {
        // A response without a body has no length that differs.
        _ if status == 204 => Vec::new(),
        Ok(text) => text.replace(OUR_REFERENCE, reference.as_str()).into_bytes(),
        Err(_) => body.to_vec(),
    };
    let bench = &*BENCH;
    let mut bytes = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(&body);
    *bench.response.lock().unwrap_or_else(PoisonError::into_inner) = bytes;

    let order = TransferOrder {
        name: reference.clone().into(),
        money: Money::from_minor(500, iso_currency::Currency::EUR).unwrap(),
        creditor_account: "FR-BOB".into(),
        end_to_end_id: None,
        deadline: None,
    };
    let (sent, queried, cancelled, recalled) = bench.runtime.block_on(async {
        let name = &order.name;
        (
            bench.client.send(&order).await.answer,
            bench.client.query(TransferRef::Name(name)).await.answer,
            bench.client.cancel(TransferRef::Name(name), &keys::compensate_submit(&tx)).await.answer,
            bench.client.recall(TransferRef::Name(name), &keys::recall(&tx)).await.answer,
        )
    });
    // What no Value can hold, such as half of a surrogate pair in a field that nobody reads, is not compared.
    let Ok(value) = serde_json::from_slice::<Value>(&body) else { return false };
    let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let names_us = field("reference") == reference.as_str();
    let mut is_definite = false;

    match sent {
        SendAnswer::Unknown { .. } => {}
        SendAnswer::Accepted => {
            is_definite = true;
            assert!(names_us && (200..300).contains(&status), "accepted by {status} {value:?}");
        }
        SendAnswer::Refused { .. } => {
            is_definite = true;
            let rejected = names_us && ["REJECTED", "CANCELLED"].contains(&field("status"));
            assert!(rejected || !field("code").is_empty(), "refused by {status} {value:?}");
        }
    }
    match queried {
        QueryAnswer::NoAnswer { .. } | QueryAnswer::OurFault { .. } => {}
        QueryAnswer::NotFound => {
            is_definite = true;
            assert!(status == 404 && field("code") == "unknown_transfer", "not found by {status} {value:?}");
        }
        QueryAnswer::NotListed { .. } | QueryAnswer::Ambiguous { .. } => {
            panic!("an answer of another lookup")
        }
        // The ledger compares the reference of a report with its own, and opens an exception if they differ.
        QueryAnswer::Settled(report) => {
            is_definite = true;
            let is_reported = field("reference") == report.reference && field("status") == "SETTLED";
            assert!(status == 200 && is_reported, "settled by {status} {value:?}");
        }
        QueryAnswer::Returned(report) => {
            is_definite = true;
            let is_reported = field("reference") == report.reference && field("status") == "RETURNED";
            assert!(status == 200 && is_reported, "returned by {status} {value:?}");
        }
        QueryAnswer::Pending => {
            is_definite = true;
            assert!(
                status == 200 && names_us && field("status") == "PENDING",
                "pending by {status} {value:?}"
            );
        }
        QueryAnswer::Void { .. } => {
            is_definite = true;
            let is_void = ["REJECTED", "CANCELLED"].contains(&field("status"));
            assert!(status == 200 && names_us && is_void, "void by {status} {value:?}");
        }
    }
    match cancelled {
        CancelAnswer::NoAnswer { .. } | CancelAnswer::OurFault { .. } => {}
        CancelAnswer::NotFound => {
            assert!(status == 404 || field("answer") == "NOT_FOUND", "{status} {value:?}")
        }
        CancelAnswer::Undecided { .. } | CancelAnswer::CannotCancel => is_definite = true,
        CancelAnswer::Cancelled { .. } => {
            is_definite = true;
            assert!(names_us && field("answer") == "CANCELLED", "cancelled by {status} {value:?}");
        }
        CancelAnswer::AlreadyRejected => {
            is_definite = true;
            assert!(names_us && field("answer") == "ALREADY_REJECTED", "rejected by {status} {value:?}");
        }
        CancelAnswer::AlreadySettled(_) => {
            is_definite = true;
            assert!(field("answer") == "ALREADY_SETTLED", "settled by {status} {value:?}");
        }
        CancelAnswer::AlreadyReturned(_) => {
            is_definite = true;
            assert!(field("answer") == "ALREADY_RETURNED", "returned by {status} {value:?}");
        }
    }
    if matches!(recalled, RecallAnswer::Recalled) {
        is_definite = true;
        assert!(names_us && field("answer") == "RECALLED", "recalled by {status} {value:?}");
    }
    is_definite
}

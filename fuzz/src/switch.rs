//! A switch that answers every request with what the input says, and the clients that read it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::keys;
use payment_protocol::money::Money;
use serde_json::{Value, json};
use switch_client::{HttpJsonClient, SecretsOf, Switches};
use tokio::runtime::Runtime;

/// Statuses that an input chooses from by its first byte.
const STATUSES: [u16; 10] = [200, 202, 201, 204, 400, 401, 404, 409, 422, 503];
/// What stands for our reference in an input, so that the inputs can be read.
const OUR_REFERENCE: &str = "OUR_REFERENCE";
/// The account at the destination bank.
pub(crate) const ACCOUNT: &str = "FR-BOB";

/// The switch, and its clients.
pub(crate) struct Switch {
    pub(crate) runtime: Runtime,
    /// The client of a switch that knows our references.
    pub(crate) client: HttpJsonClient,
    /// The client of one that does not, and lists its transfers.
    pub(crate) client_of_listing: HttpJsonClient,
    response: Arc<Mutex<Vec<u8>>>,
}

/// Started at its first use.
pub(crate) static SWITCH: LazyLock<Switch> = LazyLock::new(Switch::new);

impl Switch {
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
        let mut of_listing = profile.clone();
        for (field, value) in [
            ("strategy", json!("validate")),
            ("deduplicates", json!(false)),
            ("tombstones", json!(false)),
            ("has_callback", json!(false)),
            ("has_statement", json!(false)),
        ] {
            of_listing[field] = value;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (client, client_of_listing) = (connect(&url, &profile), connect(&url, &of_listing));
        Self { runtime, client, client_of_listing, response }
    }
}

fn connect(url: &str, profile: &Value) -> HttpJsonClient {
    let options = json!({"mock": {"base_url": url, "api_token": "t", "callback_secrets": ["whsec_x"], "profile": profile}});
    let switches: Switches = serde_json::from_value(options).unwrap();
    let checked = switches.check(SecretsOf::Requests).unwrap();
    let (_, options, profile) = checked.iter().next().unwrap();
    HttpJsonClient::new(options, profile).unwrap()
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

/// Our payment.
pub(crate) fn our_payment() -> TxId {
    TxId::derive(&PaymentId::new("pay_1").unwrap())
}

/// Its amount.
pub(crate) fn money() -> Money {
    Money::from_minor(500, iso_currency::Currency::EUR).unwrap()
}

/// Has the switch answer as the input says: its first byte chooses the status, the rest is the body. Returns both.
pub(crate) fn respond(input: &[u8]) -> Option<(u16, Vec<u8>)> {
    let (choice, body) = input.split_first()?;
    let status = STATUSES[usize::from(*choice) % STATUSES.len()];
    let body = match std::str::from_utf8(body) {
        // A response without a body has no length that differs.
        _ if status == 204 => Vec::new(),
        Ok(text) => text.replace(OUR_REFERENCE, keys::submit(&our_payment()).as_str()).into_bytes(),
        Err(_) => body.to_vec(),
    };
    let mut bytes = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(&body);
    *SWITCH.response.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    Some((status, body))
}

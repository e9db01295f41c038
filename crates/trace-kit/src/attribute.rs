//! Names of attributes: OpenTelemetry's where it has one, otherwise ours.

use sha2::{Digest as _, Sha256};

/// OpenTelemetry: method of an HTTP request.
pub const HTTP_METHOD: &str = "http.request.method";
/// OpenTelemetry: template of the path, without ids.
pub const HTTP_ROUTE: &str = "http.route";
/// OpenTelemetry: status of an HTTP response.
pub const HTTP_STATUS: &str = "http.response.status_code";
/// OpenTelemetry: name of the message system.
pub const MESSAGING_SYSTEM: &str = "messaging.system";
/// OpenTelemetry: id of a message.
pub const MESSAGE_ID: &str = "messaging.message.id";
/// The payment.
pub const PAYMENT_ID: &str = "payment.id";
/// The switch.
pub const SWITCH: &str = "payment.switch";
/// Workflow ID in Temporal.
pub const WORKFLOW_ID: &str = "temporal.workflow_id";
/// Run ID in Temporal.
pub const RUN_ID: &str = "temporal.run_id";
/// Number of the attempt at an activity or a delivery, from 1.
pub const ATTEMPT: &str = "attempt";
/// The outcome, in the words of the code.
pub const OUTCOME: &str = "outcome";
/// [`key_hash`] of the idempotency key of an operation: the retries of one operation have the same value, in whichever trace
/// they are.
pub const KEY_HASH: &str = "idempotency.key_hash";
/// Whether the outcome of an operation is that of an earlier attempt.
pub const REPLAYED: &str = "idempotency.replayed";

/// The hash of an idempotency key: the first 16 bytes of the SHA-256 of its parts (its scope and the key), in hexadecimal. A
/// key may be an order number of the client, which a trace backend need not know.
#[must_use]
pub fn key_hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length keeps ("a", "bc") and ("ab", "c") apart.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::key_hash;

    #[test]
    fn a_key_hash_depends_on_each_part_and_does_not_show_the_key() {
        let hash = key_hash(&["tenant", "client", "order-4711"]);
        assert_eq!(hash.len(), 32);
        assert_eq!(hash, key_hash(&["tenant", "client", "order-4711"]));
        for other in [&["tenant", "client", "order-4712"], &["tenant", "clien", "torder-4711"]] {
            assert_ne!(hash, key_hash(other));
        }
        assert!(!hash.contains("4711"));
    }
}

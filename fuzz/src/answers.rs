//! A switch's answers, over HTTP: whatever it sends, an answer is definite only if it names our transfer.

use payment_protocol::cancel::CancelAnswer;
use payment_protocol::keys;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::{QueryAnswer, SendAnswer};
use serde_json::Value;
use switch_client::{TransferOrder, TransferRef};

use crate::switch::{self, SWITCH};

/// The first byte chooses the status, the rest is the body. Each call is made, and a definite answer compared with what the body says.
pub(crate) fn check(input: &[u8]) -> bool {
    let Some((status, body)) = switch::respond(input) else { return false };
    let tx = switch::our_payment();
    let reference = keys::submit(&tx);

    let order = TransferOrder {
        name: reference.clone().into(),
        money: switch::money(),
        creditor_account: switch::ACCOUNT.into(),
        end_to_end_id: None,
        deadline: None,
    };
    let (sent, queried, cancelled, recalled) = SWITCH.runtime.block_on(async {
        let name = &order.name;
        (
            SWITCH.client.send(&order).await.answer,
            SWITCH.client.query(TransferRef::Name(name)).await.answer,
            SWITCH.client.cancel(TransferRef::Name(name), &keys::compensate_submit(&tx)).await.answer,
            SWITCH.client.recall(TransferRef::Name(name), &keys::recall(&tx)).await.answer,
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

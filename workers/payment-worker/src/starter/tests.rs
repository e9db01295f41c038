//! What each answer of Temporal to a start, and to the question whether a payment has a workflow, becomes.

use futures::future::join_all;
use payment_protocol::Payment;
use prost::Message as _;
use temporalio_client::WorkflowExecutionStatus;
use temporalio_common::protos::temporal::api::enums::v1::WorkflowExecutionStatus as ProtoStatus;
use temporalio_common::protos::temporal::api::workflowservice::v1::StartWorkflowExecutionResponse;
use testkit::scripted_temporal::{Reply, ScriptedTemporal};

use super::*;

const START: &str = "StartWorkflowExecution";
const DESCRIBE: &str = "DescribeWorkflowExecution";

/// Asks a starter whose Temporal answers so.
async fn with_starter<T>(replies: &[(&str, Reply)], ask: impl AsyncFnOnce(Starter<'_>) -> T) -> T {
    let server = ScriptedTemporal::start(replies).await.unwrap();
    let temporal =
        TemporalOptions { address: server.url.clone(), allow_clear_payloads: true, ..Default::default() };
    // The start and the question use Temporal only.
    let pool = sqlx::PgPool::connect_lazy("postgres://nobody@127.0.0.1:9/none").unwrap();
    let client = temporal.connect("test").await.unwrap();
    let (ledger, options) = (Ledger::new(pool), PaymentWorkerOptions::default());
    ask(Starter { ledger, client, temporal: &temporal, options: &options }).await
}

async fn start(reply: Reply) -> &'static str {
    let record = include_str!("../../../../crates/payment-protocol/tests/stored_records/payment_1.json");
    let payment: Payment = serde_json::from_str(record).unwrap();
    let workflow_id = payment.payment_id.to_string();
    let startable = StartablePayment {
        payment,
        workflow_id,
        trace_parent: None,
        cancel_requested: false,
        too_late: false,
    };
    with_starter(&[(START, reply)], async |starter| match starter.start(startable).await {
        StartOutcome::Started => "started",
        StartOutcome::Unknown => "unknown",
        StartOutcome::Refused => "refused",
    })
    .await
}

/// Only an error about the payment counts against it; whatever else Temporal or a proxy answers, the payment is started again.
#[tokio::test]
async fn only_an_error_about_the_payment_rejects_its_workflow_start() {
    let begun = StartWorkflowExecutionResponse { run_id: "run".into(), started: true, ..Default::default() };
    assert_eq!(start(Reply::Message(begun.encode_to_vec())).await, "started");
    let codes: Vec<_> = (1..=16).map(Code::from).collect();
    let outcomes = join_all(codes.iter().map(|code| start(Reply::Status(Status::new(*code, "too long")))));
    for (code, outcome) in codes.iter().zip(outcomes.await) {
        let expected = match code {
            Code::AlreadyExists => "started",
            Code::InvalidArgument => "refused",
            _ => "unknown",
        };
        assert_eq!(outcome, expected, "{code:?}");
    }
    let unregistered = "Namespace default has no mapping defined for search attribute PaymentSwitch";
    assert_eq!(start(Reply::Status(Status::invalid_argument(unregistered))).await, "unknown");
    let replies = Reply::no_answers();
    let outcomes = join_all(replies.iter().map(|reply| start(reply.clone())));
    for (reply, outcome) in replies.iter().zip(outcomes.await) {
        assert_eq!(outcome, "unknown", "{reply:?}");
    }
}

async fn status(reply: Reply) -> Result<Option<WorkflowExecutionStatus>, String> {
    with_starter(&[(DESCRIBE, reply)], async |starter| workflow_status(&starter.client, "pay_1").await).await
}

/// A payment is refused unsent, or started again, only if Temporal itself says that it has no workflow, or how the workflow ended.
#[tokio::test]
async fn only_temporal_says_that_a_payment_has_no_workflow() {
    use ProtoStatus::{Completed, Running, Terminated};

    assert_eq!(status(Reply::not_found("NotFoundFailure")).await, Ok(None));
    for known in [Running, Completed, Terminated] {
        assert_eq!(status(Reply::described(known)).await, Ok(Some(known.into())));
    }
    let mut replies = Reply::no_answers();
    replies.push(Reply::not_found("NamespaceNotFoundFailure"));
    replies.push(Reply::Message(Vec::new()));
    replies.extend((1..=16).map(|code| Reply::Status(Status::new(Code::from(code), "scripted"))));
    let outcomes = join_all(replies.iter().map(|reply| status(reply.clone())));
    for (reply, outcome) in replies.iter().zip(outcomes.await) {
        assert!(outcome.is_err(), "{reply:?} became {outcome:?}");
    }
}

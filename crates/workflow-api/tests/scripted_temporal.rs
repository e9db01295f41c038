//! What each answer of Temporal becomes: for a signal, and for an operator decision. Whatever is no answer of Temporal about the
//! workflow is "not delivered", so that the message is delivered again.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use futures::future::join_all;
use payment_protocol::action::Action;
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use prost::Message as _;
use temporalio_client::tonic::{Code, Status};
use temporalio_common::protos::temporal::api::common::v1::{Payload, Payloads};
use temporalio_common::protos::temporal::api::enums::v1::{
    UpdateWorkflowExecutionLifecycleStage as Stage, WorkflowExecutionStatus,
};
use temporalio_common::protos::temporal::api::failure::v1::Failure;
use temporalio_common::protos::temporal::api::update::v1::{Outcome, outcome};
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    PollWorkflowExecutionUpdateResponse, UpdateWorkflowExecutionResponse,
};
use testkit::scripted_temporal::{Reply, ScriptedTemporal};
use workflow_api::{
    InboxDeliveryOutcome, NOT_ALLOWED, NOT_NOW, PayloadKeys, Signaller, TemporalOptions, UpdateError,
    UpdateOutcome, UpdateSender,
};

/// Key of the payloads.
const KEY: &str = "c2NyaXB0ZWQtdGVzdC1vbmx5LWtleS0wMTIzNDU2Nzg=";
/// A key that the client does not have.
const OTHER_KEY: &str = "b3RoZXItdGVzdC1vbmx5LWtleS0wMTIzNDU2Nzg5MDE=";
const SIGNAL: &str = "SignalWorkflowExecution";
const DESCRIBE: &str = "DescribeWorkflowExecution";
const UPDATE: &str = "UpdateWorkflowExecution";
const POLL: &str = "PollWorkflowExecutionUpdate";

/// The replies of a server, each to a method.
type Script = Vec<(&'static str, Reply)>;

/// Every reply that is no answer about a workflow.
fn no_answers() -> Vec<Reply> {
    let codes = (1..=16).map(Code::from).filter(|code| *code != Code::NotFound);
    let mut replies = Reply::no_answers();
    replies.extend(codes.map(|code| Reply::Status(Status::new(code, "scripted"))));
    replies.push(Reply::Status(Status::not_found("a proxy's answer")));
    replies.push(Reply::not_found("NamespaceNotFoundFailure"));
    replies
}

fn options(server: &ScriptedTemporal) -> TemporalOptions {
    TemporalOptions { address: server.url.clone(), payload_keys: vec![KEY.into()], ..Default::default() }
}

/// The outcome of one delivery.
async fn deliver(replies: &[(&str, Reply)], ended: bool, kind: InboxMessageKind) -> &'static str {
    let server = ScriptedTemporal::start(replies).await.unwrap();
    let message = InboxMessage {
        inbox_id: 1,
        payment_id: PaymentId::new("pay_1").unwrap(),
        workflow_id: "pay_1".into(),
        ended,
        kind,
    };
    match Signaller::new(options(&server), "test").deliver(&message).await {
        InboxDeliveryOutcome::Delivered => "delivered",
        InboxDeliveryOutcome::Applied(_) => "applied",
        InboxDeliveryOutcome::NotDelivered { .. } => "not delivered",
        InboxDeliveryOutcome::Rejected { .. } => "rejected",
    }
}

#[tokio::test]
async fn only_temporals_own_answer_delivers_a_signal() {
    use InboxMessageKind::{Cancel, FinalStatusRecorded};
    use WorkflowExecutionStatus::{Canceled, Completed, Failed, Running, Terminated, TimedOut, Unspecified};

    let taken = [(SIGNAL, Reply::Message(Vec::new()))];
    assert_eq!(deliver(&taken, false, Cancel).await, "delivered");
    let cases = no_answers();
    let outcomes = join_all(cases.iter().map(|reply| async {
        let replies = [(SIGNAL, reply.clone()), (DESCRIBE, Reply::described(Running))];
        deliver(&replies, false, Cancel).await
    }))
    .await;
    for (reply, outcome) in cases.iter().zip(outcomes) {
        assert_eq!(outcome, "not delivered", "signal answered {reply:?}");
    }

    // "Not found" is explained by a description.
    let missing = || (SIGNAL, Reply::not_found("NotFoundFailure"));
    for status in [Completed, Failed, Canceled, Terminated, TimedOut] {
        let replies = [missing(), (DESCRIBE, Reply::described(status))];
        assert_eq!(deliver(&replies, false, Cancel).await, "delivered", "{status:?}");
    }
    for status in [Running, Unspecified] {
        let replies = [missing(), (DESCRIBE, Reply::described(status))];
        assert_eq!(deliver(&replies, false, Cancel).await, "not delivered", "{status:?}");
    }
    let empty = [missing(), (DESCRIBE, Reply::Message(Vec::new()))];
    assert_eq!(deliver(&empty, false, Cancel).await, "not delivered", "a description without content");
    let unknown = [missing(), (DESCRIBE, Reply::not_found("NotFoundFailure"))];
    assert_eq!(deliver(&unknown, false, Cancel).await, "not delivered", "it is not started yet");
    assert_eq!(deliver(&unknown, true, FinalStatusRecorded).await, "delivered", "it is never started");
    let outcomes = join_all(cases.iter().map(|reply| async {
        deliver(&[missing(), (DESCRIBE, reply.clone())], true, FinalStatusRecorded).await
    }))
    .await;
    for (reply, outcome) in cases.iter().zip(outcomes) {
        assert_eq!(outcome, "not delivered", "description answered {reply:?}");
    }
}

/// The outcome of one decision.
async fn decide(replies: &[(&str, Reply)]) -> String {
    let server = ScriptedTemporal::start(replies).await.unwrap();
    let decision = Decision { decision_id: DecisionId::new("dec_1").unwrap(), action: Action::Release };
    match UpdateSender::new(options(&server), "test").decide("pay_1", &decision).await {
        Ok(UpdateOutcome::Accepted) => "accepted".into(),
        Ok(UpdateOutcome::Completed(outcome)) => format!("{outcome:?}"),
        Err(UpdateError::Unreachable { .. }) => "unreachable".into(),
        Err(UpdateError::NotNow { detail }) => format!("not now: {detail}"),
        Err(UpdateError::Closed) => "closed".into(),
        Err(UpdateError::Rejected { detail }) => format!("rejected: {detail}"),
    }
}

fn completed(value: outcome::Value) -> Option<Outcome> {
    Some(Outcome { value: Some(value) })
}

fn failed(message: &str) -> Option<Outcome> {
    completed(outcome::Value::Failure(Failure { message: message.into(), ..Default::default() }))
}

/// The failure as a worker writes it, encrypted by this key.
fn encrypted(message: &str, key: &str) -> Option<Outcome> {
    let attributes = serde_json::json!({"message": message, "stack_trace": ""}).to_string();
    let attributes = Payload { data: attributes.into_bytes(), ..Default::default() };
    let encoded = PayloadKeys::read(&[key.into()]).unwrap().encrypt(attributes).unwrap();
    let message = "Encoded failure".to_owned();
    let failure = Failure { message, encoded_attributes: Some(encoded), ..Default::default() };
    completed(outcome::Value::Failure(failure))
}

fn succeeded(data: Vec<u8>) -> Option<Outcome> {
    let metadata = [("encoding".to_owned(), b"json/plain".to_vec())].into();
    let payload = Payload { metadata, data, ..Default::default() };
    completed(outcome::Value::Success(Payloads { payloads: vec![payload] }))
}

fn updated(stage: Stage, outcome: Option<Outcome>) -> (&'static str, Reply) {
    let response = UpdateWorkflowExecutionResponse { stage: stage.into(), outcome, ..Default::default() };
    (UPDATE, Reply::Message(response.encode_to_vec()))
}

fn polled(outcome: Option<Outcome>) -> (&'static str, Reply) {
    let response =
        PollWorkflowExecutionUpdateResponse { stage: Stage::Completed.into(), outcome, ..Default::default() };
    (POLL, Reply::Message(response.encode_to_vec()))
}

#[tokio::test]
async fn only_the_workflows_own_answer_decides_about_a_decision() {
    use WorkflowExecutionStatus::{Completed, Running, Unspecified};

    let retried = serde_json::to_vec(&DecisionOutcome::RetryCancel).unwrap();
    let accepted = || updated(Stage::Accepted, None);
    let (not_allowed, not_now) = (format!("{NOT_ALLOWED}no hold"), format!("{NOT_NOW}running"));
    #[rustfmt::skip]
    let table: Vec<(&str, Script, &str)> = vec![
        ("done at once",         vec![updated(Stage::Completed, succeeded(retried.clone()))], "RetryCancel"),
        ("done later",           vec![accepted(), polled(succeeded(retried))],                "RetryCancel"),
        ("an unreadable result", vec![accepted(), polled(succeeded(b"?".to_vec()))],          "accepted"),
        ("no value",             vec![accepted(), polled(Some(Outcome { value: None }))],     "accepted"),
        ("refused for good",     vec![updated(Stage::Completed, failed(&not_allowed))],       "rejected: no hold"),
        ("refused for good",     vec![accepted(), polled(failed(&not_allowed))],              "rejected: no hold"),
        ("refused for now",      vec![updated(Stage::Completed, failed(&not_now))],           "not now: running"),
        ("refused for now",      vec![accepted(), polled(failed(&not_now))],                  "not now: running"),
        ("refused, encrypted",   vec![updated(Stage::Completed, encrypted(&not_allowed, KEY))], "rejected: no hold"),
        ("refused, encrypted",   vec![accepted(), polled(encrypted(&not_now, KEY))],          "not now: running"),
        ("under another key",    vec![accepted(), polled(encrypted(&not_allowed, OTHER_KEY))], "unreachable"),
        ("refused by Temporal",  vec![updated(Stage::Completed, failed("too many"))],         "unreachable"),
        ("never accepted",       vec![updated(Stage::Admitted, None)],                        "unreachable"),
        ("an empty answer",      vec![(UPDATE, Reply::Message(Vec::new()))],                  "unreachable"),
        ("ended meanwhile",      vec![accepted(), (POLL, Reply::not_found("NotFoundFailure"))],      "closed"),
        ("another namespace",    vec![accepted(), (POLL, Reply::not_found("NamespaceNotFoundFailure"))], "accepted"),
        ("closed",      vec![(UPDATE, Reply::not_found("NotFoundFailure")), (DESCRIBE, Reply::described(Completed))],   "closed"),
        ("replaced",    vec![(UPDATE, Reply::not_found("NotFoundFailure")), (DESCRIBE, Reply::described(Running))],     "unreachable"),
        ("no status",   vec![(UPDATE, Reply::not_found("NotFoundFailure")), (DESCRIBE, Reply::described(Unspecified))], "unreachable"),
        ("not started", vec![(UPDATE, Reply::not_found("NotFoundFailure")), (DESCRIBE, Reply::not_found("NotFoundFailure"))], "unreachable"),
    ];
    let outcomes = join_all(table.iter().map(|(_, replies, _)| decide(replies))).await;
    for ((case, _, expected), outcome) in table.iter().zip(outcomes) {
        assert_eq!(outcome, *expected, "{case}");
    }

    let cases = no_answers();
    let requests = cases.iter().map(|reply| async {
        decide(&[(UPDATE, reply.clone()), (DESCRIBE, Reply::described(Running))]).await
    });
    for (reply, outcome) in cases.iter().zip(join_all(requests).await) {
        assert_eq!(outcome, "unreachable", "update answered {reply:?}");
    }
    // Once the workflow has accepted a decision, the ledger records its outcome: no broken answer makes it unaccepted.
    let polls = cases.iter().map(|reply| async { decide(&[accepted(), (POLL, reply.clone())]).await });
    for (reply, outcome) in cases.iter().zip(join_all(polls).await) {
        assert_eq!(outcome, "accepted", "poll answered {reply:?}");
    }
}

/// For the background-worker, a decision that was accepted is delivered, and one that is refused for good is rejected.
#[tokio::test]
async fn a_decision_is_delivered_once_it_is_accepted() {
    let decision =
        || Decision { decision_id: DecisionId::new("dec_1").unwrap(), action: Action::RetryCancel };
    let kind = || InboxMessageKind::Decision(decision());
    let accepted = || updated(Stage::Accepted, None);
    assert_eq!(deliver(&[accepted(), (POLL, Reply::Silence)], false, kind()).await, "delivered");
    let refused = updated(Stage::Completed, failed(&format!("{NOT_ALLOWED}no hold")));
    assert_eq!(deliver(&[refused], false, kind()).await, "rejected");
    let not_now = updated(Stage::Completed, failed(&format!("{NOT_NOW}running")));
    assert_eq!(deliver(&[not_now], false, kind()).await, "not delivered");
    // Another run of an open payment awaits the operator again.
    let closed = [
        (UPDATE, Reply::not_found("NotFoundFailure")),
        (DESCRIBE, Reply::described(WorkflowExecutionStatus::Completed)),
    ];
    assert_eq!(deliver(&closed, false, kind()).await, "not delivered");
}

//! A Temporal frontend that answers each call as a test says: for answers that a real server gives only in an outage, during a
//! failover, or through a proxy.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use prost::Message as _;
use temporalio_client::tonic::{Code, Status};
use temporalio_common::protos::google::rpc;
use temporalio_common::protos::temporal::api::enums::v1::WorkflowExecutionStatus;
use temporalio_common::protos::temporal::api::workflow::v1::WorkflowExecutionInfo;
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeWorkflowExecutionResponse;
use temporalio_common::protos::utilities::pack_any;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// What the server does with a call.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Answers with this encoded protobuf message.
    Message(Vec<u8>),
    /// Answers with a gRPC status.
    Status(Status),
    /// Answers as a proxy does: an HTTP status, and a page that is no gRPC message.
    Page(u16),
    /// Announces a message, and ends the answer before the message does.
    Truncated,
    /// Answers with bytes that are no protobuf message.
    Unreadable,
    /// Closes the call without an answer.
    Reset,
    /// Never answers.
    Silence,
}

impl Reply {
    /// Temporal's "not found"; the name of its detail says what was not found, for example `NotFoundFailure` for a workflow.
    ///
    /// # Panics
    /// Never: an empty detail is always encoded.
    #[must_use]
    #[allow(clippy::expect_used, reason = "an empty message is always encoded")]
    pub fn not_found(detail: &str) -> Self {
        let name = format!("type.googleapis.com/temporal.api.errordetails.v1.{detail}");
        let detail = pack_any(name, &()).expect("an empty message is encoded");
        let details = rpc::Status { details: vec![detail], ..Default::default() };
        Self::Status(Status::with_details(Code::NotFound, "not found", details.encode_to_vec().into()))
    }

    /// A description of a workflow in this status.
    #[must_use]
    pub fn described(status: WorkflowExecutionStatus) -> Self {
        let info = WorkflowExecutionInfo { status: status.into(), ..Default::default() };
        let response =
            DescribeWorkflowExecutionResponse { workflow_execution_info: Some(info), ..Default::default() };
        Self::Message(response.encode_to_vec())
    }

    /// Every kind of reply that is no answer of Temporal at all.
    #[must_use]
    pub fn no_answers() -> Vec<Self> {
        let mut replies = [200, 301, 400, 401, 403, 404, 429, 500, 502, 503, 504].map(Self::Page).to_vec();
        replies.extend([Self::Truncated, Self::Unreadable, Self::Reset, Self::Silence]);
        replies
    }
}

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub struct ScriptedTemporal {
    /// URL of the server.
    pub url: String,
    task: AbortHandle,
}

impl ScriptedTemporal {
    /// Starts a server that answers each method, by its name without the service, with its reply. A client connects first of all,
    /// which is always answered; a method without a reply is answered `UNIMPLEMENTED`.
    ///
    /// # Errors
    /// If no port can be opened.
    pub async fn start(replies: &[(&str, Reply)]) -> std::io::Result<Self> {
        let replies: HashMap<_, _> =
            replies.iter().map(|(method, reply)| ((*method).to_owned(), reply.clone())).collect();
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(serve(listener, Arc::new(replies))).abort_handle();
        Ok(Self { url, task })
    }
}

impl Drop for ScriptedTemporal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, replies: Arc<HashMap<String, Reply>>) {
    // The connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, replies.clone()));
    }
}

async fn connection(stream: TcpStream, replies: Arc<HashMap<String, Reply>>) {
    let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
        let replies = replies.clone();
        async move {
            let method = request.uri().path().rsplit('/').next().unwrap_or_default();
            let reply = match (replies.get(method), method) {
                (Some(reply), _) => reply.clone(),
                (None, "GetSystemInfo") => Reply::Message(Vec::new()),
                (None, _) => Reply::Status(Status::unimplemented(format!("the script has no {method}"))),
            };
            respond(reply).await
        }
    });
    // An error ends the connection, as a test wants it.
    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
}

/// The reply as HTTP; an error closes the call.
async fn respond(reply: Reply) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, &'static str> {
    let grpc = |body: Vec<u8>, ends: bool| {
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            HeaderValue::from_static("0"),
        )]);
        let body = Full::new(Bytes::from(body)).with_trailers(async move { ends.then_some(Ok(trailers)) });
        let mut response = Response::new(body.boxed_unsync());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    };
    Ok(match reply {
        Reply::Message(message) => grpc(framed(&message, message.len()), true),
        Reply::Unreadable => grpc(framed(&[0xff; 8], 8), true),
        Reply::Truncated => grpc(framed(&[0x0a], 64), false),
        Reply::Status(status) => status.into_http::<Full<Bytes>>().map(|body| body.boxed_unsync()),
        Reply::Page(code) => {
            let page = Full::new(Bytes::from_static(b"<html>a proxy's page</html>")).boxed_unsync();
            let mut response = Response::new(page);
            *response.status_mut() = http::StatusCode::from_u16(code).map_err(|_| "no HTTP status")?;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
            response
        }
        Reply::Reset => return Err("reset by the script"),
        Reply::Silence => std::future::pending().await,
    })
}

/// A message as gRPC frames it: not compressed, with its length.
fn framed(message: &[u8], length: usize) -> Vec<u8> {
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}

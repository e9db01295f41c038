//! The OTLP service.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::TraceService;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tonic::{Request, Response, Status};

use crate::span::ReceivedSpan;
use crate::store::Store;

/// Stores what arrives. A span without valid ids is dropped.
pub(crate) struct Receiver(pub(crate) Arc<Store>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut received = Vec::new();
        for resource_spans in request.into_inner().resource_spans {
            let resource = resource_spans.resource.unwrap_or_default();
            let spans = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.extend(spans.filter_map(|span| ReceivedSpan::read(&resource.attributes, span)));
        }
        self.0.add(received);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

//! `payctl codec-server`: decrypts what Temporal stores for the Temporal UI in the operator's own browser.
//!
//! It follows Temporal's protocol of codec servers: the page of the UI posts payloads to `/decode`. It listens on this machine only and
//! answers pages of one origin only, so that no other page that the browser shows can have payloads decrypted.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL,
    ORIGIN, VARY,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use service_kit::connection::ConnectionBounds;
use service_kit::{serve, shutdown};
use temporalio_common::protos::temporal::api::common::v1::Payload;
use workflow_api::PayloadKeys;

use crate::config::ConfigArgs;
use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Largest request, in bytes: Temporal's largest answer to the UI is 4 MiB, and base64 adds a third.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Decrypt what Temporal stores for the Temporal UI on this machine
///
/// Temporal stores inputs, results and failures encrypted by temporal.payload_keys. Set this server as the codec server of the Temporal UI, and
/// the UI shows them. It answers pages of one origin only.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Address to listen on, on this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8234")]
    listen: SocketAddr,
    /// Address of the Temporal UI, as the browser shows it
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8233")]
    ui: Url,
}

/// Payloads in Temporal's JSON.
#[derive(Deserialize, Serialize)]
struct Payloads {
    payloads: Vec<JsonPayload>,
}

/// One payload: every value is base64.
#[derive(Deserialize, Serialize)]
struct JsonPayload {
    #[serde(default)]
    metadata: HashMap<String, String>,
    #[serde(default)]
    data: String,
}

/// What the server needs for an answer.
struct CodecServer {
    keys: PayloadKeys,
    origin: HeaderValue,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    anyhow::ensure!(
        args.listen.ip().is_loopback(),
        "--listen {} is reachable from other machines; use an address like 127.0.0.1:8234",
        args.listen
    );
    let options = args.config.read()?.temporal;
    let server = CodecServer { keys: options.keys()?, origin: origin_of(&args.ui)? };
    let ids: Vec<_> = server.keys.ids().collect();
    let ids = ids.join(", ");
    let listener = serve::bind(args.listen, "--listen").await?;
    out.write_line(format_args!("codec server of the Temporal UI: http://{}", listener.local_addr()?))?;
    out.write_line(format_args!("ids of the keys: {ids}"))?;
    let router = router(server);
    serve::serve_on(listener, move |_| router.clone(), ConnectionBounds::default(), shutdown::on_signals())
        .await;
    Ok(CommandOutcome::Success)
}

/// The origin that the browser names for pages of this URL.
fn origin_of(ui: &Url) -> anyhow::Result<HeaderValue> {
    // Every other scheme has the origin "null", as has any page in a sandbox.
    anyhow::ensure!(
        matches!(ui.scheme(), "http" | "https"),
        "--ui {ui} is not the URL of a page; write it like http://127.0.0.1:8233"
    );
    Ok(HeaderValue::from_str(&ui.origin().ascii_serialization())?)
}

fn router(server: CodecServer) -> Router {
    let server = Arc::new(server);
    Router::new()
        .route("/decode", post(decode))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&server), of_the_ui))
        .route("/ready", get(async || StatusCode::OK))
        .with_state(server)
}

/// Refuses what is not asked by the page of the UI, also under a name that another page made its own.
async fn of_the_ui(State(server): State<Arc<CodecServer>>, request: Request, next: Next) -> Response {
    if request.headers().get(ORIGIN) != Some(&server.origin) {
        return (StatusCode::FORBIDDEN, "this page is not the Temporal UI that --ui names\n").into_response();
    }
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, server.origin.clone());
    headers.insert(VARY, HeaderValue::from_static("origin"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("content-type, x-namespace, authorization"),
    );
    // A page of another machine may call this one.
    headers.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn decode(State(server): State<Arc<CodecServer>>, Json(encrypted): Json<Payloads>) -> Response {
    let clear = encrypted.payloads.into_iter().map(|payload| {
        let payload = payload.read()?;
        // One that cannot be decrypted stays as it is, so that the UI shows the others.
        anyhow::Ok(JsonPayload::write(server.keys.decrypt(payload.clone()).unwrap_or(payload)))
    });
    match clear.collect::<Result<_, _>>() {
        Ok(payloads) => Json(Payloads { payloads }).into_response(),
        Err(error) => {
            let detail = format!("a payload's metadata or data is not base64: {error}\n");
            (StatusCode::BAD_REQUEST, detail).into_response()
        }
    }
}

impl JsonPayload {
    fn read(self) -> Result<Payload, base64::DecodeError> {
        let decode = |(name, value): (String, String)| Ok((name, BASE64_STANDARD.decode(value)?));
        let metadata = self.metadata.into_iter().map(decode).collect::<Result<_, _>>()?;
        Ok(Payload { metadata, data: BASE64_STANDARD.decode(self.data)?, ..Payload::default() })
    }

    fn write(payload: Payload) -> Self {
        let encode = |(name, value)| (name, BASE64_STANDARD.encode::<Vec<u8>>(value));
        let metadata = payload.metadata.into_iter().map(encode).collect();
        Self { metadata, data: BASE64_STANDARD.encode(payload.data) }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::header::CONTENT_TYPE;
    use tower::ServiceExt as _;

    use super::*;

    const UI: &str = "http://127.0.0.1:8233";

    /// The answer to `/decode` for a page of this origin.
    async fn answer(
        method: Method,
        origin: Option<&str>,
        body: String,
    ) -> (StatusCode, Option<HeaderValue>, String) {
        let keys = PayloadKeys::read(&[key()]).unwrap();
        let router = router(CodecServer { keys, origin: HeaderValue::from_static(UI) });
        let mut request =
            Request::builder().method(method).uri("/decode").header(CONTENT_TYPE, "application/json");
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        let response = router.oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let allowed = response.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN).cloned();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), BODY_BYTES_MAX).await.unwrap();
        (status, allowed, String::from_utf8(body.to_vec()).unwrap())
    }

    fn key() -> secrecy::SecretString {
        BASE64_STANDARD.encode([1; 32]).into()
    }

    fn encrypted() -> String {
        let clear = Payload { data: b"\"pay_1\"".to_vec(), ..Payload::default() };
        let payload = PayloadKeys::read(&[key()]).unwrap().encrypt(clear).unwrap();
        serde_json::to_string(&Payloads { payloads: vec![JsonPayload::write(payload)] }).unwrap()
    }

    #[tokio::test]
    async fn the_temporal_ui_reads_what_temporal_stores() {
        let (status, allowed, body) = answer(Method::POST, Some(UI), encrypted()).await;
        assert_eq!((status, allowed.unwrap().to_str().unwrap()), (StatusCode::OK, UI));
        let clear: Payloads = serde_json::from_str(&body).unwrap();
        assert_eq!(clear.payloads[0].data, BASE64_STANDARD.encode("\"pay_1\""));
        let (status, allowed, _) = answer(Method::OPTIONS, Some(UI), String::new()).await;
        assert_eq!((status, allowed.unwrap().to_str().unwrap()), (StatusCode::NO_CONTENT, UI));
    }

    #[tokio::test]
    async fn another_page_has_nothing_decrypted() {
        for origin in [None, Some("http://127.0.0.1:8234"), Some("http://evil.example"), Some("null")] {
            for method in [Method::POST, Method::OPTIONS] {
                let (status, allowed, body) = answer(method, origin, encrypted()).await;
                assert_eq!((status, allowed), (StatusCode::FORBIDDEN, None), "{origin:?}: {body}");
            }
        }
    }

    #[tokio::test]
    async fn a_payload_that_cannot_be_decrypted_stays_as_it_is() {
        let mut payloads: Payloads = serde_json::from_str(&encrypted()).unwrap();
        let id = BASE64_STANDARD.encode("another key");
        payloads.payloads[0].metadata.insert("encryption-key-id".into(), id.clone());
        let body = serde_json::to_string(&payloads).unwrap();
        let (status, _, body) = answer(Method::POST, Some(UI), body).await;
        let same: Payloads = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &same.payloads[0].data), (StatusCode::OK, &payloads.payloads[0].data));
        assert_eq!(same.payloads[0].metadata["encryption-key-id"], id);
        let (status, _, body) = answer(Method::POST, Some(UI), r#"{"payloads":[{"data":"?"}]}"#.into()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(body.contains("not base64"), "{body}");
    }

    #[test]
    fn the_address_of_the_ui_has_an_origin_of_its_own() {
        let origin =
            |text: &str| origin_of(&text.parse().unwrap()).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(origin("http://127.0.0.1:8233/namespaces").unwrap(), UI);
        assert_eq!(origin("https://ui.example/").unwrap(), "https://ui.example");
        for text in ["localhost:8233", "ui.example:443", "file:///ui.html", "data:text/html,ui"] {
            assert!(origin(text).is_err(), "{text}");
        }
    }
}

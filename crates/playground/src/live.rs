//! A run on the real processes over HTTP: a line of JSON for each step as it happens, and a last line with the result or the problem.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Problem};
use tokio::sync::mpsc;

use crate::run::{Run, Step};
use crate::server::{Page, no_real_processes, read_schedule};

/// Lines that wait for a slow reader; more steps than any run has.
const LINES_MAX: usize = 1_000;

/// What the page asks for. It is JSON so that no other site's page can send it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    schedule: String,
}

/// One line of the answer.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Line<'a> {
    Step(&'a Step),
    Run(&'a Run),
    Problem(String),
}

impl Line<'_> {
    fn to_bytes(&self) -> Bytes {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line.into()
    }
}

/// `POST /api/real`. The run goes on to its end if the reader leaves, so that no process stays stopped.
pub(crate) async fn run(State(page): State<Page>, Json(asked): Json<Asked>) -> Result<Response, Problem> {
    let schedule = read_schedule(&asked.schedule)?;
    let engine = page.real.ok_or_else(no_real_processes)?;
    let (lines, read) = mpsc::channel(LINES_MAX);
    tokio::spawn(async move {
        let steps = lines.clone();
        // A reader that left gets no lines; the run goes on.
        let ran = engine.run(&schedule, move |step| drop(steps.try_send(Line::Step(&step).to_bytes()))).await;
        let last = match &ran {
            Ok(run) => Line::Run(run),
            Err(error) => Line::Problem(error.to_string()),
        };
        let _ = lines.send(last.to_bytes()).await;
    });
    let body = stream::unfold(read, |mut read| async move {
        read.recv().await.map(|line| (Ok::<_, std::convert::Infallible>(line), read))
    });
    let kind = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response())
}

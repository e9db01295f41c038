//! A run on the real processes over HTTP: a line of JSON for each step as it happens, and a last line with the result or the problem.

use std::thread;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Problem};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

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

/// `POST /api/real`
pub(crate) async fn run(State(page): State<Page>, Json(asked): Json<Asked>) -> Result<Response, Problem> {
    let schedule = read_schedule(&asked.schedule)?;
    let engine = page.real.ok_or_else(no_real_processes)?;
    let (lines, read) = mpsc::channel(LINES_MAX);
    let (steps, mut happened) = mpsc::channel::<Step>(LINES_MAX);
    // A thread of its own: the test kit's futures cannot move between threads. The run goes on if the reader leaves, so that no
    // process stays stopped.
    let (ended, running) = oneshot::channel();
    let runtime = Handle::current();
    thread::spawn(move || drop(ended.send(runtime.block_on(engine.run(&schedule, steps)))));
    tokio::spawn(async move {
        while let Some(step) = happened.recv().await {
            let _ = lines.send(Line::Step(&step).to_bytes()).await;
        }
        let last = match running.await {
            Ok(Ok(run)) => Line::Run(&run).to_bytes(),
            Ok(Err(error)) => Line::Problem(error.to_string()).to_bytes(),
            Err(_) => Line::Problem("the run broke off; see the log of the playground".into()).to_bytes(),
        };
        let _ = lines.send(last).await;
    });
    let body = stream::unfold(read, |mut read| async move {
        read.recv().await.map(|line| (Ok::<_, std::convert::Infallible>(line), read))
    });
    let kind = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response())
}

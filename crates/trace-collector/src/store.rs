//! The newest traces, within bounds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::span::ReceivedSpan;

/// Traces that are kept; for each new one the one that began to arrive first is dropped.
const TRACES_MAX: usize = 1_000;
/// Spans that are kept of one trace; later ones are dropped.
const SPANS_MAX: usize = 1_000;

/// A trace in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceSummary {
    /// The trace.
    pub trace_id: String,
    /// Name of its first span.
    pub name: String,
    /// The payment that a span names; `None` if none does.
    pub payment_id: Option<String>,
    /// Start of its first span, in microseconds since 1970.
    pub started_us: u64,
    /// From the start of the first span to the end of the last one, in microseconds.
    pub duration_us: u64,
    /// Number of spans.
    pub spans: usize,
    /// The processes, each once.
    pub services: Vec<String>,
    /// Number of spans that failed.
    pub failures: usize,
}

#[derive(Debug)]
pub(crate) struct Store {
    traces: Mutex<Traces>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Traces {
    by_id: HashMap<String, Vec<ReceivedSpan>>,
    /// In the order of arrival.
    order: VecDeque<String>,
}

impl Default for Store {
    fn default() -> Self {
        Self { traces: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Store {
    pub(crate) fn add(&self, received: Vec<ReceivedSpan>) {
        {
            let mut traces = self.lock();
            for span in received {
                traces.add(span);
            }
        }
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn trace(&self, trace_id: &str) -> Vec<ReceivedSpan> {
        let mut spans = self.lock().by_id.get(trace_id).cloned().unwrap_or_default();
        spans.sort_by(|a, b| (a.started_us, &a.span_id).cmp(&(b.started_us, &b.span_id)));
        spans
    }

    pub(crate) fn summaries(&self) -> Vec<TraceSummary> {
        let traces = self.lock();
        let summarized = traces.order.iter().filter_map(|id| Some(summarize(id, traces.by_id.get(id)?)));
        let mut summaries: Vec<_> = summarized.collect();
        summaries.sort_by_key(|summary| std::cmp::Reverse(summary.started_us));
        summaries
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Traces> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Traces {
    fn add(&mut self, span: ReceivedSpan) {
        let id = span.trace_id.clone();
        if !self.by_id.contains_key(&id) {
            if self.order.len() >= TRACES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_id.remove(&oldest);
            }
            self.order.push_back(id.clone());
        }
        let spans = self.by_id.entry(id).or_default();
        if spans.len() < SPANS_MAX {
            spans.push(span);
        }
    }
}

fn summarize(trace_id: &str, spans: &[ReceivedSpan]) -> TraceSummary {
    let first = spans.iter().min_by_key(|span| span.started_us);
    let started_us = first.map_or(0, |span| span.started_us);
    let ended_us = spans.iter().map(|span| span.ended_us).max().unwrap_or(started_us);
    let mut services: Vec<String> = spans.iter().map(|span| span.service.clone()).collect();
    services.sort_unstable();
    services.dedup();
    TraceSummary {
        trace_id: trace_id.to_owned(),
        name: first.map(|span| span.name.clone()).unwrap_or_default(),
        payment_id: spans.iter().find_map(|span| span.attributes.get("payment.id").cloned()),
        started_us,
        duration_us: ended_us.saturating_sub(started_us),
        spans: spans.len(),
        services,
        failures: spans.iter().filter(|span| span.failure.is_some()).count(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn span(trace: usize, span: usize) -> ReceivedSpan {
        ReceivedSpan {
            trace_id: format!("{trace:032x}"),
            span_id: format!("{span:016x}"),
            parent_id: None,
            service: format!("service-{}", span % 2),
            process_id: None,
            name: format!("step {span}"),
            kind: "internal",
            started_us: 1_000 + span as u64,
            ended_us: 2_000 + span as u64,
            attributes: BTreeMap::from([("payment.id".to_owned(), format!("pay_{trace}"))]),
            links: Vec::new(),
            failure: (span == 1).then(|| "broken".to_owned()),
        }
    }

    #[test]
    fn a_trace_is_summarized_whatever_the_order_of_its_spans() {
        let store = Store::default();
        store.add(vec![span(7, 2), span(7, 1), span(7, 0)]);
        let names: Vec<_> = store.trace(&format!("{:032x}", 7)).into_iter().map(|span| span.name).collect();
        assert_eq!(names, ["step 0", "step 1", "step 2"]);
        let expected = TraceSummary {
            trace_id: format!("{:032x}", 7),
            name: "step 0".into(),
            payment_id: Some("pay_7".into()),
            started_us: 1_000,
            duration_us: 1_002,
            spans: 3,
            services: vec!["service-0".into(), "service-1".into()],
            failures: 1,
        };
        assert_eq!(store.summaries(), [expected]);
    }

    #[test]
    fn the_oldest_traces_and_the_last_spans_are_dropped() {
        let store = Store::default();
        store.add((0..=TRACES_MAX).map(|trace| span(trace, 0)).collect());
        assert_eq!(store.summaries().len(), TRACES_MAX);
        assert!(store.trace(&format!("{:032x}", 0)).is_empty());
        store.add((1..=SPANS_MAX).map(|n| span(1, n)).collect());
        assert_eq!(store.trace(&format!("{:032x}", 1)).len(), SPANS_MAX);
    }
}

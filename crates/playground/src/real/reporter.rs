//! The steps of a run on the real processes, in the order in which they happen.

use std::sync::{Mutex, PoisonError};
use std::time::Instant as Clock;

use tokio::sync::mpsc;

use crate::run::{Actor, Side, Step};
use crate::schedule::{Fault, Instant};

/// Collects the steps of both sides, and passes each on at once.
pub(super) struct Reporter {
    began: Clock,
    steps: Mutex<Vec<Step>>,
    reader: mpsc::Sender<Step>,
}

impl Reporter {
    pub(super) fn new(reader: mpsc::Sender<Step>) -> Self {
        Self { began: Clock::now(), steps: Mutex::default(), reader }
    }

    pub(super) fn step(
        &self,
        side: Side,
        at: Instant,
        actor: Actor,
        text: impl Into<String>,
        fault: Option<Fault>,
    ) {
        let after_ms = u64::try_from(self.began.elapsed().as_millis()).ok();
        let step = Step { side, at, actor, text: text.into(), fault, after_ms };
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step.clone());
        // A reader that left gets no steps; the run goes on.
        let _ = self.reader.try_send(step);
    }

    pub(super) fn into_steps(self) -> Vec<Step> {
        self.steps.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

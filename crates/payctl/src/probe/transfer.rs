//! Submit, cancel and recall of one probe transfer, with the transfer's record kept up to date.

use jiff::Timestamp;
use payment_protocol::ids::{PaymentId, TxId};

use super::findings::{CapabilityMeasurement, SwitchCapability};
use super::http::{HttpReply, TransferName};
use super::measure::{Probe, is_not_offered};
use super::record::{ProbeSubmitOutcome, TransferRecord};

use CapabilityMeasurement::{No, Unknown, Yes};

impl Probe {
    /// Records a new reference, in the pattern of the switch's rail, before anything is sent under it. Returns the record's index.
    pub(super) fn add_record(&mut self, purpose: &str) -> usize {
        let plain = format!("probe_{}_{purpose}", self.run);
        let minted = PaymentId::new(plain.as_str())
            .ok()
            .and_then(|id| self.profile.mint(&TxId::derive(&id), Timestamp::now(), 0).ok().flatten());
        self.records.push(TransferRecord::new(minted.map_or(plain, |id| id.to_string())));
        self.records.len() - 1
    }

    pub(super) async fn submit(
        &mut self,
        index: usize,
        deadline: Option<Timestamp>,
    ) -> (ProbeSubmitOutcome, Result<HttpReply, String>) {
        let reply = self.http.submit(&self.records[index].reference, deadline).await;
        (self.records[index].record_submit(&reply), reply)
    }

    /// Cancels probe transfers that may still settle, and recalls those that settled.
    pub(crate) async fn clean_up(&mut self) {
        for index in 0..self.records.len() {
            if !self.records[index].may_settle {
                continue;
            }
            for name in self.records[index].names() {
                let reply = self.http.cancel(&name, &self.key(index, "cleanup", &name)).await;
                self.record_cancel(index, &reply);
                if matches!(&reply, Ok(reply) if reply.text("answer") == Some("ALREADY_SETTLED")) {
                    self.recall(index, &name).await;
                }
            }
        }
    }

    /// Records a transfer's status after a cancel.
    pub(super) fn record_cancel(&mut self, index: usize, reply: &Result<HttpReply, String>) {
        let record = &mut self.records[index];
        match reply {
            Ok(reply) => match reply.text("answer") {
                Some("CANCELLED") => record.set_status("cancelled", false),
                Some("ALREADY_REJECTED") => record.set_status("rejected", false),
                Some("ALREADY_SETTLED") => record.set_status("settled", true),
                Some("ALREADY_RETURNED") => record.set_status("returned", false),
                _ => record.set_status(format!("not cancelled: {}", reply.excerpt()), true),
            },
            Err(error) => record.set_status(format!("not cancelled: {error}"), true),
        }
    }

    /// Recalls a transfer and records what the reply shows. Returns whether the reply was definite.
    pub(super) async fn recall(&mut self, index: usize, name: &TransferName) -> bool {
        let reply = self.http.recall(name, &self.key(index, "recall", name)).await;
        let inconclusive =
            |reply: String| format!("{reply}; a recall needs a settled transfer: use --let-one-settle");
        let (measured, evidence) = match &reply {
            Ok(reply) => match reply.text("answer") {
                Some("RECALLED") => {
                    self.records[index].set_status("recalled", false);
                    (Yes, reply.excerpt())
                }
                Some("REFUSED") => {
                    self.records[index].set_status("settled; the switch refused the recall", true);
                    (Yes, format!("offered, and refused for this transfer: {}", reply.excerpt()))
                }
                Some("IN_PROCESS" | "PROMISED") => {
                    self.records[index].set_status("settled; the recall is answered later", true);
                    (Yes, format!("offered, and answered later: {}", reply.excerpt()))
                }
                // It was recalled before, and takes one recall.
                None if reply.text("code") == Some("recall_repeated") => {
                    self.records[index].set_status("settled; the recall is answered later", true);
                    (Yes, reply.excerpt())
                }
                Some("CANNOT_RECALL") => (No, reply.excerpt()),
                None if is_not_offered(reply) => (No, reply.excerpt()),
                _ => (Unknown, inconclusive(reply.excerpt())),
            },
            Err(error) => (Unknown, error.clone()),
        };
        // A later reply does not disprove a recall that succeeded.
        if self.findings.measured(SwitchCapability::Recall) != Yes {
            self.findings.record(SwitchCapability::Recall, measured, evidence);
        }
        measured != Unknown
    }

    /// Idempotency key, one per operation and transfer: a repeated call is answered as before.
    pub(super) fn key(&self, index: usize, operation: &str, name: &TransferName) -> String {
        let reference = &self.records[index].reference;
        match name {
            TransferName::Reference(_) => format!("{reference}:{operation}"),
            TransferName::TransferId(id) => format!("{reference}:{id}:{operation}"),
        }
    }
}

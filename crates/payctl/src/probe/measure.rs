//! The steps of a probe. Each step measures one capability; a step without a reply leaves its capability
//! unknown, and the next step runs nevertheless.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use payment_protocol::SwitchProfile;
use tokio::time::{Instant, sleep};

use super::findings::{CapabilityMeasurement, ClockOffset, Findings, ProbeTransferView, SwitchCapability};
use super::http::{HttpReply, SwitchHttp, TransferName};
use super::rails::RailTraits;
use super::record::{ProbeSubmitOutcome, TransferRecord};

use CapabilityMeasurement::{No, Unknown, Yes};

/// Time for one transfer to settle, with `--let-one-settle`.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the first query to be answered, where a query right after the submit is refused as too early.
pub(super) const FIRST_QUERY_TIMEOUT_MS: u64 = 30_000;
/// Pause between two such queries.
const FIRST_QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two recalls.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The code with which a switch refuses a query that comes too early.
const TOO_EARLY: &str = "query_too_early";
/// Age of the expired deadline.
const EXPIRED_BY: SignedDuration = SignedDuration::from_secs(60);

/// One probe of one switch.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(super) http: SwitchHttp,
    /// The configured profile, for the pattern of the references.
    pub(super) profile: SwitchProfile,
    /// Part of every reference of this probe.
    pub(super) run: String,
    pub(super) records: Vec<TransferRecord>,
    pub(super) findings: Findings,
    traits: RailTraits,
    clock_offset: Option<ClockOffset>,
    /// The switch's time, and ours at the same moment.
    clocks: Option<(Timestamp, Timestamp)>,
    /// Transfers to the probe's account before the first submit; `None` without a listing.
    listed_before: Option<BTreeSet<String>>,
}

impl Probe {
    /// A probe of the switch; sends nothing yet. `run` consists of letters and digits and is new for each probe.
    pub(crate) fn new(http: SwitchHttp, profile: SwitchProfile, run: String) -> Self {
        let mut findings = Findings::default();
        findings.record(SwitchCapability::Callback, Unknown, "payctl receives no callbacks");
        for capability in SwitchCapability::ALL {
            if capability != SwitchCapability::Callback {
                findings.record(capability, Unknown, "not measured");
            }
        }
        let records = Vec::new();
        Self {
            http,
            profile,
            run,
            records,
            findings,
            traits: RailTraits::default(),
            clock_offset: None,
            clocks: None,
            listed_before: None,
        }
    }

    /// The findings so far.
    pub(crate) fn findings(&self) -> &Findings {
        &self.findings
    }

    /// What the probe saw that only some rails do.
    pub(crate) fn traits(&self) -> &RailTraits {
        &self.traits
    }

    /// The switch's clock; `None` before the first reply.
    pub(crate) fn clock_offset(&self) -> Option<ClockOffset> {
        self.clock_offset
    }

    /// Every probe transfer with its last known status.
    pub(crate) fn transfers(&self) -> Vec<ProbeTransferView> {
        self.records.iter().map(TransferRecord::view).collect()
    }

    /// Takes every step of the probe. The future may be dropped at any time; [`Self::clean_up`] must follow in any
    /// case.
    ///
    /// # Errors
    /// The switch does not reply at all; nothing was sent.
    pub(crate) async fn measure(&mut self, let_one_settle: bool) -> anyhow::Result<()> {
        self.measure_clock().await?;
        self.measure_lists().await;
        let before_submit = Instant::now();
        if let Some(first) = self.submit_first().await {
            let submitted = before_submit..Instant::now();
            self.measure_query(first).await;
            self.measure_dedup(first).await;
            self.measure_cancel(first).await;
            self.measure_recall_offer(first).await;
            self.measure_tombstone().await;
            self.measure_deadline().await;
            if let_one_settle {
                self.measure_recall().await;
            }
            if self.traits.refuses_early_query == Some(true) {
                self.measure_first_query(first, submitted).await;
            }
        }
        Ok(())
    }

    async fn measure_clock(&mut self) -> anyhow::Result<()> {
        let health = self.http.health().await;
        let reply = health
            .map_err(anyhow::Error::msg)
            .context("the switch did not answer the probe's first request")?;
        self.clock_offset = Some(clock_offset(&reply));
        self.clocks = reply.date.map(|date| (date, reply.mid_call_at));
        Ok(())
    }

    async fn measure_lists(&mut self) {
        let listing = self.http.list_transfers().await;
        self.listed_before = listing.as_ref().ok().and_then(transfer_ids);
        self.measure_page(SwitchCapability::Listing, &listing, "transfers");
        let statement = self.http.statement().await;
        self.measure_page(SwitchCapability::Statement, &statement, "entries");
    }

    fn measure_page(&mut self, capability: SwitchCapability, reply: &Result<HttpReply, String>, field: &str) {
        let (measured, evidence) = match reply {
            Ok(reply) if reply.status == 200 && reply.list(field).is_some() => {
                (Yes, "a page was read".to_owned())
            }
            Ok(reply) if is_not_offered(reply) => (No, reply.excerpt()),
            Ok(reply) => (Unknown, reply.excerpt()),
            Err(error) => (Unknown, error.clone()),
        };
        self.findings.record(capability, measured, evidence);
    }

    /// Submits the transfer that most steps use. `None` if the switch does not accept the transfer: then no
    /// further step is possible.
    async fn submit_first(&mut self) -> Option<usize> {
        let index = self.add_record("first");
        match self.submit(index, None).await.0 {
            ProbeSubmitOutcome::Accepted => {}
            ProbeSubmitOutcome::Refused(detail) | ProbeSubmitOutcome::Unknown(detail) => {
                use SwitchCapability::{Cancel, Deadline, Dedup, Query, Recall, References, Tombstone};
                for capability in [References, Query, Dedup, Tombstone, Deadline, Cancel, Recall] {
                    let evidence = format!("the switch accepted no probe transfer: {detail}");
                    self.findings.record(capability, Unknown, evidence);
                }
                return None;
            }
        }
        if self.records[index].has_own_id_only {
            let evidence = "the reply has a transfer id and not our reference";
            self.findings.record(SwitchCapability::References, No, evidence);
            self.findings.record(SwitchCapability::Callback, No, "a callback cannot name our reference");
        } else {
            self.findings.record(SwitchCapability::References, Yes, "the reply has our reference");
        }
        Some(index)
    }

    async fn measure_query(&mut self, first: usize) {
        // By our reference, as the service queries.
        let reference = TransferName::Reference(self.records[first].reference.clone());
        let (measured, evidence) = match self.http.query(&reference).await {
            Ok(reply) if reply.status == 200 && reply.text("status").is_some() => {
                self.traits.refuses_early_query = Some(false);
                (Yes, reply.excerpt())
            }
            Ok(reply) if reply.text("code") == Some(TOO_EARLY) => {
                self.traits.refuses_early_query = Some(true);
                (Yes, format!("offered, and refused so early: {}", reply.excerpt()))
            }
            Ok(reply) if reply.status == 404 => (No, format!("accepted, but not found: {}", reply.excerpt())),
            Ok(reply) if is_not_offered(&reply) => (No, reply.excerpt()),
            Ok(reply) => (Unknown, reply.excerpt()),
            Err(error) => (Unknown, error),
        };
        self.findings.record(SwitchCapability::Query, measured, evidence);
    }

    /// Queries the first transfer, which was sent and answered within `submitted`, until the switch answers. A switch that refuses an early
    /// query refuses it for every transfer. Where the profile limits the queries of a transfer, all of them together stay within its limit.
    async fn measure_first_query(&mut self, first: usize, submitted: Range<Instant>) {
        let reference = TransferName::Reference(self.records[first].reference.clone());
        let millis = |time: Duration| u64::try_from(time.as_millis()).ok();
        // One was refused as too early.
        let mut left = self.profile.asks_max.checked_sub(1);
        let interval = match left {
            Some(0) => return,
            Some(left) => Duration::from_millis(FIRST_QUERY_TIMEOUT_MS / u64::from(left)),
            None => FIRST_QUERY_INTERVAL,
        };
        while left != Some(0) && submitted.start.elapsed() < Duration::from_millis(FIRST_QUERY_TIMEOUT_MS) {
            sleep(interval.max(FIRST_QUERY_INTERVAL)).await;
            left = left.map(|left| left - 1);
            let asked_after = submitted.end.elapsed();
            let Ok(reply) = self.http.query(&reference).await else { continue };
            if reply.status == 200 && reply.text("status").is_some() {
                self.traits.first_query_after_ms = millis(submitted.start.elapsed());
                return;
            }
            if reply.text("code") == Some(TOO_EARLY) {
                self.traits.early_query_after_ms = millis(asked_after);
            }
        }
    }

    /// Remembers the reason code of a refused transfer.
    pub(super) fn note_refusal(&mut self, reply: &Result<HttpReply, String>) {
        if let Ok(reply) = reply
            && reply.text("status") == Some("REJECTED")
        {
            self.traits.saw_a_refusal = true;
            self.traits.reject_code = reply.text("reason_code").map(str::to_owned);
        }
    }

    async fn measure_dedup(&mut self, first: usize) {
        let ids_before = self.records[first].ids.len();
        let (outcome, reply) = self.submit(first, None).await;
        self.note_refusal(&reply);
        let has_second_id = ids_before > 0 && self.records[first].ids.len() > ids_before;
        let duplicate = reply.as_ref().ok().and_then(|reply| reply.flag("duplicate"));
        let (measured, evidence) = match (outcome, duplicate) {
            _ if has_second_id => (No, "the repeat has another transfer id: two transfers".to_owned()),
            (ProbeSubmitOutcome::Accepted, _) if self.newly_listed().await.is_some_and(|new| new > 1) => {
                (No, "the listing has two transfers".to_owned())
            }
            (ProbeSubmitOutcome::Accepted, Some(false)) => {
                (No, "the repeat was not marked as a duplicate: two transfers".to_owned())
            }
            (ProbeSubmitOutcome::Accepted, Some(true)) => {
                (Yes, "the repeat was marked as a duplicate".to_owned())
            }
            (ProbeSubmitOutcome::Accepted, None) if ids_before > 0 => {
                (Yes, "the repeat has the same transfer id".to_owned())
            }
            (ProbeSubmitOutcome::Accepted, None) => {
                (Unknown, "the reply does not distinguish one transfer from two".to_owned())
            }
            // The service would read this refusal as the transfer's outcome.
            (ProbeSubmitOutcome::Refused(detail), _) => {
                (No, format!("accepted, but the repeat was refused: {detail}"))
            }
            (ProbeSubmitOutcome::Unknown(detail), _) => (Unknown, detail),
        };
        self.findings.record(SwitchCapability::Dedup, measured, evidence);
    }

    /// Number of transfers to the probe's account since the probe began; `None` without a listing.
    async fn newly_listed(&self) -> Option<usize> {
        let before = self.listed_before.as_ref()?;
        let now = transfer_ids(&self.http.list_transfers().await.ok()?)?;
        Some(now.difference(before).count())
    }

    async fn measure_cancel(&mut self, first: usize) {
        let mut finding = (Unknown, "not measured".to_owned());
        for name in self.records[first].names() {
            let reply = self.http.cancel(&name, &self.key(first, "cancel", &name)).await;
            self.record_cancel(first, &reply);
            finding = match &reply {
                Ok(reply) => match reply.text("answer") {
                    Some("CANCELLED") => self.verify_cancelled(&name, reply).await,
                    Some("ALREADY_SETTLED" | "ALREADY_REJECTED") => (Yes, reply.excerpt()),
                    Some("CANNOT_CANCEL") => (No, reply.excerpt()),
                    Some("NOT_FOUND") => (No, format!("accepted, but not found: {}", reply.excerpt())),
                    None if is_not_offered(reply) => (No, reply.excerpt()),
                    _ => (Unknown, reply.excerpt()),
                },
                Err(error) => (Unknown, error.clone()),
            };
        }
        self.findings.record(SwitchCapability::Cancel, finding.0, finding.1);
    }

    /// Verifies that a cancelled transfer is neither pending nor settled afterwards.
    async fn verify_cancelled(
        &self,
        name: &TransferName,
        cancelled: &HttpReply,
    ) -> (CapabilityMeasurement, String) {
        match self.http.query(name).await {
            Ok(reply) if matches!(reply.text("status"), Some("PENDING" | "SETTLED")) => {
                (No, format!("{}, then {}", cancelled.excerpt(), reply.excerpt()))
            }
            _ => (Yes, cancelled.excerpt()),
        }
    }

    /// Recalls a transfer that did not settle: the reply shows only whether the switch has no recall at all.
    async fn measure_recall_offer(&mut self, first: usize) {
        let Some(name) = self.records[first].names().into_iter().next() else { return };
        self.recall(first, &name).await;
    }

    async fn measure_tombstone(&mut self) {
        if self.findings.measured(SwitchCapability::References) == No {
            let evidence = "the switch has no references";
            return self.findings.record(SwitchCapability::Tombstone, No, evidence);
        }
        let index = self.add_record("tombstone");
        let name = TransferName::Reference(self.records[index].reference.clone());
        let reply = self.http.cancel(&name, &self.key(index, "cancel", &name)).await;
        let (measured, evidence) = match &reply {
            Ok(reply) if reply.text("answer") == Some("CANCELLED") => {
                match self.submit(index, None).await.0 {
                    ProbeSubmitOutcome::Accepted => {
                        (No, "accepted a transfer whose reference was cancelled before".to_owned())
                    }
                    ProbeSubmitOutcome::Refused(detail) => (Yes, detail),
                    ProbeSubmitOutcome::Unknown(detail) => (Unknown, detail),
                }
            }
            reply => {
                // Nothing was sent under this reference.
                self.records.pop();
                match reply {
                    Ok(reply) if reply.text("answer").is_some() || is_not_offered(reply) => {
                        (No, format!("an unknown reference is not cancelled: {}", reply.excerpt()))
                    }
                    Ok(reply) => (Unknown, reply.excerpt()),
                    Err(error) => (Unknown, error.clone()),
                }
            }
        };
        self.findings.record(SwitchCapability::Tombstone, measured, evidence);
    }

    async fn measure_deadline(&mut self) {
        let our_now = Timestamp::now();
        let switch_now = self.clocks.map_or(our_now, |(switch_then, our_then)| {
            switch_then.saturating_add(our_now.duration_since(our_then)).unwrap_or(our_now)
        });
        let expired = switch_now.saturating_sub(EXPIRED_BY).unwrap_or(switch_now);
        let index = self.add_record("deadline");
        let (outcome, reply) = self.submit(index, Some(expired)).await;
        self.note_refusal(&reply);
        let (measured, evidence) = match outcome {
            ProbeSubmitOutcome::Accepted => {
                (No, "accepted a transfer whose deadline had expired 60 s before".to_owned())
            }
            ProbeSubmitOutcome::Refused(detail) => (Yes, detail),
            ProbeSubmitOutcome::Unknown(detail) => (Unknown, detail),
        };
        self.findings.record(SwitchCapability::Deadline, measured, evidence);
    }

    /// Lets one transfer settle and recalls it.
    async fn measure_recall(&mut self) {
        let index = self.add_record("recall");
        if self.submit(index, None).await.0 != ProbeSubmitOutcome::Accepted {
            return;
        }
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let Some(name) = self.records[index].names().into_iter().next() else { return };
        while !self.recall(index, &name).await && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Whether the switch does not offer the call. Status 404 alone also means an unknown transfer.
pub(super) fn is_not_offered(reply: &HttpReply) -> bool {
    matches!(reply.status, 404 | 405 | 501)
}

fn transfer_ids(listing: &HttpReply) -> Option<BTreeSet<String>> {
    let transfers = listing.list("transfers")?;
    Some(
        transfers
            .iter()
            .filter_map(|transfer| Some(transfer.get("transfer_id")?.as_str()?.to_owned()))
            .collect(),
    )
}

fn clock_offset(reply: &HttpReply) -> ClockOffset {
    let duration_ms = i64::try_from(reply.took.as_millis()).unwrap_or(i64::MAX);
    // The header is rounded down to whole seconds, by half a second on average.
    let ahead_ms = reply.date.map(|date| date.as_millisecond() + 500 - reply.mid_call_at.as_millisecond());
    ClockOffset {
        has_date: reply.date.is_some(),
        ahead_ms,
        uncertainty_ms: ahead_ms.map(|_| 500 + duration_ms / 2),
    }
}

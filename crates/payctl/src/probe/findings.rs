//! Findings of a probe. Scripts depend on the words.

use serde::Serialize;

/// A capability that a switch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SwitchCapability {
    /// Identifies transfers by our reference.
    References,
    /// Query by our reference.
    Query,
    /// A repeated reference is one transfer.
    Dedup,
    /// Cancelling an unknown reference refuses a later submit.
    Tombstone,
    /// Refuses a submit after its deadline.
    Deadline,
    /// Cancel of a pending transfer.
    Cancel,
    /// Recall of a settled transfer.
    Recall,
    /// Statement of finished transfers.
    Statement,
    /// List of the transfers to an account.
    Listing,
    /// Callback when a transfer ends.
    Callback,
}

impl SwitchCapability {
    /// Every capability, in the order of tables.
    pub(crate) const ALL: [Self; 10] = [
        Self::References,
        Self::Query,
        Self::Dedup,
        Self::Tombstone,
        Self::Deadline,
        Self::Cancel,
        Self::Recall,
        Self::Statement,
        Self::Listing,
        Self::Callback,
    ];

    /// The word in JSON and tables.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::References => "references",
            Self::Query => "query",
            Self::Dedup => "dedup",
            Self::Tombstone => "tombstone",
            Self::Deadline => "deadline",
            Self::Cancel => "cancel",
            Self::Recall => "recall",
            Self::Statement => "statement",
            Self::Listing => "listing",
            Self::Callback => "callback",
        }
    }
}

/// Whether the switch has a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CapabilityMeasurement {
    /// A reply proved the capability.
    Yes,
    /// A reply disproved the capability.
    No,
    /// Not measured: no reply, or no reply that decides.
    Unknown,
}

impl CapabilityMeasurement {
    /// The word in tables.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
}

/// One capability of the probed switch, with the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CapabilityFinding {
    /// The capability.
    pub(crate) capability: SwitchCapability,
    /// Whether the switch has it.
    pub(crate) measured: CapabilityMeasurement,
    /// The evidence.
    pub(crate) evidence: String,
}

/// The switch's clock compared with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ClockOffset {
    /// Whether replies have a readable `Date` header.
    pub(crate) has_date: bool,
    /// How far the switch's clock is ahead of ours, in milliseconds; negative if behind.
    pub(crate) ahead_ms: Option<i64>,
    /// Uncertainty of `ahead_ms`, in milliseconds.
    pub(crate) uncertainty_ms: Option<i64>,
}

/// A probe transfer and its last known status at the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProbeTransferView {
    /// Our reference.
    pub(crate) reference: String,
    /// The switch's transfer ids, separated by commas; `None` if the switch returned none.
    pub(crate) transfer_id: Option<String>,
    /// The last known status.
    pub(crate) status: String,
    /// Whether the transfer has settled or may still settle.
    pub(crate) may_settle: bool,
}

/// All findings, in the order of [`SwitchCapability::ALL`].
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Findings(Vec<CapabilityFinding>);

impl Findings {
    /// Records a finding and replaces an earlier one of the same capability.
    pub(crate) fn record(
        &mut self,
        capability: SwitchCapability,
        measured: CapabilityMeasurement,
        evidence: impl Into<String>,
    ) {
        let evidence = evidence.into();
        self.0.retain(|finding| finding.capability != capability);
        self.0.push(CapabilityFinding { capability, measured, evidence });
        self.0.sort_by_key(|finding| finding.capability);
    }

    /// Whether the switch has the capability.
    pub(crate) fn measured(&self, capability: SwitchCapability) -> CapabilityMeasurement {
        let finding = self.0.iter().find(|finding| finding.capability == capability);
        finding.map_or(CapabilityMeasurement::Unknown, |finding| finding.measured)
    }

    /// Every finding.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CapabilityFinding> {
        self.0.iter()
    }
}

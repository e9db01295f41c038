//! What a probe found, in words that stay the same.

use serde::Serialize;

/// Something a switch may be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ability {
    /// Knows transfers by our reference.
    References,
    /// Can be asked for a transfer by our reference.
    Query,
    /// The same reference twice is one transfer.
    Dedup,
    /// A cancelled unknown reference refuses a later submit.
    Tombstone,
    /// Refuses what comes after its deadline.
    Deadline,
    /// Has a cancel.
    Cancel,
    /// Has a recall.
    Recall,
    /// Gives a statement of its book.
    Statement,
    /// Lists the transfers to an account.
    Listing,
    /// Calls back.
    Callback,
}

impl Ability {
    /// Every one, as they are shown.
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

    /// Its word.
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

/// Whether it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measured {
    /// Seen to.
    Yes,
    /// Seen not to.
    No,
    /// Not seen: no answer, or nothing to see it by.
    Unknown,
}

impl Measured {
    /// Its word, for people.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "cannot tell",
        }
    }
}

/// One ability, and what showed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Which.
    pub(crate) ability: Ability,
    /// Whether it can.
    pub(crate) measured: Measured,
    /// What showed it.
    pub(crate) detail: String,
}

/// The switch's clock beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Clock {
    /// Whether answers have a readable `Date`.
    pub(crate) has_date: bool,
    /// How far the switch is ahead of us, in milliseconds; negative when behind.
    pub(crate) ahead_ms: Option<i64>,
    /// How far off that may be, in milliseconds.
    pub(crate) give_or_take_ms: Option<i64>,
}

/// What a probe transfer left in the switch's book.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Left {
    /// Our reference.
    pub(crate) reference: String,
    /// The switch's own id, where it said one.
    pub(crate) transfer_id: Option<String>,
    /// How it stands, in the words of the last answer.
    pub(crate) stands: String,
    /// Whether the money may have left, or may still leave.
    pub(crate) may_leave: bool,
}

/// Everything found, in the order of [`Ability::ALL`].
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    /// Keeps what was found.
    pub(crate) fn note(&mut self, ability: Ability, measured: Measured, detail: impl Into<String>) {
        let detail = detail.into();
        self.0.retain(|finding| finding.ability != ability);
        self.0.push(Finding { ability, measured, detail });
        self.0.sort_by_key(|finding| finding.ability);
    }

    /// Whether the switch was seen to be able to.
    pub(crate) fn measured(&self, ability: Ability) -> Measured {
        let found = self.0.iter().find(|finding| finding.ability == ability);
        found.map_or(Measured::Unknown, |finding| finding.measured)
    }

    /// Each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter()
    }
}

//! The listing of a switch without references: the transfers of one amount to one account, and which of them a lookup takes for ours.
//!
//! The lookup is the one of `switch-client` (`read_back.rs`): transfers after the marker; several are no answer, and without a marker
//! one is no answer either; a transfer whose id is recorded is looked up by its id.

use crate::switch::{Switch, TransferStatus};

/// What our ledger and the switch's listing know about transfers of our amount to our account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listing {
    /// Whether the marker is recorded: right before the transfer was sent. Its commit may be lost.
    pub marker: bool,
    /// The transfer whose id our ledger has recorded.
    pub known: Option<ListedTransfer>,
    /// The transfers of others, in order of arrival.
    pub others: Vec<OtherTransfer>,
    /// The other payment of this bank to the account.
    pub second: SecondPayment,
}

/// Another payer's transfer of the same amount to the same account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherTransfer {
    /// Its status.
    pub status: TransferStatus,
    /// Whether our marker is newer.
    pub before_marker: bool,
    /// Whether our cancel or recall changed it.
    pub changed_by_us: bool,
}

/// A transfer in the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListedTransfer {
    /// Our own.
    Ours,
    /// Another payer's, by position.
    Other(u8),
}

/// Another payment of this bank to the same account. It records its attempt, under the same rule, before it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SecondPayment {
    /// Nothing recorded.
    #[default]
    Waiting,
    /// The attempt is recorded; the process may hang or crash here for any time.
    Attempted,
    /// The submit is in transit.
    Sent,
    /// The switch has the transfer, at this position of the others.
    Listed(u8),
    /// Ended: its transfer is final, or can never arrive.
    Ended,
}

/// What a lookup finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No candidate.
    Nothing,
    /// One candidate, or the transfer whose id is recorded.
    One(ListedTransfer),
    /// Several candidates, or any without a marker.
    Ambiguous,
}

impl SecondPayment {
    /// Whether an attempt is recorded and the payment is open, so that no other payment may send to the account.
    #[must_use]
    pub fn keeps_account_busy(self) -> bool {
        matches!(self, Self::Attempted | Self::Sent | Self::Listed(_))
    }
}

impl Listing {
    /// Looks our transfer up. `attempts_uncertain`: the payment's end may be lost, and another payment may have sent to its account since; the
    /// marker says nothing then.
    #[must_use]
    pub fn look_up(&self, switch: &Switch, attempts_uncertain: bool) -> Found {
        if let Some(known) = self.known {
            return Found::One(known);
        }
        let has_marker = self.marker && !attempts_uncertain;
        let own = switch.transfers.iter().map(|_| ListedTransfer::Ours);
        let others = (0_u8..).zip(&self.others).filter(|(_, other)| !(has_marker && other.before_marker));
        let mut candidates = own.chain(others.map(|(at, _)| ListedTransfer::Other(at)));
        match (candidates.next(), candidates.next()) {
            (None, _) => Found::Nothing,
            (Some(only), None) if has_marker => Found::One(only),
            (Some(_), _) => Found::Ambiguous,
        }
    }

    /// Records the marker, unless one is recorded: every listed transfer is before it.
    pub fn record_marker(&mut self) {
        if !self.marker {
            self.marker = true;
            self.others.iter_mut().for_each(|other| other.before_marker = true);
        }
    }

    /// Records the transfer that a lookup found, unless one is recorded or the payment has ended. Returns the recorded one.
    pub fn record_transfer_id(
        &mut self,
        found: ListedTransfer,
        payment_has_ended: bool,
    ) -> Option<ListedTransfer> {
        if self.known.is_none() && !payment_has_ended {
            self.known = Some(found);
        }
        self.known
    }

    /// Another payer's transfer arrives. Returns its position.
    pub fn add(&mut self, status: TransferStatus) -> u8 {
        self.others.push(OtherTransfer { status, before_marker: false, changed_by_us: false });
        u8::try_from(self.others.len() - 1).unwrap_or(u8::MAX)
    }

    /// Another payer's transfer.
    pub fn other(&mut self, at: u8) -> Option<&mut OtherTransfer> {
        self.others.get_mut(usize::from(at))
    }
}

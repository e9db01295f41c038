//! The shapes of real rails, as the switch's operator would describe them. docs/rails/README.md names the sources.

use serde::Deserialize;

use crate::id_pattern::IdPattern;
use crate::settings::{RejectCodes, Shape};

/// A rail whose behaviour this switch takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rail {
    /// SEPA Instant Credit Transfer.
    SctInst,
    /// FedNow Service.
    #[serde(rename = "fednow")]
    FedNow,
    /// RTP, operated by TCH in the United States.
    Rtp,
    /// Unified Payments Interface.
    Upi,
    /// Pix over SPI.
    Pix,
}

impl Rail {
    /// The shape of a switch of this rail. No rail has a cancel, a tombstone or a listing.
    #[must_use]
    pub fn shape(self) -> Shape {
        let none =
            Shape { tombstone: false, cancel: false, listing: false, recall: true, ..Shape::default() };
        match self {
            Self::SctInst => Shape {
                recall_takes_time: true,
                one_recall: true,
                id_pattern: IdPattern::SctInst,
                dedup: false,
                refuses_duplicates: true,
                reject_codes: RejectCodes::Iso,
                query_after_ms: 9_000,
                decides_within_ms: 10_000,
                ..none
            },
            Self::FedNow => Shape {
                recall_takes_time: true,
                id_pattern: IdPattern::FedNow,
                dedup: false,
                refuses_duplicates: true,
                reject_codes: RejectCodes::Iso,
                query_after_ms: 20_000,
                decides_within_ms: 20_000,
                ..none
            },
            Self::Rtp => Shape {
                recall_takes_time: true,
                id_pattern: IdPattern::Rtp,
                query: false,
                deadline: false,
                statement: false,
                reject_codes: RejectCodes::Iso,
                decides_within_ms: 15_000,
                ..none
            },
            Self::Upi => Shape {
                id_pattern: IdPattern::Upi,
                dedup: false,
                deadline: false,
                recall: false,
                query_after_ms: 90_000,
                queries_max: 3,
                retention_s: 7_200,
                statement_cycle_s: 3_600,
                ..none
            },
            Self::Pix => Shape {
                id_pattern: IdPattern::Pix,
                query: false,
                recall: false,
                reject_codes: RejectCodes::Spi,
                decides_within_ms: 40_000,
                ..none
            },
        }
    }
}

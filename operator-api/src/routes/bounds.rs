//! Bounds of the parameters of lists. A value outside is refused (400), as the document says.

use serde::Deserialize;

/// Most rows of a list.
const LIMIT_MAX: i64 = 1_000;
/// A year: longer than any payment waits.
const WAITING_MAX_S: i64 = 31_536_000;

/// Most rows that a list is to have: 1 to 1000, 50 by default.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct Limit(i64);

impl Limit {
    pub(super) fn get(self) -> i64 {
        self.0
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self(50)
    }
}

impl TryFrom<i64> for Limit {
    type Error = String;

    fn try_from(limit: i64) -> Result<Self, String> {
        if (1..=LIMIT_MAX).contains(&limit) {
            Ok(Self(limit))
        } else {
            Err(format!("the limit must be from 1 to {LIMIT_MAX}"))
        }
    }
}

/// How long a payment has waited at least, in seconds: at most a year, 300 by default.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct WaitingSeconds(i64);

impl WaitingSeconds {
    pub(super) fn get(self) -> i64 {
        self.0
    }
}

impl Default for WaitingSeconds {
    fn default() -> Self {
        Self(300)
    }
}

impl TryFrom<i64> for WaitingSeconds {
    type Error = String;

    fn try_from(seconds: i64) -> Result<Self, String> {
        if (0..=WAITING_MAX_S).contains(&seconds) {
            Ok(Self(seconds))
        } else {
            Err(format!("the seconds must be from 0 to {WAITING_MAX_S}"))
        }
    }
}

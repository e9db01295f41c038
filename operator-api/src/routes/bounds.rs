//! Bounds of the parameters of queries. A value outside is refused (400), as the document says.

use serde::Deserialize;

/// Most rows that a list is to have.
pub(super) type Limit = Bounded<1, 1_000, 50>;
/// How long a payment has waited at least, in seconds: up to a year, longer than any payment waits.
pub(super) type WaitingSeconds = Bounded<0, 31_536_000, 300>;
/// How long a request may wait for a decision's outcome, in seconds.
pub(super) type DecisionWait = Bounded<0, 30, 0>;

/// A number from `MIN` to `MAX`, `DEFAULT` where the request has none.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct Bounded<const MIN: i64, const MAX: i64, const DEFAULT: i64>(i64);

impl<const MIN: i64, const MAX: i64, const DEFAULT: i64> Bounded<MIN, MAX, DEFAULT> {
    pub(super) fn get(self) -> i64 {
        self.0
    }
}

impl<const MIN: i64, const MAX: i64, const DEFAULT: i64> Default for Bounded<MIN, MAX, DEFAULT> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl<const MIN: i64, const MAX: i64, const DEFAULT: i64> TryFrom<i64> for Bounded<MIN, MAX, DEFAULT> {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        if (MIN..=MAX).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("the number must be from {MIN} to {MAX}"))
        }
    }
}

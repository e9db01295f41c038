//! Whether a profile is safe.

use super::settings::SwitchProfile;
use super::strategy::Strategy;
use crate::state::text_enum;

/// Longest allowed `retry_interval_max_ms`.
const RETRY_INTERVAL_LIMIT_MS: u64 = 300_000;

/// An unsafe profile; the service refuses to start with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Strategy query needs a query.
    #[error("strategy query needs has_query = true; without a query use strategy reference")]
    QueryWithoutQuery,
    /// Strategy reference needs deduplication.
    #[error("strategy reference needs deduplicates = true; without deduplication use strategy query")]
    ReferenceWithoutDeduplication,
    /// A `PENDING` in the log could never be resolved.
    #[error(
        "strategy write_ahead needs has_query or deduplicates to learn the outcome of a submit without an answer; use strategy at_most_once"
    )]
    LogWithoutResolution,
    /// Strategy validate without a query: no transfer could be read back.
    #[error("strategy validate needs has_query = true to read the transfer back; use strategy at_most_once")]
    ValidateWithoutQuery,
    /// Strategy validate is for a switch without references.
    #[error(
        "strategy validate is for a switch without client references, which can neither deduplicate, tombstone nor call back; use strategy {better}, or set all three to false"
    )]
    ValidateWithReferences {
        /// The strategy that suits such a switch.
        better: Strategy,
    },
    /// The service could never learn how a transfer ended.
    #[error(
        "can_cancel, has_query, has_callback and has_statement are all false: the service could never learn how a transfer ended; set at least one to true"
    )]
    NoStatusSource,
    /// The retention of a reference could expire while its submit may still arrive.
    #[error(
        "submit_deadline_ms ({deadline_ms}) + max_skew_ms must be shorter than the switch's retention of references, retention_s ({retention_s} s)"
    )]
    DeadlineOutlivesRetention {
        /// The configured deadline, in milliseconds.
        deadline_ms: u64,
        /// The configured retention, in seconds.
        retention_s: u64,
    },
    /// The budget must allow two attempts and the interval between them.
    #[error(
        "submit_budget_ms ({budget_ms}) is too small: two submit attempts and the interval between them need {needed_ms} ms"
    )]
    BudgetTooSmall {
        /// The configured budget, in milliseconds.
        budget_ms: u64,
        /// The time that two attempts need, in milliseconds.
        needed_ms: u64,
    },
    /// A time of zero.
    #[error("the switch profile's {0} must be greater than zero")]
    Zero(&'static str),
    /// An interval over five minutes.
    #[error("the switch profile's retry_interval_max_ms must be at most 300000 (five minutes)")]
    RetryIntervalTooLong,
}

text_enum!(
    /// Why an accepted profile may need operators.
    ProfileWarning {
        /// Neither tombstones nor deadlines: "not found" never proves anything.
        NotFoundIsInconclusive = "neither tombstones nor honours_deadline: if the switch does not know a transfer, only an operator can release the hold",
        /// The protection against a late submit, a tombstone or deduplication, expires with the references.
        RetentionIsTheDeadline = "honours_deadline is false: a submit that is delayed for longer than retention_s could still be accepted, or accepted twice",
        /// Neither cancel, query nor statement: only a callback can move the payment.
        NoCancelOrQuery = "can_cancel, has_query and has_statement are all false: without a callback an operator must decide",
    }
);

impl SwitchProfile {
    /// Checks that the profile is safe.
    ///
    /// # Errors
    /// The first [`ProfileError`] found; the message says what to change.
    pub fn check(&self) -> Result<Vec<ProfileWarning>, ProfileError> {
        self.check_positive_times()?;
        self.check_strategy()?;
        if !(self.can_cancel || self.has_query || self.has_callback || self.has_statement) {
            return Err(ProfileError::NoStatusSource);
        }
        self.check_times()?;
        Ok(self.warnings())
    }

    fn check_positive_times(&self) -> Result<(), ProfileError> {
        let times = [
            ("sla_ms", self.sla_ms),
            ("submit_deadline_ms", self.submit_deadline_ms),
            ("attempt_timeout_ms", self.attempt_timeout_ms),
            ("backoff_ms", self.backoff_ms),
            ("retry_interval_max_ms", self.retry_interval_max_ms),
            ("start_within_ms", self.start_within_ms),
            ("retention_s", self.retention_s),
            ("breaker_failures", u64::from(self.breaker_failures)),
        ];
        match times.into_iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(ProfileError::Zero(name)),
            None => Ok(()),
        }
    }

    fn check_strategy(&self) -> Result<(), ProfileError> {
        match self.strategy {
            Strategy::Query if !self.has_query => Err(ProfileError::QueryWithoutQuery),
            Strategy::Reference if !self.deduplicates => Err(ProfileError::ReferenceWithoutDeduplication),
            Strategy::WriteAhead if !(self.has_query || self.deduplicates) => {
                Err(ProfileError::LogWithoutResolution)
            }
            Strategy::Validate if !self.has_query => Err(ProfileError::ValidateWithoutQuery),
            Strategy::Validate if self.deduplicates || self.tombstones || self.has_callback => {
                let better = if self.deduplicates { Strategy::Reference } else { Strategy::AtMostOnce };
                Err(ProfileError::ValidateWithReferences { better })
            }
            Strategy::Query
            | Strategy::Reference
            | Strategy::WriteAhead
            | Strategy::AtMostOnce
            | Strategy::Validate => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), ProfileError> {
        let arrived_by_ms = self.submit_deadline_ms.saturating_add(self.max_skew_ms);
        if self.honours_deadline && arrived_by_ms >= self.retention_s.saturating_mul(1_000) {
            return Err(ProfileError::DeadlineOutlivesRetention {
                deadline_ms: self.submit_deadline_ms,
                retention_s: self.retention_s,
            });
        }
        let needed_ms = self.attempt_bound_ms().saturating_mul(2).saturating_add(self.backoff_ms);
        if self.submit_budget_ms < needed_ms {
            return Err(ProfileError::BudgetTooSmall { budget_ms: self.submit_budget_ms, needed_ms });
        }
        if self.retry_interval_max_ms > RETRY_INTERVAL_LIMIT_MS {
            return Err(ProfileError::RetryIntervalTooLong);
        }
        Ok(())
    }

    fn warnings(&self) -> Vec<ProfileWarning> {
        let mut warnings = Vec::new();
        if !self.tombstones && !self.honours_deadline {
            warnings.push(ProfileWarning::NotFoundIsInconclusive);
        }
        if (self.tombstones || self.deduplicates) && !self.honours_deadline {
            warnings.push(ProfileWarning::RetentionIsTheDeadline);
        }
        if !self.can_cancel && !self.has_query && !self.has_statement {
            warnings.push(ProfileWarning::NoCancelOrQuery);
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::samples::full;

    #[test]
    fn a_switch_profile_with_every_capability_is_accepted_without_warning() {
        assert_eq!(full().check(), Ok(vec![]));
    }

    #[test]
    fn an_unsafe_switch_profile_is_refused_with_its_reason() {
        let refused = |change: fn(&mut SwitchProfile)| {
            let mut profile = full();
            change(&mut profile);
            profile.check().unwrap_err()
        };
        assert_eq!(refused(|p| p.has_query = false), ProfileError::QueryWithoutQuery);
        assert_eq!(
            refused(|p| {
                p.strategy = Strategy::Reference;
                p.deduplicates = false;
            }),
            ProfileError::ReferenceWithoutDeduplication
        );
        assert_eq!(
            refused(|p| {
                p.strategy = Strategy::Reference;
                (p.has_query, p.can_cancel, p.has_callback) = (false, false, false);
            }),
            ProfileError::NoStatusSource
        );
        assert!(matches!(refused(|p| p.retention_s = 61), ProfileError::DeadlineOutlivesRetention { .. }));
        assert!(matches!(
            refused(|p| p.submit_budget_ms = 10_000),
            ProfileError::BudgetTooSmall { needed_ms: 22_250, .. }
        ));
        assert_eq!(refused(|p| p.sla_ms = 0), ProfileError::Zero("sla_ms"));
        assert_eq!(refused(|p| p.retry_interval_max_ms = 300_001), ProfileError::RetryIntervalTooLong);
    }

    #[test]
    fn a_switch_profile_that_may_need_operators_is_accepted_with_a_warning() {
        let mut profile = full();
        (profile.tombstones, profile.honours_deadline) = (false, false);
        assert_eq!(
            profile.check(),
            Ok(vec![ProfileWarning::NotFoundIsInconclusive, ProfileWarning::RetentionIsTheDeadline])
        );
    }
}

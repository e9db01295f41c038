//! The smallest change that makes a profile safe.

use super::check::ProfileError;
use super::id_scheme::IdScheme;
use super::settings::{ConfirmByQuery, SwitchProfile, defaults};
use super::strategy::Strategy;

impl SwitchProfile {
    /// The nearest safe profile, with the changes in the configuration's words; no changes for a safe profile.
    /// `None` if no setting makes the profile safe.
    #[must_use]
    pub fn nearest_safe(&self) -> Option<(Vec<String>, Self)> {
        let mut profile = self.clone();
        let mut changes = Vec::new();
        // Each change corrects one error and causes none of the errors that are checked before it.
        while let Err(error) = profile.check() {
            changes.push(profile.correct(&error)?);
        }
        debug_assert!(!changes.is_empty() || profile == *self, "a profile changed without a description");
        Some((changes, profile))
    }

    /// Corrects one error and describes the change; `None` if no setting corrects it.
    fn correct(&mut self, error: &ProfileError) -> Option<String> {
        match error {
            ProfileError::QueryWithoutQuery => Some(self.use_strategy(if self.deduplicates {
                Strategy::Reference
            } else {
                Strategy::AtMostOnce
            })),
            ProfileError::ReferenceWithoutDeduplication => {
                Some(self.use_strategy(if self.has_query { Strategy::Query } else { Strategy::AtMostOnce }))
            }
            ProfileError::LogWithoutResolution | ProfileError::ValidateWithoutQuery => {
                Some(self.use_strategy(Strategy::AtMostOnce))
            }
            ProfileError::ValidateWithReferences { better } => Some(self.use_strategy(*better)),
            // No setting adds a capability to the switch.
            ProfileError::NoStatusSource => None,
            ProfileError::DeadlineOutlivesRetention { .. } => {
                let retention_ms = self.retention_s.saturating_mul(1_000);
                let fits_ms = retention_ms.saturating_sub(self.max_skew_ms) / 2;
                if fits_ms == 0 {
                    self.honours_deadline = false;
                    return Some("honours_deadline = false".into());
                }
                self.submit_deadline_ms = fits_ms;
                Some(format!("submit_deadline_ms = {fits_ms}"))
            }
            ProfileError::BudgetTooSmall { needed_ms, .. } => {
                self.submit_budget_ms = *needed_ms;
                Some(format!("submit_budget_ms = {needed_ms}"))
            }
            ProfileError::FinalRejectOfLivingReference | ProfileError::FinalRejectWithoutCode => {
                self.reject_is_final = false;
                Some("reject_is_final = false".into())
            }
            ProfileError::ValidateWithRejectOrRepeat => {
                (self.reject_is_final, self.query_is_repeat) = (false, false);
                self.settled_within_ms = None;
                Some("reject_is_final = false, query_is_repeat = false, no settled_within_ms".into())
            }
            ProfileError::QueryFirstWithLimits { better } => Some(self.use_strategy(*better)),
            // Without a query there is nothing to limit.
            ProfileError::LimitsWithoutQuery => {
                (self.first_ask_after_ms, self.ask_interval_ms) = (0, 0);
                (self.asks_max, self.ask_window_s) = (0, 0);
                self.query_is_repeat = false;
                Some(
                    "first_ask_after_ms = 0, ask_interval_ms = 0, asks_max = 0, ask_window_s = 0, query_is_repeat = false"
                        .into(),
                )
            }
            ProfileError::ConfirmationWithoutFreeQuery => {
                self.confirm_by_query = ConfirmByQuery::Never;
                Some("confirm_by_query = \"never\"".into())
            }
            ProfileError::RepeatOutlivesRetention { retention_s } => {
                let half_s = retention_s / 2;
                if half_s == 0 {
                    self.query_is_repeat = false;
                    return Some("query_is_repeat = false".into());
                }
                self.ask_window_s = half_s;
                Some(format!("ask_window_s = {half_s}"))
            }
            ProfileError::RepeatWithoutDeduplication | ProfileError::RepeatWithoutFinalReject => {
                self.query_is_repeat = false;
                Some("query_is_repeat = false".into())
            }
            ProfileError::SpentQueriesWithoutOtherSource => {
                (self.asks_max, self.ask_window_s) = (0, 0);
                Some("asks_max = 0, ask_window_s = 0".into())
            }
            ProfileError::ClosedStatementWithoutStatement => {
                self.settled_within_ms = None;
                Some("no settled_within_ms".into())
            }
            ProfileError::RestoredBeforeSent { restore_ms, sent_by_ms } => {
                match restore_ms.checked_sub(self.submit_budget_ms) {
                    Some(within_ms) if within_ms > 0 => {
                        self.start_within_ms = within_ms;
                        Some(format!("start_within_ms = {within_ms}"))
                    }
                    Some(_) | None => {
                        self.restore_customer_after_ms = Some(*sent_by_ms);
                        Some(format!("restore_customer_after_ms = {sent_by_ms}"))
                    }
                }
            }
            ProfileError::RestoredAndRepeated => {
                self.restore_customer_after_ms = None;
                Some("no restore_customer_after_ms".into())
            }
            ProfileError::RecallTermsWithoutRecall => {
                (self.recall_answer_within_s, self.recall_once) = (0, false);
                Some("recall_answer_within_s = 0, recall_once = false".into())
            }
            ProfileError::OneRecallAnsweredAtOnce => {
                self.recall_once = false;
                Some("recall_once = false".into())
            }
            ProfileError::ValidateWithIdScheme => {
                self.id_scheme = IdScheme::Plain;
                Some("id_scheme = \"plain\"".into())
            }
            ProfileError::IdTooOld { age_max_ms, .. } => {
                let others_ms = self.submit_budget_ms.saturating_add(self.max_skew_ms);
                let fits_ms = age_max_ms.checked_sub(others_ms).filter(|fits_ms| *fits_ms > 0)?;
                self.start_within_ms = fits_ms;
                Some(format!("start_within_ms = {fits_ms}"))
            }
            ProfileError::Zero(name) => self.use_default(name),
            ProfileError::RetryIntervalTooLong => {
                self.retry_interval_max_ms = defaults::retry_interval_max_ms();
                Some(format!("retry_interval_max_ms = {}", self.retry_interval_max_ms))
            }
        }
    }

    fn use_strategy(&mut self, strategy: Strategy) -> String {
        self.strategy = strategy;
        format!("strategy = \"{strategy}\"")
    }

    fn use_default(&mut self, name: &str) -> Option<String> {
        let (field, value) = match name {
            "sla_ms" => (&mut self.sla_ms, defaults::sla_ms()),
            "submit_deadline_ms" => (&mut self.submit_deadline_ms, defaults::submit_deadline_ms()),
            "attempt_timeout_ms" => (&mut self.attempt_timeout_ms, defaults::attempt_timeout_ms()),
            "backoff_ms" => (&mut self.backoff_ms, defaults::backoff_ms()),
            "retry_interval_max_ms" => (&mut self.retry_interval_max_ms, defaults::retry_interval_max_ms()),
            "start_within_ms" => (&mut self.start_within_ms, defaults::start_within_ms()),
            "breaker_failures" => {
                self.breaker_failures = defaults::breaker_failures();
                return Some(format!("breaker_failures = {}", self.breaker_failures));
            }
            // The switch alone determines its retention.
            _ => return None,
        };
        *field = value;
        Some(format!("{name} = {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::samples::{full, queried_by_repeating, without_references};

    /// The changes of the nearest safe profile, after `change` to a full profile.
    fn nearest(change: fn(&mut SwitchProfile)) -> Option<String> {
        let mut profile = full();
        change(&mut profile);
        profile.nearest_safe().map(|(changes, nearest)| {
            assert!(nearest.check().is_ok(), "{nearest:?}");
            changes.join(", ")
        })
    }

    #[test]
    fn an_unsafe_submit_strategy_is_replaced_by_the_nearest_safe_one() {
        assert_eq!(nearest(|_| {}), Some(String::new()));
        assert_eq!(nearest(|p| p.has_query = false), Some("strategy = \"reference\"".into()));
        assert_eq!(
            nearest(|p| (p.has_query, p.deduplicates) = (false, false)),
            Some("strategy = \"at_most_once\"".into())
        );
        assert_eq!(
            nearest(|p| {
                (p.strategy, p.deduplicates, p.has_query) = (Strategy::WriteAhead, false, false);
            }),
            Some("strategy = \"at_most_once\"".into())
        );
        assert_eq!(nearest(|p| p.strategy = Strategy::Validate), Some("strategy = \"reference\"".into()));
        assert_eq!(without_references().check(), Ok(vec![]));
    }

    #[test]
    fn an_unsafe_switch_profile_time_is_replaced_by_the_nearest_safe_one() {
        assert_eq!(
            nearest(|p| (p.retention_s, p.submit_budget_ms) = (50, 1)),
            Some("submit_deadline_ms = 24500, submit_budget_ms = 22250".into())
        );
        // Half of the retention without the skew; without such a half, no deadline.
        assert_eq!(
            nearest(|p| (p.retention_s, p.submit_deadline_ms) = (2, 60_000)),
            Some("submit_deadline_ms = 500".into())
        );
        assert_eq!(nearest(|p| p.retention_s = 1), Some("honours_deadline = false".into()));
        for (field, nearest) in [
            ("sla_ms = 60000", nearest(|p| p.sla_ms = 0)),
            ("submit_deadline_ms = 60000", nearest(|p| p.submit_deadline_ms = 0)),
            ("attempt_timeout_ms = 5000", nearest(|p| p.attempt_timeout_ms = 0)),
            ("backoff_ms = 250", nearest(|p| p.backoff_ms = 0)),
            ("retry_interval_max_ms = 300000", nearest(|p| p.retry_interval_max_ms = 0)),
            ("start_within_ms = 3600000", nearest(|p| p.start_within_ms = 0)),
            ("breaker_failures = 20", nearest(|p| p.breaker_failures = 0)),
            ("retry_interval_max_ms = 300000", nearest(|p| p.retry_interval_max_ms = 300_001)),
        ] {
            assert_eq!(nearest.as_deref(), Some(field));
        }
    }

    #[test]
    fn a_restore_or_an_id_that_is_too_early_or_too_old_is_replaced_by_a_start_that_fits() {
        // Restored before the last attempt can have been sent: an earlier start if the budget leaves one, else a later restore.
        let restored = [
            ("start_within_ms = 5000", nearest(|p| p.restore_customer_after_ms = Some(35_000))),
            ("restore_customer_after_ms = 3630000", nearest(|p| p.restore_customer_after_ms = Some(30_000))),
            ("restore_customer_after_ms = 3630000", nearest(|p| p.restore_customer_after_ms = Some(1))),
        ];
        for (change, nearest) in restored {
            assert_eq!(nearest.as_deref(), Some(change));
        }
        let aged = |submit_budget_ms| {
            let id_scheme = IdScheme::Pix;
            let profile = SwitchProfile { id_scheme, start_within_ms: 5_400_000, submit_budget_ms, ..full() };
            profile.nearest_safe().map(|(changes, _)| changes.join(", "))
        };
        assert_eq!(aged(30_000).as_deref(), Some("start_within_ms = 5369000"));
        assert_eq!(aged(5_398_999).as_deref(), Some("start_within_ms = 1"));
        // Nothing fits where the budget fills the age.
        assert_eq!(aged(5_399_000), None);
    }

    #[test]
    fn a_repeated_query_is_asked_within_half_of_the_retention() {
        let repeats = |retention_s| {
            let mut profile = SwitchProfile { retention_s, ..queried_by_repeating() };
            (profile.honours_deadline, profile.start_within_ms) = (false, 1);
            profile.nearest_safe().map(|(changes, _)| changes.join(", "))
        };
        assert_eq!(repeats(3).as_deref(), Some("ask_window_s = 1"));
        assert_eq!(repeats(1).as_deref(), Some("query_is_repeat = false"));
    }

    #[test]
    fn limits_and_beliefs_without_ground_are_dropped_by_the_nearest_safe_profile() {
        assert_eq!(nearest(|p| p.reject_is_final = true), Some("reject_is_final = false".into()));
        assert_eq!(
            nearest(|p| (p.asks_max, p.has_callback) = (3, false)),
            Some("strategy = \"reference\", asks_max = 0, ask_window_s = 0".into())
        );
        assert_eq!(nearest(|p| p.settled_within_ms = Some(1)), Some("no settled_within_ms".into()));
    }

    #[test]
    fn a_switch_profile_without_a_safe_neighbour_gets_no_proposal() {
        assert_eq!(nearest(|p| p.retention_s = 0), None);
        assert_eq!(
            nearest(|p| {
                p.strategy = Strategy::Reference;
                (p.has_query, p.can_cancel, p.has_callback) = (false, false, false);
            }),
            None
        );
    }
}

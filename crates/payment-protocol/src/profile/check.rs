//! Whether a profile is safe.

use super::id_scheme::IdScheme;
use super::settings::{ConfirmByQuery, SwitchProfile};
use super::strategy::Strategy;
use crate::reject::RejectMeaning;
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
    /// A reject is believed of a reference that could be accepted later.
    #[error(
        "reject_is_final needs burns_reference = true: a reject proves nothing while another attempt with the reference could be accepted; set reject_is_final = false"
    )]
    FinalRejectOfLivingReference,
    /// A reject is believed, and no code says which.
    #[error(
        "reject_is_final needs at least one code with the meaning dead in reject_codes; list the switch's codes, or set reject_is_final = false"
    )]
    FinalRejectWithoutCode,
    /// A switch without references cannot reject one, answer a repeat of it, or list it as absent.
    #[error(
        "strategy validate is for a switch without client references: it can neither reject a reference for good, nor answer a repeat, nor prove by its statement that a transfer is absent; set reject_is_final and query_is_repeat to false and remove settled_within_ms"
    )]
    ValidateWithRejectOrRepeat,
    /// Strategy query looks before the first attempt, which such a switch refuses or counts.
    #[error(
        "strategy query queries before each attempt, but first_ask_after_ms, ask_interval_ms, asks_max, ask_window_s or query_is_repeat limits the queries; use strategy {better}"
    )]
    QueryFirstWithLimits {
        /// The strategy that suits such a switch.
        better: Strategy,
    },
    /// Limits of a query that does not exist.
    #[error(
        "first_ask_after_ms, ask_interval_ms, asks_max, ask_window_s and query_is_repeat are about queries and need has_query = true"
    )]
    LimitsWithoutQuery,
    /// A callback waits for a query that the switch does not answer at once.
    #[error(
        "confirm_by_query needs has_query = true and queries without limits, but first_ask_after_ms, ask_interval_ms, asks_max, ask_window_s or query_is_repeat limits them: a callback would wait for a query that the switch refuses; set confirm_by_query = \"never\""
    )]
    ConfirmationWithoutFreeQuery,
    /// A repeat of the submit would be executed a second time.
    #[error(
        "query_is_repeat needs deduplicates = true: without deduplication a repeat of the submit pays twice; set query_is_repeat = false"
    )]
    RepeatWithoutDeduplication,
    /// A reject of the repeat would not be one of the first submit.
    #[error(
        "query_is_repeat needs reject_is_final = true: otherwise the reject of a repeat says nothing about the submit that it repeats; set query_is_repeat = false"
    )]
    RepeatWithoutFinalReject,
    /// A repeat after the retention would be executed a second time.
    #[error(
        "query_is_repeat needs ask_window_s between 1 s and half the switch's retention of references, retention_s ({retention_s} s): a repeat that arrives after it would be executed a second time"
    )]
    RepeatOutlivesRetention {
        /// The configured retention, in seconds.
        retention_s: u64,
    },
    /// The queries can be used up, and then nothing would show how the transfer ended.
    #[error(
        "asks_max and ask_window_s need has_callback or has_statement = true: when the queries are used up, nothing else would show how a transfer ended; set both to 0"
    )]
    SpentQueriesWithoutOtherSource,
    /// The absence from a statement that does not exist.
    #[error(
        "settled_within_ms is about the statement and needs has_statement = true; remove settled_within_ms"
    )]
    ClosedStatementWithoutStatement,
    /// A payment could be restored before its transfer was sent.
    #[error(
        "restore_customer_after_ms ({restore_ms}) must be at least start_within_ms + submit_budget_ms ({sent_by_ms} ms): a payment that is still being started or sent would be restored first"
    )]
    RestoredBeforeSent {
        /// The configured time of the restore, in milliseconds.
        restore_ms: u64,
        /// When the last attempt has ended at the latest, in milliseconds.
        sent_by_ms: u64,
    },
    /// A query that is a repeat could execute a transfer long after its customer was restored.
    #[error(
        "restore_customer_after_ms with query_is_repeat needs honours_deadline = true: otherwise a query could execute the transfer after the customer's account was restored; remove restore_customer_after_ms"
    )]
    RestoredAndRepeated,
    /// The terms of a recall that does not exist.
    #[error(
        "recall_answer_within_s and recall_once are about recalls and need can_recall = true; set recall_answer_within_s = 0 and recall_once = false"
    )]
    RecallTermsWithoutRecall,
    /// A switch that answers at once has to be asked again if its answer is lost.
    #[error(
        "recall_once needs recall_answer_within_s greater than 0: a recall that is answered at once is repeated until the answer arrives, because nothing else would bring it; set recall_once = false"
    )]
    OneRecallAnsweredAtOnce,
    /// The time in an id could be too old for the switch when the transfer is sent.
    #[error(
        "an id of scheme {scheme} has the time of the acceptance, which may be {age_max_ms} ms old when the transfer is sent: start_within_ms + submit_budget_ms + max_skew_ms must not be longer"
    )]
    IdTooOld {
        /// The scheme.
        scheme: IdScheme,
        /// The greatest age, in milliseconds.
        age_max_ms: u64,
    },
    /// A switch without references knows no id of ours.
    #[error(
        "strategy validate is for a switch without client references: it takes no id of ours; set id_scheme = \"plain\""
    )]
    ValidateWithIdScheme,
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
        /// The statement's proof of absence rests on the time for which the network can delay a submit.
        StatementWithoutDeadline = "settled_within_ms without honours_deadline: absence from the statement is believed only once it is complete for retention_s longer; a submit delayed for longer could still be accepted",
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
        self.check_rejects()?;
        self.check_queries()?;
        if !(self.can_cancel || self.has_query || self.has_callback || self.has_statement) {
            return Err(ProfileError::NoStatusSource);
        }
        self.check_times()?;
        self.check_ids()?;
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
            Strategy::Validate
                if self.reject_is_final || self.query_is_repeat || self.settled_within_ms.is_some() =>
            {
                Err(ProfileError::ValidateWithRejectOrRepeat)
            }
            Strategy::Query
            | Strategy::Reference
            | Strategy::WriteAhead
            | Strategy::AtMostOnce
            | Strategy::Validate => Ok(()),
        }
    }

    fn check_rejects(&self) -> Result<(), ProfileError> {
        if !self.reject_is_final {
            return Ok(());
        }
        if !self.burns_reference {
            return Err(ProfileError::FinalRejectOfLivingReference);
        }
        if self.reject_codes.values().all(|meaning| *meaning != RejectMeaning::Dead) {
            return Err(ProfileError::FinalRejectWithoutCode);
        }
        Ok(())
    }

    fn check_queries(&self) -> Result<(), ProfileError> {
        if self.limits_queries() && !self.has_query {
            return Err(ProfileError::LimitsWithoutQuery);
        }
        if self.limits_queries() && self.strategy == Strategy::Query {
            let better = if self.deduplicates { Strategy::Reference } else { Strategy::AtMostOnce };
            return Err(ProfileError::QueryFirstWithLimits { better });
        }
        if self.confirm_by_query != ConfirmByQuery::Never && !self.can_confirm_by_query() {
            return Err(ProfileError::ConfirmationWithoutFreeQuery);
        }
        if self.query_is_repeat && !self.deduplicates {
            return Err(ProfileError::RepeatWithoutDeduplication);
        }
        if self.query_is_repeat && !self.reject_is_final {
            return Err(ProfileError::RepeatWithoutFinalReject);
        }
        if self.query_is_repeat && !(1..=self.retention_s / 2).contains(&self.ask_window_s) {
            return Err(ProfileError::RepeatOutlivesRetention { retention_s: self.retention_s });
        }
        if (self.asks_max > 0 || self.ask_window_s > 0) && !(self.has_callback || self.has_statement) {
            return Err(ProfileError::SpentQueriesWithoutOtherSource);
        }
        if self.settled_within_ms.is_some() && !self.has_statement {
            return Err(ProfileError::ClosedStatementWithoutStatement);
        }
        Ok(())
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
        self.check_restore()?;
        self.check_recall()
    }

    fn check_recall(&self) -> Result<(), ProfileError> {
        if (self.recall_answer_within_s > 0 || self.recall_once) && !self.can_recall {
            return Err(ProfileError::RecallTermsWithoutRecall);
        }
        if self.recall_once && self.recall_answer_within_s == 0 {
            return Err(ProfileError::OneRecallAnsweredAtOnce);
        }
        Ok(())
    }

    fn check_restore(&self) -> Result<(), ProfileError> {
        let Some(restore_ms) = self.restore_customer_after_ms else { return Ok(()) };
        let sent_by_ms = self.start_within_ms.saturating_add(self.submit_budget_ms);
        if restore_ms < sent_by_ms {
            return Err(ProfileError::RestoredBeforeSent { restore_ms, sent_by_ms });
        }
        if self.query_is_repeat && !self.honours_deadline {
            return Err(ProfileError::RestoredAndRepeated);
        }
        Ok(())
    }

    /// Without the participant, which only a configuration has ([`SwitchProfile::check_participant`]).
    fn check_ids(&self) -> Result<(), ProfileError> {
        let scheme = self.id_scheme;
        if scheme != IdScheme::Plain && self.needs_account_lock() {
            return Err(ProfileError::ValidateWithIdScheme);
        }
        let sent_within_ms =
            self.start_within_ms.saturating_add(self.submit_budget_ms).saturating_add(self.max_skew_ms);
        match scheme.age_max_ms() {
            Some(age_max_ms) if sent_within_ms > age_max_ms => {
                Err(ProfileError::IdTooOld { scheme, age_max_ms })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn warnings(&self) -> Vec<ProfileWarning> {
        let mut warnings = Vec::new();
        if !self.tombstones
            && !self.honours_deadline
            && self.settled_within_ms.is_none()
            && !self.query_is_repeat
        {
            warnings.push(ProfileWarning::NotFoundIsInconclusive);
        }
        if (self.tombstones || self.deduplicates) && !self.honours_deadline {
            warnings.push(ProfileWarning::RetentionIsTheDeadline);
        }
        if self.settled_within_ms.is_some() && !self.honours_deadline {
            warnings.push(ProfileWarning::StatementWithoutDeadline);
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
    use crate::profile::samples::{full, queried_by_repeating, without_references};

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
    fn a_profile_that_believes_a_reject_or_limits_queries_without_ground_is_refused() {
        let refused = |change: fn(&mut SwitchProfile)| {
            let mut profile = SwitchProfile { strategy: Strategy::Reference, ..full() };
            change(&mut profile);
            profile.check().unwrap_err()
        };
        assert_eq!(refused(|p| p.reject_is_final = true), ProfileError::FinalRejectOfLivingReference);
        assert_eq!(
            refused(|p| {
                (p.reject_is_final, p.burns_reference) = (true, true);
                p.reject_codes = [("AM05".into(), RejectMeaning::Duplicate)].into();
            }),
            ProfileError::FinalRejectWithoutCode
        );
        assert_eq!(
            refused(|p| (p.strategy, p.first_ask_after_ms) = (Strategy::Query, 1)),
            ProfileError::QueryFirstWithLimits { better: Strategy::Reference }
        );
        assert_eq!(refused(|p| (p.has_query, p.asks_max) = (false, 3)), ProfileError::LimitsWithoutQuery);
        assert_eq!(
            refused(|p| (p.has_query, p.confirm_by_query) = (false, ConfirmByQuery::Above(0))),
            ProfileError::ConfirmationWithoutFreeQuery
        );
        assert_eq!(
            refused(|p| (p.asks_max, p.confirm_by_query) = (3, ConfirmByQuery::Always)),
            ProfileError::ConfirmationWithoutFreeQuery
        );
        assert_eq!(
            refused(|p| {
                (p.strategy, p.deduplicates, p.query_is_repeat) = (Strategy::AtMostOnce, false, true);
            }),
            ProfileError::RepeatWithoutDeduplication
        );
        let mut repeats = queried_by_repeating();
        assert_eq!(repeats.check(), Err(ProfileError::RepeatOutlivesRetention { retention_s: 86_400 }));
        repeats.ask_window_s = 43_201;
        assert_eq!(repeats.check(), Err(ProfileError::RepeatOutlivesRetention { retention_s: 86_400 }));
        repeats.ask_window_s = 43_200;
        assert_eq!(repeats.check(), Ok(vec![]));
        assert_eq!(refused(|p| p.query_is_repeat = true), ProfileError::RepeatWithoutFinalReject);
        assert_eq!(
            refused(|p| (p.has_callback, p.asks_max) = (false, 3)),
            ProfileError::SpentQueriesWithoutOtherSource
        );
        assert_eq!(refused(|p| p.settled_within_ms = Some(0)), ProfileError::ClosedStatementWithoutStatement);
        assert_eq!(
            refused(|p| (p.can_recall, p.recall_answer_within_s) = (false, 1)),
            ProfileError::RecallTermsWithoutRecall
        );
        assert_eq!(refused(|p| p.recall_once = true), ProfileError::OneRecallAnsweredAtOnce);
    }

    #[test]
    fn a_profile_that_restores_a_customer_before_the_last_attempt_is_refused() {
        let restored = |restore_ms| {
            let mut profile = full();
            (profile.start_within_ms, profile.submit_budget_ms) = (10_000, 30_000);
            profile.restore_customer_after_ms = Some(restore_ms);
            profile.check()
        };
        let early = ProfileError::RestoredBeforeSent { restore_ms: 39_999, sent_by_ms: 40_000 };
        assert_eq!(restored(39_999), Err(early));
        assert_eq!(restored(40_000), Ok(vec![]));
        let mut repeats = queried_by_repeating();
        (repeats.ask_window_s, repeats.start_within_ms, repeats.honours_deadline) = (3_600, 1, false);
        repeats.restore_customer_after_ms = Some(3_600_000);
        assert_eq!(repeats.check(), Err(ProfileError::RestoredAndRepeated));
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

    #[test]
    fn validate_is_refused_where_a_switch_knows_references_or_believes_a_reject() {
        assert_eq!(without_references().check(), Ok(vec![]));
        let refused = |change: fn(&mut SwitchProfile)| {
            let mut profile = without_references();
            change(&mut profile);
            profile.check().unwrap_err()
        };
        assert_eq!(refused(|p| p.has_query = false), ProfileError::ValidateWithoutQuery);
        let references: [fn(&mut SwitchProfile); 2] = [|p| p.tombstones = true, |p| p.has_callback = true];
        for known in references {
            assert_eq!(refused(known), ProfileError::ValidateWithReferences { better: Strategy::AtMostOnce });
        }
        assert_eq!(
            refused(|p| p.deduplicates = true),
            ProfileError::ValidateWithReferences { better: Strategy::Reference }
        );
        let beliefs: [fn(&mut SwitchProfile); 3] = [
            |p| p.reject_is_final = true,
            |p| p.query_is_repeat = true,
            |p| (p.has_statement, p.settled_within_ms) = (true, Some(1)),
        ];
        for belief in beliefs {
            assert_eq!(refused(belief), ProfileError::ValidateWithRejectOrRepeat);
        }
        assert_eq!(refused(|p| p.id_scheme = IdScheme::FedNow), ProfileError::ValidateWithIdScheme);
    }

    #[test]
    fn a_written_log_needs_one_way_to_resolve_an_attempt() {
        let checked = |has_query, deduplicates| {
            let strategy = Strategy::WriteAhead;
            SwitchProfile { strategy, has_query, deduplicates, ..full() }.check()
        };
        assert_eq!(checked(false, false), Err(ProfileError::LogWithoutResolution));
        assert_eq!(checked(true, false), Ok(vec![]));
        assert_eq!(checked(false, true), Ok(vec![]));
    }

    #[test]
    fn one_source_of_a_status_is_enough() {
        let checked = |can_cancel, has_query, has_callback, has_statement| {
            let strategy = Strategy::Reference;
            SwitchProfile { strategy, can_cancel, has_query, has_callback, has_statement, ..full() }.check()
        };
        assert_eq!(checked(true, false, false, false), Ok(vec![]));
        assert_eq!(checked(false, true, false, false), Ok(vec![]));
        assert_eq!(checked(false, false, true, false), Ok(vec![ProfileWarning::NoCancelOrQuery]));
        assert_eq!(checked(false, false, false, true), Ok(vec![]));
        assert_eq!(checked(false, false, false, false), Err(ProfileError::NoStatusSource));
    }

    #[test]
    fn spent_queries_need_a_source_beside_them() {
        let checked = |asks_max, has_callback, has_statement| {
            let profile = SwitchProfile { strategy: Strategy::Reference, ask_window_s: 0, ..full() };
            SwitchProfile { asks_max, has_callback, has_statement, ..profile }.check()
        };
        assert_eq!(checked(1, false, false), Err(ProfileError::SpentQueriesWithoutOtherSource));
        assert_eq!(checked(1, true, false), Ok(vec![]));
        assert_eq!(checked(1, false, true), Ok(vec![]));
        assert_eq!(checked(0, false, false), Ok(vec![]));
        let window = SwitchProfile { strategy: Strategy::Reference, ask_window_s: 1, ..full() };
        let alone = SwitchProfile { has_callback: false, ..window };
        assert_eq!(alone.check(), Err(ProfileError::SpentQueriesWithoutOtherSource));
    }

    #[test]
    fn a_deadline_and_the_age_of_an_id_are_checked_to_the_millisecond() {
        let deadline = |submit_deadline_ms| {
            SwitchProfile { submit_deadline_ms, retention_s: 62, ..full() }.check().is_ok()
        };
        assert_eq!([60_999, 61_000].map(deadline), [true, false]);
        // Start, budget and skew within the age.
        let aged = |start_within_ms| {
            let id_scheme = IdScheme::Pix;
            let profile = SwitchProfile { id_scheme, start_within_ms, submit_budget_ms: 30_000, ..full() };
            SwitchProfile { max_skew_ms: 1_000, ..profile }.check()
        };
        assert_eq!(aged(5_369_000), Ok(vec![]));
        let too_old = ProfileError::IdTooOld { scheme: IdScheme::Pix, age_max_ms: 5_400_000 };
        assert_eq!(aged(5_369_001), Err(too_old));
    }

    #[test]
    fn each_warning_has_its_own_ground() {
        let warned = |change: fn(&mut SwitchProfile)| {
            let mut profile = SwitchProfile { strategy: Strategy::Reference, ..full() };
            profile.has_statement = true;
            change(&mut profile);
            profile.check().unwrap()
        };
        let inconclusive = ProfileWarning::NotFoundIsInconclusive;
        let retention = ProfileWarning::RetentionIsTheDeadline;
        assert_eq!(warned(|p| p.tombstones = false), []);
        assert_eq!(warned(|p| p.honours_deadline = false), [retention]);
        assert_eq!(
            warned(|p| (p.tombstones, p.honours_deadline) = (false, false)),
            [inconclusive, retention]
        );
        assert_eq!(
            warned(|p| {
                (p.strategy, p.deduplicates) = (Strategy::AtMostOnce, false);
                (p.tombstones, p.honours_deadline) = (false, false);
            }),
            [inconclusive]
        );
        assert_eq!(
            warned(|p| {
                (p.tombstones, p.honours_deadline, p.settled_within_ms) = (false, false, Some(1));
            }),
            [retention, ProfileWarning::StatementWithoutDeadline]
        );
        assert_eq!(warned(|p| p.settled_within_ms = Some(1)), []);
        assert_eq!(
            warned(|p| (p.can_cancel, p.has_query, p.has_statement) = (false, false, false)),
            [ProfileWarning::NoCancelOrQuery]
        );
        assert_eq!(warned(|p| (p.has_query, p.has_statement) = (false, false)), []);
        assert_eq!(warned(|p| (p.can_cancel, p.has_statement) = (false, false)), []);
    }

    #[test]
    fn a_repeated_query_that_ends_within_the_deadline_may_restore_a_customer() {
        let mut repeats = queried_by_repeating();
        (repeats.ask_window_s, repeats.start_within_ms) = (3_600, 1);
        repeats.restore_customer_after_ms = Some(3_600_000);
        assert_eq!(repeats.check(), Ok(vec![]));
    }
}

//! A switch is described, not coded: what it can do, and the times we give it.
//!
//! The profile is copied into the payment at acceptance and is workflow input, so configuration
//! never changes a payment in flight. Secrets and addresses are not in it; they are looked up by the
//! switch's name. This type stands here, not beside the client, because the protocol branches on it.

use serde::{Deserialize, Serialize};

use crate::ids::SwitchName;
use crate::state::text_enum;

text_enum!(
    /// How a submit is made safe to repeat (S0.11).
    Strategy {
        /// A: ask by key first, send only what is not there.
        Query = "query",
        /// B: our reference in the body, the switch deduplicates by it.
        Reference = "reference",
        /// C: a log of our own, PENDING before and answered after each attempt. Nothing is asked before the
        /// first attempt; a PENDING met on a retry is ambiguous and resolved, by query or by deduplication.
        WriteAhead = "write_ahead",
        /// D: at most one attempt, the row won before sending; then our own books are reconciled. Includes
        /// the log of C.
        AtMostOnce = "at_most_once",
        /// For a switch without client references: do once, then read back in its list of transfers to that
        /// account. Runs under the account lock, so that what is found can only be ours.
        Validate = "validate",
    }
);

impl Strategy {
    /// Whether what was sent is looked up in our own log before anything else.
    #[must_use]
    pub fn uses_submission_log(self) -> bool {
        matches!(self, Self::WriteAhead | Self::AtMostOnce | Self::Validate)
    }

    /// Whether an attempt without an answer is left to stand and reconciled, instead of being turned round.
    #[must_use]
    pub fn reconciles(self) -> bool {
        matches!(self, Self::AtMostOnce | Self::Validate)
    }
}

/// What one switch offers and how long it is given. Times in milliseconds unless the name says
/// seconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchProfile {
    /// Name in the configuration; every answer is compared with it.
    pub switch: SwitchName,
    /// How a submit is made safe to repeat.
    pub strategy: Strategy,
    /// Can be asked for a transfer by our reference; with strategy validate, for its transfers to an account.
    pub has_query: bool,
    /// Honours our reference: a repeated submit is answered with the first outcome. Without it at
    /// most one attempt is ever sent.
    pub deduplicates: bool,
    /// How long the switch remembers a reference. After it, answers about nothing prove nothing.
    pub retention_s: u64,
    /// Answers the cancel of an unknown reference by refusing any later submit of it.
    pub tombstones: bool,
    /// Refuses a submit that arrives after the deadline it carries.
    pub honours_deadline: bool,
    /// How far the switch's clock may stand from what its `Date` header said.
    pub max_skew_ms: u64,
    /// Has a cancel.
    pub can_cancel: bool,
    /// Can be asked to give back money that left (Path C).
    pub can_recall: bool,
    /// Calls back.
    pub has_callback: bool,
    /// Gives a statement of its book, so that reconciliation can find how a transfer ended.
    #[serde(default)]
    pub has_statement: bool,
    /// How long a confirmation may take after submit returned (S0.5).
    #[serde(default = "defaults::sla_ms")]
    pub sla_ms: u64,
    /// Distance of submit's deadline from the switch's clock before the first attempt.
    #[serde(default = "defaults::submit_deadline_ms")]
    pub submit_deadline_ms: u64,
    /// Time for one attempt of any call to the switch.
    #[serde(default = "defaults::attempt_timeout_ms")]
    pub attempt_timeout_ms: u64,
    /// Time for all attempts of submit together (ScheduleToClose).
    #[serde(default = "defaults::submit_budget_ms")]
    pub submit_budget_ms: u64,
    /// First pause between attempts, doubled each time.
    #[serde(default = "defaults::backoff_ms")]
    pub backoff_ms: u64,
    /// Longest pause between askings (cancel, query, recall), which never give up.
    #[serde(default = "defaults::retry_interval_max_ms")]
    pub retry_interval_max_ms: u64,
    /// Age of an undecided cancel or recall that raises an alert.
    #[serde(default = "defaults::alert_after_ms")]
    pub alert_after_ms: u64,
    /// Submits in a row without an answer that make us leave the switch in peace.
    #[serde(default = "defaults::breaker_failures")]
    pub breaker_failures: u32,
    /// For how long no submit is made then.
    #[serde(default = "defaults::breaker_open_ms")]
    pub breaker_open_ms: u64,
    /// A payment not started this long after acceptance is rejected, never sent late.
    #[serde(default = "defaults::start_within_ms")]
    pub start_within_ms: u64,
    /// Largest amount the switch takes, in minor units of any currency.
    #[serde(default = "defaults::amount_limit_minor")]
    pub amount_limit_minor: i64,
}

/// Values taken where the configuration is silent.
mod defaults {
    pub(super) fn sla_ms() -> u64 {
        60_000
    }
    pub(super) fn submit_deadline_ms() -> u64 {
        60_000
    }
    pub(super) fn attempt_timeout_ms() -> u64 {
        5_000
    }
    pub(super) fn submit_budget_ms() -> u64 {
        30_000
    }
    pub(super) fn backoff_ms() -> u64 {
        250
    }
    pub(super) fn retry_interval_max_ms() -> u64 {
        300_000
    }
    pub(super) fn alert_after_ms() -> u64 {
        120_000
    }
    pub(super) fn breaker_failures() -> u32 {
        20
    }
    pub(super) fn breaker_open_ms() -> u64 {
        2_000
    }
    pub(super) fn start_within_ms() -> u64 {
        3_600_000
    }
    pub(super) fn amount_limit_minor() -> i64 {
        crate::money::AMOUNT_MINOR_MAX
    }
}

/// A profile that cannot be made safe, refused at start-up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Strategy query needs a query.
    #[error("strategy query needs has_query = true; without a query use strategy reference")]
    QueryWithoutQuery,
    /// Strategy reference needs deduplication.
    #[error("strategy reference needs deduplicates = true; without it use strategy query")]
    ReferenceWithoutDeduplication,
    /// A PENDING in the log could never be resolved.
    #[error(
        "strategy write_ahead needs has_query or deduplicates: a PENDING in the log could not be resolved; use at_most_once"
    )]
    LogWithoutResolution,
    /// Nothing could be read back.
    #[error(
        "strategy validate needs has_query = true: there is nothing to read back; use strategy at_most_once"
    )]
    ValidateWithoutQuery,
    /// Strategy validate is for a switch without client references.
    #[error(
        "strategy validate is for a switch without client references, which can neither deduplicate, tombstone nor call back; use strategy {better}, or say false to all three"
    )]
    ValidateWithReferences {
        /// What such a switch is served better by.
        better: Strategy,
    },
    /// Nothing would ever say how a transfer ended.
    #[error(
        "none of can_cancel, has_query, has_callback and has_statement: no answer about a transfer would ever come"
    )]
    Mute,
    /// A reference could be retention_expired while its submit may still land.
    #[error(
        "submit_deadline_ms {deadline_ms} + max_skew_ms must be shorter than the retention of {retention_s} s"
    )]
    DeadlineOutlivesRetention {
        /// The configured distance.
        deadline_ms: u64,
        /// The configured retention.
        retention_s: u64,
    },
    /// The budget must hold two attempts and the pause between them.
    #[error("submit_budget_ms {budget_ms} is too small: two attempts and a pause need {needed_ms}")]
    BudgetTooSmall {
        /// The configured budget.
        budget_ms: u64,
        /// What two attempts need.
        needed_ms: u64,
    },
    /// A time of zero.
    #[error("{0} must be greater than zero")]
    Zero(&'static str),
    /// An asking pause over five minutes.
    #[error("retry_interval_max_ms may be 300000 (five minutes) at most")]
    RetryIntervalTooLong,
}

text_enum!(
    /// Accepted, with a warning that a person may be needed.
    ProfileWarning {
        /// Neither tombstone nor deadline: nothing found never proves anything.
        NotFoundIsInconclusive = "neither tombstones nor honours_deadline: when the switch knows nothing of a transfer, only a person can release the money",
        /// What keeps a late submit out, a tombstone or deduplication, is retention_expired with the references.
        RetentionIsTheDeadline = "honours_deadline is false: a submit that is paused for longer than retention_s could still be taken, or taken twice",
        /// Neither cancel, query nor statement: only a callback can move the payment.
        NoCancelOrQuery = "none of can_cancel, has_query and has_statement: when no callback comes, a person must decide",
    }
);

/// Time that our own ledger's part of one attempt is given, in milliseconds.
const LEDGER_PART_MS: u64 = 1_000;

impl SwitchProfile {
    /// A switch that can do nothing, remembers references for a day, keeps its clock within a second, and is given
    /// the times that are taken where a configuration is silent: what a description starts from.
    #[must_use]
    pub fn bare(switch: SwitchName, strategy: Strategy) -> Self {
        Self {
            switch,
            strategy,
            has_query: false,
            deduplicates: false,
            retention_s: 86_400,
            tombstones: false,
            honours_deadline: false,
            max_skew_ms: 1_000,
            can_cancel: false,
            can_recall: false,
            has_callback: false,
            has_statement: false,
            sla_ms: defaults::sla_ms(),
            submit_deadline_ms: defaults::submit_deadline_ms(),
            attempt_timeout_ms: defaults::attempt_timeout_ms(),
            submit_budget_ms: defaults::submit_budget_ms(),
            backoff_ms: defaults::backoff_ms(),
            retry_interval_max_ms: defaults::retry_interval_max_ms(),
            alert_after_ms: defaults::alert_after_ms(),
            breaker_failures: defaults::breaker_failures(),
            breaker_open_ms: defaults::breaker_open_ms(),
            start_within_ms: defaults::start_within_ms(),
            amount_limit_minor: defaults::amount_limit_minor(),
        }
    }

    /// Bound of one whole attempt: two calls to the switch (look and send, cancel and query) and our
    /// own ledger's part, in milliseconds.
    #[must_use]
    pub fn attempt_bound_ms(&self) -> u64 {
        self.attempt_timeout_ms.saturating_mul(2).saturating_add(LEDGER_PART_MS)
    }

    /// Checks that the profile can be made safe.
    ///
    /// # Errors
    /// The first [`ProfileError`] found; the text says what to change.
    pub fn check(&self) -> Result<Vec<ProfileWarning>, ProfileError> {
        for (name, value) in [
            ("sla_ms", self.sla_ms),
            ("submit_deadline_ms", self.submit_deadline_ms),
            ("attempt_timeout_ms", self.attempt_timeout_ms),
            ("backoff_ms", self.backoff_ms),
            ("retry_interval_max_ms", self.retry_interval_max_ms),
            ("start_within_ms", self.start_within_ms),
            ("retention_s", self.retention_s),
            ("breaker_failures", u64::from(self.breaker_failures)),
        ] {
            if value == 0 {
                return Err(ProfileError::Zero(name));
            }
        }
        match self.strategy {
            Strategy::Query if !self.has_query => return Err(ProfileError::QueryWithoutQuery),
            Strategy::Reference if !self.deduplicates => {
                return Err(ProfileError::ReferenceWithoutDeduplication);
            }
            Strategy::WriteAhead if !(self.has_query || self.deduplicates) => {
                return Err(ProfileError::LogWithoutResolution);
            }
            Strategy::Validate if !self.has_query => return Err(ProfileError::ValidateWithoutQuery),
            Strategy::Validate if self.deduplicates || self.tombstones || self.has_callback => {
                let better = if self.deduplicates { Strategy::Reference } else { Strategy::AtMostOnce };
                return Err(ProfileError::ValidateWithReferences { better });
            }
            Strategy::Query
            | Strategy::Reference
            | Strategy::WriteAhead
            | Strategy::AtMostOnce
            | Strategy::Validate => {}
        }
        if !(self.can_cancel || self.has_query || self.has_callback || self.has_statement) {
            return Err(ProfileError::Mute);
        }
        let landed_by_ms = self.submit_deadline_ms.saturating_add(self.max_skew_ms);
        if self.honours_deadline && landed_by_ms >= self.retention_s.saturating_mul(1_000) {
            return Err(ProfileError::DeadlineOutlivesRetention {
                deadline_ms: self.submit_deadline_ms,
                retention_s: self.retention_s,
            });
        }
        let needed_ms = self.attempt_bound_ms().saturating_mul(2).saturating_add(self.backoff_ms);
        if self.submit_budget_ms < needed_ms {
            return Err(ProfileError::BudgetTooSmall { budget_ms: self.submit_budget_ms, needed_ms });
        }
        if self.retry_interval_max_ms > 300_000 {
            return Err(ProfileError::RetryIntervalTooLong);
        }
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
        Ok(warnings)
    }

    /// Whether at most one attempt is ever sent, whatever becomes of it.
    #[must_use]
    pub fn forbids_second_attempt(&self) -> bool {
        !self.deduplicates || self.strategy.reconciles()
    }

    /// Whether a payment needs the destination account for itself while its transfer is under way.
    #[must_use]
    pub fn needs_account_lock(&self) -> bool {
        self.strategy == Strategy::Validate
    }

    /// Whether the switch must be asked how a transfer stands, since it does not call back.
    #[must_use]
    pub fn must_be_polled(&self) -> bool {
        !self.has_callback && (self.has_query || self.has_statement)
    }

    /// The nearest profile that is accepted: what to change, in the configuration's words, and the result.
    /// None when only another switch would help. An accepted profile is its own nearest.
    #[must_use]
    pub fn nearest_safe(&self) -> Option<(Vec<String>, Self)> {
        let mut near = self.clone();
        let mut changes = Vec::new();
        // Each change mends the error it answers and makes none of those before it.
        while let Err(error) = near.check() {
            changes.push(near.mend(&error)?);
        }
        Some((changes, near))
    }

    fn mend(&mut self, error: &ProfileError) -> Option<String> {
        match error {
            ProfileError::QueryWithoutQuery => {
                Some(self.take(if self.deduplicates { Strategy::Reference } else { Strategy::AtMostOnce }))
            }
            ProfileError::ReferenceWithoutDeduplication => {
                Some(self.take(if self.has_query { Strategy::Query } else { Strategy::AtMostOnce }))
            }
            ProfileError::LogWithoutResolution | ProfileError::ValidateWithoutQuery => {
                Some(self.take(Strategy::AtMostOnce))
            }
            ProfileError::ValidateWithReferences { better } => Some(self.take(*better)),
            // No setting gives a switch a mouth.
            ProfileError::Mute => None,
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
            ProfileError::Zero(name) => self.take_default(name),
            ProfileError::RetryIntervalTooLong => {
                self.retry_interval_max_ms = defaults::retry_interval_max_ms();
                Some(format!("retry_interval_max_ms = {}", self.retry_interval_max_ms))
            }
        }
    }

    fn take(&mut self, strategy: Strategy) -> String {
        self.strategy = strategy;
        format!("strategy = \"{strategy}\"")
    }

    fn take_default(&mut self, name: &str) -> Option<String> {
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
            // How long a switch remembers is not ours to choose.
            _ => return None,
        };
        *field = value;
        Some(format!("{name} = {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> SwitchProfile {
        serde_json::from_str(
            r#"{"switch":"s","strategy":"query","has_query":true,"deduplicates":true,"retention_s":86400,
                "tombstones":true,"honours_deadline":true,"max_skew_ms":1000,"can_cancel":true,
                "can_recall":true,"has_callback":true}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_whole_profile_is_accepted_without_a_warning() {
        assert_eq!(whole().check(), Ok(vec![]));
    }

    #[test]
    fn an_unsafe_profile_is_refused_with_its_reason() {
        let refused = |change: fn(&mut SwitchProfile)| {
            let mut profile = whole();
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
            ProfileError::Mute
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
    fn an_unsafe_profile_is_told_its_nearest_safe_one() {
        let nearest = |change: fn(&mut SwitchProfile)| {
            let mut profile = whole();
            change(&mut profile);
            profile.nearest_safe().map(|(changes, near)| {
                assert!(near.check().is_ok(), "{near:?}");
                changes.join(", ")
            })
        };
        let no_references = |p: &mut SwitchProfile| {
            (p.deduplicates, p.tombstones, p.has_callback) = (false, false, false);
        };
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
        let mut keyless = SwitchProfile { strategy: Strategy::Validate, ..whole() };
        no_references(&mut keyless);
        assert_eq!(keyless.check(), Ok(vec![]));
        assert_eq!(
            nearest(|p| (p.retention_s, p.submit_budget_ms) = (50, 1)),
            Some("submit_deadline_ms = 24500, submit_budget_ms = 22250".into())
        );
        assert_eq!(nearest(|p| p.backoff_ms = 0), Some("backoff_ms = 250".into()));
        assert_eq!(nearest(|p| p.retention_s = 0), None);
        assert_eq!(
            nearest(|p| {
                p.strategy = Strategy::Reference;
                (p.has_query, p.can_cancel, p.has_callback) = (false, false, false);
            }),
            None
        );
    }

    #[test]
    fn a_profile_that_may_need_a_person_is_accepted_with_a_warning() {
        let mut profile = whole();
        (profile.tombstones, profile.honours_deadline) = (false, false);
        assert_eq!(
            profile.check(),
            Ok(vec![ProfileWarning::NotFoundIsInconclusive, ProfileWarning::RetentionIsTheDeadline])
        );
    }
}

//! The fields of a switch profile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::id_scheme::IdScheme;
use super::strategy::Strategy;
use crate::ids::SwitchName;
use crate::money::Money;
use crate::reject::RejectMeaning;
use crate::state::text_enum;

/// The capabilities of one switch, and the times given to it. Times are in milliseconds unless the name says seconds.
///
/// A copy is stored with each payment. A field that a newer release wrote is ignored, so that an older release can go on with
/// the payment after a rollback; the configuration refuses unknown fields itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SwitchProfile {
    /// Name in the configuration; compared with the sender of every answer.
    pub switch: SwitchName,
    /// How a submit is made safe to repeat.
    pub strategy: Strategy,
    /// Answers a query for a transfer by our reference; with strategy validate, lists the transfers to an account.
    pub has_query: bool,
    /// Deduplicates by our reference: a repeated submit gets the first outcome. Without deduplication at most
    /// one attempt is ever sent.
    pub deduplicates: bool,
    /// How long the switch remembers a reference, in seconds. Afterwards "not found" proves nothing.
    pub retention_s: u64,
    /// Answers the cancel of an unknown reference by refusing any later submit of that reference.
    pub tombstones: bool,
    /// Refuses a submit that arrives after the deadline in its request.
    pub honours_deadline: bool,
    /// How far the switch's clocks may differ from its `Date` header.
    pub max_skew_ms: u64,
    /// Supports a cancel.
    pub can_cancel: bool,
    /// Supports a recall of money that left (Path C).
    pub can_recall: bool,
    /// Sends callbacks.
    pub has_callback: bool,
    /// Offers a statement of finished transfers, so that reconciliation can find how a transfer ended.
    #[serde(default)]
    pub has_statement: bool,
    /// How long a confirmation may take after submit returned (S0.5).
    #[serde(default = "defaults::sla_ms")]
    pub sla_ms: u64,
    /// Time from the switch's clock before the first attempt to submit's deadline.
    #[serde(default = "defaults::submit_deadline_ms")]
    pub submit_deadline_ms: u64,
    /// Timeout of one request to the switch.
    #[serde(default = "defaults::attempt_timeout_ms")]
    pub attempt_timeout_ms: u64,
    /// Time budget of submit over all attempts (ScheduleToClose).
    #[serde(default = "defaults::submit_budget_ms")]
    pub submit_budget_ms: u64,
    /// First interval between attempts; doubled each time.
    #[serde(default = "defaults::backoff_ms")]
    pub backoff_ms: u64,
    /// Longest interval between the attempts of cancel, query and recall, which are repeated without end.
    #[serde(default = "defaults::retry_interval_max_ms")]
    pub retry_interval_max_ms: u64,
    /// Age of an undecided cancel or recall that raises an alert.
    #[serde(default = "defaults::alert_after_ms")]
    pub alert_after_ms: u64,
    /// Consecutive submits without an answer that open the switch's circuit.
    #[serde(default = "defaults::breaker_failures")]
    pub breaker_failures: u32,
    /// How long the circuit stays open; no submit is sent meanwhile.
    #[serde(default = "defaults::breaker_open_ms")]
    pub breaker_open_ms: u64,
    /// A payment that is not started this long after acceptance is rejected instead of sent late.
    #[serde(default = "defaults::start_within_ms")]
    pub start_within_ms: u64,
    /// Largest amount the switch accepts, in minor units of any currency.
    #[serde(default = "defaults::amount_limit_minor")]
    pub amount_limit_minor: i64,
    /// The meaning of each reason code of a reject; a code that is not listed means `ask`. Empty for a switch whose rejects have no
    /// codes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reject_codes: BTreeMap<String, RejectMeaning>,
    /// A reject of our reference with a code that means `dead` is the switch's last word: the transfer is void, by the answer to a
    /// submit, by query, or by a callback that needs no query ([`ConfirmByQuery`]), and the switch is not asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reject_is_final: bool,
    /// A rejected reference is never accepted later, even if another attempt with it arrives.
    #[serde(default, skip_serializing_if = "is_default")]
    pub burns_reference: bool,
    /// The switch refuses a query before this much time has passed since the first attempt; 0: it never does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub first_ask_after_ms: u64,
    /// The switch refuses a query before this much time has passed since the one before; 0: it never does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ask_interval_ms: u64,
    /// How many queries of one transfer the switch answers; 0: any number.
    #[serde(default, skip_serializing_if = "is_default")]
    pub asks_max: u32,
    /// How long after the first attempt the switch answers queries, in seconds; 0: as long as it remembers the reference.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ask_window_s: u64,
    /// The switch's only query is the recorded submit again, byte for byte. It answers with the first outcome, or takes the transfer
    /// now if it never received it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub query_is_repeat: bool,
    /// The statement says until when it is complete, and a transfer settles at the latest this long after submit's deadline: one that
    /// is absent from a statement complete beyond that time is void. `None`: absence proves nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub settled_within_ms: Option<u64>,
    /// Without a confirmation this long after the receipt of the order, the customer's account is restored by an advance of the bank
    /// (Regulation (EU) 260/2012 Art. 5a(5)), while the transfer is still looked for. `None`: the customer's amount stays held.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restore_customer_after_ms: Option<u64>,
    /// Who pays for a transfer that settles after the customer's account was restored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub late_settlement: LateSettlement,
    /// How long the receiving bank may take to answer a recall, in seconds; 0: the switch answers at once, and an agreement returns the
    /// money. Otherwise the answer is a promise or a refusal that may take days, so no hold waits for it: a debit that the account bars
    /// charges the bank's claims account, the payment ends settled, and the recall goes on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recall_answer_within_s: u64,
    /// The rail takes one recall of a transfer: it is sent once, whether or not an answer arrives.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recall_once: bool,
    /// Which payments are debited only after the switch's answer to a query, and not for a callback alone. A configuration that omits it
    /// has `always` where the switch calls back and answers queries without limits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub confirm_by_query: ConfirmByQuery,
    /// The pattern of the id by which the switch knows a transfer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub id_scheme: IdScheme,
    /// The bank's own part of each id, as the scheme requires it: a BIC, an ISPB, the id of a connection. Copied into the payment with
    /// the profile, so that a change of the configuration changes no id.
    #[serde(default, skip_serializing_if = "is_default")]
    pub participant: Option<String>,
}

text_enum!(
    /// Who pays for a transfer that settles after the customer's account was restored.
    #[derive(Default)]
    LateSettlement {
        /// The customer, if the account may be debited and has the funds; otherwise the claim of the bank stands.
        #[default]
        Collect = "collect",
        /// The claim of the bank stands until operators decide.
        Operators = "operators",
    }
);

/// Which payments a callback alone does not move: what it reports is asked of the switch first. A secret that signs callbacks and gets
/// into wrong hands then charges and releases nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmByQuery {
    /// Every payment.
    Always,
    /// Payments of a greater amount, in minor units of any currency.
    Above(u64),
    /// None: a callback moves the money.
    #[default]
    Never,
}

/// Whether a field has the value that a profile without the field has; such a field is not stored with each payment.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Values of the fields that a configuration omits.
pub(super) mod defaults {
    pub(crate) fn sla_ms() -> u64 {
        60_000
    }
    pub(crate) fn submit_deadline_ms() -> u64 {
        60_000
    }
    pub(crate) fn attempt_timeout_ms() -> u64 {
        5_000
    }
    pub(crate) fn submit_budget_ms() -> u64 {
        30_000
    }
    pub(crate) fn backoff_ms() -> u64 {
        250
    }
    pub(crate) fn retry_interval_max_ms() -> u64 {
        300_000
    }
    pub(crate) fn alert_after_ms() -> u64 {
        120_000
    }
    pub(crate) fn breaker_failures() -> u32 {
        20
    }
    pub(crate) fn breaker_open_ms() -> u64 {
        2_000
    }
    pub(crate) fn start_within_ms() -> u64 {
        3_600_000
    }
    pub(crate) fn amount_limit_minor() -> i64 {
        crate::money::AMOUNT_MINOR_MAX
    }
}

/// Time for our own ledger's part of one attempt, in milliseconds.
const LEDGER_PART_MS: u64 = 1_000;

impl SwitchProfile {
    /// A switch without capabilities that remembers references for a day, with a clock skew of at most a second
    /// and the default times.
    #[must_use]
    pub fn minimal(switch: SwitchName, strategy: Strategy) -> Self {
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
            reject_codes: BTreeMap::new(),
            reject_is_final: false,
            burns_reference: false,
            first_ask_after_ms: 0,
            ask_interval_ms: 0,
            asks_max: 0,
            ask_window_s: 0,
            query_is_repeat: false,
            settled_within_ms: None,
            restore_customer_after_ms: None,
            late_settlement: LateSettlement::Collect,
            recall_answer_within_s: 0,
            recall_once: false,
            confirm_by_query: ConfirmByQuery::Never,
            id_scheme: IdScheme::Plain,
            participant: None,
        }
    }

    /// Whether a callback about a payment of this amount moves no money until the switch has answered a query.
    #[must_use]
    pub fn confirms_by_query(&self, money: Money) -> bool {
        match self.confirm_by_query {
            ConfirmByQuery::Always => true,
            ConfirmByQuery::Above(minor) => money.amount_minor().unsigned_abs() > minor,
            ConfirmByQuery::Never => false,
        }
    }

    /// Whether the switch can be queried about a callback at once: it answers queries, as often and as early as they are sent.
    #[must_use]
    pub fn can_confirm_by_query(&self) -> bool {
        self.has_query && !self.limits_queries()
    }

    /// Whether each query must be counted and allowed before it is sent.
    #[must_use]
    pub fn limits_queries(&self) -> bool {
        self.counts_queries() || self.first_ask_after_ms > 0 || self.ask_window_s > 0 || self.query_is_repeat
    }

    /// Whether the number of queries so far decides about the next one.
    #[must_use]
    pub fn counts_queries(&self) -> bool {
        self.asks_max > 0 || self.ask_interval_ms > 0
    }

    /// Until when a transfer that is absent from the statement may be listed in a statement that closes later, counted from the first
    /// attempt, in milliseconds; `None` if absence proves nothing. Twice the time after which it could be closed: from then on,
    /// operators decide.
    #[must_use]
    pub fn statement_decides_within_ms(&self) -> Option<u64> {
        let settled_within_ms = self.settled_within_ms.filter(|_| self.has_statement)?;
        let open_ms = self.submit_deadline_ms.saturating_add(self.arrives_within_ms());
        Some(open_ms.saturating_add(settled_within_ms).saturating_mul(2))
    }

    /// How long after submit's deadline an attempt can arrive and be accepted, in milliseconds. A switch that honours no deadline may
    /// accept an attempt as long as the network can delay one, for which the retention stands.
    #[must_use]
    pub fn arrives_within_ms(&self) -> u64 {
        let delayed_ms = if self.honours_deadline { 0 } else { self.retention_s.saturating_mul(1_000) };
        self.max_skew_ms.saturating_add(delayed_ms)
    }

    /// Longest duration of one submit attempt, in milliseconds: two requests to the switch (query and send) and our own ledger's part.
    #[must_use]
    pub fn attempt_bound_ms(&self) -> u64 {
        self.attempt_timeout_ms.saturating_mul(2).saturating_add(LEDGER_PART_MS)
    }

    /// Longest duration of an attempt that looks at the transfer, in milliseconds: a cancel, a query, a reading of the statement, which
    /// may end one page after its time, and our own ledger's part.
    #[must_use]
    pub fn look_bound_ms(&self) -> u64 {
        self.attempt_timeout_ms.saturating_mul(4).saturating_add(LEDGER_PART_MS)
    }

    /// Whether at most one attempt is ever sent, whatever its outcome.
    #[must_use]
    pub fn forbids_second_attempt(&self) -> bool {
        !self.deduplicates || self.strategy.reconciles()
    }

    /// Whether a payment needs exclusive use of the destination account while its transfer is under way.
    #[must_use]
    pub fn needs_account_lock(&self) -> bool {
        self.strategy == Strategy::Validate
    }

    /// Whether a transfer is recalled after its payment has ended, because the answer takes too long to hold the amount for it.
    #[must_use]
    pub fn recalls_after_end(&self) -> bool {
        self.can_recall && self.recall_answer_within_s > 0
    }

    /// Whether the service must poll the switch, because the switch does not call back.
    #[must_use]
    pub fn must_be_polled(&self) -> bool {
        !self.has_callback && (self.has_query || self.has_statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::samples::full;

    /// What a configuration that omits everything else gets.
    #[test]
    fn an_omitted_setting_has_the_documented_default() {
        let profile = full();
        let times = [
            profile.sla_ms,
            profile.submit_deadline_ms,
            profile.attempt_timeout_ms,
            profile.submit_budget_ms,
            profile.backoff_ms,
            profile.retry_interval_max_ms,
            profile.alert_after_ms,
            profile.breaker_open_ms,
            profile.start_within_ms,
        ];
        assert_eq!(times, [60_000, 60_000, 5_000, 30_000, 250, 300_000, 120_000, 2_000, 3_600_000]);
        assert_eq!((profile.breaker_failures, profile.amount_limit_minor), (20, 100_000_000_000_000));
        assert_eq!(SwitchProfile { has_statement: false, ..full() }, full());
    }

    #[test]
    fn each_limit_of_queries_is_one_and_bars_the_confirmation_by_a_query() {
        let limited = |change: fn(&mut SwitchProfile)| {
            let mut profile = full();
            change(&mut profile);
            (profile.counts_queries(), profile.limits_queries(), profile.can_confirm_by_query())
        };
        assert_eq!(limited(|_| {}), (false, false, true));
        assert_eq!(limited(|p| p.has_query = false), (false, false, false));
        assert_eq!(limited(|p| p.asks_max = 1), (true, true, false));
        assert_eq!(limited(|p| p.ask_interval_ms = 1), (true, true, false));
        assert_eq!(limited(|p| p.first_ask_after_ms = 1), (false, true, false));
        assert_eq!(limited(|p| p.ask_window_s = 1), (false, true, false));
        assert_eq!(limited(|p| p.query_is_repeat = true), (false, true, false));
    }

    #[test]
    fn a_switch_is_polled_that_answers_and_does_not_call_back() {
        let polled = |has_callback, has_query, has_statement| {
            SwitchProfile { has_callback, has_query, has_statement, ..full() }.must_be_polled()
        };
        assert!(polled(false, true, false) && polled(false, false, true) && polled(false, true, true));
        assert!(!polled(false, false, false) && !polled(true, true, true));
    }

    #[test]
    fn a_recall_that_is_answered_later_is_sent_after_the_end() {
        let recalls = |can_recall, recall_answer_within_s| {
            SwitchProfile { can_recall, recall_answer_within_s, ..full() }.recalls_after_end()
        };
        assert!(recalls(true, 1));
        assert!(!recalls(true, 0) && !recalls(false, 1));
    }

    #[test]
    fn a_look_is_bounded_by_four_requests_and_the_ledgers_part() {
        let profile = SwitchProfile { attempt_timeout_ms: 100, ..full() };
        assert_eq!((profile.attempt_bound_ms(), profile.look_bound_ms()), (1_200, 1_400));
    }

    /// Each payment stores its profile: a field that has its default is left out.
    #[test]
    fn a_field_with_its_default_is_not_stored() {
        let stored = serde_json::to_value(full()).unwrap();
        assert!(
            stored.get("confirm_by_query").is_none() && stored.get("late_settlement").is_none(),
            "{stored}"
        );
        let stored =
            serde_json::to_value(SwitchProfile { confirm_by_query: ConfirmByQuery::Always, ..full() })
                .unwrap();
        assert_eq!(stored["confirm_by_query"], "always");
    }
}

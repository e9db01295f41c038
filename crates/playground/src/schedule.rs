//! What goes wrong, and when: the faults that a visitor drops onto the instants of one payment.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Faults in one schedule.
pub const FAULTS_MAX: usize = 4;

/// An enum with a stable word for each variant, which links, the page and the tests use.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal, $title:literal, $meaning:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$variant_doc])* #[doc = $meaning] $variant,)+
        }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The stable word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The title on the page.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = ScheduleError;

            fn from_str(word: &str) -> Result<Self, ScheduleError> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|known| known.as_str()).collect();
                    ScheduleError::UnknownWord { what: $what, word: word.to_owned(), known: known.join(", ") }
                })
            }
        }
    };
}

words! {
    /// An instant of a payment, in the order in which they come.
    Instant: "instant" {
        Order = "order", "Order", "The customer's request is on its way to the bank.";
        Reserve = "reserve", "Reserve", "The amount is held; nothing is sent yet.";
        SubmitSent = "submit-sent", "Submit sent", "The submit is on its way; the switch has not received it.";
        SubmitAnswered = "submit-answered", "Submit answered", "The switch has recorded the transfer; its answer is on its way.";
        Retry = "retry", "Second attempt", "The first attempt had no answer; the second one is next.";
        Waiting = "waiting", "Waiting", "The transfer is accepted; the switch has not confirmed it.";
        Confirmation = "confirmation", "Confirmation", "The transfer settled; the switch's callback is on its way.";
        Debit = "debit", "Debit", "The confirmation is recorded; the debit is next.";
        Recall = "recall", "Recall", "The debit was refused; the money is asked back from the switch.";
    }
}

words! {
    /// A fault, which means something at some instants only (see [`Fault::instants`]).
    Fault: "fault" {
        Crash = "crash", "Crash", "The process that carries the payment is killed (kill -9).";
        Stop = "stop", "Stop", "The process is stopped, another one carries the payment on, and the first one wakes up afterwards.";
        Repeat = "repeat", "Twice", "The same message is sent twice.";
        Lose = "lose", "Lose", "The message never arrives.";
        Delay = "delay", "Delay", "The message arrives after its sender or its receiver has stopped waiting for it.";
        Stall = "stall", "Stall", "No submit gets through until the bank has given up; then the first one arrives.";
        Refuse = "refuse", "Refuse", "The switch refuses.";
        Expire = "expire", "SLA expiry", "The switch is slow: it has not decided when the SLA expires.";
        FalseFailure = "false-failure", "False FAILURE", "The switch reports FAILURE, and then settles the transfer.";
        Forge = "forge", "Forged SUCCESS", "A stranger sends a SUCCESS that the switch did not sign; the true one follows.";
        Freeze = "freeze", "Freeze", "A court freezes the customer's account before the confirmation.";
    }
}

impl Fault {
    /// The instants onto which this fault can be dropped.
    #[must_use]
    pub fn instants(self) -> &'static [Instant] {
        use Instant::{
            Confirmation, Debit, Order, Recall, Reserve, Retry, SubmitAnswered, SubmitSent, Waiting,
        };
        match self {
            Self::Crash => &[Reserve, SubmitSent, SubmitAnswered, Retry, Waiting, Debit],
            Self::Stop => &[Reserve, SubmitSent, SubmitAnswered, Waiting, Debit],
            Self::Repeat => &[Order, Confirmation],
            Self::Lose => &[SubmitSent, SubmitAnswered, Confirmation],
            Self::Delay => &[SubmitSent, Confirmation],
            Self::Stall => &[SubmitSent],
            Self::Refuse => &[SubmitSent, Recall],
            Self::Expire | Self::FalseFailure | Self::Freeze => &[Waiting],
            Self::Forge => &[Confirmation],
        }
    }
}

/// One fault at one instant; `submit-sent:lose` in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Drop {
    /// When.
    pub at: Instant,
    /// What.
    pub fault: Fault,
}

impl fmt::Display for Drop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.at, self.fault)
    }
}

impl FromStr for Drop {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let (at, fault) = text.split_once(':').ok_or_else(|| ScheduleError::Form(text.to_owned()))?;
        Ok(Self { at: at.parse()?, fault: fault.parse()? })
    }
}

/// The faults of one run, in the order of their instants; at most one fault at an instant. In text, which is also the link:
/// `submit-answered:crash,confirmation:repeat`; empty if nothing goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Schedule(Vec<Drop>);

/// Why a schedule is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not INSTANT:FAULT.
    #[error("{0:?} is not an instant and a fault; write INSTANT:FAULT, for example submit-answered:crash")]
    Form(String),
    /// A word that is not in the table.
    #[error("unknown {what} {word:?}; use one of {known}")]
    UnknownWord {
        /// `instant` or `fault`.
        what: &'static str,
        /// The word.
        word: String,
        /// The known words.
        known: String,
    },
    /// The fault means nothing at this instant.
    #[error("{fault} cannot happen at {at}; it can happen at {possible}")]
    NotThere {
        /// The instant.
        at: Instant,
        /// The fault.
        fault: Fault,
        /// Where it can happen.
        possible: String,
    },
    /// Two faults at one instant.
    #[error("two faults at {0}; remove one")]
    TwoAtOnce(Instant),
    /// More than [`FAULTS_MAX`].
    #[error("{0} faults; at most {FAULTS_MAX}")]
    TooMany(usize),
    /// An instant that this schedule never reaches.
    #[error("{at} is never reached: {reason}")]
    NeverReached {
        /// The instant.
        at: Instant,
        /// Why, and what to do.
        reason: &'static str,
    },
}

impl Schedule {
    /// A schedule of these faults.
    ///
    /// # Errors
    /// A fault cannot happen at its instant, its instant is not reached, or there are too many.
    pub fn new(mut drops: Vec<Drop>) -> Result<Self, ScheduleError> {
        if drops.len() > FAULTS_MAX {
            return Err(ScheduleError::TooMany(drops.len()));
        }
        drops.sort_unstable();
        for drop in &drops {
            let possible = drop.fault.instants();
            if !possible.contains(&drop.at) {
                let possible: Vec<_> = possible.iter().map(|at| at.as_str()).collect();
                let Drop { at, fault } = *drop;
                return Err(ScheduleError::NotThere { at, fault, possible: possible.join(", ") });
            }
        }
        if let Some(two) = drops.windows(2).find(|two| two[0].at == two[1].at) {
            return Err(ScheduleError::TwoAtOnce(two[0].at));
        }
        let schedule = Self(drops);
        schedule.check_reached()?;
        Ok(schedule)
    }

    /// A fault whose instant is never reached would be silently ignored.
    fn check_reached(&self) -> Result<(), ScheduleError> {
        let never = |at, reason| Err(ScheduleError::NeverReached { at, reason });
        let ends_at_submit = matches!(self.at(Instant::SubmitSent), Some(Fault::Stall | Fault::Refuse));
        if let Some(late) = self.0.iter().find(|drop| ends_at_submit && drop.at > Instant::SubmitSent) {
            return never(late.at, "no submit is answered before the payment ends; remove one of the two");
        }
        let is_repeated = self.at(Instant::SubmitSent) == Some(Fault::Lose)
            || self.at(Instant::SubmitAnswered) == Some(Fault::Lose);
        if self.at(Instant::Retry).is_some() && !is_repeated {
            return never(
                Instant::Retry,
                "the first attempt is answered; lose the submit or its answer as well",
            );
        }
        let is_cancelled = self.at(Instant::Waiting) == Some(Fault::Expire);
        if let Some(late) = self.0.iter().find(|drop| is_cancelled && drop.at > Instant::Waiting) {
            return never(late.at, "the transfer is cancelled when the SLA expires; remove one of the two");
        }
        if self.at(Instant::Recall).is_some() && self.at(Instant::Waiting) != Some(Fault::Freeze) {
            return never(
                Instant::Recall,
                "the debit succeeds; freeze the account while the payment waits as well",
            );
        }
        Ok(())
    }

    /// The fault at an instant.
    #[must_use]
    pub fn at(&self, at: Instant) -> Option<Fault> {
        self.0.iter().find(|drop| drop.at == at).map(|drop| drop.fault)
    }

    /// Whether this fault happens at this instant.
    #[must_use]
    pub fn has(&self, at: Instant, fault: Fault) -> bool {
        self.at(at) == Some(fault)
    }

    /// The faults, in the order of their instants.
    #[must_use]
    pub fn drops(&self) -> &[Drop] {
        &self.0
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(Drop::to_string).collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let drops = text.split(',').filter(|part| !part.is_empty()).map(str::parse);
        Self::new(drops.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_back_from_its_link() {
        let text = "order:repeat,submit-answered:lose,retry:crash,confirmation:repeat";
        assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        assert_eq!("".parse::<Schedule>().unwrap(), Schedule::default());
    }

    #[test]
    fn faults_are_sorted_by_their_instant() {
        let schedule: Schedule = "confirmation:lose,reserve:crash".parse().unwrap();
        assert_eq!(schedule.to_string(), "reserve:crash,confirmation:lose");
    }

    #[test]
    fn the_readme_has_every_instant_and_every_fault() {
        let readme = include_str!("../README.md");
        for at in Instant::ALL {
            assert!(readme.contains(&format!("| `{at}` | {} |\n", at.meaning())), "{at}");
        }
        for fault in Fault::ALL {
            let instants: Vec<String> = fault.instants().iter().map(|at| format!("`{at}`")).collect();
            let row = format!("| `{fault}` | {} | {} |\n", fault.meaning(), instants.join(", "));
            assert!(readme.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_schedule_that_would_be_ignored_in_part_is_refused() {
        for (text, message) in [
            ("crash", "write INSTANT:FAULT"),
            ("start:crash", "unknown instant \"start\"; use one of order, reserve,"),
            ("reserve:explode", "unknown fault \"explode\"; use one of crash,"),
            ("order:crash", "crash cannot happen at order; it can happen at reserve,"),
            ("waiting:crash,waiting:stop", "two faults at waiting"),
            ("retry:crash", "the first attempt is answered"),
            ("waiting:expire,confirmation:lose", "cancelled when the SLA expires"),
            ("submit-sent:stall,waiting:crash", "no submit is answered"),
            ("recall:refuse", "freeze the account"),
            (
                "order:repeat,reserve:crash,submit-sent:delay,waiting:crash,confirmation:lose",
                "5 faults; at most 4",
            ),
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}

//! A list of faults, one per request. After its end requests are normal.

use serde::{Deserialize, Serialize};

use super::MAX_HOLD_MS;

/// Upper bound of steps of a script.
pub(super) const MAX_STEPS: usize = 64;

/// Faults in the order of the requests to which they apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Script<F>(pub Vec<Step<F>>);

/// One step: a fault for one request, `"error_503"`, or for several,
/// `{"fault": "error_503", "times": 3}`, or `"times": "always"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Step<F> {
    /// A fault for several requests.
    Repeated {
        /// The fault.
        fault: F,
        /// The number of requests.
        times: Times,
    },
    /// A fault for one request.
    Once(F),
}

/// The number of requests to which a step applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Times {
    /// This many requests.
    Count(u32),
    /// All further requests.
    Unlimited(Always),
}

/// The JSON string `"always"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Always {
    /// `"always"`
    Always,
}

impl<F> Step<F> {
    fn fault(&self) -> &F {
        match self {
            Self::Repeated { fault, .. } | Self::Once(fault) => fault,
        }
    }

    fn times(&self) -> Times {
        match self {
            Self::Repeated { times, .. } => *times,
            Self::Once(_) => Times::Count(1),
        }
    }
}

impl<F> Script<F> {
    /// A script whose fault applies to every request.
    pub fn always(fault: F) -> Self {
        Self(vec![Step::Repeated { fault, times: Times::Unlimited(Always::Always) }])
    }

    /// A script whose fault applies to the first `times` requests.
    pub fn times(fault: F, times: u32) -> Self {
        Self(vec![Step::Repeated { fault, times: Times::Count(times) }])
    }

    /// The fault of the `nth` request, counted from 1; `None` if the request is normal.
    pub(crate) fn at(&self, nth: i64) -> Option<&F> {
        let mut passed = 0;
        self.0.iter().find_map(|step| {
            match step.times() {
                Times::Unlimited(Always::Always) => return Some(step.fault()),
                Times::Count(times) => passed += i64::from(times),
            }
            (nth <= passed).then(|| step.fault())
        })
    }

    /// Whether the script is within the bounds of steps and of hold times.
    pub(super) fn is_within_bounds(&self, hold_ms: impl Fn(&F) -> u64) -> bool {
        self.0.len() <= MAX_STEPS && self.0.iter().all(|step| hold_ms(step.fault()) <= MAX_HOLD_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviour::{HttpFault, SubmitFault};

    #[test]
    fn each_mock_switch_script_step_applies_to_its_number_of_requests() {
        let json = r#"["refuse", {"fault": "error_503", "times": 2}, {"delay_ms": 5},
                       {"fault": {"accept_hang_ms": 7}, "times": "always"}]"#;
        let script: Script<SubmitFault> = serde_json::from_str(json).unwrap();
        let faults: Vec<_> = (1..=6).map(|nth| script.at(nth).unwrap().clone()).collect();
        let unavailable = SubmitFault::Http(HttpFault::Error503);
        let expected = [
            SubmitFault::Refuse,
            unavailable.clone(),
            unavailable,
            SubmitFault::Http(HttpFault::DelayMs(5)),
            SubmitFault::AcceptHangMs(7),
            SubmitFault::AcceptHangMs(7),
        ];
        assert_eq!(faults, expected);
        let parsed: Script<SubmitFault> =
            serde_json::from_str(&serde_json::to_string(&script).unwrap()).unwrap();
        assert_eq!(parsed, script);
    }

    #[test]
    fn the_mock_switch_behaves_normally_after_the_end_of_a_script() {
        let script = Script::times(SubmitFault::Refuse, 2);
        assert_eq!(script.at(2), Some(&SubmitFault::Refuse));
        assert_eq!(script.at(3), None);
        assert_eq!(Script::<SubmitFault>(Vec::new()).at(1), None);
    }

    #[test]
    fn an_unknown_fault_in_a_mock_switch_behaviour_is_rejected() {
        assert!(serde_json::from_str::<Script<SubmitFault>>(r#"["explode"]"#).is_err());
        assert!(serde_json::from_str::<Script<SubmitFault>>(r#"["not_found"]"#).is_err());
    }
}

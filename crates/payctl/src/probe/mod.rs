//! Measures a switch's capabilities with harmless transfers: the smallest amount, a dedicated destination
//! account and references of its own. Probe transfers are cancelled afterwards where the switch allows it;
//! the rest is listed.
//!
//! | module | responsibility |
//! |---|---|
//! | `http` | raw calls to the switch |
//! | `record` | what was sent under which reference, and its last status |
//! | `measure` | the steps of a probe |
//! | `transfer` | submit, cancel and recall of one probe transfer |
//! | `findings` | the result, in stable words |
//! | `rails` | the shipped rails that the switch behaves like |
//! | `assess` | the configured profile and every strategy, compared with the findings |

mod assess;
mod findings;
mod http;
mod measure;
mod rails;
mod record;
mod transfer;

pub(crate) use assess::{ProfileAssessment, assess};
pub(crate) use findings::{CapabilityMeasurement, ClockOffset, Findings, ProbeTransferView};
pub(crate) use http::{ProbeOrder, SwitchHttp, is_loopback};
pub(crate) use measure::Probe;
pub(crate) use rails::{RailTraits, matching};

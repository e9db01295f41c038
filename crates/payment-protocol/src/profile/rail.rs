//! The profiles of real rails, as files with the source of each value.

use super::settings::SwitchProfile;
use crate::ids::SwitchName;
use crate::state::text_enum;

text_enum!(
    /// A rail whose profile is shipped. The files in `rails/` say which values were read where, and which are from memory.
    Rail {
        /// SEPA Instant Credit Transfer.
        SctInst = "sct_inst",
        /// FedNow Service.
        FedNow = "fednow",
        /// RTP, operated by TCH in the United States.
        Rtp = "rtp",
        /// Unified Payments Interface.
        Upi = "upi",
        /// Pix over SPI.
        Pix = "pix",
    }
);

/// A shipped profile cannot be read, which a test excludes.
#[derive(Debug, thiserror::Error)]
#[error("the shipped profile of the rail {rail} cannot be read")]
pub struct RailError {
    /// The rail.
    pub rail: Rail,
    #[source]
    source: toml::de::Error,
}

impl Rail {
    /// The profile's file: TOML, with the fields of a [`SwitchProfile`] but for the switch's name.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::SctInst => include_str!("rails/sct_inst.toml"),
            Self::FedNow => include_str!("rails/fednow.toml"),
            Self::Rtp => include_str!("rails/rtp.toml"),
            Self::Upi => include_str!("rails/upi.toml"),
            Self::Pix => include_str!("rails/pix.toml"),
        }
    }

    /// The profile of a switch of this rail.
    ///
    /// # Errors
    /// [`RailError`].
    pub fn profile(self, switch: &SwitchName) -> Result<SwitchProfile, RailError> {
        let error = |source| RailError { rail: self, source };
        let mut fields: toml::Table = toml::from_str(self.file()).map_err(error)?;
        fields.insert("switch".into(), switch.as_str().into());
        fields.try_into().map_err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileWarning;
    use crate::reject::{Reject, RejectMeaning};

    fn profile(rail: Rail) -> SwitchProfile {
        rail.profile(&SwitchName::new("switch").unwrap()).unwrap()
    }

    #[test]
    fn the_profile_of_every_rail_is_safe_and_its_warnings_are_known() {
        for rail in Rail::ALL {
            let expected: &[ProfileWarning] = match rail {
                Rail::SctInst | Rail::FedNow | Rail::Pix => &[],
                Rail::Rtp => &[ProfileWarning::RetentionIsTheDeadline],
                Rail::Upi => &[ProfileWarning::StatementWithoutDeadline],
            };
            assert_eq!(profile(*rail).check(), Ok(expected.to_vec()), "{rail}");
        }
    }

    #[test]
    fn every_value_of_a_rail_is_followed_by_its_source() {
        for rail in Rail::ALL {
            let mut codes_have_a_source = false;
            for line in rail.file().lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let (value, source) = line.split_once('#').unwrap_or((line, ""));
                codes_have_a_source |= value.trim() == "[reject_codes]" && !source.is_empty();
                let marked = ["P (", "S (", "M:", "own choice", "not found"];
                let is_sourced = marked.iter().any(|mark| source.trim().starts_with(mark));
                assert!(is_sourced || codes_have_a_source, "{rail}: {line}");
            }
        }
    }

    #[test]
    fn no_rail_has_a_cancel_and_a_duplicate_is_never_taken_for_a_dead_transfer() {
        for rail in Rail::ALL {
            let profile = profile(*rail);
            assert!(!profile.can_cancel && !profile.tombstones, "{rail}");
            for code in ["AM05", "DUPL", "ADMI", "FF08", "unlisted"] {
                let reject = Reject { code: Some(code.into()), reason: String::new() };
                assert_ne!(profile.meaning(&reject), RejectMeaning::Dead, "{rail}: {code}");
                assert!(!profile.is_final(&reject), "{rail}: {code}");
            }
        }
    }
}

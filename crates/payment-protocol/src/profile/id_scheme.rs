//! The schemes of the ids by which rails know a transfer. docs/rails/README.md names the sources.

use crate::state::text_enum;

text_enum!(
    /// The pattern of a transfer's id at a switch.
    #[derive(Default)]
    IdScheme {
        /// Our reference itself, `{tx_id}:submit`.
        #[default]
        Plain = "plain",
        /// Transaction id of SEPA Instant: the first 8 characters of the BIC, 27 characters.
        SctInst = "sct_inst",
        /// Message id of FedNow: date in the eastern United States, 9 characters of the connection, 18 characters.
        FedNow = "fednow",
        /// Instruction id of RTP: date in the eastern United States, 11 characters of the participant, `B`, 4 characters, 11 digits.
        Rtp = "rtp",
        /// Transaction id of UPI: 3 characters of the payment service provider, 32 characters.
        Upi = "upi",
        /// `EndToEndId` of Pix: `E`, 8 digits of the ISPB, minute in UTC, 11 characters.
        Pix = "pix",
    }
);

/// A day in milliseconds.
const DAY_MS: u64 = 86_400_000;

impl IdScheme {
    /// How old an id may be when it is first sent, in milliseconds; `None` for an id without a time. The time in an id is the one of the
    /// payment's acceptance.
    #[must_use]
    pub fn age_max_ms(self) -> Option<u64> {
        match self {
            Self::Plain | Self::SctInst | Self::Upi => None,
            // The date is then the day of the sending or the one before.
            Self::FedNow | Self::Rtp => Some(DAY_MS),
            // Refused afterwards (FF08).
            Self::Pix => Some(5_400_000),
        }
    }

    /// Whether the id depends on the time of the acceptance.
    #[must_use]
    pub fn has_time(self) -> bool {
        self.age_max_ms().is_some()
    }

    /// The form of the bank's own part of each id; `None` if an id has no such part.
    #[must_use]
    pub fn participant_form(self) -> Option<ParticipantForm> {
        Some(match self {
            Self::Plain => return None,
            Self::SctInst => {
                ParticipantForm { lengths: &[8, 11], digits_only: false, what: "the bank's BIC" }
            }
            Self::FedNow => {
                ParticipantForm { lengths: &[9], digits_only: false, what: "the connection's id" }
            }
            Self::Rtp => ParticipantForm { lengths: &[11], digits_only: false, what: "the participant's id" },
            Self::Upi => ParticipantForm {
                lengths: &[3],
                digits_only: false,
                what: "the prefix of the payment service provider",
            },
            Self::Pix => ParticipantForm { lengths: &[8], digits_only: true, what: "the bank's ISPB" },
        })
    }
}

/// The form of the bank's own part of each id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParticipantForm {
    lengths: &'static [usize],
    digits_only: bool,
    what: &'static str,
}

impl ParticipantForm {
    /// Whether a text has the form.
    #[must_use]
    pub fn fits(self, participant: &str) -> bool {
        let allowed = |byte: u8| byte.is_ascii_digit() || !self.digits_only && byte.is_ascii_uppercase();
        self.lengths.contains(&participant.len()) && participant.bytes().all(allowed)
    }
}

impl std::fmt::Display for ParticipantForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lengths: Vec<_> = self.lengths.iter().map(ToString::to_string).collect();
        let characters = if self.digits_only { "digits" } else { "characters of A-Z and 0-9" };
        write!(f, "{}, {} {characters}", self.what, lengths.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_with_a_time_has_an_age() {
        let ages = [
            (IdScheme::Plain, None),
            (IdScheme::SctInst, None),
            (IdScheme::Upi, None),
            (IdScheme::FedNow, Some(86_400_000)),
            (IdScheme::Rtp, Some(86_400_000)),
            (IdScheme::Pix, Some(5_400_000)),
        ];
        for (scheme, age_max_ms) in ages {
            assert_eq!(scheme.age_max_ms(), age_max_ms, "{scheme}");
            assert_eq!(scheme.has_time(), age_max_ms.is_some(), "{scheme}");
        }
    }
}

//! The patterns of the references that real rails accept, as their operators would check them.

use serde::{Deserialize, Serialize};

/// The pattern that every reference must have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdPattern {
    /// Any text that fits into a path.
    #[default]
    Any,
    /// SEPA Instant: at most 35 letters, digits and `/ - ? : ( ) . , ' +`, of which a path has letters, digits, `-`, `:` and `.`.
    SctInst,
    /// FedNow: `YYYYMMDD`, 9 alphanumerics of the connection, 1 to 18 alphanumerics.
    #[serde(rename = "fednow")]
    FedNow,
    /// RTP: `YYYYMMDD`, 11 alphanumerics of the participant, `B`, 4 alphanumerics, 11 digits.
    Rtp,
    /// UPI: 35 alphanumerics.
    Upi,
    /// Pix: `E`, 8 digits of the ISPB, `YYYYMMDDhhmm`, 11 alphanumerics.
    Pix,
}

impl IdPattern {
    /// Whether a reference has the pattern.
    pub(crate) fn accepts(self, reference: &str) -> bool {
        let text = reference.as_bytes();
        match self {
            Self::Any => true,
            Self::SctInst => {
                let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-:.".contains(byte);
                text.len() <= 35 && text.iter().all(allowed)
            }
            Self::FedNow => {
                (18..=35).contains(&text.len()) && is_date(text.get(..8)) && is_alphanumeric(text.get(8..))
            }
            Self::Rtp => {
                text.len() == 35
                    && is_date(text.get(..8))
                    && is_alphanumeric(text.get(8..19))
                    && text.get(19) == Some(&b'B')
                    && is_alphanumeric(text.get(20..24))
                    && is_number(text.get(24..))
            }
            Self::Upi => text.len() == 35 && is_alphanumeric(Some(text)),
            Self::Pix => {
                text.len() == 32
                    && text.first() == Some(&b'E')
                    && is_number(text.get(1..9))
                    && is_date(text.get(9..17))
                    && is_within(text.get(17..19), 0, 23)
                    && is_within(text.get(19..21), 0, 59)
                    && is_alphanumeric(text.get(21..))
            }
        }
    }
}

fn is_alphanumeric(text: Option<&[u8]>) -> bool {
    text.is_some_and(|text| text.iter().all(u8::is_ascii_alphanumeric))
}

fn is_number(text: Option<&[u8]>) -> bool {
    text.is_some_and(|text| text.iter().all(u8::is_ascii_digit))
}

fn is_date(text: Option<&[u8]>) -> bool {
    let Some(text) = text else { return false };
    is_number(text.get(..4)) && is_within(text.get(4..6), 1, 12) && is_within(text.get(6..8), 1, 31)
}

/// Whether two digits are a number within these bounds.
fn is_within(text: Option<&[u8]>, min: u8, max: u8) -> bool {
    match text {
        Some([tens, ones]) if tens.is_ascii_digit() && ones.is_ascii_digit() => {
            (min..=max).contains(&((tens - b'0') * 10 + (ones - b'0')))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_accepts_the_pattern_of_its_rail_only() {
        let references = [
            (IdPattern::SctInst, "DEMODEFF0123456789ABCDEFGHIJKLMNOPQ"),
            (IdPattern::FedNow, "20260301021040078ABCDEF0123456789AB"),
            (IdPattern::Rtp, "2026030102104007801BA1B212345678901"),
            (IdPattern::Upi, "DEM0123456789ABCDEF0123456789ABCDEF"),
            (IdPattern::Pix, "E12345678202603012359ABCDEF01234"),
        ];
        for (pattern, reference) in references {
            assert!(pattern.accepts(reference), "{pattern:?}");
            for wrong in ["tx_0123456789abcdef01234567:submit", "", &format!("{reference}0")] {
                assert!(!pattern.accepts(wrong) || wrong.is_empty(), "{pattern:?} {wrong}");
            }
        }
        for (pattern, wrong) in [
            (IdPattern::FedNow, "20261301021040078ABCDEF0123456789AB"),
            (IdPattern::FedNow, "20260301021040078"),
            (IdPattern::Rtp, "2026030102104007801XA1B212345678901"),
            (IdPattern::Rtp, "2026030102104007801BA1B21234567890A"),
            (IdPattern::Pix, "E12345678202603012460ABCDEF01234"),
            (IdPattern::Pix, "E1234567X202603012359ABCDEF01234"),
            (IdPattern::Upi, "DEM0123456789ABCDEF0123456789ABCDE_"),
        ] {
            assert!(!pattern.accepts(wrong), "{pattern:?} {wrong}");
        }
    }
}

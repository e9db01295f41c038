//! The id by which a rail knows a transfer, in the rail's own pattern.
//!
//! The id is derived from what the payment's row holds before the first attempt, and from nothing else: a database that lost the
//! commit of an attempt mints the same id again, and so finds the transfer that is out. The protocol knows our reference only; the
//! adapters at a switch exchange the two.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::ids::{TxId, digest_bytes};
use crate::keys::Reference;
use crate::profile::{IdScheme, SwitchProfile};

/// Time in the eastern United States, as its law has defined it since 2007: no file of time zones is read.
const EASTERN: &str = "EST5EDT,M3.2.0,M11.1.0";
/// Digits of a base of 36.
const ALPHABET: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The id of one transfer in the pattern of its rail.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RailId(String);

impl RailId {
    /// An id that was minted before.
    #[must_use]
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RailId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bank's own part of each id is missing or malformed, or the time of an id cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The bank's own part.
    #[error("id_scheme = \"{scheme}\" needs participant, {form}; set participant in the switch's profile")]
    Participant {
        /// The scheme.
        scheme: IdScheme,
        /// What the participant is.
        form: crate::profile::ParticipantForm,
    },
    /// The time zone of the date.
    #[error("the date of an id of scheme {scheme} cannot be computed")]
    Date {
        /// The scheme.
        scheme: IdScheme,
    },
}

/// How a transfer is called: by us, and at its switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransferName {
    /// Our own reference.
    pub reference: Reference,
    /// The rail's id; `None` where the switch takes our reference.
    pub rail_id: Option<RailId>,
}

impl TransferName {
    /// The name in a message to the switch.
    #[must_use]
    pub fn on_wire(&self) -> &str {
        self.rail_id.as_ref().map_or(self.reference.as_str(), RailId::as_str)
    }

    /// A name in a message of the switch as ours: our reference if it is this transfer's, else as received.
    #[must_use]
    pub fn translate(&self, received: &str) -> String {
        if received == self.on_wire() { self.reference.to_string() } else { received.to_owned() }
    }
}

impl From<Reference> for TransferName {
    fn from(reference: Reference) -> Self {
        Self { reference, rail_id: None }
    }
}

impl SwitchProfile {
    /// Checks the bank's own part of each id.
    ///
    /// # Errors
    /// [`MintError::Participant`].
    pub fn check_participant(&self) -> Result<(), MintError> {
        self.participant_of_ids().map(|_| ())
    }

    fn participant_of_ids(&self) -> Result<&str, MintError> {
        let scheme = self.id_scheme;
        let Some(form) = scheme.participant_form() else { return Ok("") };
        match self.participant.as_deref() {
            Some(participant) if form.fits(participant) => Ok(participant),
            _ => Err(MintError::Participant { scheme, form }),
        }
    }

    /// The id of a payment's transfer at this switch, from what its row holds since the acceptance; `None` where the switch takes our
    /// reference. `clash` counts the ids that belonged to other payments.
    ///
    /// # Errors
    /// [`MintError`]; a checked configuration excludes it.
    pub fn mint(
        &self,
        tx_id: &TxId,
        accepted_at: Timestamp,
        clash: u32,
    ) -> Result<Option<RailId>, MintError> {
        let participant = self.participant_of_ids()?;
        let mut number = Number(digest_bytes(&["rail id", tx_id.as_str(), &clash.to_string()]));
        let date = || date_of(accepted_at, self.id_scheme);
        let id = match self.id_scheme {
            IdScheme::Plain => return Ok(None),
            IdScheme::SctInst => {
                format!("{}{}", participant.get(..8).unwrap_or_default(), number.alphanumerics(27))
            }
            IdScheme::FedNow => format!("{}{participant}{}", date()?, number.alphanumerics(18)),
            IdScheme::Rtp => {
                format!("{}{participant}B{}{}", date()?, number.alphanumerics(4), number.digits(11))
            }
            IdScheme::Upi => format!("{participant}{}", number.alphanumerics(32)),
            IdScheme::Pix => {
                let minute = accepted_at.to_zoned(TimeZone::UTC).strftime("%Y%m%d%H%M").to_string();
                format!("E{participant}{minute}{}", number.alphanumerics(11))
            }
        };
        Ok(Some(RailId(id)))
    }
}

/// The date of an id, `YYYYMMDD`, in the eastern United States.
fn date_of(accepted_at: Timestamp, scheme: IdScheme) -> Result<String, MintError> {
    let zone = TimeZone::posix(EASTERN).map_err(|_| MintError::Date { scheme })?;
    Ok(accepted_at.to_zoned(zone).strftime("%Y%m%d").to_string())
}

/// A hash as a number, whose digits are taken from its low end.
struct Number([u8; 32]);

impl Number {
    fn alphanumerics(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(ALPHABET[usize::from(self.digit(36))])).collect()
    }

    fn digits(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(ALPHABET[usize::from(self.digit(10))])).collect()
    }

    /// Divides by the base and returns the rest, which is below the base.
    fn digit(&mut self, base: u8) -> u8 {
        let mut rest = 0_u16;
        for byte in &mut self.0 {
            let part = (rest << 8) | u16::from(*byte);
            // Below 256, because the rest is below the base.
            *byte = (part / u16::from(base)) as u8;
            rest = part % u16::from(base);
        }
        rest as u8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{PaymentId, SwitchName};
    use crate::keys;
    use crate::profile::{ProfileError, Rail, Strategy};

    /// Each scheme with a participant, the beginning of its ids at [`ACCEPTED_AT`], and the form of the rest: `9` is a digit, `X` a
    /// digit or a capital letter.
    const PATTERNS: [(IdScheme, &str, &str, &str); 5] = [
        (IdScheme::SctInst, "DEMODEFFXXX", "DEMODEFF", "XXXXXXXXXXXXXXXXXXXXXXXXXXX"),
        (IdScheme::FedNow, "021040078", "20260301021040078", "XXXXXXXXXXXXXXXXXX"),
        (IdScheme::Rtp, "02104007801", "2026030102104007801B", "XXXX99999999999"),
        (IdScheme::Upi, "DEM", "DEM", "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX"),
        (IdScheme::Pix, "12345678", "E12345678202603020459", "XXXXXXXXXXX"),
    ];
    /// Still 1 March in the eastern United States.
    const ACCEPTED_AT: &str = "2026-03-02T04:59:59.999999Z";

    fn profile(scheme: IdScheme, participant: &str) -> SwitchProfile {
        SwitchProfile {
            id_scheme: scheme,
            participant: Some(participant.into()),
            ..SwitchProfile::minimal(SwitchName::new("s").unwrap(), Strategy::AtMostOnce)
        }
    }

    fn tx(n: usize) -> TxId {
        TxId::derive(&PaymentId::new(format!("pay_{n}")).unwrap())
    }

    fn minted(scheme: IdScheme, participant: &str, n: usize, at: &str, clash: u32) -> String {
        let minted = profile(scheme, participant).mint(&tx(n), at.parse().unwrap(), clash);
        minted.unwrap().unwrap().to_string()
    }

    fn fits(rest: &str, form: &str) -> bool {
        rest.len() == form.len()
            && rest
                .bytes()
                .zip(form.bytes())
                .all(|(byte, form)| byte.is_ascii_digit() || form == b'X' && byte.is_ascii_uppercase())
    }

    #[test]
    fn s0_4_an_id_of_each_rail_has_the_rails_pattern() {
        for (scheme, participant, beginning, form) in PATTERNS {
            assert!(beginning.len() + form.len() <= 35, "{scheme}");
            for n in 0..500 {
                let id = minted(scheme, participant, n, ACCEPTED_AT, 0);
                let rest = id.strip_prefix(beginning);
                assert!(rest.is_some_and(|rest| fits(rest, form)), "{scheme}: {id}");
            }
        }
        let plain = SwitchProfile { id_scheme: IdScheme::Plain, ..profile(IdScheme::Pix, "") };
        assert_eq!(plain.mint(&tx(1), ACCEPTED_AT.parse().unwrap(), 0), Ok(None));
    }

    #[test]
    fn two_payments_or_two_clashes_of_one_payment_have_different_ids() {
        for (scheme, participant, ..) in PATTERNS {
            let mut seen = std::collections::BTreeSet::new();
            for n in 0..2_000 {
                for clash in 0..3 {
                    let id = minted(scheme, participant, n, ACCEPTED_AT, clash);
                    assert!(seen.insert(id.clone()), "{scheme}: {id} was minted twice");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn s2_1_an_id_is_minted_again_as_it_was(n: u32, accepted_us in 0..4_000_000_000_000_000_i64, clash in 0..8_u32) {
            let at = Timestamp::from_microsecond(accepted_us).unwrap().to_string();
            for (scheme, participant, ..) in PATTERNS {
                let first = minted(scheme, participant, n as usize, &at, clash);
                prop_assert_eq!(minted(scheme, participant, n as usize, &at, clash), first.clone());
                prop_assert!(first.len() <= 35);
            }
        }
    }

    #[test]
    fn the_date_of_an_id_is_the_rails_own_and_follows_its_summer_time() {
        let date = |at: &str| minted(IdScheme::FedNow, "021040078", 1, at, 0)[..8].to_owned();
        // Winter: five hours behind UTC; summer: four.
        assert_eq!(date("2026-01-15T04:59:59Z"), "20260114");
        assert_eq!(date("2026-01-15T05:00:00Z"), "20260115");
        assert_eq!(date("2026-07-15T03:59:59Z"), "20260714");
        assert_eq!(date("2026-07-15T04:00:00Z"), "20260715");
        let minute = |at: &str| minted(IdScheme::Pix, "12345678", 1, at, 0)[9..21].to_owned();
        assert_eq!(minute("2026-01-15T23:59:59.9Z"), "202601152359");
        assert_eq!(minute("2026-01-16T00:00:00Z"), "202601160000");
    }

    #[test]
    fn a_missing_or_malformed_participant_is_refused_with_its_form() {
        for (scheme, participant, ..) in PATTERNS {
            let wrong = ["", "short", &participant.to_lowercase(), &format!("{participant}1234")];
            for wrong in wrong.iter().filter(|wrong| **wrong != participant) {
                let error = profile(scheme, wrong).check_participant().unwrap_err();
                assert!(matches!(error, MintError::Participant { .. }), "{scheme} {wrong}");
            }
            assert_eq!(profile(scheme, participant).check_participant(), Ok(()), "{scheme}");
        }
        let none = SwitchProfile { participant: None, ..profile(IdScheme::Pix, "") };
        assert_eq!(
            none.check_participant().unwrap_err().to_string(),
            "id_scheme = \"pix\" needs participant, the bank's ISPB, 8 digits; set participant in the switch's profile"
        );
    }

    #[test]
    fn a_rail_sends_no_id_whose_time_it_refuses_as_too_old() {
        for rail in Rail::ALL {
            let mut profile = rail.profile(&SwitchName::new("s").unwrap()).unwrap();
            assert_ne!(profile.id_scheme, IdScheme::Plain, "{rail}");
            let Some(age_max_ms) = profile.id_scheme.age_max_ms() else { continue };
            profile.start_within_ms = age_max_ms;
            let scheme = profile.id_scheme;
            assert_eq!(profile.check(), Err(ProfileError::IdTooOld { scheme, age_max_ms }), "{rail}");
            let (changes, _) = profile.nearest_safe().unwrap();
            let fits_ms = age_max_ms - profile.submit_budget_ms - profile.max_skew_ms;
            assert_eq!(changes, [format!("start_within_ms = {fits_ms}")], "{rail}");
        }
    }

    #[test]
    fn a_name_of_the_switch_is_translated_only_if_it_is_this_transfers() {
        let reference = keys::submit(&tx(1));
        let name = TransferName { reference: reference.clone(), rail_id: Some(RailId("E1".into())) };
        assert_eq!((name.on_wire(), name.translate("E1")), ("E1", reference.to_string()));
        assert_eq!(name.translate("E2"), "E2");
        assert_eq!(TransferName::from(reference.clone()).on_wire(), reference.as_str());
    }
}

//! Ages on the command line and in tables.

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};

/// Parses an age like `90s`, `10m` or `48h` into whole seconds.
///
/// # Errors
/// A message with the expected format.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    match text.parse::<SignedDuration>() {
        Ok(age) if !age.is_negative() => Ok(age.as_secs()),
        _ => Err("write the age like 90s, 10m or 48h".into()),
    }
}

/// The moment an age before another one.
///
/// # Errors
/// No calendar has it.
pub(crate) fn before(moment: Timestamp, age_s: i64) -> anyhow::Result<Timestamp> {
    let before = moment.checked_sub(SignedDuration::from_secs(age_s));
    before.context("the age is out of range; write it like 2h")
}

/// Formats an age in its two largest units. A negative age (the clock was set back) is shown as zero.
pub(crate) fn format(age_s: i64) -> String {
    let age_s = age_s.max(0);
    let (days, hours, minutes, seconds) = (age_s / 86_400, age_s / 3_600 % 24, age_s / 60 % 60, age_s % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Parses an instant of the past, or an age.
pub(crate) fn parse_since(text: &str) -> Result<Timestamp, String> {
    const FORMAT: &str = "write an instant of the past like 2026-01-01T00:00:00Z, or an age like 10m or 48h";
    let now = Timestamp::now();
    let since = match text.parse::<Timestamp>() {
        Ok(instant) => instant,
        Err(_) => {
            let age = parse(text).map_err(|_| FORMAT)?;
            before(now, age).map_err(|_| FORMAT)?
        }
    };
    if since > now { Err(FORMAT.into()) } else { Ok(since) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payctl_parses_and_formats_ages() {
        for (text, seconds, formatted) in [
            ("45s", 45, "45 s"),
            ("10m", 600, "10 min 0 s"),
            ("3h 5m", 11_100, "3 h 5 min"),
            ("49h", 176_400, "2 d 1 h"),
        ] {
            assert_eq!(parse(text), Ok(seconds), "{text}");
            assert_eq!(format(seconds), formatted);
        }
        for wrong in ["", "10", "soon", "-5m", "1 month"] {
            assert!(parse(wrong).unwrap_err().contains("10m"), "{wrong:?}");
        }
        assert_eq!(format(-3), "0 s");
    }

    #[test]
    fn payctl_parses_an_instant_of_the_past_or_an_age() {
        let instant = "2026-01-01T00:00:00Z";
        assert_eq!(parse_since(instant).unwrap().to_string(), instant);
        let ten_minutes_ago = || Timestamp::now() - SignedDuration::from_mins(10);
        let (before, since, after) = (ten_minutes_ago(), parse_since("10m").unwrap(), ten_minutes_ago());
        assert!(before <= since && since <= after, "{since}");
        for wrong in ["", "yesterday", "-5m", "9999-01-01T00:00:00Z", "2026-01-01"] {
            assert!(parse_since(wrong).unwrap_err().contains("48h"), "{wrong}");
        }
    }
}

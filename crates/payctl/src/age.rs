//! Ages on the command line and in tables.

use jiff::SignedDuration;

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
}

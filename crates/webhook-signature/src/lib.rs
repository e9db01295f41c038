//! Standard Webhooks signatures (<https://www.standardwebhooks.com>), made and verified over the raw bytes of a body.
//!
//! The published library takes UTF-8 bodies, one secret and the system clock; a receiver needs bytes, several secrets during
//! a rotation, and a clock passed in. Only the symmetric scheme `v1` is implemented.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use serde::Deserialize;
use sha2::Sha256;

/// Header with the event's id, the same on every retry.
pub const ID_HEADER: &str = "webhook-id";
/// Header with the time of this attempt, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// Header with one or more signatures, separated by spaces.
pub const SIGNATURE_HEADER: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";
/// Length of a secret in bytes, as the standard requires.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const VERSION: &str = "v1";
/// Signatures of one header beyond this number are ignored.
const MAX_SIGNATURES: usize = 16;
/// Longest event id in bytes.
const MAX_ID_BYTES: usize = 256;

/// The text is not a secret. The error never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the webhook secret is malformed; it must be whsec_ followed by 24 to 64 bytes in base64")]
pub struct SecretError;

/// A signing secret, written `whsec_` + base64. `Debug` redacts it.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Secret(
    /// The keyed HMAC state; the key itself is not stored.
    Hmac<Sha256>,
);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([redacted])")
    }
}

impl Secret {
    /// The secret with these bytes. The standard recommends 32.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut block = [0; 64];
        // HMAC pads a key shorter than a block with zeros.
        block[..bytes.len()].copy_from_slice(&bytes);
        Self(Hmac::new(&block.into()))
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(SecretError)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| SecretError)?;
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err(SecretError);
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| SecretError)
    }
}

impl TryFrom<String> for Secret {
    type Error = SecretError;

    fn try_from(text: String) -> Result<Self, SecretError> {
        text.parse()
    }
}

/// Why a webhook could not be verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header is missing.
    #[error("the request has no header {0}, which a signed webhook needs")]
    Missing(&'static str),
    /// A header does not have the form of the standard, or is repeated.
    #[error("the request header {0} of the received webhook is malformed or repeated")]
    Malformed(&'static str),
    /// The timestamp is older than the tolerance.
    #[error(
        "the webhook timestamp is {0} s in the past, which exceeds the tolerance; check the clocks of sender and receiver"
    )]
    TooOld(i64),
    /// The timestamp is further in the future than the tolerance.
    #[error(
        "the webhook timestamp is {0} s in the future, which exceeds the tolerance; check the clocks of sender and receiver"
    )]
    TooNew(i64),
    /// No signature matches these bytes under any of the secrets.
    #[error("the webhook signature matches none of the receiver's configured secrets")]
    NoMatch,
}

/// Signs a body: the value of the signature header, `v1,` + base64. `timestamp_s` is in seconds since 1970 and goes into its
/// header unchanged.
pub fn sign(secret: &Secret, id: &str, timestamp_s: i64, body: &[u8]) -> String {
    let mac = mac(secret, id, &timestamp_s.to_string(), body);
    format!("{VERSION},{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// Signs a body with several secrets, as a sender does during a rotation: the values of [`sign`], separated by spaces.
pub fn sign_with_each(secrets: &[Secret], id: &str, timestamp_s: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = secrets.iter().map(|secret| sign(secret, id, timestamp_s, body)).collect();
    signatures.join(" ")
}

/// The text form of a secret with these bytes: `whsec_` + base64.
pub fn encode_secret(bytes: [u8; 32]) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes))
}

/// Verifies a webhook and returns its event id.
///
/// `now_s` and `tolerance_s` are in seconds; a timestamp exactly at the tolerance is accepted. Every secret is tried against
/// every signature in constant time.
///
/// # Errors
/// [`SignatureError`], the first that applies in its order of declaration.
pub fn verify(
    secrets: &[Secret],
    headers: &HeaderMap,
    body: &[u8],
    now_s: i64,
    tolerance_s: i64,
) -> Result<String, SignatureError> {
    SignedHeaders::read(headers, now_s, tolerance_s)?.verify(secrets, body)
}

/// The headers of a webhook, checked before its body is read: a sender without a fresh timestamp and a well-formed signature sends no
/// body to anybody.
#[derive(Clone, Debug)]
pub struct SignedHeaders<'h> {
    id: &'h str,
    timestamp: &'h str,
    candidates: Vec<Vec<u8>>,
}

impl<'h> SignedHeaders<'h> {
    /// Reads the headers. `now_s` and `tolerance_s` are in seconds; a timestamp exactly at the tolerance is accepted.
    ///
    /// # Errors
    /// [`SignatureError`], the first that applies in its order of declaration; never [`SignatureError::NoMatch`].
    pub fn read(headers: &'h HeaderMap, now_s: i64, tolerance_s: i64) -> Result<Self, SignatureError> {
        let id = single(headers, ID_HEADER)?;
        let timestamp = single(headers, TIMESTAMP_HEADER)?;
        let signatures = single(headers, SIGNATURE_HEADER)?;
        // With a dot in the id one signed text could be read as two different events.
        if id.is_empty() || id.len() > MAX_ID_BYTES || id.contains('.') {
            return Err(SignatureError::Malformed(ID_HEADER));
        }
        let timestamp_s: i64 = timestamp.parse().map_err(|_| SignatureError::Malformed(TIMESTAMP_HEADER))?;
        let age_s = now_s.saturating_sub(timestamp_s);
        if age_s > tolerance_s {
            return Err(SignatureError::TooOld(age_s));
        }
        if age_s < tolerance_s.saturating_neg() {
            return Err(SignatureError::TooNew(age_s.saturating_neg()));
        }
        Ok(Self { id, timestamp, candidates: candidates(signatures)? })
    }

    /// Verifies the body and returns the event id. Every secret is tried against every signature in constant time.
    ///
    /// # Errors
    /// [`SignatureError::NoMatch`].
    pub fn verify(&self, secrets: &[Secret], body: &[u8]) -> Result<String, SignatureError> {
        let mut matched = false;
        for candidate in &self.candidates {
            for secret in secrets {
                // The signature covers the header's text, not the parsed number.
                matched |= mac(secret, self.id, self.timestamp, body).verify_slice(candidate).is_ok();
            }
        }
        if matched { Ok(self.id.to_owned()) } else { Err(SignatureError::NoMatch) }
    }
}

/// The decoded `v1` signatures of the header. Other versions are skipped, as the standard requires; a header without any
/// well-formed signature is malformed.
fn candidates(header: &str) -> Result<Vec<Vec<u8>>, SignatureError> {
    let mut signatures = Vec::new();
    let mut is_well_formed = false;
    for part in header.split(' ').filter(|part| !part.is_empty()).take(MAX_SIGNATURES) {
        let Some((version, encoded)) = part.split_once(',') else {
            continue;
        };
        is_well_formed = true;
        if version == VERSION
            && let Ok(bytes) = STANDARD.decode(encoded)
        {
            signatures.push(bytes);
        }
    }
    if is_well_formed { Ok(signatures) } else { Err(SignatureError::Malformed(SIGNATURE_HEADER)) }
}

fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, SignatureError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(SignatureError::Missing(name))?;
    if values.next().is_some() {
        return Err(SignatureError::Malformed(name));
    }
    value.to_str().map_err(|_| SignatureError::Malformed(name))
}

fn mac(secret: &Secret, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = secret.0.clone();
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests;

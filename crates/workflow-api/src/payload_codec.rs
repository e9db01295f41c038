//! Encrypts what Temporal stores: inputs, results, signals, updates, heartbeats and the texts of failures.
//!
//! | part of an encrypted payload | content |
//! |---|---|
//! | metadata `encoding` | `binary/encrypted` |
//! | metadata `encryption-key-id` | the id of the key |
//! | data | 24 random bytes, then the payload, sealed by AES-256-GCM with the key's id as associated data |
//!
//! The first twelve random bytes derive a key of this payload's own (HKDF-SHA-256), the other twelve are the nonce. With a random nonce alone
//! one key could seal 2^32 payloads, which a bank makes in weeks.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use prost::Message as _;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};
use temporalio_common::data_converters::{PayloadCodec, PayloadConversionError, SerializationContextData};
use temporalio_common::protos::temporal::api::common::v1::Payload;

const ENCODING: &str = "encoding";
const ENCRYPTED: &[u8] = b"binary/encrypted";
const KEY_ID: &str = "encryption-key-id";
/// Purpose of the derived keys.
const PURPOSE: &[&[u8]] = &[b"temporal payload"];
/// Bytes of a key.
const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 12;
/// Longest id of a key.
const ID_BYTES_MAX: usize = 32;

/// A key of the configuration cannot be used. The message omits it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadKeyError {
    /// The text has not the form of a key.
    #[error(
        "key {0} of temporal.payload_keys is not of the form ID:KEY; ID is 1 to {ID_BYTES_MAX} letters, digits, - or _, KEY is base64 of 32 random bytes (openssl rand -base64 32)"
    )]
    Form(usize),
    /// Two keys have one id.
    #[error("temporal.payload_keys has two keys with the id {0}; give each an id of its own")]
    SameId(String),
}

/// A payload cannot be encrypted: the operating system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random bytes, so the payload cannot be encrypted")]
pub struct EncryptError;

impl From<ring::error::Unspecified> for EncryptError {
    fn from(_: ring::error::Unspecified) -> Self {
        Self
    }
}

/// A payload cannot be decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    /// No configured key has its id.
    #[error("the payload is encrypted under the key {0:?}, which temporal.payload_keys does not have")]
    UnknownKey(String),
    /// The data was changed, or the configured key of this id is another one.
    #[error(
        "the payload under the key {0:?} was changed, or temporal.payload_keys has another key of this id"
    )]
    Refused(String),
}

struct PayloadKey {
    id: String,
    bytes: SecretBox<[u8; KEY_BYTES]>,
}

/// Encrypts payloads by its first key, and decrypts them by the key that each names. A payload in clear is passed on: a history may have begun
/// before there was a key. Cheap to clone.
#[derive(Clone)]
pub struct PayloadKeys(Arc<Vec<PayloadKey>>);

impl std::fmt::Debug for PayloadKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

impl PayloadKeys {
    /// Reads keys of the form `ID:KEY`.
    ///
    /// # Errors
    /// [`PayloadKeyError`].
    pub fn read(texts: &[SecretString]) -> Result<Self, PayloadKeyError> {
        let mut keys: Vec<PayloadKey> = Vec::new();
        for (n, text) in (1..).zip(texts) {
            let key = read_key(text.expose_secret()).ok_or(PayloadKeyError::Form(n))?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(PayloadKeyError::SameId(key.id));
            }
            keys.push(key);
        }
        Ok(Self(Arc::new(keys)))
    }

    /// The payload, encrypted by the first key; as it is if there is none.
    ///
    /// # Errors
    /// [`EncryptError`].
    pub fn encrypt(&self, payload: Payload) -> Result<Payload, EncryptError> {
        let Some(key) = self.0.first() else { return Ok(payload) };
        let mut random = [0; SALT_BYTES + ring::aead::NONCE_LEN];
        SystemRandom::new().fill(&mut random)?;
        let (sealing, nonce) = key.derive(&random)?;
        let mut sealed = payload.encode_to_vec();
        sealing.seal_in_place_append_tag(nonce, Aad::from(key.id.as_bytes()), &mut sealed)?;
        let mut data = random.to_vec();
        data.append(&mut sealed);
        let metadata = [(ENCODING, ENCRYPTED), (KEY_ID, key.id.as_bytes())];
        let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_vec()));
        Ok(Payload { metadata: metadata.into(), data, ..Payload::default() })
    }

    /// The payload in clear.
    ///
    /// # Errors
    /// [`DecryptError`].
    pub fn decrypt(&self, payload: Payload) -> Result<Payload, DecryptError> {
        if payload.metadata.get(ENCODING).map(Vec::as_slice) != Some(ENCRYPTED) {
            return Ok(payload);
        }
        let id = payload.metadata.get(KEY_ID).map(Vec::as_slice).unwrap_or_default();
        let name = || String::from_utf8_lossy(id).into_owned();
        let key = self.0.iter().find(|key| key.id.as_bytes() == id);
        let key = key.ok_or_else(|| DecryptError::UnknownKey(name()))?;
        key.open(&payload.data).ok_or_else(|| DecryptError::Refused(name()))
    }
}

impl PayloadKey {
    /// The key and the nonce of one payload.
    fn derive(
        &self,
        random: &[u8; SALT_BYTES + ring::aead::NONCE_LEN],
    ) -> Result<(LessSafeKey, Nonce), ring::error::Unspecified> {
        let (salt, nonce) = random.split_at(SALT_BYTES);
        let derived = Salt::new(HKDF_SHA256, salt).extract(self.bytes.expose_secret());
        let key = UnboundKey::from(derived.expand(PURPOSE, &AES_256_GCM)?);
        Ok((LessSafeKey::new(key), Nonce::try_assume_unique_for_key(nonce)?))
    }

    fn open(&self, data: &[u8]) -> Option<Payload> {
        let (random, sealed) = data.split_first_chunk()?;
        let (opening, nonce) = self.derive(random).ok()?;
        let mut sealed = sealed.to_vec();
        let clear = opening.open_in_place(nonce, Aad::from(self.id.as_bytes()), &mut sealed).ok()?;
        Payload::decode(&*clear).ok()
    }
}

fn read_key(text: &str) -> Option<PayloadKey> {
    let (id, key) = text.split_once(':')?;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_id = (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_word);
    let bytes: [u8; KEY_BYTES] = BASE64_STANDARD.decode(key).ok()?.try_into().ok()?;
    is_id.then(|| PayloadKey { id: id.to_owned(), bytes: SecretBox::new(Box::new(bytes)) })
}

impl PayloadCodec for PayloadKeys {
    fn encode(
        &self,
        _: &SerializationContextData,
        payloads: Vec<Payload>,
    ) -> BoxFuture<'static, Result<Vec<Payload>, PayloadConversionError>> {
        let encrypted =
            payloads.into_iter().map(|payload| self.encrypt(payload)).collect::<Result<_, EncryptError>>();
        futures::future::ready(encrypted.map_err(|error| PayloadConversionError::EncodingError(error.into())))
            .boxed()
    }

    fn decode(
        &self,
        _: &SerializationContextData,
        payloads: Vec<Payload>,
    ) -> BoxFuture<'static, Result<Vec<Payload>, PayloadConversionError>> {
        let clear =
            payloads.into_iter().map(|payload| self.decrypt(payload)).collect::<Result<_, DecryptError>>();
        futures::future::ready(clear.map_err(|error| PayloadConversionError::EncodingError(error.into())))
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(texts: &[(&str, u8)]) -> PayloadKeys {
        let text = |(id, byte): &(&str, u8)| {
            SecretString::from(format!("{id}:{}", BASE64_STANDARD.encode([*byte; KEY_BYTES])))
        };
        PayloadKeys::read(&texts.iter().map(text).collect::<Vec<_>>()).unwrap()
    }

    fn clear() -> Payload {
        let metadata = [("encoding".to_owned(), b"json/plain".to_vec())];
        Payload { metadata: metadata.into(), data: b"\"DE02-account\"".to_vec(), ..Payload::default() }
    }

    #[test]
    fn a_payload_is_unreadable_without_its_key_and_the_same_with_it() {
        let ours = keys(&[("a", 1)]);
        let (first, second) = (ours.encrypt(clear()).unwrap(), ours.encrypt(clear()).unwrap());
        assert_ne!(first.data, second.data);
        let text = String::from_utf8_lossy(&first.encode_to_vec()).into_owned();
        assert!(!text.contains("account") && !text.contains("json"), "{text}");
        assert_eq!(ours.decrypt(first.clone()).unwrap(), clear());
        assert_eq!(keys(&[("b", 1)]).decrypt(first.clone()), Err(DecryptError::UnknownKey("a".into())));
        assert_eq!(keys(&[("a", 2)]).decrypt(first), Err(DecryptError::Refused("a".into())));
    }

    #[test]
    fn a_changed_payload_is_refused() {
        let ours = keys(&[("a", 1), ("b", 1)]);
        let sealed = ours.encrypt(clear()).unwrap();
        for at in 0..sealed.data.len() {
            let mut changed = sealed.clone();
            changed.data[at] ^= 1;
            assert_eq!(ours.decrypt(changed), Err(DecryptError::Refused("a".into())), "byte {at}");
        }
        for length in 0..sealed.data.len() {
            let cut = Payload { data: sealed.data[..length].to_vec(), ..sealed.clone() };
            assert_eq!(ours.decrypt(cut), Err(DecryptError::Refused("a".into())), "length {length}");
        }
        // The same key under another id: the id is sealed too.
        let mut renamed = sealed;
        renamed.metadata.insert(KEY_ID.into(), b"b".to_vec());
        assert_eq!(ours.decrypt(renamed), Err(DecryptError::Refused("b".into())));
    }

    #[test]
    fn a_key_is_replaced_while_its_payloads_are_stored() {
        let (before, during, after) = (keys(&[("a", 1)]), keys(&[("b", 2), ("a", 1)]), keys(&[("b", 2)]));
        let (old, new) = (before.encrypt(clear()).unwrap(), during.encrypt(clear()).unwrap());
        assert_eq!(during.decrypt(old.clone()).unwrap(), clear());
        assert_eq!(after.decrypt(new).unwrap(), clear());
        assert_eq!(after.decrypt(old), Err(DecryptError::UnknownKey("a".into())));
        // From before there was a key, and without one.
        assert_eq!(during.decrypt(clear()).unwrap(), clear());
        assert_eq!(keys(&[]).encrypt(clear()).unwrap(), clear());
    }

    #[test]
    fn a_payload_key_of_another_form_is_refused_without_being_shown() {
        let key = BASE64_STANDARD.encode([7; KEY_BYTES]);
        let short = BASE64_STANDARD.encode([7; 31]);
        let long_id = "x".repeat(33);
        for text in [
            key.clone(),
            format!(":{key}"),
            format!("a b:{key}"),
            format!("a:{short}"),
            format!("{long_id}:{key}"),
            "a:".into(),
            String::new(),
        ] {
            let texts = [SecretString::from(format!("ok:{key}")), text.clone().into()];
            let error = PayloadKeys::read(&texts).unwrap_err();
            assert_eq!(error, PayloadKeyError::Form(2), "{text}");
            assert!(!error.to_string().contains(&key));
        }
        let twice = [SecretString::from(format!("a:{key}")), format!("a:{key}").into()];
        assert_eq!(PayloadKeys::read(&twice).unwrap_err(), PayloadKeyError::SameId("a".into()));
        let shown = format!("{:?}", PayloadKeys::read(&twice[..1]).unwrap());
        assert_eq!(shown, "[\"a\"]");
    }
}

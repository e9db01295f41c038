//! Encrypts what Temporal stores: inputs, results, signals, updates, heartbeats and the texts of failures.
//!
//! | part of an encrypted payload | content |
//! |---|---|
//! | metadata `encoding` | `binary/encrypted` |
//! | metadata `encryption-key-id` | the id of the key, which is made from it: 16 hexadecimal digits of a SHA-256 |
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
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};
use serde::Deserialize;
use temporalio_common::data_converters::{PayloadCodec, PayloadConversionError, SerializationContextData};
use temporalio_common::protos::temporal::api::common::v1::Payload;
use temporalio_common::protos::temporal::api::failure::v1::Failure;

const ENCODING: &str = "encoding";
const ENCRYPTED: &[u8] = b"binary/encrypted";
const KEY_ID: &str = "encryption-key-id";
/// Purpose of the derived keys.
const PURPOSE: &[&[u8]] = &[b"temporal payload"];
/// Bytes of a key.
const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 12;
/// Before the key in the hash that is its id.
const ID_PREFIX: &[u8] = b"temporal payload key id:";
/// Bytes of the hash that are the id.
const ID_BYTES: usize = 8;

/// A key of the configuration cannot be used. The message omits it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadKeyError {
    /// The text is no key.
    #[error(
        "key {0} of temporal.payload_keys is not base64 of 32 random bytes; make one with openssl rand -base64 32"
    )]
    Form(usize),
    /// A key is there twice.
    #[error("temporal.payload_keys has key {0} twice; leave it out once")]
    Twice(usize),
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
    /// The data was changed.
    #[error("the payload under the key {0:?} was changed after it was encrypted")]
    Changed(String),
}

struct PayloadKey {
    id: String,
    bytes: SecretBox<[u8; KEY_BYTES]>,
}

/// Encrypts payloads by its first key, and decrypts them by the key that each names. A payload in clear is passed on: a history may have begun
/// before there was a key. Cheap to clone.
#[derive(Clone)]
pub struct PayloadKeys {
    keys: Arc<Vec<PayloadKey>>,
    encrypts: bool,
}

impl std::fmt::Debug for PayloadKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

impl PayloadKeys {
    /// Reads keys, each 32 bytes in base64.
    ///
    /// # Errors
    /// [`PayloadKeyError`].
    pub fn read(texts: &[SecretString]) -> Result<Self, PayloadKeyError> {
        let mut keys: Vec<PayloadKey> = Vec::new();
        for (n, text) in (1..).zip(texts) {
            let key = read_key(text.expose_secret()).ok_or(PayloadKeyError::Form(n))?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(PayloadKeyError::Twice(n));
            }
            keys.push(key);
        }
        Ok(Self { encrypts: !keys.is_empty(), keys: Arc::new(keys) })
    }

    /// The same keys, which only decrypt: what is written stays in clear.
    #[must_use]
    pub fn only_decrypting(self) -> Self {
        Self { encrypts: false, ..self }
    }

    /// Whether payloads are encrypted.
    #[must_use]
    pub fn encrypts(&self) -> bool {
        self.encrypts
    }

    /// The ids of the keys, in their order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.id.as_str())
    }

    /// The payload, encrypted by the first key; as it is if the keys only decrypt.
    ///
    /// # Errors
    /// [`EncryptError`].
    pub fn encrypt(&self, payload: Payload) -> Result<Payload, EncryptError> {
        let Some(key) = self.keys.first().filter(|_| self.encrypts) else { return Ok(payload) };
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
        let key = self.keys.iter().find(|key| key.id.as_bytes() == id);
        let key = key.ok_or_else(|| DecryptError::UnknownKey(name()))?;
        key.open(&payload.data).ok_or_else(|| DecryptError::Changed(name()))
    }

    /// The message of a failure, which is encrypted with its stack trace. The client does not decrypt the failure of an Update.
    ///
    /// # Errors
    /// [`DecryptError`].
    pub fn failure_message(&self, failure: &Failure) -> Result<String, DecryptError> {
        #[derive(Deserialize)]
        struct Attributes {
            message: String,
        }
        let Some(encoded) = failure.encoded_attributes.clone() else { return Ok(failure.message.clone()) };
        let attributes: Option<Attributes> = serde_json::from_slice(&self.decrypt(encoded)?.data).ok();
        Ok(attributes.map_or_else(|| failure.message.clone(), |attributes| attributes.message))
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
    let bytes: [u8; KEY_BYTES] = BASE64_STANDARD.decode(text).ok()?.try_into().ok()?;
    // Two processes that mean different keys cannot mean one id.
    let hash = digest(&SHA256, &[ID_PREFIX, &bytes].concat());
    let id = hash.as_ref().iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect();
    Some(PayloadKey { id, bytes: SecretBox::new(Box::new(bytes)) })
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

    fn keys(bytes: &[u8]) -> PayloadKeys {
        let text = |byte: &u8| SecretString::from(BASE64_STANDARD.encode([*byte; KEY_BYTES]));
        PayloadKeys::read(&bytes.iter().map(text).collect::<Vec<_>>()).unwrap()
    }

    fn id(byte: u8) -> String {
        keys(&[byte]).ids().next().unwrap().to_owned()
    }

    fn clear() -> Payload {
        let metadata = [("encoding".to_owned(), b"json/plain".to_vec())];
        Payload { metadata: metadata.into(), data: b"\"DE02-account\"".to_vec(), ..Payload::default() }
    }

    #[test]
    fn a_payload_is_unreadable_without_its_key_and_the_same_with_it() {
        let ours = keys(&[1]);
        let (first, second) = (ours.encrypt(clear()).unwrap(), ours.encrypt(clear()).unwrap());
        assert_ne!(first.data, second.data);
        let text = String::from_utf8_lossy(&first.encode_to_vec()).into_owned();
        assert!(!text.contains("account") && !text.contains("json"), "{text}");
        assert_eq!(ours.decrypt(first.clone()).unwrap(), clear());
        for others in [keys(&[2]), keys(&[])] {
            assert_eq!(others.decrypt(first.clone()), Err(DecryptError::UnknownKey(id(1))));
        }
    }

    #[test]
    fn a_changed_payload_is_refused() {
        let ours = keys(&[1, 2]);
        let sealed = ours.encrypt(clear()).unwrap();
        for at in 0..sealed.data.len() {
            let mut changed = sealed.clone();
            changed.data[at] ^= 1;
            assert_eq!(ours.decrypt(changed), Err(DecryptError::Changed(id(1))), "byte {at}");
        }
        for length in 0..sealed.data.len() {
            let cut = Payload { data: sealed.data[..length].to_vec(), ..sealed.clone() };
            assert_eq!(ours.decrypt(cut), Err(DecryptError::Changed(id(1))), "length {length}");
        }
        let mut renamed = sealed;
        renamed.metadata.insert(KEY_ID.into(), id(2).into_bytes());
        assert_eq!(ours.decrypt(renamed), Err(DecryptError::Changed(id(2))));
    }

    #[test]
    fn a_key_is_replaced_while_its_payloads_are_stored() {
        let (before, during, after) = (keys(&[1]), keys(&[2, 1]), keys(&[2]));
        let (old, new) = (before.encrypt(clear()).unwrap(), during.encrypt(clear()).unwrap());
        assert_eq!(during.decrypt(old.clone()).unwrap(), clear());
        assert_eq!(after.decrypt(new).unwrap(), clear());
        assert_eq!(after.decrypt(old.clone()), Err(DecryptError::UnknownKey(id(1))));
        // Before there was a key, and while keys only decrypt.
        assert_eq!(during.decrypt(clear()).unwrap(), clear());
        for none in [keys(&[]), keys(&[1]).only_decrypting()] {
            assert!(!none.encrypts());
            assert_eq!(none.encrypt(clear()).unwrap(), clear());
        }
        assert_eq!(before.only_decrypting().decrypt(old).unwrap(), clear());
    }

    #[test]
    fn the_message_of_a_failure_is_read_in_clear_and_encrypted() {
        let in_clear = Failure { message: "no hold".into(), ..Failure::default() };
        let attributes = br#"{"message":"no hold","stack_trace":""}"#;
        let attributes = Payload { data: attributes.to_vec(), ..Payload::default() };
        let encoded_attributes = Some(keys(&[1]).encrypt(attributes).unwrap());
        let encrypted =
            Failure { message: "Encoded failure".into(), encoded_attributes, ..Failure::default() };
        for failure in [&in_clear, &encrypted] {
            assert_eq!(keys(&[1]).failure_message(failure).unwrap(), "no hold");
        }
        assert_eq!(keys(&[]).failure_message(&encrypted), Err(DecryptError::UnknownKey(id(1))));
    }

    #[test]
    fn a_text_that_is_no_payload_key_is_refused_without_being_shown() {
        let key = BASE64_STANDARD.encode([7; KEY_BYTES]);
        let (short, long) = (BASE64_STANDARD.encode([7; 31]), BASE64_STANDARD.encode([7; 33]));
        for text in [short, long, format!("k1:{key}"), "?".into(), String::new()] {
            let texts = [SecretString::from(key.clone()), text.clone().into()];
            let error = PayloadKeys::read(&texts).unwrap_err();
            assert_eq!(error, PayloadKeyError::Form(2), "{text}");
            assert!(!error.to_string().contains(&key));
        }
        let twice = [SecretString::from(key.clone()), key.into()];
        assert_eq!(PayloadKeys::read(&twice).unwrap_err(), PayloadKeyError::Twice(2));
        assert_eq!(format!("{:?}", keys(&[7])), format!("[\"{}\"]", id(7)));
    }
}

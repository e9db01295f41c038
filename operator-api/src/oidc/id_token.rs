//! ID tokens: whom one is about, for whom it is, and when it was issued. Source: OpenID Connect Core 1.0, section 3.1.3.7.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{
    Algorithm, DecodingKey, Header, Validation, decode, decode_header, get_current_timestamp,
};
use payment_ledger::access::operators::OperatorIdentity;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::signature::ALGORITHMS;

/// Seconds for which a token opens a session after its issue: payctl sends it at once.
const AGE_MAX_S: u64 = 300;
/// Seconds by which the clocks of the provider and of this machine may differ.
const LEEWAY_S: u64 = 60;

/// Why a token proves no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ID token {0}")]
pub(crate) struct IdTokenRefused(&'static str);

/// The claims that are read here and not by the library.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    iat: u64,
    /// A logout token has them, which proves no login.
    #[serde(default)]
    events: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn has_others_than(&self, client_id: &str) -> bool {
        match self {
            Self::One(audience) => audience != client_id,
            Self::Several(audiences) => audiences.iter().any(|audience| audience != client_id),
        }
    }
}

/// The header of a token, of which nothing is proved yet.
pub(super) fn header(token: &SecretString) -> Result<Header, IdTokenRefused> {
    let header = decode_header(token.expose_secret()).map_err(|_| IdTokenRefused("is malformed"))?;
    // An access token has another type, and is not meant for us.
    if header.typ.as_deref().is_some_and(|kind| !kind.eq_ignore_ascii_case("JWT")) {
        return Err(IdTokenRefused("is a token of another kind"));
    }
    Ok(header)
}

/// The key that a token names; without a name, the only one that could have signed it.
pub(super) fn key(
    keys: &JwkSet,
    id: Option<&str>,
    algorithm: Algorithm,
) -> Result<DecodingKey, IdTokenRefused> {
    if !ALGORITHMS.contains(&algorithm) {
        return Err(IdTokenRefused("is signed with an algorithm that is not accepted"));
    }
    let signs = |jwk: &&Jwk| matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let usable = |jwk: &Jwk| {
        let key = DecodingKey::from_jwk(jwk).ok()?;
        key.family().algorithms().contains(&algorithm).then_some(key)
    };
    let mut found = match id {
        Some(id) => keys.find(id).filter(signs).and_then(usable).into_iter().collect(),
        None => keys.keys.iter().filter(signs).filter_map(usable).collect::<Vec<_>>(),
    };
    match (found.pop(), found.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(IdTokenRefused("names no key of the provider")),
    }
}

/// The identity that a token proves with this key, which [`key`] gave for the token's algorithm.
pub(super) fn identity(
    token: &SecretString,
    (algorithm, key): (Algorithm, &DecodingKey),
    issuer: &str,
    client_id: &str,
) -> Result<OperatorIdentity, IdTokenRefused> {
    let mut rules = Validation::new(algorithm);
    rules.leeway = LEEWAY_S;
    rules.validate_nbf = true;
    rules.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    rules.set_issuer(&[issuer]);
    rules.set_audience(&[client_id]);
    let claims = decode::<Claims>(token.expose_secret(), key, &rules);
    let claims = claims.map_err(|error| IdTokenRefused(reason(error.kind())))?.claims;
    // A token for several audiences says for which of them it was issued.
    let party = claims.azp.as_deref();
    if party.is_some_and(|party| party != client_id)
        || party.is_none() && claims.aud.has_others_than(client_id)
    {
        return Err(IdTokenRefused("was issued to another client"));
    }
    let now = get_current_timestamp();
    if claims.iat > now + LEEWAY_S || claims.iat + AGE_MAX_S + LEEWAY_S < now {
        return Err(IdTokenRefused("was not issued just now"));
    }
    if claims.events.is_some() {
        return Err(IdTokenRefused("is a token of another kind"));
    }
    // The library accepts a list of issuers as well.
    if claims.iss != issuer {
        return Err(IdTokenRefused("is of another issuer"));
    }
    OperatorIdentity::new(&claims.iss, &claims.sub)
        .map_err(|_| IdTokenRefused("has a subject that cannot be stored"))
}

fn reason(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidSignature => "has another signature than the provider's",
        ErrorKind::ExpiredSignature => "has expired",
        ErrorKind::ImmatureSignature => "is not valid yet",
        ErrorKind::InvalidIssuer => "is of another issuer",
        ErrorKind::InvalidAudience => "is for another client",
        ErrorKind::MissingRequiredClaim(_) => "lacks a claim: exp, iss, aud or sub",
        _ => "cannot be read",
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::{Value, json};

    use super::super::signature::install;
    use super::*;

    const ISSUER: &str = "https://login.example";

    /// A provider's key.
    struct Key(EcdsaKeyPair);

    impl Key {
        fn generate() -> Self {
            let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
            let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
        }

        fn jwk(&self, id: Option<&str>) -> Value {
            let point = self.0.public_key().as_ref();
            let text = |bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes);
            let mut jwk = json!({"kty": "EC", "crv": "P-256", "use": "sig", "x": text(&point[1..33]), "y": text(&point[33..])});
            if let Some(id) = id {
                jwk["kid"] = json!(id);
            }
            jwk
        }

        fn sign(&self, header: &Value, claims: &Value) -> SecretString {
            let text = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
            let signed = format!("{}.{}", text(header), text(claims));
            let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)).into()
        }
    }

    fn keys(jwks: Vec<Value>) -> JwkSet {
        serde_json::from_value(json!({"keys": jwks})).unwrap()
    }

    /// What a token with these claims, signed by the provider's only key, proves.
    fn outcome(change: impl Fn(&mut Value)) -> Result<OperatorIdentity, IdTokenRefused> {
        install();
        let provider = Key::generate();
        let now = get_current_timestamp();
        let mut claims =
            json!({"iss": ISSUER, "sub": "u-1", "aud": "payctl", "iat": now, "exp": now + 3_600});
        change(&mut claims);
        let token = provider.sign(&json!({"alg": "ES256", "kid": "1"}), &claims);
        let key = key(&keys(vec![provider.jwk(Some("1"))]), Some("1"), Algorithm::ES256)?;
        identity(&token, (Algorithm::ES256, &key), ISSUER, "payctl")
    }

    #[test]
    fn an_id_token_proves_an_identity_by_all_of_its_claims() {
        let proved = outcome(|_| {}).unwrap();
        assert_eq!((proved.issuer(), proved.subject()), (ISSUER, "u-1"));
        let now = get_current_timestamp();
        let set = |name: &'static str, value: Value| move |claims: &mut Value| claims[name] = value.clone();
        for (name, value) in [
            ("aud", json!(["payctl"])),
            ("azp", json!("payctl")),
            ("iat", json!(now - 300)),
            ("iat", json!(now + 50)),
            ("exp", json!(now - 50)),
        ] {
            assert!(outcome(set(name, value.clone())).is_ok(), "{name} {value}");
        }
        for (name, value, reason) in [
            ("iss", json!("https://login.example/"), "is of another issuer"),
            ("iss", json!([ISSUER, "https://other.example"]), "cannot be read"),
            ("aud", json!("another"), "is for another client"),
            ("aud", json!(["another"]), "is for another client"),
            ("aud", json!(["payctl", "another"]), "was issued to another client"),
            ("azp", json!("another"), "was issued to another client"),
            ("exp", json!(now - 100), "has expired"),
            ("exp", json!("never"), "lacks a claim: exp, iss, aud or sub"),
            ("exp", Value::Null, "lacks a claim: exp, iss, aud or sub"),
            ("nbf", json!(now + 100), "is not valid yet"),
            ("iat", json!(now - 400), "was not issued just now"),
            ("iat", json!(now + 100), "was not issued just now"),
            ("iat", json!(u64::MAX), "was not issued just now"),
            ("iat", Value::Null, "cannot be read"),
            ("sub", json!(""), "has a subject that cannot be stored"),
            ("sub", json!("two words"), "has a subject that cannot be stored"),
            ("sub", json!(7), "cannot be read"),
            ("events", json!({}), "is a token of another kind"),
        ] {
            assert_eq!(outcome(set(name, value.clone())), Err(IdTokenRefused(reason)), "{name} {value}");
        }
        let party = |claims: &mut Value| {
            claims["aud"] = json!(["payctl", "another"]);
            claims["azp"] = json!("payctl");
        };
        assert!(outcome(party).is_ok(), "issued to payctl, for others as well");
    }

    #[test]
    fn an_id_token_is_checked_with_the_providers_keys_alone() {
        install();
        let (one, other) = (Key::generate(), Key::generate());
        let now = get_current_timestamp();
        let claims = json!({"iss": ISSUER, "sub": "u-1", "aud": "payctl", "iat": now, "exp": now + 60});
        let check = |signer: &Key, head: Value, set: Vec<Value>| {
            let token = signer.sign(&head, &claims);
            let head = header(&token)?;
            let key = key(&keys(set), head.kid.as_deref(), head.alg)?;
            identity(&token, (head.alg, &key), ISSUER, "payctl")
        };
        let (with_id, without) = (json!({"alg": "ES256", "kid": "1"}), json!({"alg": "ES256"}));
        assert!(check(&one, without.clone(), vec![one.jwk(None)]).is_ok(), "the only key needs no name");
        let signature = Err(IdTokenRefused("has another signature than the provider's"));
        assert_eq!(check(&other, with_id.clone(), vec![one.jwk(Some("1"))]), signature);
        let no_key = Err(IdTokenRefused("names no key of the provider"));
        assert_eq!(check(&one, without, vec![one.jwk(None), other.jwk(None)]), no_key, "which one?");
        assert_eq!(check(&one, with_id.clone(), vec![one.jwk(Some("2"))]), no_key);
        let mut encrypts = one.jwk(Some("1"));
        encrypts["use"] = json!("enc");
        assert_eq!(check(&one, with_id.clone(), vec![encrypts]), no_key);
        // A shared secret is no key of a provider: everybody can read what the provider publishes.
        let secret = json!({"kty": "oct", "kid": "1", "k": "c2VjcmV0"});
        let hmac = json!({"alg": "HS256", "kid": "1"});
        let algorithm = Err(IdTokenRefused("is signed with an algorithm that is not accepted"));
        assert_eq!(check(&one, hmac, vec![secret]), algorithm);
        let unsigned = json!({"alg": "none", "kid": "1"});
        assert_eq!(check(&one, unsigned, vec![one.jwk(Some("1"))]), Err(IdTokenRefused("is malformed")));
        let access = json!({"alg": "ES256", "kid": "1", "typ": "at+jwt"});
        let kind = Err(IdTokenRefused("is a token of another kind"));
        assert_eq!(check(&one, access, vec![one.jwk(Some("1"))]), kind);
        let curve = json!({"alg": "RS256", "kid": "1"});
        assert_eq!(check(&one, curve, vec![one.jwk(Some("1"))]), no_key, "a key of another kind");
        for text in ["", "a.b", "a.b.c", "....", &"x".repeat(20_000)] {
            assert!(header(&text.into()).is_err(), "{text:.20}");
        }
    }
}

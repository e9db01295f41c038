//! Signatures of tokens, checked with ring as everything else is: the library's own choices would bring a second implementation.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature as checked;

/// Algorithms of a provider's signatures. None with a shared secret: its keys are public.
pub(super) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: |algorithm, key| Ok(Box::new(RingVerifier::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes ring the process's implementation.
pub(super) fn install() {
    // Fails if it is installed already.
    let _ = RING.install_default();
}

/// A key that checks signatures of one algorithm.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
    check: Check,
}

enum Check {
    Rsa(&'static checked::RsaParameters),
    Curve(&'static dyn checked::VerificationAlgorithm),
}

impl RingVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        let check = match algorithm {
            Algorithm::RS256 => Check::Rsa(&checked::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Check::Rsa(&checked::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Check::Rsa(&checked::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Check::Rsa(&checked::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Check::Rsa(&checked::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Check::Rsa(&checked::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => Check::Curve(&checked::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Check::Curve(&checked::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => Check::Curve(&checked::ED25519),
            _ => return Err(new_error(ErrorKind::UnsupportedAlgorithm)),
        };
        // A key is used for the algorithms of its own kind alone.
        if !key.family().algorithms().contains(&algorithm) {
            return Err(new_error(ErrorKind::InvalidKeyFormat));
        }
        Ok(Self { algorithm, key: key.clone(), check })
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        let outcome = match (&self.check, self.key.kind()) {
            (Check::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                checked::RsaPublicKeyComponents { n, e }.verify(parameters, message, signed)
            }
            (Check::Curve(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                checked::UnparsedPublicKey::new(*algorithm, key).verify(message, signed)
            }
            _ => return Err(signature::Error::new()),
        };
        outcome.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

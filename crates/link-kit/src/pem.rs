//! The PEM files of an encrypted link: the authorities that a process trusts, and its own identity.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A file of a link cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting} = {} cannot be used; name a readable PEM file", path.display())]
pub struct LinkFileError {
    setting: &'static str,
    path: PathBuf,
    #[source]
    source: BoxError,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl LinkFileError {
    /// The file that `setting` names cannot be used for this reason.
    #[must_use]
    pub fn new(setting: &'static str, path: &Path, source: impl Into<BoxError>) -> Self {
        Self { setting, path: path.to_owned(), source: source.into() }
    }
}

/// Reads a PEM file with the certificates of authorities, at least one. `setting` names the file in an error.
///
/// # Errors
/// [`LinkFileError`]: the file cannot be read, or has no certificate.
pub fn read_authorities(setting: &'static str, path: &Path) -> Result<Vec<u8>, LinkFileError> {
    read(setting, path, certificates)
}

/// Reads a PEM file with a certificate, the authorities between it and one that the server trusts, and its private key.
///
/// # Errors
/// [`LinkFileError`]: the file cannot be read, or has no certificate or no private key.
pub fn read_identity(setting: &'static str, path: &Path) -> Result<Vec<u8>, LinkFileError> {
    read(setting, path, |text| {
        certificates(text)?;
        PrivateKeyDer::from_pem_slice(text).map(|_| ()).map_err(|error| match error {
            pem::Error::NoItemsFound => "the file has no private key".into(),
            other => other.into(),
        })
    })
}

fn certificates(text: &[u8]) -> Result<(), BoxError> {
    let certificates = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>()?;
    if certificates.is_empty() { Err("the file has no certificate".into()) } else { Ok(()) }
}

fn read(
    setting: &'static str,
    path: &Path,
    check: impl FnOnce(&[u8]) -> Result<(), BoxError>,
) -> Result<Vec<u8>, LinkFileError> {
    let text = std::fs::read(path).map_err(|error| LinkFileError::new(setting, path, error))?;
    check(&text).map_err(|error| LinkFileError::new(setting, path, error))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// What `read` says of a file with this text.
    fn outcome(
        text: &str,
        read: fn(&'static str, &Path) -> Result<Vec<u8>, LinkFileError>,
    ) -> Result<(), String> {
        // One test calls this, one file after the other.
        let file = std::env::temp_dir().join(format!("link-kit-{}.pem", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let outcome = read("broker.ca_path", &file);
        std::fs::remove_file(&file).unwrap();
        match outcome {
            Ok(read) => {
                assert_eq!(read, text.as_bytes());
                Ok(())
            }
            Err(error) => {
                assert!(error.to_string().starts_with("broker.ca_path = "), "{error}");
                Err(error.source().unwrap().to_string())
            }
        }
    }

    #[test]
    fn a_pem_file_that_lacks_a_part_is_refused() {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([]).unwrap().self_signed(&key).unwrap().pem();
        let both = format!("{certificate}{}", key.serialize_pem());
        assert_eq!(outcome(&both, read_identity), Ok(()));
        assert_eq!(outcome(&both, read_authorities), Ok(()));
        assert_eq!(outcome(&certificate, read_authorities), Ok(()));
        assert_eq!(outcome(&certificate, read_identity), Err("the file has no private key".into()));
        for read in [read_authorities, read_identity] {
            assert_eq!(outcome(&key.serialize_pem(), read), Err("the file has no certificate".into()));
            assert_eq!(outcome("", read), Err("the file has no certificate".into()));
            let cut = certificate.split("-----END").next().unwrap();
            assert!(outcome(cut, read).is_err());
        }
        assert!(read_authorities("broker.ca_path", Path::new("/no/such/file")).is_err());
    }
}

//! The file that keeps an operator's session between two commands. Who can read it acts as the operator, so that nobody else can.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jiff::Timestamp;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

/// Where an operator logs in.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    /// The address of operator-api.
    pub(crate) url: Url,
    /// As whom.
    pub(crate) as_whom: Credential,
}

/// What proves who logs in.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// The password of an operator.
    Password {
        /// The operator.
        name: String,
        /// The password.
        password: SecretString,
    },
    /// A login at the OpenID provider, in a browser on this machine.
    Browser,
    /// A login at the OpenID provider, in a browser anywhere.
    Device,
    /// An ID token that another client obtained.
    IdToken(SecretString),
}

/// A session.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Session {
    /// The address of operator-api.
    url: String,
    /// The operator.
    pub(crate) operator: String,
    /// Authenticates the operator.
    pub(crate) token: SecretString,
    /// When it ends, whatever happens.
    pub(crate) expires_at: Timestamp,
}

/// What a login answers.
#[derive(Deserialize)]
pub(super) struct OpenedSession {
    operator: String,
    token: SecretString,
    expires_at: Timestamp,
}

impl Session {
    pub(super) fn opened(url: &Url, opened: OpenedSession) -> Self {
        let OpenedSession { operator, token, expires_at } = opened;
        Self { url: url.to_string(), operator, token, expires_at }
    }

    /// The address of operator-api.
    ///
    /// # Errors
    /// The file has no URL.
    pub(crate) fn url(&self) -> anyhow::Result<Url> {
        self.url.parse().context("the session file has no address of operator-api; run: payctl login NAME, or without NAME where operators log in at an OpenID provider")
    }

    /// Reads the session of a file.
    ///
    /// # Errors
    /// Nobody is logged in, or the file cannot be read.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        if let Ok(found) = fs::metadata(file) {
            let mode = found.permissions().mode() & 0o777;
            anyhow::ensure!(
                mode & 0o077 == 0,
                "other users can read the session file {} (mode {mode:o}); remove it, and run: payctl login NAME, or without NAME where operators log in at an OpenID provider",
                file.display()
            );
        }
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                anyhow::bail!(
                    "nobody is logged in ({} does not exist); run: payctl login NAME, or without NAME where operators log in at an OpenID provider",
                    file.display()
                )
            }
            text => text.with_context(|| format!("the session file {} cannot be read", file.display()))?,
        };
        let session = serde_json::from_str(&text);
        session.with_context(|| format!("{} is no session file; run: payctl login NAME, or without NAME where operators log in at an OpenID provider", file.display()))
    }

    /// Writes the session to a file that only this user can read.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let failed = || format!("the session file {} cannot be written", file.display());
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(failed)?;
        }
        let document = json!({
            "url": self.url, "operator": self.operator, "token": self.token.expose_secret(), "expires_at": self.expires_at,
        });
        // Another file in its place, so that the mode is that of a new file.
        let new = file.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
        let mut written =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).with_context(failed)?;
        written.write_all(document.to_string().as_bytes()).with_context(failed)?;
        fs::rename(&new, file).with_context(failed)
    }

    /// Removes the file. A missing one is no error.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn forget(file: &Path) -> anyhow::Result<()> {
        remove(file).with_context(|| format!("the session file {} cannot be removed", file.display()))
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The file in the user's home folder.
///
/// # Errors
/// The environment names no home folder.
pub(super) fn default_file() -> anyhow::Result<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    let state = state
        .context("neither HOME nor XDG_STATE_HOME is set; name a file with --session (PAYCTL_SESSION)")?;
    Ok(state.join("payctl/session.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_file_is_read_by_its_user_alone_and_forgotten() {
        let folder = std::env::temp_dir().join(format!("payctl-{}", uuid::Uuid::new_v4().simple()));
        let file = folder.join("deep/session.json");
        let missing = format!("{:#}", Session::read(&file).unwrap_err());
        assert!(missing.contains("nobody is logged in") && missing.contains("payctl login"), "{missing}");
        let session = Session {
            url: "http://127.0.0.1:8081/".into(),
            operator: "ann".into(),
            token: "ops_1".into(),
            expires_at: Timestamp::UNIX_EPOCH,
        };
        for _ in 0..2 {
            session.write(&file).unwrap();
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let read = Session::read(&file).unwrap();
        assert_eq!((read.operator.as_str(), read.token.expose_secret()), ("ann", "ops_1"));
        assert!(!format!("{read:?}").contains("ops_1"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let readable = format!("{:#}", Session::read(&file).unwrap_err());
        assert!(readable.contains("other users can read"), "{readable}");
        Session::forget(&file).unwrap();
        Session::forget(&file).unwrap();
        assert!(Session::read(&file).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}

//! One way to configure a process: defaults in the code, a TOML file over
//! them, the environment over both.
//!
//! Defaults are serde defaults of the target type, so that they stand beside
//! the field they belong to. This module knows no key by name.

use std::path::{Path, PathBuf};

use figment::Figment;
use figment::error::Kind;
use figment::providers::{Format, Toml};
use figment::value::Value;
use serde::de::DeserializeOwned;

/// Why the configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file named by the environment cannot be opened.
    #[error("cannot read the configuration file {} named by {variable}", path.display())]
    File {
        /// The environment variable that names the file.
        variable: String,
        /// The path it holds.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A key is missing, unknown or of a wrong type, or the file is not TOML.
    #[error("configuration {key}: {reason}; set {hint}")]
    Invalid {
        /// The dotted key, for example `database.url`.
        key: String,
        /// What is wrong with its value.
        reason: String,
        /// Where to set it.
        hint: String,
    },
}

/// Reads the configuration of a process.
///
/// `prefix` is the environment prefix without its underscore: with `PAYMENTS`,
/// the variable `PAYMENTS_DATABASE__URL` sets `database.url`. `file_var` names
/// the variable that may hold the path of a TOML file; when it is set, the file
/// must exist. An environment value is read as TOML would read it, so text that
/// looks like a number needs its own quotes: `X_TOKEN='"0123"'`.
///
/// # Errors
/// [`ConfigError`], naming the file or the key and how to set it.
pub fn load<T: DeserializeOwned>(prefix: &str, file_var: &str) -> Result<T, ConfigError> {
    load_file(prefix, file_var, std::env::var_os(file_var).map(PathBuf::from).as_deref())
}

/// As [`load`], with a file that was chosen otherwise than by `file_var`, or none.
///
/// # Errors
/// As [`load`].
pub fn load_file<T: DeserializeOwned>(
    prefix: &str,
    file_var: &str,
    file: Option<&Path>,
) -> Result<T, ConfigError> {
    // Names and values that are not UTF-8 cannot be ours.
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    extract(prefix, file_var, file, vars)
}

fn extract<T: DeserializeOwned>(
    prefix: &str,
    file_var: &str,
    file: Option<&Path>,
    vars: impl Iterator<Item = (String, String)>,
) -> Result<T, ConfigError> {
    let mut figment = Figment::new();
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::File {
            variable: file_var.to_owned(),
            path: path.to_owned(),
            source,
        })?;
        figment = figment.merge(Toml::string(&text));
    }
    let start = format!("{prefix}_");
    for (name, value) in vars {
        // The variable that names the file is not itself a key.
        let Some(key) = name.strip_prefix(&start).filter(|_| name != file_var) else {
            continue;
        };
        // Parsing into a dynamic value cannot fail: what is nothing else is a string.
        let value: Value = match value.parse() {
            Ok(value) => value,
            Err(never) => match never {},
        };
        figment = figment.merge((key.to_lowercase().replace("__", "."), value));
    }
    figment.extract().map_err(|error| explain(error, prefix, file_var))
}

/// Turns figment's error into one line that says what to do.
fn explain(error: figment::Error, prefix: &str, file_var: &str) -> ConfigError {
    let mut path = error.path.clone();
    // For a missing field the path stops at its parent.
    if let Kind::MissingField(name) = &error.kind {
        path.push(name.to_string());
    }
    let reason = error.kind.to_string();
    if path.is_empty() {
        return ConfigError::Invalid {
            key: "file".to_owned(),
            reason,
            hint: format!("{file_var} to a valid TOML file"),
        };
    }
    let variable = format!("{prefix}_{}", path.join("__").to_uppercase());
    ConfigError::Invalid {
        key: path.join("."),
        reason,
        hint: format!("{variable} or the key in the file named by {file_var}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Sample {
        database: Database,
        #[serde(default)]
        verbose: bool,
    }

    #[derive(Debug, Deserialize)]
    struct Database {
        url: String,
        #[serde(default = "eight")]
        max_connections: u32,
    }

    fn eight() -> u32 {
        8
    }

    fn read(vars: &[(&str, &str)], file: Option<&Path>) -> Result<Sample, ConfigError> {
        let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        extract("APP", "APP_CONFIG", file, vars)
    }

    #[test]
    fn environment_overrides_file_overrides_defaults() {
        let file = std::env::temp_dir().join(format!("service-kit-{}.toml", std::process::id()));
        std::fs::write(&file, "verbose = true\n[database]\nurl = \"file\"\n").unwrap();
        let sample = read(
            &[("APP_DATABASE__URL", "env"), ("APP_CONFIG", "ignored"), ("OTHER_VERBOSE", "false")],
            Some(&file),
        )
        .unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(sample.database.url, "env");
        assert_eq!(sample.database.max_connections, 8);
        assert!(sample.verbose);
    }

    #[test]
    fn missing_key_names_itself_and_its_variable() {
        let error = read(&[("APP_DATABASE__MAX_CONNECTIONS", "4")], None).unwrap_err().to_string();
        assert!(error.contains("database.url"), "{error}");
        assert!(error.contains("APP_DATABASE__URL"), "{error}");
    }

    #[test]
    fn wrong_type_names_its_key() {
        let vars = [("APP_DATABASE__URL", "x"), ("APP_DATABASE__MAX_CONNECTIONS", "many")];
        let error = read(&vars, None).unwrap_err().to_string();
        assert!(error.contains("database.max_connections"), "{error}");
    }

    #[test]
    fn missing_file_is_named() {
        let error = read(&[], Some(Path::new("/no/such/file.toml"))).unwrap_err().to_string();
        assert!(error.contains("/no/such/file.toml") && error.contains("APP_CONFIG"), "{error}");
    }
}

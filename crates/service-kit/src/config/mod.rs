//! Configuration of a process: defaults in the code, a TOML file over them, the environment over both.
//!
//! Defaults are serde defaults of the target type, so that each is documented at its field. This module knows no key
//! by name.

mod env_value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Why the configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file named by the environment cannot be read.
    #[error("cannot read the file {}; set {variable} to a readable file", path.display())]
    File {
        /// The environment variable that names the file.
        variable: String,
        /// The path in that variable.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A key is missing, unknown or of the wrong type, or the file is not TOML.
    #[error("the configuration is invalid at {key}: {reason}; set {hint}")]
    Invalid {
        /// The dotted key, for example `database.url`.
        key: String,
        /// Why its value is refused.
        reason: String,
        /// Where to set it.
        hint: String,
    },
    /// A number is not within its bounds.
    #[error("{section}.{name} ({value}) is from 1 to {max}")]
    OutOfBounds {
        /// The section.
        section: &'static str,
        /// The key within the section.
        name: &'static str,
        /// The configured value.
        value: i64,
        /// The greatest value.
        max: i64,
    },
    /// The process was started with an argument, which would have no effect.
    #[error(
        "the argument {argument:?} is unknown: this process takes none; set the keys in a file named by {file_var}, or as {prefix}_SECTION__KEY in the environment"
    )]
    Argument {
        /// The first argument.
        argument: OsString,
        /// The variable that names the file.
        file_var: String,
        /// The prefix of the variables.
        prefix: String,
    },
    /// A key is set by the environment and by a file that the environment names.
    #[error("the environment sets both {variable} and {variable}{FILE_SUFFIX}; set one of the two")]
    SetTwice {
        /// The variable without its suffix.
        variable: String,
    },
}

/// End of the name of a variable that holds the path of a file with the value, which is how secrets are mounted.
const FILE_SUFFIX: &str = "_FILE";

/// Reads the configuration of a process.
///
/// `prefix` is the environment prefix without its underscore: with `PAYMENTS`, the variable `PAYMENTS_DATABASE__URL`
/// sets `database.url`. `file_var` names the variable that may hold the path of a TOML file; if it is set, the file must
/// exist. Booleans, numbers, `[..]` and `{..}` in an environment value are typed; text that looks like a number needs
/// quotes of its own: `X_TOKEN='"0123"'`. A variable with `_FILE` behind its name holds the path of a file with the value: a list if it
/// begins with `[`, otherwise a text, without the line break at its end.
///
/// # Errors
/// [`ConfigError`], which names the file or the key and how to set it. An argument of the process is refused: it would have no effect.
pub fn load<T: DeserializeOwned>(prefix: &str, file_var: &str) -> Result<T, ConfigError> {
    if let Some(argument) = std::env::args_os().nth(1) {
        return Err(ConfigError::Argument { argument, file_var: file_var.into(), prefix: prefix.into() });
    }
    load_file(prefix, file_var, std::env::var_os(file_var).map(PathBuf::from).as_deref())
}

/// Checks that each number of a section, given with its key and its greatest value, is from 1 to there.
///
/// # Errors
/// [`ConfigError::OutOfBounds`], for the first that is not.
pub fn check_bounds(section: &'static str, numbers: &[(&'static str, i64, i64)]) -> Result<(), ConfigError> {
    match numbers.iter().find(|(_, value, max)| !(1..=*max).contains(value)) {
        Some(&(name, value, max)) => Err(ConfigError::OutOfBounds { section, name, value, max }),
        None => Ok(()),
    }
}

/// As [`load`], with the file given by the caller instead of `file_var`; no file if `None`.
///
/// # Errors
/// As [`load`].
pub fn load_file<T: DeserializeOwned>(
    prefix: &str,
    file_var: &str,
    file: Option<&Path>,
) -> Result<T, ConfigError> {
    // No key of the configuration has a name or value that is not UTF-8.
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    extract(prefix, file_var, file, vars)
}

fn extract<T: DeserializeOwned>(
    prefix: &str,
    file_var: &str,
    file: Option<&Path>,
    vars: impl Iterator<Item = (String, String)>,
) -> Result<T, ConfigError> {
    let mut table = match file {
        Some(path) => read_file(file_var, path)?,
        None => Table::new(),
    };
    let start = format!("{prefix}_");
    // The variable that names the file is not itself a key.
    let vars: BTreeMap<String, String> = vars
        .filter(|(name, _)| name != file_var)
        .filter_map(|(name, value)| Some((name.strip_prefix(&start)?.to_owned(), value)))
        .collect();
    for (name, value) in &vars {
        let (key, value) = match name.strip_suffix(FILE_SUFFIX) {
            None => (name.as_str(), env_value::parse(value)),
            Some(key) if vars.contains_key(key) => {
                return Err(ConfigError::SetTwice { variable: format!("{start}{key}") });
            }
            Some(key) => (key, read_value(&format!("{start}{name}"), Path::new(value))?),
        };
        insert(&mut table, &key.to_lowercase().split("__").collect::<Vec<_>>(), value);
    }
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| explain(&error, prefix, file_var))
}

/// The value in a file of its own.
fn read_value(variable: &str, path: &Path) -> Result<Value, ConfigError> {
    let text = read_text(variable, path)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    Ok(if text.starts_with('[') { env_value::parse(text) } else { Value::String(text.to_owned()) })
}

fn read_text(variable: &str, path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::File {
        variable: variable.to_owned(),
        path: path.to_owned(),
        source,
    })
}

fn read_file(file_var: &str, path: &Path) -> Result<Table, ConfigError> {
    let text = read_text(file_var, path)?;
    text.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |read| read.matches('\n').count() + 1);
        ConfigError::Invalid {
            key: "file".to_owned(),
            reason: format!("line {line}: {}", error.message()),
            hint: format!("{file_var} to a valid TOML file"),
        }
    })
}

/// Sets the value at `path`. A table is merged into the table that is there; every other value replaces.
fn insert(table: &mut Table, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() && !value.is_table() {
        table.insert((*first).to_owned(), value);
        return;
    }
    let entry = table.entry(*first).or_insert_with(|| Value::Table(Table::new()));
    if !entry.is_table() {
        *entry = Value::Table(Table::new());
    }
    let Value::Table(inner) = entry else { return };
    match value {
        Value::Table(values) if rest.is_empty() => {
            values.into_iter().for_each(|(key, value)| insert(inner, &[&key], value));
        }
        value => insert(inner, rest, value),
    }
}

/// Turns a serde error into one line that says which key to set, and where.
fn explain(error: &serde_path_to_error::Error<toml::de::Error>, prefix: &str, file_var: &str) -> ConfigError {
    let reason = without_value(error.inner().message());
    let mut path: Vec<String> = match error.path().to_string() {
        path if path == "." => Vec::new(),
        path => path.split('.').map(str::to_owned).collect(),
    };
    // The path of a missing field ends at its parent.
    let missing = reason.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    path.extend(missing.map(str::to_owned));
    let variable = format!("{prefix}_{}", path.join("__").to_uppercase());
    ConfigError::Invalid {
        key: path.join("."),
        reason,
        hint: format!("{variable} or the key in the file named by {file_var}"),
    }
}

/// The reason without the text that was refused, which may be a secret.
fn without_value(reason: &str) -> String {
    match (reason.split_once("string \""), reason.rsplit_once("\", expected")) {
        (Some((before, _)), Some((_, expected))) => format!("{before}a text, expected{expected}"),
        _ => reason.to_owned(),
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
    #[serde(deny_unknown_fields)]
    struct Database {
        url: String,
        #[serde(default = "eight")]
        max_connections: u32,
        #[serde(default)]
        hosts: Vec<String>,
    }

    fn eight() -> u32 {
        8
    }

    fn read(vars: &[(&str, &str)], file: Option<&Path>) -> Result<Sample, ConfigError> {
        let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        extract("APP", "APP_CONFIG", file, vars)
    }

    /// A file with this text for the length of the closure.
    fn with_file<T>(name: &str, text: &str, read: impl FnOnce(&Path) -> T) -> T {
        let file = std::env::temp_dir().join(format!("service-kit-{name}-{}.toml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let outcome = read(&file);
        std::fs::remove_file(&file).unwrap();
        outcome
    }

    #[test]
    fn environment_overrides_configuration_file_and_file_overrides_defaults() {
        let sample = with_file("order", "verbose = true\n[database]\nurl = \"file\"\n", |file| {
            let vars = [("APP_DATABASE__URL", "env"), ("APP_CONFIG", "ignored"), ("OTHER_VERBOSE", "false")];
            read(&vars, Some(file)).unwrap()
        });
        assert_eq!(sample.database.url, "env");
        assert_eq!(sample.database.max_connections, 8);
        assert!(sample.verbose);
    }

    #[test]
    fn tables_in_environment_variables_are_merged_into_the_configuration() {
        let sample = with_file("merge", "[database]\nurl = \"file\"\nmax_connections = 3\n", |file| {
            let vars = [("APP_DATABASE", "{max_connections = 4, hosts = [a, b]}"), ("APP_VERBOSE", "true")];
            read(&vars, Some(file)).unwrap()
        });
        let Database { url, max_connections, hosts } = sample.database;
        assert_eq!((url.as_str(), max_connections), ("file", 4));
        assert_eq!(hosts, ["a", "b"]);
        assert!(sample.verbose);
    }

    #[test]
    fn a_value_is_read_from_the_file_that_its_variable_names() {
        // As it would be a number in a variable.
        let sample = with_file("value", "3e5\n", |file| {
            read(&[("APP_DATABASE__URL_FILE", file.to_str().unwrap())], None).unwrap()
        });
        assert_eq!(sample.database.url, "3e5");
        let sample = with_file("list", "[\"a\", \"b\"]\r\n", |file| {
            let hosts = ("APP_DATABASE__HOSTS_FILE", file.to_str().unwrap());
            read(&[("APP_DATABASE__URL", "x"), hosts], None).unwrap()
        });
        assert_eq!(sample.database.hosts, ["a", "b"]);
    }

    #[test]
    fn a_value_file_that_cannot_be_read_or_competes_is_refused() {
        let missing = ("APP_DATABASE__URL_FILE", "/no/such/secret");
        let error = read(&[missing], None).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot read the file /no/such/secret; set APP_DATABASE__URL_FILE to a readable file"
        );
        let error = read(&[missing, ("APP_DATABASE__URL", "x")], None).unwrap_err().to_string();
        assert!(error.contains("both APP_DATABASE__URL and APP_DATABASE__URL_FILE"), "{error}");
    }

    #[test]
    fn no_error_shows_a_value() {
        let vars = [("APP_DATABASE__URL", "x"), ("APP_DATABASE__HOSTS", "whsec_secret\", expected")];
        let error = read(&vars, None).unwrap_err().to_string();
        assert!(error.contains("database.hosts") && error.contains("expected a sequence"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_missing_configuration_key_is_named_with_its_variable() {
        let error = read(&[("APP_DATABASE__MAX_CONNECTIONS", "4")], None).unwrap_err().to_string();
        assert!(error.contains("database.url"), "{error}");
        assert!(error.contains("APP_DATABASE__URL"), "{error}");
    }

    #[test]
    fn an_unknown_configuration_key_is_named_with_its_variable() {
        let vars = [("APP_DATABASE__URL", "x"), ("APP_DATABASE__HOST", "y")];
        let error = read(&vars, None).unwrap_err().to_string();
        assert!(error.contains("database.host: unknown field `host`"), "{error}");
        assert!(error.contains("APP_DATABASE__HOST"), "{error}");
    }

    #[test]
    fn a_configuration_value_of_a_wrong_type_is_named_by_its_key() {
        let vars = [("APP_DATABASE__URL", "x"), ("APP_DATABASE__MAX_CONNECTIONS", "many")];
        let error = read(&vars, None).unwrap_err().to_string();
        assert!(error.contains("database.max_connections"), "{error}");
    }

    #[test]
    fn a_missing_configuration_file_is_named() {
        let error = read(&[], Some(Path::new("/no/such/file.toml"))).unwrap_err().to_string();
        assert!(error.contains("/no/such/file.toml") && error.contains("APP_CONFIG"), "{error}");
    }

    #[test]
    fn a_toml_syntax_error_is_reported_with_its_line_and_without_the_value() {
        let error = with_file("syntax", "verbose = true\n[database]\nurl = secret\n", |file| {
            read(&[], Some(file)).unwrap_err().to_string()
        });
        assert!(error.contains("line 3") && error.contains("APP_CONFIG"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

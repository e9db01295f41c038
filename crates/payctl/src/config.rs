//! The service's configuration file, as the service's own processes read it: sections `[database]`,
//! `[temporal]` and `[switches]`, overridden by the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use payment_ledger::{DatabaseOptions, Ledger};
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{AccountId, SwitchName};
use serde::Deserialize;
use switch_client::config::SwitchOptions;
use workflow_api::TemporalOptions;

use crate::database;

/// Configuration that `./dev up` runs; the default where it exists.
const DEMO: &str = "deploy/demo.toml";

/// Path of the configuration file.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file of the service; PAYMENTS_SECTION__KEY in the environment overrides a key [default:
    /// deploy/demo.toml if that exists]
    #[arg(long, value_name = "FILE", env = "PAYMENTS_CONFIG")]
    config: Option<PathBuf>,
}

/// The sections that payctl uses. No `Debug`: `switches` holds API tokens.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    database: DatabaseOptions,
    /// Connection to Temporal.
    pub(crate) temporal: TemporalOptions,
    /// The configured switches, unchecked, so that payctl can also show a profile with which the service does not
    /// start.
    switches: BTreeMap<String, serde_json::Value>,
}

/// One configured switch.
#[derive(Clone, Debug)]
pub(crate) struct SwitchConfig {
    /// Address, routes and token.
    pub(crate) options: SwitchOptions,
    /// The profile, safe or not.
    pub(crate) profile: SwitchProfile,
}

impl ConfigArgs {
    /// Reads the configuration.
    ///
    /// # Errors
    /// The file cannot be opened, or a key is invalid.
    pub(crate) fn read(&self) -> anyhow::Result<Config> {
        let demo = Some(Path::new(DEMO)).filter(|demo| demo.exists());
        let file = self.config.as_deref().or(demo);
        Ok(service_kit::config::load_file("PAYMENTS", "PAYMENTS_CONFIG", file)?)
    }
}

impl Config {
    /// Opens the ledger and checks that its database is migrated.
    ///
    /// # Errors
    /// The database is unreachable or not migrated; the message names the setting or command that helps.
    pub(crate) async fn ledger(&self) -> anyhow::Result<Ledger> {
        let pool = self.database.clone().pool(&database::program())?;
        database::check(&pool.inner().connect_options(), "--config and PAYMENTS_DATABASE__URL").await?;
        Ok(Ledger::new(pool))
    }

    /// Every configured switch, by name.
    ///
    /// # Errors
    /// A switch's section is invalid.
    pub(crate) fn switches(&self) -> anyhow::Result<Vec<SwitchConfig>> {
        self.switches.iter().map(|(name, section)| parse(name, section)).collect()
    }

    /// The switch that serves a destination; `None` if no route matches. The longest prefix wins.
    ///
    /// # Errors
    /// A switch's section is invalid.
    pub(crate) fn switch_of(&self, destination: &AccountId) -> anyhow::Result<Option<SwitchConfig>> {
        let longest = |switch: &SwitchConfig| {
            let matching =
                switch.options.routes.iter().filter(|prefix| destination.as_str().starts_with(*prefix));
            matching.map(String::len).max()
        };
        let switches = self.switches()?.into_iter();
        let serving = switches.filter_map(|switch| longest(&switch).map(|length| (length, switch)));
        Ok(serving.max_by_key(|(length, _)| *length).map(|(_, switch)| switch))
    }

    /// The switch with this name.
    ///
    /// # Errors
    /// No switch has this name, or its section is invalid.
    pub(crate) fn switch(&self, name: &SwitchName) -> anyhow::Result<SwitchConfig> {
        let known = || self.switches.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let section = self.switches.get(name.as_str());
        let section = section.with_context(|| match self.switches.is_empty() {
            true => format!("switch {name} is not configured: no switch is; check --config"),
            false => format!("switch {name} is not configured; configured: {}", known()),
        })?;
        parse(name.as_str(), section)
    }
}

fn parse(name: &str, section: &serde_json::Value) -> anyhow::Result<SwitchConfig> {
    let invalid = || format!("[switches.{name}] is invalid");
    let options: SwitchOptions = serde_json::from_value(section.clone()).with_context(invalid)?;
    let profile = options.read_profile(&SwitchName::new(name).with_context(invalid)?)?;
    Ok(SwitchConfig { options, profile })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: fn(&mut serde_json::Value)) -> Config {
        let mut section = serde_json::json!({"base_url": "https://x", "api_token": "hidden", "routes": ["FR"],
            "profile": {"strategy": "query", "has_query": false, "deduplicates": true, "retention_s": 1,
                "tombstones": true, "honours_deadline": true, "max_skew_ms": 1, "can_cancel": true,
                "can_recall": true, "has_callback": true}});
        change(&mut section);
        Config { switches: [("acme".to_owned(), section)].into(), ..Config::default() }
    }

    #[test]
    fn payctl_reads_an_unsafe_switch_profile_and_hides_its_token() {
        let acme = config(|_| {}).switch(&SwitchName::new("acme").unwrap()).unwrap();
        assert!(acme.profile.check().is_err());
        assert_eq!(acme.profile.switch.as_str(), "acme");
        assert!(!format!("{acme:?}").contains("hidden"));
    }

    #[test]
    fn a_payctl_configuration_error_names_the_missing_switch_or_invalid_key() {
        let error =
            |config: Config| format!("{:#}", config.switch(&SwitchName::new("nobody").unwrap()).unwrap_err());
        assert_eq!(error(config(|_| {})), "switch nobody is not configured; configured: acme");
        assert!(error(Config::default()).contains("no switch is"));
        let wrong = config(|section| section["profile"]["has_qery"] = true.into());
        let error = format!("{:#}", wrong.switches().unwrap_err());
        assert!(error.contains("[switches.acme.profile]"), "{error}");
        assert!(error.contains("there is no key has_qery; check its spelling"), "{error}");
    }
}

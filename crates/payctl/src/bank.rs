//! The bank's own configuration, which operators' commands work on as the bank's processes do: the
//! `[database]`, `[temporal]` and `[switches]` of one file, the environment over it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use payment_ledger::{DatabaseOptions, Ledger};
use payment_protocol::SwitchProfile;
use payment_protocol::ids::SwitchName;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use switch_client::config::SwitchOptions;
use workflow_api::TemporalOptions;

use crate::database;

/// Read when no file is named and it is there: the demonstration that `./dev up` runs.
const DEMO: &str = "deploy/demo.toml";

/// Where the configuration is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BankArgs {
    /// The bank's configuration; PAYMENTS_SECTION__KEY in the environment overrides its keys [default:
    /// deploy/demo.toml where that is there]
    #[arg(long, value_name = "FILE", env = "PAYMENTS_CONFIG")]
    config: Option<PathBuf>,
}

/// The sections that operators need. Not to be shown: the switches' hold their tokens.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Bank {
    database: DatabaseOptions,
    /// Where the workflows are.
    pub(crate) temporal: TemporalOptions,
    /// Unchecked, so that a profile which the bank's processes refuse can be looked at too.
    switches: BTreeMap<String, serde_json::Value>,
}

/// One configured switch.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    /// Address and token.
    pub(crate) options: SwitchOptions,
    /// What the configuration says of it, safe or not.
    pub(crate) profile: SwitchProfile,
}

impl BankArgs {
    /// Reads it.
    ///
    /// # Errors
    /// When the file cannot be opened, or a key is not as it must be.
    pub(crate) fn read(&self) -> anyhow::Result<Bank> {
        let demo = Some(Path::new(DEMO)).filter(|demo| demo.exists());
        let file = self.config.as_deref().or(demo);
        Ok(service_kit::config::load_file("PAYMENTS", "PAYMENTS_CONFIG", file)?)
    }
}

impl Bank {
    /// The ledger in a database that is there and migrated.
    ///
    /// # Errors
    /// When it is not, or cannot be reached; the message names the setting or the command that helps.
    pub(crate) async fn ledger(&self) -> anyhow::Result<Ledger> {
        let pool = self.database.clone().pool("payctl")?;
        let place = database::place(&self.database.url.expose_secret().parse()?);
        let migrated = database::is_up_to_date(&pool)
            .await
            .with_context(|| format!("{place} cannot be opened; see --config, PAYMENTS_DATABASE__URL"))?;
        anyhow::ensure!(migrated, "{place} is not up to date; run: payctl migrate");
        Ok(Ledger::new(pool))
    }

    /// Every configured switch, by name.
    ///
    /// # Errors
    /// When a section cannot be read.
    pub(crate) fn switches(&self) -> anyhow::Result<Vec<Switch>> {
        self.switches.iter().map(|(name, section)| read(name, section)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// When there is none of that name, or its section cannot be read.
    pub(crate) fn switch(&self, name: &SwitchName) -> anyhow::Result<Switch> {
        let known = || self.switches.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let section = self.switches.get(name.as_str());
        let section = section.with_context(|| match self.switches.is_empty() {
            true => format!("no switch is configured, so there is no {name}; see --config"),
            false => format!("no switch {name} is configured; there are: {}", known()),
        })?;
        read(name.as_str(), section)
    }
}

fn read(name: &str, section: &serde_json::Value) -> anyhow::Result<Switch> {
    let unreadable = || format!("[switches.{name}] cannot be read");
    // The name stands over the section, not in it.
    let mut profile = section.get("profile").cloned().unwrap_or_default();
    if let Some(fields) = profile.as_object_mut() {
        fields.insert("switch".into(), name.into());
    }
    Ok(Switch {
        options: serde_json::from_value(section.clone()).with_context(unreadable)?,
        profile: serde_json::from_value(profile).with_context(unreadable)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bank(change: fn(&mut serde_json::Value)) -> Bank {
        let mut section = serde_json::json!({"base_url": "http://x", "api_token": "hidden", "routes": ["FR"],
            "profile": {"strategy": "query", "has_query": false, "deduplicates": true, "retention_s": 1,
                "tombstones": true, "honours_deadline": true, "max_skew_ms": 1, "can_cancel": true,
                "can_recall": true, "has_callback": true}});
        change(&mut section);
        Bank { switches: [("acme".to_owned(), section)].into(), ..Bank::default() }
    }

    #[test]
    fn a_refused_profile_can_be_looked_at_and_its_token_is_not_shown() {
        let acme = bank(|_| {}).switch(&SwitchName::new("acme").unwrap()).unwrap();
        assert!(acme.profile.check().is_err());
        assert_eq!(acme.profile.switch.as_str(), "acme");
        assert!(!format!("{acme:?}").contains("hidden"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let said =
            |bank: Bank| format!("{:#}", bank.switch(&SwitchName::new("nobody").unwrap()).unwrap_err());
        assert_eq!(said(bank(|_| {})), "no switch nobody is configured; there are: acme");
        assert!(said(Bank::default()).contains("no switch is configured"));
        let wrong = bank(|section| section["profile"]["has_qery"] = true.into());
        let said = format!("{:#}", wrong.switches().unwrap_err());
        assert!(said.starts_with("[switches.acme] cannot be read: unknown field `has_qery`"), "{said}");
    }
}

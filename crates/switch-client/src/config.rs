//! The configured switches, and the routing of destination accounts to them.
//!
//! ```toml
//! [switches.mock]
//! base_url = "https://switch.example"
//! api_token = "..."
//! callback_secrets = ["whsec_..."]
//! routes = ["DE", "FR"]          # prefixes of the destination account; the longest match wins
//! [switches.mock.profile]
//! strategy = "query"
//! ...
//!
//! [switches.instant]
//! rail = "sct_inst"              # the shipped profile of a real rail; `profile` names only what differs, and the bank's own part
//! ...                            # of the rail's ids
//! [switches.instant.profile]
//! participant = "DEMODEFF"
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use link_kit::Link;
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{AccountId, SwitchName};
use payment_protocol::profile::{ConfirmByQuery, ProfileError, Rail};
use payment_protocol::rail_id::MintError;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::client::SwitchKind;
use crate::link::link_of;

/// Section `[switches]`, unchecked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Switches(BTreeMap<String, SwitchOptions>);

/// Options of one switch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchOptions {
    /// URL of its API, without a trailing slash.
    pub base_url: String,
    /// Accept an `http:` URL of another machine, because the link is encrypted by other means: the token that sends transfers and the
    /// answers to queries travel there. Default false.
    #[serde(default)]
    pub allow_plaintext: bool,
    /// PEM file of the certificate authorities that may vouch for the switch; no other is trusted. `None`: those of the operating system.
    #[serde(default)]
    pub ca_path: Option<PathBuf>,
    /// PEM file of the certificate chain and the private key (PKCS #8) by which the switch knows the bank. `None`: the token alone.
    #[serde(default)]
    pub client_identity_path: Option<PathBuf>,
    /// Sent as `Authorization: Bearer`. Needed by the processes that send requests to the switch; see [`SecretsOf`].
    #[serde(default)]
    pub api_token: Option<SecretString>,
    /// Secrets that sign its callbacks (`whsec_` and base64); several during a rotation. Needed by payments-api.
    #[serde(default)]
    pub callback_secrets: Vec<SecretString>,
    /// Prefixes of the destination accounts that it serves; the longest match wins.
    #[serde(default)]
    pub routes: Vec<String>,
    /// From this sum of the bank's open claims on, in each currency and in minor units, the switch's new payments are refused. `None`:
    /// they are never refused for that.
    #[serde(default)]
    pub claims_limit_minor: Option<i64>,
    /// The format in which the switch talks. Default `http_json`.
    #[serde(default = "default_kind")]
    pub kind: SwitchKind,
    /// The rail whose shipped profile is this switch's; `None` if `profile` has every field.
    #[serde(default)]
    rail: Option<Rail>,
    /// See [`SwitchProfile`]; with `rail`, the fields that differ from the rail's. The section's name is the switch's name.
    #[serde(default)]
    profile: serde_json::Map<String, serde_json::Value>,
}

fn default_kind() -> SwitchKind {
    SwitchKind::HttpJson
}

/// The secrets of switches that a process needs. It keeps no others, whatever its configuration holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretsOf {
    /// It sends requests to the switches: their API tokens.
    Requests,
    /// It receives the callbacks of the switches: the secrets that sign them.
    Callbacks,
}

/// A configuration that is rejected at start-up.
#[derive(Debug, thiserror::Error)]
pub enum SwitchConfigError {
    /// No switch is configured.
    #[error("no switch is configured; add a [switches.NAME] section")]
    None,
    /// The name of a switch is invalid.
    #[error(
        "the configuration section [switches.{0:?}] has an invalid switch name; use A-Z, a-z, 0-9, '.', '_', ':' and '-'"
    )]
    Name(String),
    /// The profile is malformed.
    #[error("the configuration section [switches.{switch}.profile] is malformed: {detail}")]
    Malformed {
        /// The switch.
        switch: String,
        /// The error of the parser.
        detail: String,
    },
    /// The profile is unsafe.
    #[error(
        "the configuration section [switches.{switch}.profile] is unsafe, so the process does not start; {nearest}"
    )]
    Unsafe {
        /// The switch.
        switch: String,
        /// The nearest safe profile.
        nearest: NearestSafeProfile,
        /// Why the profile is unsafe.
        #[source]
        source: ProfileError,
    },
    /// The bank's own part of the rail's ids is missing or malformed.
    #[error(
        "the configuration section [switches.{switch}.profile] lacks what the ids of the rail need, so the process does not start"
    )]
    Participant {
        /// The switch.
        switch: String,
        /// What is needed.
        #[source]
        source: MintError,
    },
    /// The switch sends callbacks that cannot be verified.
    #[error(
        "the configuration section [switches.{0}] has has_callback = true but no callback_secrets; add the secret with which the switch signs its callbacks"
    )]
    NoSecret(String),
    /// Requests to the switch would carry no token.
    #[error(
        "the configuration section [switches.{0}] has no api_token; add the token by which the switch knows the bank"
    )]
    NoToken(String),
    /// The URL of the switch is no HTTP URL.
    #[error(
        "the configuration section [switches.{0}] has a base_url that is no HTTP URL; write it like https://switch.example"
    )]
    Url(String),
    /// The token and the answers of the switch would travel in clear.
    #[error(
        "the configuration section [switches.{0}] has an http: base_url of another machine: the token that sends transfers and the answers to queries would travel in clear; write https:, or set allow_plaintext = true if the link is encrypted by other means"
    )]
    Plaintext(String),
    /// The limit of the bank's open claims is negative.
    #[error(
        "the configuration section [switches.{0}] has a negative claims_limit_minor; write an amount in minor units, or 0 so that the first open claim stops new payments"
    )]
    NegativeClaimsLimit(String),
    /// Two switches have the same route.
    #[error(
        "the switches {one} and {other} both have the route {prefix:?} in the configuration; remove the route from one of them"
    )]
    RouteTwice {
        /// The prefix.
        prefix: String,
        /// The first switch with the route.
        one: String,
        /// The other switch.
        other: String,
    },
}

/// The changes that lead to the nearest safe profile, as configuration lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearestSafeProfile(Option<Vec<String>>);

impl NearestSafeProfile {
    fn to(profile: &SwitchProfile) -> Self {
        Self(profile.nearest_safe().map(|(changes, _)| changes))
    }
}

impl fmt::Display for NearestSafeProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(changes) => write!(f, "nearest safe profile: {}", changes.join(", ")),
            None => f.write_str("no change of the profile makes it safe; use another switch"),
        }
    }
}

/// Switches whose configuration was checked.
#[derive(Clone, Debug)]
pub struct CheckedSwitches {
    switches: BTreeMap<SwitchName, (SwitchOptions, SwitchProfile)>,
    /// Prefix and switch, the longest prefix first.
    routes: Vec<(String, SwitchName)>,
}

impl Switches {
    /// Checks every profile, and that the process has its secrets. A profile whose payments may need an operator is accepted with a
    /// warning.
    ///
    /// # Errors
    /// [`SwitchConfigError`]: the first invalid switch.
    pub fn check(self, secrets: SecretsOf) -> Result<CheckedSwitches, SwitchConfigError> {
        if self.0.is_empty() {
            return Err(SwitchConfigError::None);
        }
        let mut switches = BTreeMap::new();
        let mut routes: Vec<(String, SwitchName)> = Vec::new();
        for (text, mut options) in self.0 {
            let name = SwitchName::new(text.as_str()).map_err(|_| SwitchConfigError::Name(text.clone()))?;
            let profile = options.read_profile(&name)?;
            let warnings = profile.check().map_err(|source| SwitchConfigError::Unsafe {
                switch: text.clone(),
                nearest: NearestSafeProfile::to(&profile),
                source,
            })?;
            profile
                .check_participant()
                .map_err(|source| SwitchConfigError::Participant { switch: text.clone(), source })?;
            for warning in warnings {
                tracing::warn!(switch = %name, %warning, "the profile of a switch is safe but has a warning: payments through the switch may need an operator");
            }
            match (secrets, link_of(&options.base_url)) {
                (SecretsOf::Requests, None) => return Err(SwitchConfigError::Url(text)),
                (SecretsOf::Requests, Some(Link::Plaintext)) if !options.allow_plaintext => {
                    return Err(SwitchConfigError::Plaintext(text));
                }
                _ => {}
            }
            match secrets {
                SecretsOf::Requests if options.api_token.is_none() => {
                    return Err(SwitchConfigError::NoToken(text));
                }
                SecretsOf::Callbacks if profile.has_callback && options.callback_secrets.is_empty() => {
                    return Err(SwitchConfigError::NoSecret(text));
                }
                SecretsOf::Requests => options.callback_secrets.clear(),
                SecretsOf::Callbacks => options.api_token = None,
            }
            match options.claims_limit_minor {
                Some(limit) if limit < 0 => return Err(SwitchConfigError::NegativeClaimsLimit(text)),
                None if profile.restore_customer_after_ms.is_some() => {
                    tracing::warn!(switch = %name, "the bank advances restored amounts for a switch without claims_limit_minor: no sum of open claims stops its new payments or raises an alert");
                }
                _ => {}
            }
            for prefix in &options.routes {
                if let Some((_, other)) = routes.iter().find(|(taken, _)| taken == prefix) {
                    return Err(SwitchConfigError::RouteTwice {
                        prefix: prefix.clone(),
                        one: other.to_string(),
                        other: text,
                    });
                }
                routes.push((prefix.clone(), name.clone()));
            }
            switches.insert(name, (options, profile));
        }
        routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(CheckedSwitches { switches, routes })
    }
}

impl CheckedSwitches {
    /// The profile of the switch that serves a destination; `None` if no route matches. The longest prefix wins.
    #[must_use]
    pub fn route(&self, destination: &AccountId) -> Option<&SwitchProfile> {
        let (_, name) = self.routes.iter().find(|(prefix, _)| destination.as_str().starts_with(prefix))?;
        self.switches.get(name).map(|(_, profile)| profile)
    }

    /// Secrets of a switch's callbacks; `None` if the switch is not configured.
    #[must_use]
    pub fn callback_secrets(&self, switch: &str) -> Option<&[SecretString]> {
        let name = SwitchName::new(switch).ok()?;
        self.switches.get(&name).map(|(options, _)| options.callback_secrets.as_slice())
    }

    /// The limit of the bank's open claims of a switch; `None` without one.
    #[must_use]
    pub fn claims_limit_minor(&self, switch: &SwitchName) -> Option<i64> {
        self.switches.get(switch).and_then(|(options, _)| options.claims_limit_minor)
    }

    /// The secrets that this process keeps, each with the name of its setting.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &str)> {
        self.switches.iter().flat_map(|(name, (options, _))| {
            let token =
                options.api_token.iter().map(move |token| (format!("switches.{name}.api_token"), token));
            let secrets = options.callback_secrets.iter();
            let secrets = secrets.map(move |secret| (format!("switches.{name}.callback_secrets"), secret));
            token.chain(secrets).map(|(setting, secret)| (setting, secret.expose_secret()))
        })
    }

    /// Every switch with its options and profile.
    pub fn iter(&self) -> impl Iterator<Item = (&SwitchName, &SwitchOptions, &SwitchProfile)> {
        self.switches.iter().map(|(name, (options, profile))| (name, options, profile))
    }
}

impl SwitchOptions {
    /// The profile of the switch with this name, which is the section's key and not one of its fields. Whether the profile is safe
    /// is not checked.
    ///
    /// # Errors
    /// [`SwitchConfigError::Malformed`]: a key is missing, unknown or has a wrong value.
    pub fn read_profile(&self, name: &SwitchName) -> Result<SwitchProfile, SwitchConfigError> {
        let malformed = |detail| SwitchConfigError::Malformed { switch: name.to_string(), detail };
        let mut fields = serde_json::Map::new();
        if let Some(rail) = self.rail {
            let shipped = rail.profile(name).map_err(|error| malformed(error.to_string()))?;
            if let Ok(serde_json::Value::Object(shipped)) = serde_json::to_value(shipped) {
                fields = shipped;
            }
        }
        fields.extend(self.profile.clone());
        let chooses_confirmation = fields.contains_key("confirm_by_query");
        fields.insert("switch".into(), name.as_str().into());
        // A stored profile may have fields of a later release, which are ignored; a misspelt key must not be.
        let mut unknown = None;
        let read = serde_ignored::deserialize(serde_json::Value::Object(fields), |key| {
            unknown.get_or_insert_with(|| key.to_string());
        });
        let mut profile: SwitchProfile =
            read.map_err(|error: serde_json::Error| malformed(error.to_string()))?;
        if !chooses_confirmation && profile.can_confirm_by_query() {
            profile.confirm_by_query = ConfirmByQuery::Always;
        }
        match unknown {
            Some(unknown) => Err(malformed(format!("there is no key {unknown}; check its spelling"))),
            None => Ok(profile),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches(json: serde_json::Value) -> Switches {
        serde_json::from_value(json).unwrap()
    }

    fn switch(routes: &[&str], change: &[(&str, serde_json::Value)]) -> serde_json::Value {
        let mut profile = serde_json::json!({
            "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
            "tombstones": true, "honours_deadline": true, "max_skew_ms": 1_000, "can_cancel": true,
            "can_recall": true, "has_callback": true,
        });
        for (key, value) in change {
            profile[*key] = value.clone();
        }
        serde_json::json!({"base_url": "https://x", "api_token": "t", "callback_secrets": ["whsec_x"],
            "routes": routes, "profile": profile})
    }

    #[test]
    fn the_longest_matching_prefix_routes_a_destination_to_its_switch() {
        let checked =
            switches(serde_json::json!({"a": switch(&["DE"], &[]), "b": switch(&["DE12", ""], &[])}))
                .check(SecretsOf::Callbacks)
                .unwrap();
        let route = |account: &str| {
            checked.route(&AccountId::new(account).unwrap()).map(|profile| profile.switch.to_string())
        };
        assert_eq!(route("DE99"), Some("a".into()));
        assert_eq!(route("DE123"), Some("b".into()));
        assert_eq!(route("FR1"), Some("b".into()));
    }

    #[test]
    fn a_callback_is_confirmed_by_a_query_unless_the_configuration_says_otherwise() {
        let confirmed = |change: &[(&str, serde_json::Value)]| {
            let checked = switches(serde_json::json!({"a": switch(&[""], change)}))
                .check(SecretsOf::Callbacks)
                .unwrap();
            checked.route(&AccountId::new("DE1").unwrap()).unwrap().confirm_by_query
        };
        assert_eq!(confirmed(&[]), ConfirmByQuery::Always);
        assert_eq!(confirmed(&[("confirm_by_query", "never".into())]), ConfirmByQuery::Never);
        let above = serde_json::json!({"above": 100_000});
        assert_eq!(confirmed(&[("confirm_by_query", above)]), ConfirmByQuery::Above(100_000));
        let limited = [("strategy", "reference".into()), ("asks_max", 3.into())];
        assert_eq!(confirmed(&limited), ConfirmByQuery::Never, "a query is refused when it comes too often");
        let silent = [("has_callback", false.into())];
        assert_eq!(
            confirmed(&silent),
            ConfirmByQuery::Always,
            "nor is a callback believed that nobody expects"
        );
    }

    #[test]
    fn a_limit_of_claims_is_an_amount_of_its_switch() {
        let checked = |limit: serde_json::Value| {
            let mut limited = switch(&[""], &[]);
            limited["claims_limit_minor"] = limit;
            switches(serde_json::json!({"a": limited})).check(SecretsOf::Callbacks)
        };
        let name = |name: &str| SwitchName::new(name).unwrap();
        for (limit, expected) in
            [(0.into(), Some(0)), (5_000.into(), Some(5_000)), (serde_json::json!(null), None)]
        {
            let switches = checked(limit).unwrap();
            assert_eq!(switches.claims_limit_minor(&name("a")), expected);
            assert_eq!(switches.claims_limit_minor(&name("b")), None);
        }
        let error = checked((-1).into()).unwrap_err();
        assert!(matches!(&error, SwitchConfigError::NegativeClaimsLimit(name) if name == "a"), "{error}");
    }

    #[test]
    fn each_process_keeps_the_secrets_of_its_side_alone() {
        let kept = |secrets_of| {
            let checked = switches(serde_json::json!({"a": switch(&[""], &[])})).check(secrets_of).unwrap();
            let kept = checked.secrets().map(|(setting, secret)| format!("{setting} = {secret}"));
            kept.collect::<Vec<_>>()
        };
        assert_eq!(kept(SecretsOf::Requests), ["switches.a.api_token = t"]);
        assert_eq!(kept(SecretsOf::Callbacks), ["switches.a.callback_secrets = whsec_x"]);
    }

    #[test]
    fn a_destination_without_a_route_has_no_switch() {
        let checked =
            switches(serde_json::json!({"a": switch(&["DE"], &[])})).check(SecretsOf::Callbacks).unwrap();
        assert!(checked.route(&AccountId::new("FR1").unwrap()).is_none());
        assert!(checked.callback_secrets("nobody").is_none());
        assert_eq!(checked.callback_secrets("a").unwrap().len(), 1);
    }

    #[test]
    fn a_switch_takes_the_shipped_profile_of_its_rail_and_overrides_single_fields() {
        let mut instant = switch(&["DE"], &[]);
        instant["rail"] = "sct_inst".into();
        instant["profile"] = serde_json::json!({"sla_ms": 1_000, "asks_max": 0, "participant": "DEMODEFF"});
        let checked = switches(serde_json::json!({"instant": instant})).check(SecretsOf::Callbacks).unwrap();
        let (name, _, profile) = checked.iter().next().unwrap();
        let shipped = Rail::SctInst.profile(name).unwrap();
        let participant = Some("DEMODEFF".to_owned());
        assert_eq!(*profile, SwitchProfile { sla_ms: 1_000, participant, ..shipped });
        for missing in [serde_json::json!({}), serde_json::json!({"participant": "DEMO"})] {
            instant["profile"] = missing;
            let error = switches(serde_json::json!({"instant": instant.clone()}))
                .check(SecretsOf::Callbacks)
                .unwrap_err();
            let SwitchConfigError::Participant { source, .. } = error else { panic!("{error}") };
            let expected = "id_scheme = \"sct_inst\" needs participant, the bank's BIC, 8 or 11 characters of A-Z and 0-9; set participant in the switch's profile";
            assert_eq!(source.to_string(), expected);
        }
        instant["profile"] = serde_json::json!({"sla": 1_000});
        let error = switches(serde_json::json!({"instant": instant.clone()}))
            .check(SecretsOf::Callbacks)
            .unwrap_err();
        assert!(error.to_string().contains("there is no key sla"), "{error}");
        instant["rail"] = "sct".into();
        assert!(serde_json::from_value::<Switches>(serde_json::json!({"instant": instant})).is_err());
    }

    #[test]
    fn an_unsafe_or_malformed_switch_profile_is_rejected_with_the_reason() {
        let error = |json| switches(json).check(SecretsOf::Callbacks).unwrap_err();
        assert!(matches!(error(serde_json::json!({})), SwitchConfigError::None));
        let unsafe_profile = switch(&[], &[("has_query", false.into())]);
        assert!(matches!(
            error(serde_json::json!({"a": unsafe_profile})),
            SwitchConfigError::Unsafe { source: ProfileError::QueryWithoutQuery, .. }
        ));
        assert_eq!(
            error(serde_json::json!({"a": switch(&[], &[("has_query", false.into())])})).to_string(),
            "the configuration section [switches.a.profile] is unsafe, so the process does not start; nearest safe profile: strategy = \"reference\""
        );
        let mute = ["has_query", "can_cancel", "has_callback"].map(|field| (field, false.into()));
        let mute = switch(&[], &[&mute[..], &[("strategy", "reference".into())]].concat());
        assert_eq!(
            error(serde_json::json!({"a": mute})).to_string(),
            "the configuration section [switches.a.profile] is unsafe, so the process does not start; no change of the profile makes it safe; use another switch"
        );
        let unknown_field = switch(&[], &[("has_qery", true.into())]);
        assert!(matches!(
            error(serde_json::json!({"a": unknown_field})),
            SwitchConfigError::Malformed { .. }
        ));
        assert!(matches!(
            error(serde_json::json!({"a": switch(&["DE"], &[]), "b": switch(&["DE"], &[])})),
            SwitchConfigError::RouteTwice { .. }
        ));
    }

    #[test]
    fn a_switch_of_another_machine_is_reached_in_clear_only_if_the_configuration_accepts_it() {
        let check = |change: &[(&str, serde_json::Value)], secrets| {
            let mut section = switch(&[], &[]);
            for (key, value) in change {
                section[*key] = value.clone();
            }
            switches(serde_json::json!({"a": section})).check(secrets).map(|_| ())
        };
        let plain = ("base_url", "http://switch.example".into());
        let error = check(std::slice::from_ref(&plain), SecretsOf::Requests).unwrap_err();
        assert!(matches!(error, SwitchConfigError::Plaintext(_)), "{error}");
        assert!(error.to_string().contains("allow_plaintext = true"), "{error}");
        check(&[plain.clone(), ("allow_plaintext", true.into())], SecretsOf::Requests).unwrap();
        check(&[("base_url", "http://127.0.0.1:1".into())], SecretsOf::Requests).unwrap();
        let error = check(&[("base_url", "switch.example".into())], SecretsOf::Requests).unwrap_err();
        assert!(matches!(error, SwitchConfigError::Url(_)), "{error}");
        // A process that sends the switch nothing.
        check(&[plain], SecretsOf::Callbacks).unwrap();
    }

    #[test]
    fn a_process_keeps_the_secrets_that_it_needs_and_requires_no_others() {
        let settings = |json: &serde_json::Value, secrets| {
            let checked = switches(serde_json::json!({"a": json.clone()})).check(secrets);
            checked.map(|checked| checked.secrets().map(|(setting, _)| setting).collect::<Vec<_>>())
        };
        let mut both = switch(&[], &[]);
        assert_eq!(settings(&both, SecretsOf::Requests).unwrap(), ["switches.a.api_token"]);
        assert_eq!(settings(&both, SecretsOf::Callbacks).unwrap(), ["switches.a.callback_secrets"]);

        let without = |key: &str| {
            let mut section = both.clone();
            section.as_object_mut().unwrap().remove(key);
            section
        };
        let (no_token, no_secrets) = (without("api_token"), without("callback_secrets"));
        assert!(settings(&no_secrets, SecretsOf::Requests).is_ok());
        assert!(settings(&no_token, SecretsOf::Callbacks).is_ok());
        let error = settings(&no_token, SecretsOf::Requests).unwrap_err();
        assert!(matches!(error, SwitchConfigError::NoToken(_)), "{error}");
        let error = settings(&no_secrets, SecretsOf::Callbacks).unwrap_err();
        assert!(matches!(error, SwitchConfigError::NoSecret(_)), "{error}");
        both["callback_secrets"] = serde_json::json!([]);
        assert!(settings(&both, SecretsOf::Callbacks).is_err());
    }
}

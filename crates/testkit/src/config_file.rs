//! The configuration file of one system; all its processes read it.

use anyhow::Context as _;
use serde_json::Value;

use crate::system::{OTHER_SECRET, SWITCH_SECRET, SWITCH_TOKEN, SystemOptions, WEBHOOKS_MASTER_KEY};
use crate::temporal::PAYLOAD_KEY;

/// Renders the file. The switches have the addresses `base_url` and `other_url`.
pub(crate) fn render(
    temporal_address: &str,
    task_queue: &str,
    (base_url, other_url): (&str, &str),
    options: &SystemOptions,
) -> anyhow::Result<String> {
    let rail = |rail: Option<&str>| rail.map(|rail| format!("rail = {rail:?}\n")).unwrap_or_default();
    let profile = |profile: &Value| -> anyhow::Result<String> {
        let fields = profile.as_object().context("the switch profile is not a JSON object")?;
        Ok(fields.iter().map(|(field, value)| format!("{field} = {value}\n")).collect())
    };
    let link_files = |is_encrypted: bool| match &options.link_files {
        Some(files) if is_encrypted => {
            format!(
                "ca_path = {:?}\nclient_identity_path = {:?}\n",
                files.ca_path, files.client_identity_path
            )
        }
        _ => String::new(),
    };
    let reconciliation = |every_s: u32| {
        let window =
            if every_s > 0 { format!("reconciliation_window_s = {}\n", 3 * every_s) } else { String::new() };
        format!("reconciliation_interval_s = {every_s}\nfull_reconciliation_interval_s = {every_s}\n{window}")
    };
    let mut text = format!(
        "[temporal]\naddress = {temporal_address:?}\ntask_queue = {task_queue:?}\npayload_keys = [{PAYLOAD_KEY:?}]\n{}\n\
         [api]\nmetrics_listen = \"127.0.0.1:0\"\ndocs = true\n\n\
         [worker]\nliveness_check_after_ms = {}\nliveness_check_interval_ms = 500\ncached_workflows = {}\n\
         lock_grants_max = {}\n\
         {}\n\
         [background_worker]\nbackoff_ms = 100\nmetrics_interval_ms = {}\n\n\
         [broker]\nurl = {:?}\n{}\n[notifier]\nack_wait_ms = 5000\n\n\
         [operator_api]\nmetrics_listen = \"127.0.0.1:0\"\n\n\
         [outbound_webhooks]\nmaster_key = {WEBHOOKS_MASTER_KEY:?}\nallow_http = true\nallowed_ports = []\n\
         allowed_networks = [\"127.0.0.0/8\"]\nattempt_timeout_ms = 3000\nlease_ms = 6000\n\
         pauses_ms = [100, 200, 500, 1000, 2000, 5000, 5000, 5000, 5000, 5000, 5000]\n\n\
         [switches.mock]\nbase_url = {base_url:?}\napi_token = {SWITCH_TOKEN:?}\n\
         callback_secrets = [{SWITCH_SECRET:?}]\nroutes = [\"XX\"]\n{}{}\n[switches.mock.profile]\n{}",
        link_files(temporal_address.starts_with("https:")),
        options.liveness_check_after_ms,
        options.cached_workflows,
        options.lock_grants_max,
        reconciliation(options.reconciliation_interval_s),
        options.metrics_interval_ms,
        options.broker_url,
        link_files(options.broker_url.starts_with("tls:")),
        rail(options.rail),
        options.claims_limit_minor.map(|minor| format!("claims_limit_minor = {minor}\n")).unwrap_or_default(),
        profile(&options.profile)?,
    );
    if let Some(other) = &options.other {
        text.push_str(&format!(
            "\n[switches.other]\nbase_url = {other_url:?}\napi_token = {SWITCH_TOKEN:?}\n\
             callback_secrets = [{OTHER_SECRET:?}]\nroutes = [\"YY\"]\n{}\n[switches.other.profile]\n{}",
            rail(other.rail),
            profile(&other.profile)?,
        ));
    }
    Ok(text)
}

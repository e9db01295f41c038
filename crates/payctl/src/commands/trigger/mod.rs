//! `payctl trigger`: makes one failure case happen on the demo, narrates it, and compares the books with what must hold; or
//! sends one webhook event to a receiver under development.
//!
//! | module | responsibility |
//! |---|---|
//! | `cases` | the cases: what each does and how it must end |
//! | `play` | makes the payment and acts on it |
//! | `operators` | what the demo's operators do to it |
//! | `compare` | expected and seen, side by side |
//! | `webhook_event` | a signed event with fields overridden |

mod cases;
mod compare;
mod operators;
mod play;
mod webhook_event;

use std::time::Duration;

use anyhow::Context as _;
use payment_ledger::events::EventKind;
use payment_protocol::ids::AccountId;
use reqwest::Url;
use service_kit::shutdown;
use tokio::time::Instant;

use crate::api::{ApiArgs, http_client, is_local};
use crate::config::{Config, ConfigArgs};
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{Align, Table};

use cases::{CASES, Case};
use operators::DemoOperators;
use play::Play;

/// Time for the answer of a mock switch.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Make a failure case happen on the demo, or send a webhook event; without a name, list the cases
///
/// A case makes a payment whose amount makes the mock switch misbehave, kills workers of this machine and acts as the demo's operators,
/// as the case asks for, narrates it, and compares the books. It runs only where every switch is a mock switch of this machine, and
/// only if the switch of the destination has what the case shows: a rail has no cancel, for example.
///
/// The name of a kind of event, like transfer_failed, sends the example of that kind, signed, to the URL of --forward-to; no
/// payment is made.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Name of a case, or kind of a webhook event
    name: Option<String>,
    /// Id of the account to charge
    #[arg(long, value_name = "ACCOUNT", default_value = "DE-ALICE-EUR", value_parser = super::id::<AccountId>)]
    from: AccountId,
    /// Id of the account to pay
    #[arg(long, value_name = "ACCOUNT", default_value = "FR-CAROL-EUR", value_parser = super::id::<AccountId>)]
    to: AccountId,
    /// Longest time for the case, in seconds, 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout_s: u64,
    /// URL of operator-api on this machine, for the cases in which the demo's operators act
    #[arg(long, value_name = "URL", env = "PAYCTL_OPERATOR_API", default_value = "http://127.0.0.1:8081")]
    operator_api: Url,
    #[command(flatten)]
    api: ApiArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    event: webhook_event::EventArgs,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let Some(name) = &args.name else {
        out.write_line(list())?;
        let kinds = super::event_kinds();
        out.write_line(format_args!("\nkinds of webhook events, with --forward-to: {kinds}"))?;
        return Ok(CommandOutcome::Success);
    };
    if let Some(kind) = EventKind::parse(name) {
        return webhook_event::send(kind, &args.event, out).await;
    }
    let case = cases::find(name)
        .with_context(|| format!("there is no case {name}; payctl trigger without a name lists them"))?;
    let config = args.config.read()?;
    require_needs(case, &config, &args.to)?;
    refuse_real_switches(&config).await?;
    let ledger = config.ledger().await?;
    let api = args.api.client()?;
    let operators = match case.actions.iter().any(|action| action.is_of_operators()) {
        true => Some(log_in_operators(&args.operator_api, out).await?),
        false => None,
    };
    let deadline = Instant::now() + Duration::from_secs(args.timeout_s);
    let mut play =
        Play::new(case, &config, &ledger, &api, operators.as_ref(), (&args.from, &args.to), deadline);
    let interrupted = shutdown::on_signals();
    let outcome = tokio::select! {
        outcome = play.run(out) => outcome,
        () = interrupted.cancelled() => Err(anyhow::anyhow!("interrupted; the payment goes on without payctl")),
    };
    // A frozen account would refuse the payments that come after the case, also after an interrupted one.
    let unfrozen = play.unfreeze().await;
    if let Some(operators) = &operators {
        operators.log_out().await;
    }
    match (outcome, unfrozen) {
        (Err(error), Err(frozen)) => Err(error.context(format!("{frozen:#}"))),
        (outcome, unfrozen) => unfrozen.and(outcome),
    }
}

/// Logs the demo's operators in; their password is public, and is sent to this machine only.
async fn log_in_operators(operator_api: &Url, out: &mut Output<'_>) -> anyhow::Result<DemoOperators> {
    anyhow::ensure!(
        is_local(operator_api),
        "nothing was triggered: operator-api at {operator_api} (--operator-api, PAYCTL_OPERATOR_API) is not on this machine; payctl \
         trigger is for the demo"
    );
    DemoOperators::log_in(operator_api, out).await
}

fn list() -> Table<4> {
    let left = Align::Left;
    let mut table = Table::new([("case", left), ("of", left), ("ends", left), ("what happens", left)]);
    for case in CASES {
        let source = match case.takes_sla {
            true => format!("{}, takes the SLA", case.source),
            false => case.source.to_owned(),
        };
        table.row([case.name, &source, case.ends.as_str(), case.text]);
    }
    table
}

/// Fails if the switch of the destination lacks what the case shows.
fn require_needs(case: &Case, config: &Config, destination: &AccountId) -> anyhow::Result<()> {
    // The API refuses a destination without a switch.
    let Some(switch) = config.switch_of(destination)? else { return Ok(()) };
    let unmet = case.needs.iter().find(|need| !need.is_met(&switch.profile));
    let Some(need) = unmet else { return Ok(()) };
    anyhow::bail!(
        "nothing was triggered: the case {} needs {}, which the profile of switch {} excludes; start ./dev up without --rail and \
         --strategy, or pay an account of another switch that can show it (--to)",
        case.name,
        need.text(),
        switch.profile.switch,
    )
}

/// Fails unless every configured switch is a mock switch of this machine: a case moves money and kills workers.
async fn refuse_real_switches(config: &Config) -> anyhow::Result<()> {
    let switches = config.switches()?;
    anyhow::ensure!(!switches.is_empty(), "no switch is configured; check --config");
    for switch in switches {
        let name = &switch.profile.switch;
        let url: Url = switch
            .options
            .base_url
            .parse()
            .with_context(|| format!("the base_url of switch {name} is not a URL"))?;
        anyhow::ensure!(
            is_local(&url),
            "nothing was triggered: switch {name} at {url} is not on this machine; payctl trigger is for the demo"
        );
        let book = format!("{}/admin/book?limit=1", url.as_str().trim_end_matches('/'));
        let answer = http_client(&url)?.get(book).timeout(PROBE_TIMEOUT).send().await.with_context(|| {
            format!("nothing was triggered: switch {name} at {url} does not answer; start it with ./dev up")
        })?;
        anyhow::ensure!(
            answer.status().is_success(),
            "nothing was triggered: switch {name} at {url} is not a mock switch (its admin interface answered {})",
            answer.status()
        );
    }
    Ok(())
}

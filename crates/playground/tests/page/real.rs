//! The real processes: each lesson in a real Chromium, and every other fault with the figures of the simulation.

use std::path::Path;
use std::sync::Arc;

use futures::future::join_all;
use playground::lessons::LESSONS;
use playground::real::{Config, Engine, RealError};
use playground::run::{Outcome, Run};
use playground::schedule::{Drop, Fault, Schedule};
use playground::server::Page;
use playground::simulation::{DEFAULT_PROFILE, simulate};
use testkit::environment::TestEnvironment;
use tokio::sync::mpsc;

use super::{assert_lessons, drive, serve};

/// Engines at once: a run waits for timeouts most of its time.
const ENGINES: usize = 3;

fn engine() -> Engine {
    let servers = TestEnvironment::load().unwrap();
    let config = Config {
        database_url: servers.database_url,
        temporal_address: servers.temporal_address,
        logs: servers.scratch,
        temporal_ui: None,
    };
    Engine::new(config).unwrap()
}

async fn run(engine: &Engine, schedule: &Schedule) -> Result<Run, RealError> {
    let (reader, _) = mpsc::channel(1);
    engine.run(schedule, reader).await
}

/// Every fault at every instant onto which it can be dropped, alone or with what it needs, that no lesson has.
fn cells() -> Vec<Schedule> {
    let drops =
        Fault::ALL.iter().flat_map(|fault| fault.instants().iter().map(|at| Drop { at: *at, fault: *fault }));
    let needs = ["", ",submit-answered:lose", ",waiting:freeze"];
    let schedule = |drop: Drop| needs.iter().find_map(|need| format!("{drop}{need}").parse().ok());
    let cells = drops.map(|drop| -> Schedule { schedule(drop).expect("a fault that no schedule can have") });
    cells.filter(|cell| LESSONS.iter().all(|lesson| lesson.schedule.parse() != Ok(cell.clone()))).collect()
}

fn figures(outcome: &Outcome) -> (&str, i64, i64) {
    (&outcome.answer, outcome.charged_minor, outcome.left_minor)
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_2_each_fault_on_the_real_processes_has_the_figures_of_the_simulation() {
    let cells = cells();
    assert_eq!(cells.len(), 16, "25 places less those of the lessons");
    let engines: Vec<_> = (0..ENGINES).map(|_| engine()).collect();
    let compare = async |number: usize| {
        let mut differences = Vec::new();
        for schedule in cells.iter().skip(number).step_by(ENGINES) {
            let simulated = simulate(DEFAULT_PROFILE, schedule).unwrap();
            match run(&engines[number], schedule).await {
                Ok(real) => {
                    let steps: Vec<_> = real.steps.iter().map(|step| format!("{step:?}")).collect();
                    let real = [figures(&real.with_keys), figures(&real.without_keys)];
                    let simulated = [figures(&simulated.with_keys), figures(&simulated.without_keys)];
                    if real != simulated {
                        let steps = steps.join("\n");
                        differences
                            .push(format!("{schedule}: real {real:?}, simulated {simulated:?}\n{steps}"));
                    }
                }
                Err(error) => differences.push(format!("{schedule}: {error}")),
            }
        }
        differences
    };
    let differences: Vec<_> = join_all((0..ENGINES).map(compare)).await.into_iter().flatten().collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_2_a_visitor_breaks_a_real_payment_in_chromium() {
    let address = serve(Page { real: Some(Arc::new(engine())), traces: None }).await;
    let picture = std::env::var_os("UPDATE_PICTURES")
        .map(|_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/crash-window.png"));
    assert_lessons(&drive(&address, "real", picture.as_deref()).await);
}

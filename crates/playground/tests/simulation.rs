//! The simulation: every lesson has its figures, and the service is right in every schedule of one or two faults at every switch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use playground::lessons::{Expected, LESSONS};
use playground::run::{AMOUNT_MINOR, Outcome, Side};
use playground::schedule::{Drop, Fault, Instant, Schedule};
use playground::simulation::{DEFAULT_PROFILE, SimulationError, profile_names, simulate};

fn figures(outcome: &Outcome) -> (String, i64, i64) {
    (outcome.answer.clone(), outcome.charged_minor / AMOUNT_MINOR, outcome.left_minor / AMOUNT_MINOR)
}

fn wanted(expected: Expected) -> (String, i64, i64) {
    (expected.answer.to_owned(), expected.charged, expected.left)
}

/// Every fault at every instant where it can happen.
fn drops() -> Vec<Drop> {
    let at =
        |fault: &Fault| fault.instants().iter().map(|at| Drop { at: *at, fault: *fault }).collect::<Vec<_>>();
    Fault::ALL.iter().flat_map(at).collect()
}

#[test]
fn s2_2_every_lesson_ends_with_its_figures() {
    for lesson in LESSONS {
        let run = simulate(DEFAULT_PROFILE, &lesson.schedule.parse().unwrap()).unwrap();
        assert_eq!(figures(&run.with_keys), wanted(lesson.with_keys), "{}", lesson.name);
        assert_eq!(figures(&run.without_keys), wanted(lesson.without_keys), "{}", lesson.name);
        assert!(run.with_keys.is_right(), "{}", lesson.name);
        assert!(!run.without_keys.is_right(), "{}", lesson.name);
    }
}

#[test]
fn s2_2_every_fault_is_shown_at_its_instant_on_both_sides() {
    for lesson in LESSONS {
        let schedule: Schedule = lesson.schedule.parse().unwrap();
        let run = simulate(DEFAULT_PROFILE, &schedule).unwrap();
        for drop in schedule.drops() {
            let shown = |side| {
                run.steps
                    .iter()
                    .any(|step| (step.side, step.at, step.fault) == (side, drop.at, Some(drop.fault)))
            };
            assert!(shown(Side::WithKeys), "{}: {drop}", lesson.name);
            // The naive client asks for nothing back.
            assert_eq!(shown(Side::WithoutKeys), drop.at != Instant::Recall, "{}: {drop}", lesson.name);
        }
    }
}

#[test]
fn s2_2_a_charge_is_narrated_exactly_when_it_is_booked() {
    for (schedule, charged) in [("debit:crash", 0), ("waiting:freeze", 0), ("reserve:crash", 1), ("", 1)] {
        let run = simulate(DEFAULT_PROFILE, &schedule.parse().unwrap()).unwrap();
        let narrated = run
            .steps
            .iter()
            .filter(|step| step.side == Side::WithKeys && step.text.contains("the customer is charged"));
        // A debit whose worker dies is narrated as the fault.
        assert_eq!(narrated.count(), charged, "{schedule}: {:#?}", run.steps);
    }
}

#[test]
fn s2_2_the_service_is_right_with_any_two_faults() {
    let drops = drops();
    let mut ran = 0;
    for (n, first) in drops.iter().enumerate() {
        for second in &drops[n..] {
            let both = if first == second { vec![*first] } else { vec![*first, *second] };
            let Ok(schedule) = Schedule::new(both) else { continue };
            match simulate(DEFAULT_PROFILE, &schedule) {
                Ok(run) => {
                    assert!(run.with_keys.is_right(), "{schedule}: {:?}", run.with_keys);
                    ran += 1;
                }
                Err(SimulationError::NotAtThisSwitch { .. }) => {}
                Err(error) => panic!("{schedule}: {error}"),
            }
        }
    }
    assert!(ran > 100, "{ran} schedules ran");
}

#[test]
fn s2_2_the_service_is_right_at_every_accepted_switch() {
    let (mut ran, mut failed) = (0, Vec::new());
    for profile in profile_names().unwrap() {
        for drop in drops() {
            let Ok(schedule) = Schedule::new(vec![drop]) else { continue };
            match simulate(&profile, &schedule) {
                Ok(run) => {
                    assert!(run.with_keys.is_right(), "{profile} {schedule}: {:?}", run.with_keys);
                    ran += 1;
                }
                Err(SimulationError::NotAtThisSwitch { .. }) => {}
                Err(error) => failed.push(format!("{profile} {schedule}: {error}")),
            }
        }
    }
    assert!(failed.is_empty(), "{} of {}: {}", failed.len(), failed.len() + ran, failed.join("\n"));
    assert!(ran > 1_000, "{ran} runs");
}

#[test]
fn a_switch_that_the_protocol_refuses_is_refused_with_the_reason() {
    let error = simulate("query:callback", &Schedule::default()).unwrap_err().to_string();
    assert!(error.starts_with("the switch profile \"query:callback\" is not accepted: "), "{error}");
    let error = simulate("query:fax", &Schedule::default()).unwrap_err().to_string();
    assert!(error.contains("unknown capability \"fax\"; use one of query, dedup,"), "{error}");
}

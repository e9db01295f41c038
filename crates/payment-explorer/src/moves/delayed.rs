//! Zombies and requests in transit: they continue at any later moment, and nobody awaits their result.

use super::answers::{CallResult, call_results};
use super::collector::MoveList;
use super::payment::{activity_name, ledger_transaction};
use crate::replay::Progress;
use crate::state::{Request, Zombie};
use crate::words::CallAndResult;

pub(super) fn add(list: &mut MoveList<'_>) {
    zombies(list);
    requests(list);
}

fn zombies(list: &mut MoveList<'_>) {
    let model = list.model;
    for (at, zombie) in list.from.zombies.iter().enumerate() {
        match zombie {
            Zombie::Ledger(call, run) => list.benign(
                |next| {
                    next.zombies.remove(at);
                    ledger_transaction(model.profile(), &mut next.bank, call, *run);
                },
                || format!("late: ledger: {call}"),
            ),
            Zombie::Attempt(attempt) => {
                let activity = model.activity(attempt.activity);
                let progress = model.attempt_at(attempt.activity, &attempt.history);
                let Progress::Awaits(call) = &*progress else { continue };
                for result in call_results(model, list.from, attempt.run, &activity, call) {
                    let CallResult { mut next, reply, benign, description } = result;
                    let mut continued = attempt.clone();
                    continued.history.push(model.attempt_exchange(call.clone(), reply));
                    next.zombies.remove(at);
                    if let Progress::Awaits(_) = &*model.attempt_at(continued.activity, &continued.history) {
                        next.zombies.push(Zombie::Attempt(continued));
                    }
                    list.push(next, benign, || {
                        format!("late: {}: {}", activity_name(&activity), CallAndResult(call, description))
                    });
                }
            }
        }
    }
}

/// Adds the arrivals of requests in transit, at any later moment or never.
fn requests(list: &mut MoveList<'_>) {
    let (model, from) = (list.model, list.from);
    for (at, request) in from.in_transit.iter().enumerate() {
        match request {
            Request::Send => {
                for handling in from.switch.submit_choices(model.profile(), from.clock) {
                    list.benign(
                        |next| {
                            next.in_transit.remove(at);
                            next.switch.submit(model.profile(), handling);
                        },
                        || {
                            let words = from.switch.submit_words(model.profile(), handling);
                            format!("late: the submit arrives: {words}")
                        },
                    );
                }
            }
            Request::Cancel => list.benign(
                |next| {
                    next.in_transit.remove(at);
                    next.switch.cancel(model.profile());
                },
                || "late: the cancel arrives".into(),
            ),
            Request::Recall => {
                for returns in [true, false] {
                    list.benign(
                        |next| {
                            next.in_transit.remove(at);
                            next.switch.recall(returns);
                        },
                        || format!("late: the recall arrives; the switch returns the money: {returns}"),
                    );
                }
            }
        }
    }
}

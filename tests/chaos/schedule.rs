//! Which fault happens when: drawn from the seed alone, so that the same seed gives the same schedule.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use testkit::proxy::Direction;

/// A process of the bank, or the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Worker,
    SecondWorker,
    Api,
    BackgroundWorker,
    Notifier,
    Switch,
}

/// A connection between two of them, or to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    CustomersToApi,
    WorkerToDatabase,
    SecondWorkerToDatabase,
    ApiToDatabase,
    BackgroundWorkerToDatabase,
    NotifierToDatabase,
    SwitchToDatabase,
    WorkerToTemporal,
    SecondWorkerToTemporal,
    ApiToTemporal,
    BackgroundWorkerToTemporal,
    BackgroundWorkerToBroker,
    NotifierToBroker,
    WorkerToSwitch,
    SecondWorkerToSwitch,
    SwitchToApi,
}

/// A fault. Each but a cut and a silence lasts until it is healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL; healed by a start.
    Kill(Program),
    /// SIGTERM, and SIGKILL when it is healed by a start.
    Terminate(Program),
    /// SIGSTOP, healed by SIGCONT: the process goes on as if no time had passed.
    Freeze(Program),
    /// PostgreSQL's immediate shutdown, in the middle of transactions.
    StopDatabase,
    /// SIGSTOP for each of PostgreSQL's processes, healed by SIGCONT: its connections stay open, and nothing answers.
    FreezeDatabase,
    /// SIGKILL for one PostgreSQL backend: the server ends every session and recovers.
    KillSession,
    /// Every session of the database ends.
    CutSessions,
    KillTemporal,
    FreezeTemporal,
    KillBroker,
    FreezeBroker,
    /// Every connection of the link is cut, now.
    Cut(Link),
    /// Every connection of the link is silent for ever: neither side hears of it.
    Silence(Link),
    /// Cut after some more bytes of one direction.
    CutAfter(Link, Direction, u64),
    /// The bytes of one direction are held back: a partition one way.
    HoldOneWay(Link, Direction),
    /// Both directions.
    Hold(Link),
    /// New connections are closed, and the others are cut.
    Refuse(Link),
    /// Each chunk of bytes is late by these milliseconds, in both directions.
    Slow(Link, u64),
    /// Operators freeze the accounts of the customers who pay now.
    FreezeAccounts,
    /// An operator terminates the workflow of an open payment.
    TerminateWorkflow,
    /// The switch settles a transfer that no payment ordered.
    UnorderedTransfer,
}

/// All processes.
pub(crate) const PROGRAMS: [Program; 6] = [
    Program::Worker,
    Program::SecondWorker,
    Program::Api,
    Program::BackgroundWorker,
    Program::Notifier,
    Program::Switch,
];

/// All links.
pub(crate) const LINKS: [Link; 16] = [
    Link::CustomersToApi,
    Link::WorkerToDatabase,
    Link::SecondWorkerToDatabase,
    Link::ApiToDatabase,
    Link::BackgroundWorkerToDatabase,
    Link::NotifierToDatabase,
    Link::SwitchToDatabase,
    Link::WorkerToTemporal,
    Link::SecondWorkerToTemporal,
    Link::ApiToTemporal,
    Link::BackgroundWorkerToTemporal,
    Link::BackgroundWorkerToBroker,
    Link::NotifierToBroker,
    Link::WorkerToSwitch,
    Link::SecondWorkerToSwitch,
    Link::SwitchToApi,
];

/// What most faults last at most, in milliseconds.
const SHORT_MS: std::ops::Range<u64> = 200..5_000;
/// What some faults last instead, in milliseconds: longer than every time limit of the bank but those of a payment. Ten seconds are the limit
/// of a statement and of an idle transaction, and after ten seconds Temporal gives the tasks of a silent worker to another one.
pub(crate) const LONG_MS: std::ops::Range<u64> = 11_000..20_000;
/// One fault in so many is a long one.
const LONG_ONE_IN: u32 = 6;
/// Of the frozen workers.
const LONG_ONE_IN_FROZEN_WORKERS: u32 = 2;

impl Fault {
    /// The fault without its target, as the report counts it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Kill(_) => "process killed",
            Self::Terminate(_) => "process terminated",
            Self::Freeze(_) => "process frozen",
            Self::StopDatabase => "PostgreSQL stopped immediately",
            Self::FreezeDatabase => "PostgreSQL frozen",
            Self::KillSession => "PostgreSQL backend killed",
            Self::CutSessions => "PostgreSQL sessions ended",
            Self::KillTemporal => "Temporal server killed",
            Self::FreezeTemporal => "Temporal server frozen",
            Self::KillBroker => "broker killed",
            Self::FreezeBroker => "broker frozen",
            Self::Cut(_) => "link cut",
            Self::Silence(_) => "link silent",
            Self::CutAfter(..) => "link cut after some bytes",
            Self::HoldOneWay(..) => "link partitioned one way",
            Self::Hold(_) => "link partitioned",
            Self::Refuse(_) => "link refused",
            Self::Slow(..) => "link slow",
            Self::FreezeAccounts => "accounts frozen",
            Self::TerminateWorkflow => "workflow terminated",
            Self::UnorderedTransfer => "transfer without a payment",
        }
    }

    /// Draws how long it lasts, in milliseconds.
    fn lasts_ms(self, random: &mut ChaCha8Rng) -> u64 {
        let long_one_in = match self {
            Self::Cut(_)
            | Self::Silence(_)
            | Self::KillSession
            | Self::CutSessions
            | Self::TerminateWorkflow
            | Self::UnorderedTransfer => return 0,
            Self::Slow(..) => return random.random_range(2_000..10_000),
            Self::FreezeAccounts => return random.random_range(1_000..4_000),
            Self::Freeze(Program::Worker | Program::SecondWorker) => LONG_ONE_IN_FROZEN_WORKERS,
            _ => LONG_ONE_IN,
        };
        let lasts = if random.random_ratio(1, long_one_in) { LONG_MS } else { SHORT_MS };
        random.random_range(lasts)
    }

    /// Whether it can last longer than the bank's time limits.
    #[cfg(test)]
    fn may_be_long(self) -> bool {
        let mut random = ChaCha8Rng::seed_from_u64(0);
        (0..100).any(|_| LONG_MS.contains(&self.lasts_ms(&mut random)))
    }
}

/// A fault with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// From the start of the run.
    pub(crate) at: Duration,
    /// When it is healed, from the start of the run.
    pub(crate) healed_at: Duration,
    pub(crate) fault: Fault,
}

/// Faults that follow one another; those of different sequences overlap, and never have the same target.
struct Sequence {
    /// Time without a fault before each, in milliseconds.
    gap_ms: std::ops::Range<u64>,
    /// Every fault of the sequence. Each happens once before one happens again.
    faults: fn(&mut ChaCha8Rng) -> Vec<Fault>,
}

const SEQUENCES: [Sequence; 4] = [
    Sequence { gap_ms: 500..3_000, faults: of_programs },
    Sequence { gap_ms: 3_000..9_000, faults: of_servers },
    Sequence { gap_ms: 500..3_000, faults: of_links },
    Sequence { gap_ms: 4_000..8_000, faults: of_operators_and_switch },
];

fn of_programs(_: &mut ChaCha8Rng) -> Vec<Fault> {
    PROGRAMS
        .into_iter()
        .flat_map(|program| [Fault::Kill(program), Fault::Terminate(program), Fault::Freeze(program)])
        .collect()
}

fn of_operators_and_switch(_: &mut ChaCha8Rng) -> Vec<Fault> {
    vec![Fault::FreezeAccounts, Fault::TerminateWorkflow, Fault::UnorderedTransfer]
}

fn of_servers(_: &mut ChaCha8Rng) -> Vec<Fault> {
    vec![
        Fault::StopDatabase,
        Fault::FreezeDatabase,
        Fault::KillSession,
        Fault::CutSessions,
        Fault::KillTemporal,
        Fault::FreezeTemporal,
        Fault::KillBroker,
        Fault::FreezeBroker,
    ]
}

fn of_links(random: &mut ChaCha8Rng) -> Vec<Fault> {
    let mut direction = || if random.random_bool(0.5) { Direction::ToServer } else { Direction::ToClient };
    let directions: Vec<_> = LINKS.iter().map(|_| (direction(), direction())).collect();
    LINKS
        .into_iter()
        .zip(directions)
        .flat_map(|(link, (cut, held))| {
            [
                Fault::Cut(link),
                Fault::Silence(link),
                Fault::CutAfter(link, cut, random.random_range(1..4_000)),
                Fault::HoldOneWay(link, held),
                Fault::Hold(link),
                Fault::Refuse(link),
                Fault::Slow(link, random.random_range(10..500)),
            ]
        })
        .collect()
}

/// Every kind of fault.
pub(crate) fn kinds() -> BTreeSet<&'static str> {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    SEQUENCES.iter().flat_map(|sequence| (sequence.faults)(&mut random)).map(Fault::kind).collect()
}

/// The faults of a run, in the order of their times.
pub(crate) fn draw(seed: u64, length: Duration) -> Vec<Step> {
    let mut steps = Vec::new();
    for (stream, sequence) in (0..).zip(&SEQUENCES) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        let mut at = Duration::ZERO;
        let mut left = Vec::new();
        loop {
            if left.is_empty() {
                left = (sequence.faults)(&mut random);
                left.shuffle(&mut random);
            }
            at += Duration::from_millis(random.random_range(sequence.gap_ms.clone()));
            let Some(fault) = left.pop().filter(|_| at < length) else { break };
            let healed_at = at + Duration::from_millis(fault.lasts_ms(&mut random));
            steps.push(Step { at, healed_at, fault });
            at = healed_at;
        }
    }
    steps.sort_by_key(|step| step.at);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_AN_HOUR: Duration = Duration::from_secs(1_800);

    #[test]
    fn the_same_seed_draws_the_same_faults_and_another_seed_others() {
        let steps = draw(7, HALF_AN_HOUR);
        assert_eq!(steps, draw(7, HALF_AN_HOUR));
        assert_ne!(steps, draw(8, HALF_AN_HOUR));
        // A longer run begins with the faults of a shorter one.
        let begun: Vec<_> = steps.iter().filter(|step| step.at < Duration::from_secs(60)).copied().collect();
        assert_eq!(begun, draw(7, Duration::from_secs(60)));
    }

    #[test]
    fn half_an_hour_has_every_fault_of_every_target_and_twenty_of_each_server() {
        let steps = draw(1, HALF_AN_HOUR);
        let count = |fault: Fault| steps.iter().filter(|step| step.fault.kind() == fault.kind()).count();
        for program in PROGRAMS {
            for fault in [Fault::Kill(program), Fault::Terminate(program), Fault::Freeze(program)] {
                assert!(steps.iter().any(|step| step.fault == fault), "{fault:?}");
            }
        }
        for link in LINKS {
            let of_link = |fault: Fault| {
                matches!(fault, Fault::Cut(of) | Fault::Silence(of) | Fault::CutAfter(of, ..) | Fault::HoldOneWay(of, _)
                    | Fault::Hold(of) | Fault::Refuse(of) | Fault::Slow(of, _) if of == link)
            };
            assert!(steps.iter().filter(|step| of_link(step.fault)).count() >= 7, "{link:?}");
        }
        for fault in [Fault::StopDatabase, Fault::FreezeDatabase, Fault::KillTemporal, Fault::KillBroker] {
            assert!(count(fault) >= 20, "{fault:?}: {}", count(fault));
        }
        let is_long = |step: &&Step| step.healed_at - step.at >= Duration::from_millis(LONG_MS.start);
        let kinds_of =
            |steps: Vec<&Step>| steps.iter().map(|step| step.fault.kind()).collect::<BTreeSet<_>>();
        let long = kinds_of(steps.iter().filter(is_long).collect());
        assert_eq!(long, kinds_of(steps.iter().filter(|step| step.fault.may_be_long()).collect()));
        assert!(long.contains(Fault::FreezeDatabase.kind()) && long.contains("link partitioned one way"));
    }

    #[test]
    fn faults_of_one_sequence_do_not_overlap() {
        let steps = draw(3, HALF_AN_HOUR);
        let of_programs = steps
            .iter()
            .filter(|step| matches!(step.fault, Fault::Kill(_) | Fault::Terminate(_) | Fault::Freeze(_)));
        let times: Vec<_> = of_programs.map(|step| (step.at, step.healed_at)).collect();
        assert!(times.len() > 100 && times.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}

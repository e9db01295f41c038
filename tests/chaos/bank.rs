//! The bank under test: every process and server of its own, and a proxy on each link.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::ensure;
use serde_json::json;
use testkit::cluster::Cluster;
use testkit::environment::TestEnvironment;
use testkit::process::Process;
use testkit::proxy::{Direction, FaultProxy};
use testkit::switch::UNORDERED;
use testkit::system::Proxies;
use testkit::{NatsServer, System, SystemOptions, TemporalServer};
use tokio::time::timeout;

use crate::schedule::{Fault, LINKS, Link, PROGRAMS, Program};

/// SLA of the switch in milliseconds: as long as the slowest sandbox transfers take to settle, so that both happen at once.
const SLA_MS: u64 = 10_000;

/// Pause between two scheduled runs of reconciliation, in seconds.
const RECONCILED_EVERY_S: u32 = 10;
/// Amount of the transfers that no payment ordered, in minor units. The switch settles them.
const UNORDERED_MINOR: i64 = 700;

/// Time limit for the processes to become ready after the faults.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Pause between two looks of the supervisor.
pub(crate) const SUPERVISED_EVERY: Duration = Duration::from_millis(250);
/// Time limit for an answer of the database or the switch, which may be away.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A time in which an account may have been frozen.
pub(crate) struct AccountFreeze {
    pub(crate) account: String,
    pub(crate) from: SystemTime,
    /// `None`: it still may be.
    pub(crate) until: Option<SystemTime>,
}

/// A running bank. The processes that end by themselves are started again, as a supervisor does.
pub(crate) struct Bank {
    pub(crate) system: System,
    second_worker: Process,
    notifier: Process,
    pub(crate) cluster: Cluster,
    temporal: TemporalServer,
    pub(crate) broker: NatsServer,
    pub(crate) links: BTreeMap<Link, FaultProxy>,
    /// Programs that a fault keeps from running, and the servers likewise.
    down: Vec<Fault>,
    /// Accounts that a fault has frozen.
    frozen: Vec<String>,
    /// Accounts that operators are to unfreeze, once the database answers.
    to_unfreeze: Vec<String>,
    /// Every time that accounts were frozen.
    pub(crate) freezes: Vec<AccountFreeze>,
    /// Transfers that no payment ordered, submitted to the switch.
    unordered: u32,
    /// How often the supervisor started a process that had exited by itself.
    pub(crate) exits: usize,
}

impl Bank {
    /// Starts a bank and opens accounts for its customers.
    ///
    /// # Errors
    /// If a process does not become ready; the error has the end of its log.
    pub(crate) async fn start(accounts: &[String]) -> anyhow::Result<Self> {
        let cluster = Cluster::start_sound("chaos").await?;
        let temporal = TemporalServer::start("chaos-temporal").await?;
        let broker = NatsServer::start("chaos-broker").await?;
        let mut environment = TestEnvironment::load()?;
        let mut links = BTreeMap::new();
        for link in LINKS {
            let target = match link {
                Link::WorkerToDatabase
                | Link::SecondWorkerToDatabase
                | Link::ApiToDatabase
                | Link::BackgroundWorkerToDatabase
                | Link::NotifierToDatabase => cluster.address.clone(),
                Link::SwitchToDatabase => environment.database_address()?,
                Link::WorkerToTemporal
                | Link::SecondWorkerToTemporal
                | Link::ApiToTemporal
                | Link::BackgroundWorkerToTemporal => temporal.address.clone(),
                Link::BackgroundWorkerToBroker | Link::NotifierToBroker => {
                    broker.url().replace("nats://", "")
                }
                // Known when the process has started.
                Link::CustomersToApi
                | Link::WorkerToSwitch
                | Link::SecondWorkerToSwitch
                | Link::SwitchToApi => String::new(),
            };
            links.insert(link, FaultProxy::start(&target).await?);
        }
        let address = |link: Link| links[&link].address.clone();
        let through = |link: Link| Some(address(link));
        let direct = Proxies::default();
        let options = SystemOptions {
            sandbox_amounts: true,
            reconciliation_interval_s: RECONCILED_EVERY_S,
            shape: json!({"statement_repeats": true}),
            database_url: Some(cluster.url.clone()),
            broker_url: broker.url().to_owned(),
            proxies: BTreeMap::from([
                (
                    "payment-worker",
                    Proxies {
                        database: through(Link::WorkerToDatabase),
                        temporal: through(Link::WorkerToTemporal),
                        switch: through(Link::WorkerToSwitch),
                        ..direct.clone()
                    },
                ),
                (
                    "payments-api",
                    Proxies {
                        database: through(Link::ApiToDatabase),
                        temporal: through(Link::ApiToTemporal),
                        ..direct.clone()
                    },
                ),
                (
                    "background-worker",
                    Proxies {
                        database: through(Link::BackgroundWorkerToDatabase),
                        temporal: through(Link::BackgroundWorkerToTemporal),
                        broker: through(Link::BackgroundWorkerToBroker),
                        ..direct.clone()
                    },
                ),
                ("mock-switch", Proxies { database: through(Link::SwitchToDatabase), ..direct.clone() }),
            ]),
            callback_proxy: through(Link::SwitchToApi),
            ..SystemOptions::default()
        };
        let options = options
            .with_profile("sla_ms", SLA_MS)
            .with_profile("retry_interval_max_ms", 5_000)
            .with_profile("has_statement", true);
        environment.temporal_address = temporal.url();
        let system = System::start_in(environment, "chaos", options).await?;
        links[&Link::CustomersToApi].set_target(&system.api.address);
        links[&Link::SwitchToApi].set_target(&system.api.address);
        for link in [Link::WorkerToSwitch, Link::SecondWorkerToSwitch] {
            links[&link].set_target(&system.mock_switch.address);
        }
        let second = Proxies {
            database: through(Link::SecondWorkerToDatabase),
            temporal: through(Link::SecondWorkerToTemporal),
            switch: through(Link::SecondWorkerToSwitch),
            ..direct.clone()
        };
        let worker = "payment-worker";
        let second_worker =
            system.start_process_behind(worker, "PAYMENTS_WORKER__METRICS_LISTEN", &second).await?;
        let of_notifier = Proxies {
            database: through(Link::NotifierToDatabase),
            broker: through(Link::NotifierToBroker),
            ..direct
        };
        let notifier = system
            .start_process_behind("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN", &of_notifier)
            .await?;
        for account in accounts {
            system.open_account(account).await?;
        }
        Ok(Self {
            system,
            second_worker,
            notifier,
            cluster,
            temporal,
            broker,
            links,
            down: Vec::new(),
            frozen: Vec::new(),
            to_unfreeze: Vec::new(),
            freezes: Vec::new(),
            unordered: 0,
            exits: 0,
        })
    }

    fn program(&mut self, program: Program) -> &mut Process {
        match program {
            Program::Worker => &mut self.system.worker,
            Program::SecondWorker => &mut self.second_worker,
            Program::Api => &mut self.system.api,
            Program::BackgroundWorker => &mut self.system.background_worker,
            Program::Notifier => &mut self.notifier,
            Program::Switch => &mut self.system.mock_switch,
        }
    }

    fn link(&self, link: Link) -> &FaultProxy {
        &self.links[&link]
    }

    /// Makes a fault happen; `accounts` are those of the customers who pay now. Returns whether it happened: a process may have exited
    /// by itself, a link may have no connection, and what takes a statement needs a database that answers. Of some faults of links,
    /// [`Bank::heal`] knows.
    ///
    /// # Errors
    /// If the fault cannot be made to happen.
    pub(crate) async fn inject(&mut self, fault: Fault, accounts: &[String]) -> anyhow::Result<bool> {
        let mut happened = true;
        match fault {
            // One that has exited by itself is started with the end of the fault.
            Fault::Kill(program) => {
                happened = !self.program(program).has_exited()?;
                if happened {
                    self.program(program).kill().await?;
                }
            }
            Fault::Terminate(program) => {
                happened = !self.program(program).has_exited()?;
                if happened {
                    self.program(program).terminate()?;
                }
            }
            Fault::Freeze(program) => {
                happened = !self.program(program).has_exited()?;
                if happened {
                    self.program(program).pause()?;
                }
            }
            Fault::StopDatabase => {
                let killed = self.cluster.stop_immediately().await?;
                if !killed.is_empty() {
                    println!("PostgreSQL did not stop, and was killed: {killed:?}");
                }
            }
            Fault::FreezeDatabase => self.cluster.pause()?,
            Fault::KillSession => happened = self.kill_session().await,
            Fault::CutSessions => happened = self.cut_sessions().await,
            Fault::KillTemporal => self.temporal.kill().await?,
            Fault::FreezeTemporal => self.temporal.pause()?,
            Fault::KillBroker => self.broker.kill().await?,
            Fault::FreezeBroker => self.broker.pause()?,
            Fault::Cut(link) => {
                happened = self.link(link).connections() > 0;
                self.link(link).cut();
            }
            Fault::Silence(link) => {
                happened = self.link(link).connections() > 0;
                self.link(link).silence();
            }
            Fault::CutAfter(link, direction, bytes) => self.link(link).cut_after(direction, bytes),
            Fault::HoldOneWay(link, direction) => self.link(link).hold(direction),
            Fault::Hold(link) => {
                self.link(link).hold(Direction::ToServer);
                self.link(link).hold(Direction::ToClient);
            }
            Fault::Refuse(link) => {
                happened = self.link(link).connections() > 0;
                self.link(link).refuse(true);
                self.link(link).cut();
            }
            Fault::Slow(link, ms) => {
                self.link(link).delay(Direction::ToServer, Duration::from_millis(ms));
                self.link(link).delay(Direction::ToClient, Duration::from_millis(ms));
            }
            Fault::TerminateWorkflow => happened = self.terminate_a_workflow().await,
            Fault::UnorderedTransfer => {
                self.unordered += 1;
                let reference = format!("{UNORDERED}-{}", self.unordered);
                let submitted = self.system.switch.submit_unordered(&reference, UNORDERED_MINOR);
                happened = matches!(timeout(ANSWERS_WITHIN, submitted).await, Ok(Ok(())));
            }
            Fault::FreezeAccounts => {
                self.frozen = accounts.to_vec();
                let from = SystemTime::now();
                self.freezes.extend(accounts.iter().map(|account| AccountFreeze {
                    account: account.clone(),
                    from,
                    until: None,
                }));
                happened = self.set_status(&self.frozen, "frozen").await;
            }
        }
        self.down.push(fault);
        Ok(happened)
    }

    /// Ends a fault. Returns whether it happened, if it was begun: bytes were held back or delayed, or enough of them passed before a cut.
    ///
    /// # Errors
    /// If a program cannot be started.
    pub(crate) async fn heal(&mut self, fault: Fault) -> anyhow::Result<bool> {
        self.down.retain(|down| *down != fault);
        let happened = match fault {
            Fault::CutAfter(link, direction, _) => !self.link(link).is_cut_due(direction),
            Fault::HoldOneWay(link, direction) => self.link(link).is_affected(direction),
            Fault::Hold(link) | Fault::Slow(link, _) => {
                [Direction::ToServer, Direction::ToClient].iter().any(|way| self.link(link).is_affected(*way))
            }
            _ => true,
        };
        match fault {
            Fault::Kill(program) => self.program(program).spawn()?,
            Fault::Terminate(program) => {
                let program = self.program(program);
                if !program.has_exited()? {
                    program.kill().await?;
                }
                program.spawn()?;
            }
            Fault::Freeze(program) => {
                if !self.program(program).has_exited()? {
                    self.program(program).resume()?;
                }
            }
            Fault::StopDatabase => self.cluster.spawn()?,
            Fault::FreezeDatabase => self.cluster.resume()?,
            Fault::KillTemporal => self.temporal.spawn()?,
            Fault::FreezeTemporal => self.temporal.resume()?,
            Fault::KillBroker => self.broker.spawn()?,
            Fault::FreezeBroker => self.broker.resume()?,
            Fault::KillSession
            | Fault::CutSessions
            | Fault::Cut(_)
            | Fault::Silence(_)
            | Fault::TerminateWorkflow
            | Fault::UnorderedTransfer => {}
            Fault::CutAfter(link, ..)
            | Fault::HoldOneWay(link, _)
            | Fault::Hold(link)
            | Fault::Refuse(link)
            | Fault::Slow(link, _) => self.link(link).heal(),
            Fault::FreezeAccounts => self.to_unfreeze.append(&mut self.frozen),
        }
        Ok(happened)
    }

    /// What a supervisor and operators do meanwhile: starts each process again that has exited though no fault keeps it from
    /// running, and unfreezes accounts.
    ///
    /// # Errors
    /// If a program cannot be started.
    pub(crate) async fn supervise(&mut self) -> anyhow::Result<()> {
        for program in PROGRAMS {
            let is_down = self.down.iter().any(|fault| {
                matches!(fault, Fault::Kill(of) | Fault::Terminate(of) | Fault::Freeze(of) if *of == program)
            });
            if !is_down && self.program(program).has_exited()? {
                self.exits += 1;
                self.program(program).spawn()?;
            }
        }
        if !self.down.contains(&Fault::KillTemporal) && self.temporal.has_exited()? {
            self.temporal.spawn()?;
        }
        if !self.to_unfreeze.is_empty() && self.set_status(&self.to_unfreeze, "active").await {
            let now = SystemTime::now();
            let ended = self.freezes.iter_mut().filter(|freeze| self.to_unfreeze.contains(&freeze.account));
            ended.for_each(|freeze| freeze.until = freeze.until.or(Some(now)));
            self.to_unfreeze.clear();
        }
        Ok(())
    }

    /// Waits until every process and server is ready, and no account is frozen. No fault is left.
    ///
    /// # Errors
    /// If one is not in time; the error has the end of its log.
    pub(crate) async fn wait_ready(&mut self) -> anyhow::Result<()> {
        self.cluster.wait_ready().await?;
        self.supervise().await?;
        self.temporal.wait_healthy().await?;
        let started = Instant::now();
        loop {
            self.supervise().await?;
            let mut waits_for = Vec::new();
            for program in PROGRAMS {
                let program = self.program(program);
                if !program.is_ready().await {
                    waits_for.push(program.name());
                }
            }
            if waits_for.is_empty() && self.to_unfreeze.is_empty() {
                return Ok(());
            }
            ensure!(started.elapsed() < READY_WITHIN, "{waits_for:?} are not ready after the faults");
            tokio::time::sleep(SUPERVISED_EVERY).await;
        }
    }

    /// Ends every session of the database but the one that does; returns whether the database answered.
    async fn cut_sessions(&self) -> bool {
        let sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                        WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let cut = sqlx::query(sessions).execute(&self.system.database.pool);
        matches!(timeout(ANSWERS_WITHIN, cut).await, Ok(Ok(_)))
    }

    /// SIGKILL for a session of the database; returns whether the database answered.
    async fn kill_session(&self) -> bool {
        let newest =
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                      ORDER BY backend_start DESC LIMIT 1";
        let pid = sqlx::query_scalar(newest).fetch_optional(&self.system.database.pool);
        let Ok(Ok(Some(pid))) = timeout(ANSWERS_WITHIN, pid).await else { return false };
        self.cluster.kill_session(pid);
        true
    }

    /// Terminates the workflow of an open payment; returns whether there was one, and the database and Temporal answered.
    async fn terminate_a_workflow(&self) -> bool {
        let newest = "SELECT workflow_id FROM payments WHERE ended_at IS NULL AND started_at IS NOT NULL
                      ORDER BY accepted_at DESC LIMIT 1";
        let open = sqlx::query_scalar::<_, String>(newest).fetch_optional(&self.system.database.pool);
        let Ok(Ok(Some(workflow_id))) = timeout(ANSWERS_WITHIN, open).await else { return false };
        let terminated = self.system.terminate_workflow(&workflow_id);
        matches!(timeout(ANSWERS_WITHIN, terminated).await, Ok(Ok(())))
    }

    /// Whether the database has set the status of the accounts. It may be away.
    async fn set_status(&self, accounts: &[String], status: &str) -> bool {
        let changed = sqlx::query("UPDATE accounts SET status = $2 WHERE account_id = ANY($1)")
            .bind(accounts)
            .bind(status)
            .execute(&self.system.database.pool);
        matches!(timeout(ANSWERS_WITHIN, changed).await, Ok(Ok(_)))
    }
}

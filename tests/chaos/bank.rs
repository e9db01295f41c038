//! The bank under test: every process and server of its own, and a proxy on each link.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use temporalio_client::WorkflowTerminateOptions;
use testkit::cluster::Cluster;
use testkit::environment::TestEnvironment;
use testkit::process::Process;
use testkit::proxy::{Direction, FaultProxy};
use testkit::system::SwitchProxies;
use testkit::{NatsServer, System, SystemOptions, TemporalServer};
use tokio::time::timeout;

use crate::schedule::{Fault, LINKS, Link, PROGRAMS, Program};

/// SLA of the switch in milliseconds: as long as the slowest sandbox transfers take to settle, so that both happen at once.
const SLA_MS: u64 = 10_000;

/// Time limit for a statement of an operator, while the database may be away.
const STATEMENT_WITHIN: Duration = Duration::from_secs(1);

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
        let mut links = BTreeMap::new();
        for link in LINKS {
            let target = match link {
                Link::BankToTemporal => temporal.address.clone(),
                Link::BankToBroker => broker.url().replace("nats://", ""),
                // Known when the process has started.
                Link::CustomersToApi | Link::BankToSwitch | Link::SwitchToApi => String::new(),
                _ => cluster.address.clone(),
            };
            links.insert(link, FaultProxy::start(&target).await?);
        }
        let address = |link: Link| links[&link].address.clone();
        let url = |link: Link| format!("http://{}", address(link));
        let options = SystemOptions {
            sandbox_amounts: true,
            database_url: Some(cluster.url.clone()),
            temporal_address: Some(url(Link::BankToTemporal)),
            broker_url: format!("nats://{}", address(Link::BankToBroker)),
            switch_proxies: Some(SwitchProxies {
                to_switch: url(Link::BankToSwitch),
                to_bank: url(Link::SwitchToApi),
            }),
            database_proxies: BTreeMap::from([
                ("payment-worker", address(Link::WorkerToDatabase)),
                ("payments-api", address(Link::ApiToDatabase)),
                ("background-worker", address(Link::BackgroundWorkerToDatabase)),
            ]),
            ..SystemOptions::default()
        };
        let options = options.with_profile("sla_ms", SLA_MS).with_profile("retry_interval_max_ms", 5_000);
        let mut environment = TestEnvironment::load()?;
        environment.temporal_address = temporal.url();
        let system = System::start_in(environment, "chaos", options).await?;
        links[&Link::CustomersToApi].set_target(&system.api.address);
        links[&Link::SwitchToApi].set_target(&system.api.address);
        links[&Link::BankToSwitch].set_target(&system.mock_switch.address);
        let second = address(Link::SecondWorkerToDatabase);
        let worker = "payment-worker";
        let second_worker =
            system.start_process_behind(worker, "PAYMENTS_WORKER__METRICS_LISTEN", Some(&second)).await?;
        let database = address(Link::NotifierToDatabase);
        let notifier = system
            .start_process_behind("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN", Some(&database))
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

    /// Makes a fault happen; `accounts` are those of the customers who pay now.
    ///
    /// # Errors
    /// If the fault cannot be made to happen.
    pub(crate) async fn inject(&mut self, fault: Fault, accounts: &[String]) -> anyhow::Result<()> {
        match fault {
            // One that has exited by itself is started with the end of the fault.
            Fault::Kill(program) => {
                if !self.program(program).has_exited()? {
                    self.program(program).kill().await?;
                }
            }
            Fault::Terminate(program) => {
                if !self.program(program).has_exited()? {
                    self.program(program).terminate()?;
                }
            }
            Fault::Freeze(program) => {
                if !self.program(program).has_exited()? {
                    self.program(program).pause()?;
                }
            }
            Fault::StopDatabase => self.cluster.stop_immediately().await?,
            Fault::KillSession => self.kill_session().await,
            Fault::CutSessions => self.cut_sessions().await,
            Fault::KillTemporal => self.temporal.kill().await?,
            Fault::FreezeTemporal => self.temporal.pause()?,
            Fault::KillBroker => self.broker.kill().await?,
            Fault::FreezeBroker => self.broker.pause()?,
            Fault::Cut(link) => self.link(link).cut(),
            Fault::CutAfter(link, direction, bytes) => self.link(link).cut_after(direction, bytes),
            Fault::HoldOneWay(link, direction) => self.link(link).hold(direction),
            Fault::Hold(link) => {
                self.link(link).hold(Direction::ToServer);
                self.link(link).hold(Direction::ToClient);
            }
            Fault::Refuse(link) => {
                self.link(link).refuse(true);
                self.link(link).cut();
            }
            Fault::Slow(link, ms) => {
                self.link(link).delay(Direction::ToServer, Duration::from_millis(ms));
                self.link(link).delay(Direction::ToClient, Duration::from_millis(ms));
            }
            Fault::TerminateWorkflow => self.terminate_a_workflow().await,
            Fault::FreezeAccounts => {
                self.frozen = accounts.to_vec();
                self.set_status(&self.frozen, "frozen").await;
            }
        }
        self.down.push(fault);
        Ok(())
    }

    /// Ends a fault.
    ///
    /// # Errors
    /// If a program cannot be started.
    pub(crate) async fn heal(&mut self, fault: Fault) -> anyhow::Result<()> {
        self.down.retain(|down| *down != fault);
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
            Fault::KillTemporal => self.temporal.spawn()?,
            Fault::FreezeTemporal => self.temporal.resume()?,
            Fault::KillBroker => self.broker.spawn()?,
            Fault::FreezeBroker => self.broker.resume()?,
            Fault::KillSession | Fault::CutSessions | Fault::Cut(_) | Fault::TerminateWorkflow => {}
            Fault::CutAfter(link, ..)
            | Fault::HoldOneWay(link, _)
            | Fault::Hold(link)
            | Fault::Refuse(link)
            | Fault::Slow(link, _) => self.link(link).heal(),
            Fault::FreezeAccounts => self.to_unfreeze.append(&mut self.frozen),
        }
        Ok(())
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
            self.to_unfreeze.clear();
        }
        Ok(())
    }

    /// Waits until every process and server is ready. No fault is left.
    ///
    /// # Errors
    /// If one is not in time; the error has the end of its log.
    pub(crate) async fn wait_ready(&mut self) -> anyhow::Result<()> {
        self.cluster.wait_ready().await?;
        self.temporal.wait_healthy().await?;
        self.supervise().await?;
        for program in PROGRAMS {
            let program = self.program(program);
            program.wait_ready().await.with_context(|| format!("{} after the faults", program.name()))?;
        }
        Ok(())
    }

    /// Ends every session of the database but the one that does, if the database answers.
    async fn cut_sessions(&self) {
        let sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                        WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let cut = sqlx::query(sessions).execute(&self.system.database.pool);
        let _ = timeout(STATEMENT_WITHIN, cut).await;
    }

    /// SIGKILL for a session of the database, if the database answers.
    async fn kill_session(&self) {
        let newest =
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                      ORDER BY backend_start DESC LIMIT 1";
        let pid = sqlx::query_scalar(newest).fetch_optional(&self.system.database.pool);
        if let Ok(Ok(Some(pid))) = timeout(STATEMENT_WITHIN, pid).await {
            self.cluster.kill_session(pid);
        }
    }

    /// Terminates the workflow of the newest open payment, if the database and Temporal answer.
    async fn terminate_a_workflow(&self) {
        let newest = "SELECT workflow_id FROM payments WHERE ended_at IS NULL AND started_at IS NOT NULL
                      ORDER BY accepted_at DESC LIMIT 1";
        let terminated = async {
            let workflow_id =
                sqlx::query_scalar::<_, String>(newest).fetch_optional(&self.system.database.pool);
            let Some(workflow_id) = workflow_id.await? else { return Ok(()) };
            let workflow = self.system.workflow(&workflow_id).await?;
            anyhow::Ok(workflow.terminate(WorkflowTerminateOptions::default()).await?)
        };
        let _ = timeout(STATEMENT_WITHIN, terminated).await;
    }

    /// Whether the database has set the status of the accounts. It may be away.
    async fn set_status(&self, accounts: &[String], status: &str) -> bool {
        let changed = sqlx::query("UPDATE accounts SET status = $2 WHERE account_id = ANY($1)")
            .bind(accounts)
            .bind(status)
            .execute(&self.system.database.pool);
        matches!(timeout(STATEMENT_WITHIN, changed).await, Ok(Ok(_)))
    }
}

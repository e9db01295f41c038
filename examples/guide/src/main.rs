//! `guide`: runs a step of the guide against a Temporal server, or only the worker.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use durable_payments_guide::books::Books;
use durable_payments_guide::order::Order;
use durable_payments_guide::step_1_start::{self, StartedPayment};
use durable_payments_guide::step_2_activity::SubmittedPayment;
use durable_payments_guide::step_3_signal::ConfirmedPayment;
use durable_payments_guide::step_4_timer::TimedPayment;
use durable_payments_guide::step_5_compensation::CompensatedPayment;
use durable_payments_guide::step_6_lock::LockedPayment;
use durable_payments_guide::worker;
use temporalio_client::{Client, WorkflowGetResultOptions, WorkflowSignalOptions, WorkflowStartOptions};

/// Durable payments in Rust on Temporal, in eight steps
#[derive(Debug, Parser)]
struct Cli {
    /// URL of the Temporal server; `./dev up` has one at the default
    #[arg(long, global = true, default_value = "http://127.0.0.1:7233")]
    address: String,
    /// Task queue of the worker
    #[arg(long, global = true, default_value = "guide")]
    queue: String,
    /// Folder of the books [default: a new one]
    #[arg(long, global = true)]
    books: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one step, 1 to 6, to its end
    Run {
        /// Number of the step; steps 7 and 8 are tests
        #[arg(value_parser = clap::value_parser!(u8).range(1..=6))]
        step: u8,
    },
    /// Run the worker alone, until Ctrl-C
    Worker,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let folder = cli.books.unwrap_or_else(|| {
        std::env::temp_dir().join(format!("guide-books-{}", uuid::Uuid::new_v4().simple()))
    });
    let books = Books::open(&folder).with_context(|| format!("{} cannot be opened", folder.display()))?;
    let client = worker::connect(&cli.address).await?;
    let mut worker = worker::build(&client, &cli.queue, books)?;
    let Command::Run { step } = cli.command else {
        writeln!(std::io::stdout(), "the worker of the task queue {} runs; Ctrl-C ends it", cli.queue)?;
        return Ok(worker.run().await?);
    };
    let shut_down = worker.shutdown_handle();
    let run = async {
        let shown = run_step(&client, &cli.queue, step).await;
        shut_down();
        anyhow::Ok(shown)
    };
    let (worked, shown) = tokio::join!(worker.run(), run);
    worked?;
    writeln!(std::io::stdout(), "{}\nbooks: {}", shown??, folder.display())?;
    Ok(())
}

/// Runs one step; returns its payment and how it ended.
async fn run_step(client: &Client, queue: &str, step: u8) -> anyhow::Result<String> {
    let mut order = Order::new("FR-CAROL-EUR");
    let id = order.payment_id.clone();
    let options = || WorkflowStartOptions::new(queue.to_owned(), id.clone()).build();
    let result = WorkflowGetResultOptions::default;
    let transfer = || "transfer 1".to_owned();
    let ended = match step {
        1 => {
            step_1_start::start(client, queue, order).await?;
            client.get_workflow_handle::<StartedPayment>(&id).get_result(result()).await?
        }
        2 => {
            order.lost_answers = 1;
            client.start_workflow(SubmittedPayment::run, order, options()).await?.get_result(result()).await?
        }
        3 => {
            let payment = client.start_workflow(ConfirmedPayment::run, order, options()).await?;
            payment.signal(ConfirmedPayment::confirm, transfer(), WorkflowSignalOptions::default()).await?;
            payment.get_result(result()).await?
        }
        4 => {
            order.sla_ms = 3_000;
            client.start_workflow(TimedPayment::run, order, options()).await?.get_result(result()).await?
        }
        5 => {
            order.sla_ms = 3_000;
            client
                .start_workflow(CompensatedPayment::run, order, options())
                .await?
                .get_result(result())
                .await?
        }
        _ => client.start_workflow(LockedPayment::run, order, options()).await?.get_result(result()).await?,
    };
    Ok(format!("step {step}: workflow {id} ended: {ended}"))
}

//! A worker for all steps.

use std::str::FromStr as _;

use anyhow::Context as _;
use temporalio_client::{Client, ClientOptions, ConnectionOptions, Url};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};

use crate::books::Books;
use crate::step_1_start::StartedPayment;
use crate::step_2_activity::{BankActivities, SubmittedPayment};
use crate::step_3_signal::ConfirmedPayment;
use crate::step_4_timer::TimedPayment;
use crate::step_5_compensation::CompensatedPayment;
use crate::step_6_lock::{AccountLock, LockActivities, LockedPayment};

/// Connects to a Temporal server, like `http://127.0.0.1:7233`.
///
/// # Errors
/// The address is no URL, or no server answers there.
pub async fn connect(address: &str) -> anyhow::Result<Client> {
    let url = Url::from_str(address).with_context(|| format!("{address} is not a URL"))?;
    let identity = format!("guide pid {}", std::process::id());
    let connection = ConnectionOptions::new(url).identity(identity).build();
    let client = Client::connect(connection, ClientOptions::new("default").build()).await;
    client.with_context(|| format!("no Temporal server answers at {address}"))
}

/// Builds the worker of this task queue. It runs in the calling tokio runtime.
///
/// # Errors
/// Temporal refuses the worker.
pub fn build(client: &Client, queue: &str, books: Books) -> anyhow::Result<Worker> {
    let runtime = Runtime::from_current_tokio(Default::default())?;
    let options = WorkerOptions::new(queue.to_owned())
        .register_workflow::<StartedPayment>()?
        .register_workflow::<SubmittedPayment>()?
        .register_workflow::<ConfirmedPayment>()?
        .register_workflow::<TimedPayment>()?
        .register_workflow::<CompensatedPayment>()?
        .register_workflow::<AccountLock>()?
        .register_workflow::<LockedPayment>()?
        .register_activities(BankActivities { books })
        .register_activities(LockActivities { client: client.clone(), queue: queue.to_owned() })
        .build();
    Ok(Worker::new(&runtime, client.clone(), options)?)
}

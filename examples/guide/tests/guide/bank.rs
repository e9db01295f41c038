//! A worker of the guide, with books and a task queue of its own.

use std::path::PathBuf;
use std::time::Duration;

use durable_payments_guide::books::Books;
use durable_payments_guide::order::Order;
use durable_payments_guide::worker;
use temporalio_client::{Client, WorkflowStartOptions};
use testkit::environment::TestEnvironment;
use testkit::wait::until;
use uuid::Uuid;

/// Time limit for a payment to reach a state.
const WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Bank {
    pub(crate) client: Client,
    pub(crate) address: String,
    pub(crate) queue: String,
    pub(crate) books: Books,
    pub(crate) folder: PathBuf,
}

impl Bank {
    pub(crate) async fn open() -> anyhow::Result<Self> {
        let environment = TestEnvironment::load()?;
        let queue = format!("guide-{}", Uuid::new_v4().simple());
        let folder = environment.scratch.join(&queue);
        let address = environment.temporal_address;
        let client = worker::connect(&address).await?;
        Ok(Self { client, address, queue, books: Books::open(&folder)?, folder })
    }

    /// Runs `test` beside a worker, which stops when the test ends.
    pub(crate) async fn with_worker<T>(
        &self,
        test: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let mut worker = worker::build(&self.client, &self.queue, self.books.clone())?;
        let shut_down = worker.shutdown_handle();
        let test = async {
            let result = test.await;
            shut_down();
            result
        };
        let (worked, result) = tokio::join!(worker.run(), test);
        worked?;
        result
    }

    /// How a payment's workflow is started.
    pub(crate) fn options(&self, order: &Order) -> WorkflowStartOptions {
        WorkflowStartOptions::new(self.queue.clone(), order.payment_id.clone()).build()
    }

    pub(crate) async fn wait_until_recorded(&self, key: &str) -> anyhow::Result<()> {
        until(&format!("{key} is recorded"), WITHIN, || async { Ok(self.books.has(key).then_some(())) }).await
    }

    /// The operations of the payment that are recorded, of these.
    pub(crate) fn recorded(&self, order: &Order) -> Vec<&'static str> {
        let all = ["reserve", "submit", "cancel", "debit", "release"];
        all.into_iter().filter(|operation| self.books.has(&order.key(operation))).collect()
    }
}

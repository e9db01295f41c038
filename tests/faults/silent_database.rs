//! R15: the database's machine is lost, or a network forgets the connections to it: they stay open and say nothing for ever, while new ones
//! work, as after a failover. Every process goes on.

use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use testkit::environment::TestEnvironment;
use testkit::proxy::{Direction, FaultProxy};
use testkit::system::{Proxies, payment_request};
use testkit::wait::until;
use testkit::{System, SystemOptions};
use uuid::Uuid;

/// Times that every connection turns silent, each while payments are under way.
const SILENCES: usize = 5;
/// Payments at once before each.
const PAYMENTS: usize = 16;
/// Time from the orders to the silence, for which no answer arrives: longer than the pauses of most loops, each of which then waits for an
/// answer that never comes.
const UNANSWERED: Duration = Duration::from_millis(1_500);
/// Time limit for one step: a statement may wait for 10 s, and the next one again.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r15_payments_go_on_after_the_connections_to_the_database_turned_silent() -> anyhow::Result<()> {
    let address = TestEnvironment::load()?.database_address()?;
    let mut proxies = Vec::new();
    let mut options = SystemOptions::default();
    for process in ["payments-api", "payment-worker", "background-worker"] {
        let proxy = FaultProxy::start(&address).await?;
        let database = Some(proxy.address.clone());
        options.proxies.insert(process, Proxies { database, ..Proxies::default() });
        proxies.push(proxy);
    }
    let system = System::start("silent-database", options).await?;
    let mut ordered = 0;
    let mut unanswered = [false; 3];
    for _ in 0..SILENCES {
        let silence = async {
            proxies.iter().for_each(|proxy| proxy.hold(Direction::ToClient));
            let passed = || proxies.iter().map(|proxy| proxy.passed(Direction::ToServer)).collect::<Vec<_>>();
            let before = passed();
            tokio::time::sleep(UNANSWERED).await;
            for (has_asked, (now, before)) in unanswered.iter_mut().zip(passed().iter().zip(&before)) {
                *has_asked |= now > before;
            }
            proxies.iter().for_each(FaultProxy::silence);
            proxies.iter().for_each(FaultProxy::heal);
        };
        let orders = join_all((0..PAYMENTS).map(|_| order(&system)));
        let ((), orders) = tokio::join!(silence, orders);
        orders.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        ordered += PAYMENTS;
    }
    assert_eq!(unanswered, [true; 3], "a process asked its database nothing while it was silent");
    system.wait_until_all_have_ended_within(WITHIN).await?;
    until("every journal entry is sealed", WITHIN, || async {
        let unsealed: i64 = sqlx::query_scalar("SELECT count(*) FROM journal_unsealed")
            .fetch_one(&system.database.pool)
            .await?;
        Ok((unsealed == 0).then_some(()))
    })
    .await?;
    // Connections that are silent while nobody uses them cost a request a moment, and refuse none.
    proxies.iter().for_each(FaultProxy::silence);
    let mut body = payment_request("1.00");
    body["source_account"] = Value::from(system.account());
    let response = system.post_payment(&Uuid::new_v4().to_string(), &body).await?;
    assert_eq!(response.status().as_u16(), 201, "a request was refused");
    system.wait_until_all_have_ended_within(WITHIN).await?;
    let audit = system.audit().await?;
    assert_eq!(audit.debited, ordered + 1);
    Ok(())
}

/// Orders a payment, under the same key until it is accepted.
async fn order(system: &System) -> anyhow::Result<()> {
    let key = Uuid::new_v4().to_string();
    let mut body = payment_request("1.00");
    body["source_account"] = Value::from(system.account());
    until("the payment is accepted", WITHIN, || async {
        let response = system.post_payment(&key, &body).await;
        Ok(response.ok().filter(|response| response.status().as_u16() == 201).map(drop))
    })
    .await
}

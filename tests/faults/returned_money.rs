//! The receiving bank returns the money of a transfer that the switch had settled.

use std::time::Duration;

use testkit::system::OPENING_MINOR;
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// After the debit: an exception asks operators for the credit, once, and the payment stays settled.
#[tokio::test]
async fn money_that_the_receiving_bank_returns_is_an_exception() -> anyhow::Result<()> {
    let system = System::start("returned-money", SystemOptions::default()).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.switch.finish_transfer(&payment.reference, "return").await?;
    until("the exception of the return", Duration::from_secs(30), || async {
        let exceptions = system.exceptions(&payment.payment_id).await?;
        Ok((exceptions == ["returned_after_debit"]).then_some(()))
    })
    .await?;
    assert_eq!(system.state(&payment.payment_id).await?, "settled");
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "operators decide the credit");
    Ok(())
}

//! Work of a bounded number of payments at once: a payment that takes long holds up no other.

use std::pin::pin;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

/// Claims payments and works on them until `stop` or an error of `claim`, at most `max` at once. `claim` gets the number of
/// payments that there is capacity for. If it returns as many, more may wait, so it is called again as soon as half of `max`
/// is free, and otherwise after `pause`. Work under way is completed at the end.
///
/// # Errors
/// That of `claim`.
pub(crate) async fn run<T, E>(
    max: usize,
    mut claim: impl AsyncFnMut(usize) -> Result<Vec<T>, E>,
    work: impl AsyncFn(T),
    mut pause: impl AsyncFnMut(),
    stop: &CancellationToken,
) -> Result<(), E> {
    let mut under_way = FuturesUnordered::new();
    let mut result = Ok(());
    while !stop.is_cancelled() {
        let capacity = max.saturating_sub(under_way.len());
        let mut is_full = false;
        if capacity > 0 {
            match alongside(&mut under_way, claim(capacity)).await {
                Ok(claimed) => {
                    is_full = claimed.len() >= capacity;
                    under_way.extend(claimed.into_iter().map(|payment| work(payment)));
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let progress = async {
            while !is_full || under_way.len() > max / 2 {
                if under_way.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = progress => {}
            () = pause() => {}
        }
    }
    while under_way.next().await.is_some() {}
    result
}

/// Awaits `future`, and continues the work under way meanwhile: work that is not polled keeps what it holds, for example the database
/// connections that `future` waits for.
async fn alongside<W: Future, F: Future>(under_way: &mut FuturesUnordered<W>, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        tokio::select! {
            biased;
            output = &mut future => return output,
            Some(_) = under_way.next() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::convert::Infallible;
    use std::future::pending;
    use std::time::Duration;

    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;

    /// Time limit for one test.
    const WITHIN: Duration = Duration::from_secs(20);

    /// The first payment's work never ends. The others of its batch and of all later batches are worked on, without a pause.
    #[tokio::test]
    async fn work_that_hangs_holds_up_no_later_batch() {
        let (claimed, done, stop) = (Cell::new(0), RefCell::new(vec![]), CancellationToken::new());
        let claim = async |capacity: usize| {
            let batch: Vec<usize> = (claimed.get()..(claimed.get() + capacity).min(100)).collect();
            claimed.set(claimed.get() + batch.len());
            Ok::<_, Infallible>(batch)
        };
        let work = async |n: usize| {
            if n == 0 {
                stop.cancelled().await;
            }
            done.borrow_mut().push(n);
            if done.borrow().len() == 99 {
                stop.cancel();
            }
        };
        let ended = timeout(WITHIN, run(10, claim, work, pending, &stop)).await;
        ended.expect("later batches waited for the work that hangs").unwrap();
        let mut done = done.into_inner();
        assert_eq!(done.pop(), Some(0), "the work under way was not completed");
        done.sort_unstable();
        assert_eq!(done, (1..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn no_more_than_the_bound_is_under_way_at_once() {
        let (claimed, now, most, stop) = (Cell::new(0), Cell::new(0), Cell::new(0), CancellationToken::new());
        let claim = async |capacity: usize| {
            if claimed.get() >= 100 {
                stop.cancel();
            }
            claimed.set(claimed.get() + capacity);
            Ok::<_, Infallible>(vec![(); capacity])
        };
        let work = async |()| {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            tokio::task::yield_now().await;
            now.set(now.get() - 1);
        };
        run(8, claim, work, pending, &stop).await.unwrap();
        assert_eq!((most.get(), now.get()), (8, 0));
    }

    /// Work and claims share the connections of a pool: a claim that waits for one is given the one that work holds.
    #[tokio::test]
    async fn work_under_way_goes_on_while_a_claim_waits() {
        let (connections, claims, stop) = (Semaphore::new(1), Cell::new(0), CancellationToken::new());
        let claim = async |_| {
            let _connection = connections.acquire().await.unwrap();
            claims.set(claims.get() + 1);
            if claims.get() == 5 {
                stop.cancel();
            }
            Ok::<_, Infallible>(vec![()])
        };
        let work = async |()| {
            let _connection = connections.acquire().await.unwrap();
            // The next claim begins before this work has ended.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        let pause = async || tokio::task::yield_now().await;
        let ended = timeout(WITHIN, run(10, claim, work, pause, &stop)).await;
        ended.expect("a claim waited for a connection of work that did not go on").unwrap();
    }

    /// After a batch that is not full the next one waits for the pause; an error of a claim ends the loop.
    #[tokio::test]
    async fn a_batch_that_is_not_full_is_followed_by_a_pause() {
        let (calls, stop) = (RefCell::new(vec![]), CancellationToken::new());
        let claim = async |_| {
            let claims = calls.borrow().iter().filter(|call| **call == "claim").count();
            calls.borrow_mut().push("claim");
            match claims {
                0 => Ok(vec![(), ()]),
                1 => Ok(vec![]),
                _ => Err("the end"),
            }
        };
        let pause = async || calls.borrow_mut().push("pause");
        assert_eq!(run(2, claim, async |()| (), pause, &stop).await, Err("the end"));
        assert_eq!(calls.into_inner(), ["claim", "claim", "pause", "claim"]);
    }
}

//! Requests that share a transaction: each has its own outcome, independent of the others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

mod support;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use idempotency::{
    BatchEffect, BatchOptions, Batcher, ClaimOutcome, EffectOutcome, IdempotencyError, IdempotencyOptions,
    MIGRATOR, RequestOutcome, StoreBreaker, StoredResponse, claim,
};
use jiff::Timestamp;
use postgres_kit::{Connection, Pool};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use support::{Notes, TIMEOUT, batcher, body, count, create_table, fingerprint, key, scope, store_note};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

fn executed(text: &str) -> RequestOutcome<String> {
    RequestOutcome::Executed(StoredResponse::new(201, body(text)))
}

/// One worker, so that requests queued while it is busy form one batch.
const ONE_WORKER: BatchOptions = BatchOptions { workers: 1, batch_max: 256, queue_max: 4_096 };

/// Executes concurrently: the first request occupies the worker and the others form its next batch.
async fn execute_all(
    batcher: &Batcher<Notes>,
    notes: &[(String, &'static str)],
) -> Vec<Result<RequestOutcome<String>, IdempotencyError>> {
    join_all(notes.iter().map(|(key, text)| store_note(batcher, key, text))).await
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_of_64_requests_with_the_same_idempotency_key_one_is_executed(pool: PgPool) {
    create_table(&pool).await;
    // Duplicates in one batch, and in batches of several concurrent workers.
    for (n, width) in
        [ONE_WORKER, BatchOptions { workers: 8, batch_max: 4, queue_max: 64 }].into_iter().enumerate()
    {
        let batcher = batcher(&pool, width);
        let duplicates: Vec<(String, &str)> = (0..64).map(|_| (format!("duplicates-{n}"), "a")).collect();
        let outcomes: Vec<_> =
            execute_all(&batcher, &duplicates).await.into_iter().map(Result::unwrap).collect();
        let first = outcomes.iter().filter(|outcome| **outcome == executed("a")).count();
        assert_eq!(first, 1, "{outcomes:?}");
        let replay = RequestOutcome::Replayed(StoredResponse::new(201, body("a")));
        let rest = outcomes
            .iter()
            .filter(|outcome| **outcome == replay || **outcome == RequestOutcome::InProgress)
            .count();
        assert_eq!(rest, 63, "{outcomes:?}");
    }
    assert_eq!(count(&pool, "notes").await, 2);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_3_a_failing_request_in_an_idempotency_batch_fails_alone(pool: PgPool) {
    create_table(&pool).await;
    let batcher = batcher(&pool, ONE_WORKER);
    let notes: Vec<(String, &str)> = (0..40)
        .map(|n| {
            (
                format!("k{n}"),
                match n % 10 {
                    3 => "break",
                    5 => "refuse",
                    7 => "fail",
                    _ => "a",
                },
            )
        })
        .collect();
    for ((key, text), result) in notes.iter().zip(execute_all(&batcher, &notes).await) {
        match *text {
            "break" => assert!(matches!(result, Err(IdempotencyError::Database(_))), "{key}: {result:?}"),
            "refuse" => assert_eq!(result.unwrap(), RequestOutcome::Refused("refuse".into()), "{key}"),
            "fail" => {
                assert!(
                    matches!(result.unwrap(), RequestOutcome::Executed(StoredResponse { status: 410, .. })),
                    "{key}"
                )
            }
            _ => assert_eq!(result.unwrap(), executed("a"), "{key}"),
        }
    }
    assert_eq!(count(&pool, "notes").await, 28);
    // Failed and refused requests used up no key.
    assert_eq!(count(&pool, "idempotency.keys").await, 32);
    assert_eq!(store_note(&batcher, "k3", "a").await.unwrap(), executed("a"));
}

/// Without workers, every later request would be refused.
#[sqlx::test(migrator = "MIGRATOR")]
async fn a_batch_worker_that_panics_is_replaced(pool: PgPool) {
    create_table(&pool).await;
    let batcher = batcher(&pool, ONE_WORKER);
    for n in 0..3 {
        let result = store_note(&batcher, &format!("panic{n}"), "panic").await;
        assert!(matches!(result, Err(IdempotencyError::OutcomeUnknown)), "{n}: {result:?}");
        assert_eq!(store_note(&batcher, &format!("k{n}"), "a").await.unwrap(), executed("a"), "{n}");
    }
    assert_eq!(count(&pool, "notes").await, 3);
}

/// Responds with the time of the claim, in microseconds.
struct ClaimTimes;

impl BatchEffect for ClaimTimes {
    type Request = ();
    type Refusal = String;
    type Error = sqlx::Error;

    async fn apply(
        &self,
        _: &mut Connection,
        claimed_at: Timestamp,
        requests: &[&()],
    ) -> Result<Vec<EffectOutcome<String>>, sqlx::Error> {
        let at = claimed_at.as_microsecond().to_string();
        Ok(requests.iter().map(|()| EffectOutcome::Applied(StoredResponse::new(201, at.clone()))).collect())
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_3_the_claim_time_of_an_idempotency_key_is_after_its_request(pool: PgPool) {
    let (options, breaker) = (IdempotencyOptions::default(), Arc::new(StoreBreaker::default()));
    let batcher =
        Batcher::start(ClaimTimes, pool.clone(), options, ONE_WORKER, breaker, &CancellationToken::new());
    // Every request except the first is executed in a transaction that began before it.
    for n in 0..20 {
        let sent_at: i64 =
            sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
                .fetch_one(&pool)
                .await
                .unwrap();
        let key = key(&format!("k{n}"));
        let outcome = batcher.execute(&scope(&key), &fingerprint("a"), ()).await.unwrap();
        let RequestOutcome::Executed(response) = outcome else { unreachable!("{outcome:?}") };
        let claimed_at: i64 = String::from_utf8(response.body).unwrap().parse().unwrap();
        assert!(claimed_at >= sent_at, "{n}: claimed {} us before it was sent", sent_at - claimed_at);
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_a_held_idempotency_key_delays_no_other_request_of_its_batch(pool: PgPool) {
    create_table(&pool).await;
    let held = key("held");
    let mut holder = Pool::from(pool.clone()).begin().await.unwrap();
    assert!(matches!(
        claim(&mut holder, &scope(&held), &fingerprint("a"), &IdempotencyOptions::default()).await.unwrap(),
        ClaimOutcome::Claimed(_)
    ));
    let batcher = batcher(&pool, ONE_WORKER);
    let notes: Vec<(String, &str)> = ["x", "held", "y"].map(|key| (key.to_owned(), "a")).into();
    let outcomes: Vec<_> = execute_all(&batcher, &notes).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [executed("a"), RequestOutcome::InProgress, executed("a")]);
    holder.rollback().await.unwrap();
    assert_eq!(store_note(&batcher, "held", "a").await.unwrap(), executed("a"));
}

/// A TCP proxy between the workers and the database; it can drop the response to the next commit, or all connections.
struct Proxy {
    address: SocketAddr,
    drop_commit_response: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    async fn to(pool: &PgPool) -> Self {
        let options = pool.connect_options();
        let database = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (drop_commit_response, cut) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (drop_response, is_cut) = (Arc::clone(&drop_commit_response), Arc::clone(&cut));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect((&*database.0, database.1)).await.unwrap();
                tokio::spawn(forward(client, server, Arc::clone(&drop_response), Arc::clone(&is_cut)));
            }
        });
        Self { address, drop_commit_response, cut }
    }

    async fn pool(&self, pool: &PgPool) -> PgPool {
        let options = pool.connect_options().as_ref().clone().host("127.0.0.1").port(self.address.port());
        PgPoolOptions::new()
            .max_connections(2)
            .acquire_timeout(Duration::from_secs(10))
            .connect_with(options)
            .await
            .unwrap()
    }
}

async fn forward(
    client: TcpStream,
    server: TcpStream,
    drop_response: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut request, mut response) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            n = from_client.read(&mut request) => {
                let n = n?;
                if n == 0 || cut.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let sent = request.get(..n).unwrap_or_default();
                let commits = sent.windows(6).any(|part| part == b"COMMIT");
                to_server.write_all(sent).await?;
                if commits && drop_response.swap(false, Ordering::SeqCst) {
                    // The database has responded, so it has committed; the response is dropped.
                    let _ = from_server.read(&mut response).await?;
                    return Ok(());
                }
            }
            n = from_server.read(&mut response) => {
                let n = n?;
                if n == 0 {
                    return Ok(());
                }
                to_client.write_all(response.get(..n).unwrap_or_default()).await?;
            }
        }
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_3_a_batch_with_a_lost_commit_answer_is_recognised_by_claim_tokens(pool: PgPool) {
    create_table(&pool).await;
    let proxy = Proxy::to(&pool).await;
    let proxied = proxy.pool(&pool).await;
    let batcher = batcher(&proxied, ONE_WORKER);
    assert_eq!(store_note(&batcher, "warm", "a").await.unwrap(), executed("a"));

    proxy.drop_commit_response.store(true, Ordering::SeqCst);
    let notes: Vec<(String, &str)> = (0..20).map(|n| (format!("k{n}"), "a")).collect();
    let outcomes: Vec<_> = execute_all(&batcher, &notes).await.into_iter().map(Result::unwrap).collect();
    assert!(!proxy.drop_commit_response.load(Ordering::SeqCst), "expected one commit response to be dropped");
    // Executed, not replayed: the commit was their own.
    assert!(outcomes.iter().all(|outcome| *outcome == executed("a")), "{outcomes:?}");
    assert_eq!(count(&pool, "notes").await, 21);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_6_the_circuit_opens_and_closes_with_the_idempotency_store(pool: PgPool) {
    create_table(&pool).await;
    let proxy = Proxy::to(&pool).await;
    let proxied = proxy.pool(&pool).await;
    let breaker = Arc::new(StoreBreaker::new(2, Duration::from_millis(50)));
    let batcher = Batcher::start(
        Notes,
        proxied,
        IdempotencyOptions::default(),
        ONE_WORKER,
        Arc::clone(&breaker),
        &CancellationToken::new(),
    );
    assert_eq!(store_note(&batcher, "before", "a").await.unwrap(), executed("a"));

    proxy.cut.store(true, Ordering::SeqCst);
    let open = async {
        loop {
            match store_note(&batcher, "during", "a").await {
                Err(IdempotencyError::Unavailable) => return,
                Err(error) => assert!(error.is_store_unavailable(), "{error:?}"),
                Ok(outcome) => panic!("expected an unavailable store, got {outcome:?}"),
            }
        }
    };
    tokio::time::timeout(TIMEOUT, open).await.expect("the circuit did not open");
    assert_eq!(count(&pool, "notes").await, 1, "expected no note while the store was unavailable");

    proxy.cut.store(false, Ordering::SeqCst);
    let back = async {
        while store_note(&batcher, "during", "a").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, back).await.expect("the circuit did not close");
    assert_eq!(count(&pool, "notes").await, 2);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r35_a_full_idempotency_queue_refuses_without_awaiting_a_connection(pool: PgPool) {
    create_table(&pool).await;
    // The only connection is in use, so the worker waits for it, and one request is queued.
    let narrow = narrow(&pool).await;
    let acquired = narrow.acquire().await.unwrap();
    let batcher = batcher(&narrow, BatchOptions { workers: 1, batch_max: 1, queue_max: 1 });
    let keys: Vec<(String, &str)> = (0..20).map(|n| (format!("k{n}"), "a")).collect();
    // All requests are sent before the connection is returned.
    let (results, ()) = tokio::join!(execute_all(&batcher, &keys), async { drop(acquired) });
    let refused = results.iter().filter(|result| matches!(result, Err(IdempotencyError::QueueFull))).count();
    let done = results.iter().filter(|result| matches!(result, Ok(RequestOutcome::Executed(_)))).count();
    assert_eq!(refused + done, 20, "{results:?}");
    assert!(refused > 0 && done > 0, "{results:?}");
    assert_eq!(count(&pool, "notes").await, i64::try_from(done).unwrap());
}

/// A pool of one connection to the database of `pool`.
async fn narrow(pool: &PgPool) -> PgPool {
    let options = pool.connect_options().as_ref().clone();
    let narrow = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(10));
    narrow.connect_with(options).await.unwrap()
}

/// Between two batches a worker keeps its connection only where others are left for its process.
#[sqlx::test(migrator = "MIGRATOR")]
async fn a_busy_worker_returns_the_only_connection_of_its_pool(pool: PgPool) {
    create_table(&pool).await;
    let narrow = narrow(&pool).await;
    let batcher = batcher(&narrow, ONE_WORKER);
    let store = async |n: u32| store_note(&batcher, &format!("k{n}"), "a").await.unwrap();
    store(0).await;
    let requests = async {
        for n in 1.. {
            store(n).await;
        }
    };
    tokio::select! {
        acquired = narrow.acquire() => drop(acquired.expect("the worker keeps the connection")),
        () = requests => {}
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn the_outcome_of_a_batch_that_was_not_sent_is_known(pool: PgPool) {
    let closed = narrow(&pool).await;
    closed.close().await;
    let batcher = batcher(&closed, ONE_WORKER);
    let keys: Vec<(String, &str)> = (0..3).map(|n| (format!("k{n}"), "a")).collect();
    for result in execute_all(&batcher, &keys).await {
        let not_sent = matches!(
            result,
            Err(IdempotencyError::Unavailable | IdempotencyError::Database(sqlx::Error::PoolClosed))
        );
        assert!(not_sent, "{result:?}");
    }
}

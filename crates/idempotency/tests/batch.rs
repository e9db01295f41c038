//! Requests that share a transaction: each has its own result, whatever happens to the others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use idempotency::{
    Answer, Batcher, Breaker, Claim, Effect, IdempotencyError, MIGRATOR, Outcome, Terms, Verdict, Width,
    claim,
};
use jiff::Timestamp;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use support::{Notes, PATIENCE, batcher, body, count, fingerprint, keep, key, make_table, scope};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

fn answered(text: &str) -> Outcome<String> {
    Outcome::Answered(Answer::new(201, body(text)))
}

/// One lane, so that what waits while it is held comes in one batch.
const ONE_LANE: Width = Width { lanes: 1, batch_max: 256, waiting_max: 4_096 };

/// Fills one batch: the first request takes the lane and the rest gather behind it.
async fn together(
    batcher: &Batcher<Notes>,
    notes: &[(String, &'static str)],
) -> Vec<Result<Outcome<String>, IdempotencyError>> {
    join_all(notes.iter().map(|(key, text)| keep(batcher, key, text))).await
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_of_64_twins_at_once_one_is_answered(pool: PgPool) {
    make_table(&pool).await;
    // Twins in one batch, and in batches of many lanes at once.
    for (n, width) in [ONE_LANE, Width { lanes: 8, batch_max: 4, waiting_max: 64 }].into_iter().enumerate() {
        let batcher = batcher(&pool, width);
        let twins: Vec<(String, &str)> = (0..64).map(|_| (format!("twins-{n}"), "a")).collect();
        let said: Vec<_> = together(&batcher, &twins).await.into_iter().map(Result::unwrap).collect();
        let first = said.iter().filter(|outcome| **outcome == answered("a")).count();
        assert_eq!(first, 1, "{said:?}");
        let copies = Outcome::Replayed(Answer::new(201, body("a")));
        let rest =
            said.iter().filter(|outcome| **outcome == copies || **outcome == Outcome::InProgress).count();
        assert_eq!(rest, 63, "{said:?}");
    }
    assert_eq!(count(&pool, "notes").await, 2);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_3_what_is_bad_in_a_batch_fails_alone(pool: PgPool) {
    make_table(&pool).await;
    let batcher = batcher(&pool, ONE_LANE);
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
    for ((key, text), said) in notes.iter().zip(together(&batcher, &notes).await) {
        match *text {
            "break" => assert!(matches!(said, Err(IdempotencyError::Database(_))), "{key}: {said:?}"),
            "refuse" => assert_eq!(said.unwrap(), Outcome::Refused("refuse".into()), "{key}"),
            "fail" => {
                assert!(matches!(said.unwrap(), Outcome::Answered(Answer { status: 410, .. })), "{key}")
            }
            _ => assert_eq!(said.unwrap(), answered("a"), "{key}"),
        }
    }
    assert_eq!(count(&pool, "notes").await, 28);
    // What broke and what was refused burnt no key.
    assert_eq!(count(&pool, "idempotency_keys").await, 32);
    assert_eq!(keep(&batcher, "k3", "a").await.unwrap(), answered("a"));
}

/// Answers with the time of the claim, in microseconds.
struct Dates;

impl Effect for Dates {
    type Request = ();
    type Refusal = String;
    type Error = sqlx::Error;

    async fn carry_out(
        &self,
        _: &mut PgConnection,
        claimed_at: Timestamp,
        requests: &[&()],
    ) -> Result<Vec<Verdict<String>>, sqlx::Error> {
        let at = claimed_at.as_microsecond().to_string();
        Ok(requests.iter().map(|()| Verdict::Answered(Answer::new(201, at.clone()))).collect())
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_3_a_claim_is_dated_after_its_request(pool: PgPool) {
    let (terms, breaker) = (Terms::default(), Arc::new(Breaker::default()));
    let batcher = Batcher::start(Dates, pool.clone(), terms, ONE_LANE, breaker, &CancellationToken::new());
    // Each but the first comes in a transaction that was begun before it.
    for n in 0..20 {
        let asked: i64 =
            sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
                .fetch_one(&pool)
                .await
                .unwrap();
        let key = key(&format!("k{n}"));
        let said = batcher.carry_out(&scope(&key), &fingerprint("a"), ()).await.unwrap();
        let Outcome::Answered(answer) = said else { unreachable!("{said:?}") };
        let claimed: i64 = String::from_utf8(answer.body).unwrap().parse().unwrap();
        assert!(claimed >= asked, "{n}: claimed {} us before it was asked for", asked - claimed);
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r25_a_held_key_in_a_batch_holds_up_nobody_else(pool: PgPool) {
    make_table(&pool).await;
    let held = key("held");
    let mut holder = pool.begin().await.unwrap();
    assert!(matches!(
        claim(&mut holder, &scope(&held), &fingerprint("a"), &Terms::default()).await.unwrap(),
        Claim::New(_)
    ));
    let batcher = batcher(&pool, ONE_LANE);
    let notes: Vec<(String, &str)> = ["x", "held", "y"].map(|key| (key.to_owned(), "a")).into();
    let said: Vec<_> = together(&batcher, &notes).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(said, [answered("a"), Outcome::InProgress, answered("a")]);
    holder.rollback().await.unwrap();
    assert_eq!(keep(&batcher, "held", "a").await.unwrap(), answered("a"));
}

/// Between the lanes and the database; once armed it lets the next commit through and loses its answer.
struct Wire {
    address: SocketAddr,
    lose_commit: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
}

impl Wire {
    async fn to(pool: &PgPool) -> Self {
        let options = pool.connect_options();
        let database = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (lose_commit, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (lose, is_cut) = (Arc::clone(&lose_commit), Arc::clone(&cut));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect((&*database.0, database.1)).await.unwrap();
                tokio::spawn(carry(client, server, Arc::clone(&lose), Arc::clone(&is_cut)));
            }
        });
        Self { address, lose_commit, cut }
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

async fn carry(
    client: TcpStream,
    server: TcpStream,
    lose: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut asked, mut said) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            n = from_client.read(&mut asked) => {
                let n = n?;
                if n == 0 || cut.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let sent = asked.get(..n).unwrap_or_default();
                let commits = sent.windows(6).any(|part| part == b"COMMIT");
                to_server.write_all(sent).await?;
                if commits && lose.swap(false, Ordering::SeqCst) {
                    // The database has answered, so it has committed. Nobody hears of it.
                    let _ = from_server.read(&mut said).await?;
                    return Ok(());
                }
            }
            n = from_server.read(&mut said) => {
                let n = n?;
                if n == 0 {
                    return Ok(());
                }
                to_client.write_all(said.get(..n).unwrap_or_default()).await?;
            }
        }
    }
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_3_a_commit_without_an_answer_is_known_by_its_tokens(pool: PgPool) {
    make_table(&pool).await;
    let wire = Wire::to(&pool).await;
    let wired = wire.pool(&pool).await;
    let batcher = batcher(&wired, ONE_LANE);
    assert_eq!(keep(&batcher, "warm", "a").await.unwrap(), answered("a"));

    wire.lose_commit.store(true, Ordering::SeqCst);
    let notes: Vec<(String, &str)> = (0..20).map(|n| (format!("k{n}"), "a")).collect();
    let said: Vec<_> = together(&batcher, &notes).await.into_iter().map(Result::unwrap).collect();
    assert!(!wire.lose_commit.load(Ordering::SeqCst), "no commit was lost");
    // The first answer for each, not a copy: it was its own commit.
    assert!(said.iter().all(|outcome| *outcome == answered("a")), "{said:?}");
    assert_eq!(count(&pool, "notes").await, 21);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn s4_6_a_store_that_is_gone_is_left_in_peace_and_found_again(pool: PgPool) {
    make_table(&pool).await;
    let wire = Wire::to(&pool).await;
    let wired = wire.pool(&pool).await;
    let breaker = Arc::new(Breaker::new(2, Duration::from_millis(50)));
    let batcher = Batcher::start(
        Notes,
        wired,
        Terms::default(),
        ONE_LANE,
        Arc::clone(&breaker),
        &CancellationToken::new(),
    );
    assert_eq!(keep(&batcher, "before", "a").await.unwrap(), answered("a"));

    wire.cut.store(true, Ordering::SeqCst);
    let open = async {
        loop {
            match keep(&batcher, "during", "a").await {
                Err(IdempotencyError::Unavailable) => return,
                Err(error) => assert!(error.is_store_lost(), "{error:?}"),
                Ok(said) => panic!("{said:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, open).await.expect("the breaker never opened");
    assert_eq!(count(&pool, "notes").await, 1, "nothing is half done");

    wire.cut.store(false, Ordering::SeqCst);
    let back = async {
        while keep(&batcher, "during", "a").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.expect("it was never found again");
    assert_eq!(count(&pool, "notes").await, 2);
}

#[sqlx::test(migrator = "MIGRATOR")]
async fn r35_who_finds_no_room_is_told_so_and_nothing_waits_for_a_connection(pool: PgPool) {
    make_table(&pool).await;
    // The one connection is taken, so the lane waits for it, and behind it one request.
    let options = pool.connect_options().as_ref().clone();
    let narrow = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(10))
        .connect_with(options)
        .await
        .unwrap();
    let taken = narrow.acquire().await.unwrap();
    let batcher = batcher(&narrow, Width { lanes: 1, batch_max: 1, waiting_max: 1 });
    let keys: Vec<(String, &str)> = (0..20).map(|n| (format!("k{n}"), "a")).collect();
    // All ask before the connection is given back.
    let (said, ()) = tokio::join!(together(&batcher, &keys), async { drop(taken) });
    let busy = said.iter().filter(|said| matches!(said, Err(IdempotencyError::Busy))).count();
    let done = said.iter().filter(|said| matches!(said, Ok(Outcome::Answered(_)))).count();
    assert_eq!(busy + done, 20, "{said:?}");
    assert!(busy > 0 && done > 0, "{said:?}");
    assert_eq!(count(&pool, "notes").await, i64::try_from(done).unwrap());
}

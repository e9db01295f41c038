//! Streams over real sockets: heartbeats, clients that do not read, and closed connections.

use std::net::SocketAddr;

use axum::http::StatusCode;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::client::{StreamResponse, refused};
use super::{LONG, POLL_INTERVAL, settle};
use crate::support::{ACME, Api, PAYMENTS, config};

/// Serves on a free port, with the connection limits of these options.
async fn serve(api: &Api, options: &Value) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bounds = config(options.clone()).api.connection_bounds().unwrap();
    let (router, stopping) = (api.router.clone(), api.stopping.clone());
    tokio::spawn(service_kit::serve::serve_on(listener, move |_| router.clone(), bounds, stopping));
    address
}

async fn request_stream(connection: &mut TcpStream, id: &str) {
    let request = format!(
        "GET {PAYMENTS}/{id}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ACME}\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
}

/// Reads until `expected` was received so many times.
async fn read_until(connection: &mut TcpStream, text: &mut String, expected: &str, times: usize) {
    let mut buffer = [0; 4096];
    let reading = async {
        while text.matches(expected).count() < times {
            let read = connection.read(&mut buffer).await.unwrap();
            assert!(read > 0, "closed after {text}");
            text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
    };
    timeout(LONG, reading).await.expect("the expected text was not received");
}

/// Waits until the client can open a stream.
async fn wait_for_free_slot(api: &Api, id: &str) {
    let opening = async {
        while StreamResponse::open(api, ACME, id, "", None).await.status != StatusCode::OK {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    timeout(LONG, opening).await.expect("the slot was not released");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn heartbeats_keep_an_idle_event_stream_open(pool: PgPool) {
    let options = json!({"idle_timeout_s": 3});
    let api = Api::with_options(Api::new(pool).await.pool, options.clone());
    let (id, _) = api.accepted_payment("k").await;
    let mut connection = TcpStream::connect(serve(&api, &options).await).await.unwrap();
    request_stream(&mut connection, &id).await;
    let mut text = String::new();
    // Longer than the idle limit of the connection.
    read_until(&mut connection, &mut text, ": heartbeat", 5).await;
    settle(&api, &id).await;
    read_until(&mut connection, &mut text, "event: end", 1).await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_an_event_stream_client_that_does_not_read_is_disconnected(pool: PgPool) {
    let options = json!({"idle_timeout_s": 3, "streams": {"per_client_max": 1}});
    let api = Api::with_options(Api::new(pool).await.pool, options.clone());
    let (id, _) = api.accepted_payment("k").await;
    // More than the socket buffers of both sides hold.
    sqlx::query(
        "INSERT INTO timeline (payment_id, state, detail)
         SELECT $1, 'cancelling', repeat('x', 10000) FROM generate_series(1, 1000)",
    )
    .bind(&id)
    .execute(&api.pool)
    .await
    .unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut not_reading = socket.connect(serve(&api, &options).await).await.unwrap();
    request_stream(&mut not_reading, &id).await;
    let mut text = String::new();
    read_until(&mut not_reading, &mut text, "event: accepted", 1).await;
    assert_eq!(refused(&api, ACME, &id, "", None).await.1, "too_many_streams");
    wait_for_free_slot(&api, &id).await;
    drop(not_reading);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_closed_event_stream_connection_releases_its_slot(pool: PgPool) {
    let options = json!({"streams": {"per_client_max": 1}});
    let api = Api::with_options(Api::new(pool).await.pool, options.clone());
    let (id, _) = api.accepted_payment("k").await;
    let mut connection = TcpStream::connect(serve(&api, &options).await).await.unwrap();
    request_stream(&mut connection, &id).await;
    read_until(&mut connection, &mut String::new(), "event: accepted", 1).await;
    assert_eq!(refused(&api, ACME, &id, "", None).await.1, "too_many_streams");
    // The close is noticed before the next heartbeat, which follows seconds later.
    drop(connection);
    wait_for_free_slot(&api, &id).await;
}

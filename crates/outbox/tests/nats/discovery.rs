//! Servers that a broker names are not used: it names them before the link is encrypted.

use outbox::nats::{Broker, BrokerOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

/// More connections than a client needs to come to a second server, if it knew one.
const CONNECTIONS: usize = 8;

#[tokio::test]
async fn a_server_that_the_broker_names_gets_no_connection() {
    let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let named = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let info = format!(
        "INFO {{\"server_id\":\"a\",\"version\":\"2.15.0\",\"host\":\"127.0.0.1\",\"port\":4222,\"max_payload\":1048576,\
         \"connect_urls\":[\"{}\"]}}\r\n",
        named.local_addr().unwrap()
    );
    let url = format!("nats://{}", broker.local_addr().unwrap());
    let client = Broker::connect(&BrokerOptions { url, ..BrokerOptions::default() }, "test").await.unwrap();
    let connections = async {
        for _ in 0..CONNECTIONS {
            let (stream, _) = broker.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            stream.write_all(info.as_bytes()).await.unwrap();
            // Connected, as far as the client knows; then the connection ends.
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                if line.starts_with("PING") {
                    stream.write_all(b"PONG\r\n").await.unwrap();
                    break;
                }
                line.clear();
            }
        }
    };
    tokio::select! {
        () = connections => {}
        _ = named.accept() => panic!("the client connects to the server that the broker named"),
    }
    drop(client);
}

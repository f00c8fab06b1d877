//! Connections that break while a read is under way: a proxy in front of the emulator closes them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kinesis_stream::{KinesisBroker, KinesisError, MemoryLeaseStore};
use kinesis_stream_support::Emulator;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    SHARD, STREAM, kinesis,
    wire::{item, quick, record, text},
};

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The peer closes it.
    Closed,
    /// The peer resets it, because it has not read the request.
    Reset,
}

/// Forwards connections. The next `cuts` of them that carry a `GetRecords` request end there, without a response.
struct Proxy {
    endpoint: String,
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    async fn start(kinesis: &Emulator, end: End) -> Self {
        let (cuts, server) = (Arc::<AtomicUsize>::default(), kinesis.endpoint().replace("http://", ""));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let left = Arc::clone(&cuts);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(forward(client, server, Arc::clone(&left), end));
            }
        });
        Self { endpoint, cuts }
    }

    fn cut(&self, connections: usize) {
        self.cuts.store(connections, Ordering::SeqCst);
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, cuts: Arc<AtomicUsize>, end: End) -> Option<()> {
    let (mut request, mut response) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            seen = client.peek(&mut request) => {
                let seen = seen.ok().filter(|seen| *seen > 0)?;
                let reads = request[..seen].windows(10).any(|part| part == b"GetRecords");
                let spend = |left: usize| left.checked_sub(1);
                if reads && cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend).is_ok() {
                    if let End::Closed = end {
                        client.read_exact(&mut request[..seen]).await.ok()?;
                    }
                    return None;
                }
                client.read_exact(&mut request[..seen]).await.ok()?;
                server.write_all(&request[..seen]).await.ok()?;
            }
            read = server.read(&mut response) => {
                let read = read.ok().filter(|read| *read > 0)?;
                client.write_all(&response[..read]).await.ok()?;
            }
        }
    }
}

// R10
#[tokio::test]
async fn one_connection_that_breaks_before_the_response_is_no_error_and_the_second_is() {
    for end in [End::Closed, End::Reset] {
        let kinesis = kinesis(1).await;
        let proxy = Proxy::start(&kinesis, end).await;
        let broker = KinesisBroker::new().endpoint(&proxy.endpoint).test_credentials();
        let broker = broker.lease_store(MemoryLeaseStore::new()).connect().await.unwrap();
        let mut subscription = broker.subscribe(quick(STREAM)).await.unwrap();
        for broken in [0, 1, 1, 2, 1] {
            proxy.cut(broken);
            if broken > 1 {
                let error = item(&mut subscription).await.unwrap().unwrap_err();
                assert!(matches!(error, KinesisError::Read { failures: 2, gave_up: false, .. }), "{end:?}: {error}");
            }
            while proxy.cuts.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
            kinesis.put_to_shard(STREAM, SHARD, "key", "record").await;
            let record = record(&mut subscription).await;
            assert_eq!(text(&record), "record", "{end:?}");
            record.ack();
        }
    }
}

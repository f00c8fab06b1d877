//! A stream and a table in this process, and a producer.

use std::{iter, time::Duration};

use kinesis_stream::{Outgoing, Publisher, prelude::*};
use kinesis_stream_support::{DynamoDb, Emulator, earthquakes};
use tokio::time::sleep;

use crate::{Failure, options::Options};

/// The pause between two earthquakes.
const PAUSE: Duration = Duration::from_millis(50);

/// The local servers, and a publisher. Both servers run until this is dropped.
#[derive(Debug)]
pub(crate) struct Demo {
    publisher: Publisher,
    stream: String,
    _servers: (Emulator, DynamoDb),
}

impl Demo {
    /// Starts the servers, and points the options at them.
    pub(crate) async fn start(options: &mut Options) -> Result<Self, Failure> {
        let (kinesis, dynamodb) = (Emulator::start(), DynamoDb::start());
        let (endpoint, leases) = (kinesis.endpoint(), dynamodb.endpoint());
        eprintln!("To start a second worker, run in another terminal:");
        eprintln!(
            "cargo run --example worker --features dynamodb -- --endpoint {endpoint} --dynamodb-endpoint {leases}"
        );
        let broker = KinesisBroker::new().endpoint(&endpoint).test_credentials().connect().await?;
        (options.endpoint, options.dynamodb_endpoint) = (Some(endpoint), Some(leases));
        let stream = options.stream().to_owned();
        Ok(Self { publisher: broker.publisher(), stream, _servers: (kinesis, dynamodb) })
    }

    async fn publish(&self) -> Result<(), Failure> {
        for (network, event) in iter::repeat_with(earthquakes::by_network).flatten() {
            self.publisher.publish(&self.stream, Outgoing::new(network, event)).await?;
            sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// Publishes earthquakes in an endless loop, if there is a demo.
pub(crate) async fn publish(demo: Option<&Demo>) -> Result<(), Failure> {
    match demo {
        Some(demo) => demo.publish().await,
        None => future::pending().await,
    }
}

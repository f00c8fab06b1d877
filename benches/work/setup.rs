//! One thread with a Kinesis in it, and both clients.

use aws_sdk_kinesis::{
    Client,
    config::{BehaviorVersion, Config, Credentials, Region, SharedCredentialsProvider, retry::RetryConfig},
};
use aws_types::SdkConfig;
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::canned::InProcess;
use tokio::{
    runtime::{Builder, Runtime},
    time::{Duration, sleep},
};

pub(crate) const STREAM: &str = "bench";

/// Longer than any wait of an unpaced read.
const A_MOMENT: Duration = Duration::from_millis(10);

/// One thread with a Kinesis in it, and both clients.
#[derive(Debug)]
pub(crate) struct Setup {
    runtime: Runtime,
    pub(crate) kinesis: InProcess,
    /// Its retries are off, as in the library's reads.
    pub(crate) client: Client,
    pub(crate) broker: ConnectedKinesisBroker,
}

impl Setup {
    pub(crate) fn new(kinesis: InProcess) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let keys = Credentials::new("test", "test", None, None, "bench");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url("http://kinesis.in.this.process")
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .http_client(kinesis.http_client())
            .build();
        let once = Config::from(&config).to_builder().retry_config(RetryConfig::disabled()).build();
        let client = Client::from_conf(once);
        let broker =
            runtime.block_on(KinesisBroker::from_config(config).connect()).expect("the configuration is complete");
        Self { runtime, kinesis, client, broker }
    }

    pub(crate) fn run<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(work)
    }

    /// A subscription from the horizon, whose reads ask for a full page.
    pub(crate) fn subscribe(&self, stream: KinesisStream) -> Subscription {
        let limit = u32::try_from(self.kinesis.records_per_page()).expect("a page size that the service allows");
        let stream = stream.start_at(KinesisPosition::horizon()).read_limit(limit);
        self.run(self.broker.subscribe(stream)).expect("the stream exists")
    }
}

/// The stream, with unpaced reads.
pub(crate) fn unpaced() -> KinesisStream {
    KinesisStream::new(STREAM).reads_per_second(u32::MAX)
}

/// Waits until every other task waits: then each shard has read a page ahead.
pub(crate) async fn rest() {
    sleep(A_MOMENT).await;
}

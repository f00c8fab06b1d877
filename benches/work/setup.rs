//! One thread, a Kinesis in it, and a client of either kind.

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

/// Longer than any read waits that nothing paces.
const A_MOMENT: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Ground {
    runtime: Runtime,
    pub(crate) kinesis: InProcess,
    /// Its retries are off, as those of the library are for reads.
    pub(crate) client: Client,
    pub(crate) broker: ConnectedKinesisBroker,
}

impl Ground {
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
        let broker = runtime.block_on(KinesisBroker::from_config(config).connect()).expect("a complete configuration");
        Self { runtime, kinesis, client, broker }
    }

    pub(crate) fn run<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(work)
    }

    /// A subscription from the beginning, whose reads ask for what a page holds.
    pub(crate) fn subscribe(&self, stream: KinesisStream) -> Subscription {
        let limit = u32::try_from(self.kinesis.records_per_page()).expect("a page of the service");
        let stream = stream.start_at(KinesisPosition::horizon()).read_limit(limit);
        self.run(self.broker.subscribe(stream)).expect("a stream that is there")
    }
}

/// The stream, read as often as anybody wants.
pub(crate) fn unpaced() -> KinesisStream {
    KinesisStream::new(STREAM).reads_per_second(u32::MAX)
}

/// Waits until everybody else waits, too: each shard has read its page ahead.
pub(crate) async fn rest() {
    sleep(A_MOMENT).await;
}

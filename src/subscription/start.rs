//! Starting a subscription: the stream is there, the first shards are open, and only then does the user get it.

use std::sync::Arc;

use tokio::{
    select,
    sync::{mpsc, oneshot},
    time::{Duration, Instant, sleep},
};

use crate::{
    coordination::{
        coordinator::{self, Beginning},
        renewer,
    },
    dead_letters,
    error::{
        KinesisError,
        service::{Action, FailureKind, ServiceFailure},
    },
    kinesis::{Described, ServiceTime, StreamStatus},
    state::{context::Hub, lifecycle::CloseReport, shard::Shards},
    subscription::{Subscription, seek::Seeker},
    util::clock,
};

/// How long a stream may take to become usable.
const CREATION_LIMIT: Duration = Duration::from_mins(1);

/// Between two looks at a stream that is being created: the service allows twenty a second for a whole account.
const CREATION_POLL: Duration = Duration::from_millis(500);

/// Taken off this host's clock where the service does not tell its time: it may be ahead by as much.
const OWN_CLOCK_SLACK_MILLIS: i64 = 60_000;

/// Ends the life of a subscription that did not come to be started.
struct Unstarted<'a>(Option<&'a Hub>);

impl Drop for Unstarted<'_> {
    fn drop(&mut self) {
        if let Some(hub) = self.0 {
            hub.life.finish(CloseReport::default());
        }
    }
}

/// Starts a subscription that was entered with its connection.
///
/// # Cancel safety
///
/// A future that is dropped stops what it started and releases the leases that it took.
pub(crate) async fn start(hub: Arc<Hub>) -> Result<Subscription, KinesisError> {
    let mut unstarted = Unstarted(Some(&hub));
    let beginning = select! {
        biased;
        _ = hub.life.closing() => return Err(KinesisError::NotConnected),
        beginning = usable(&hub) => beginning?,
    };
    let shards = Arc::new(Shards::default());
    let (opened, pages) = mpsc::unbounded_channel();
    let (seeker, seeks) = mpsc::unbounded_channel();
    let (ready, first_pass) = oneshot::channel();
    let coordinator = coordinator::start(Arc::clone(&hub), Arc::clone(&shards), beginning, (opened, seeks), ready);
    renewer::start(Arc::clone(&hub), Arc::clone(&shards), coordinator);
    dead_letters::start(&hub, &shards);
    unstarted.0 = None;
    let subscription = Subscription::new(Arc::clone(&hub), shards, pages, Seeker::new(Arc::clone(&hub), seeker));
    // It is gone without a word if the subscription is closed meanwhile: the stream then just ends.
    let _ = first_pass.await;
    Ok(subscription)
}

/// Waits until the stream can be read, creating it if that is asked for (L4).
async fn usable(hub: &Hub) -> Result<Beginning, KinesisError> {
    let deadline = Instant::now() + CREATION_LIMIT;
    let mut create = hub.settings.create_if_missing;
    let mut patient = create.is_some();
    loop {
        match hub.service.describe(&hub.stream).await {
            Ok(Described { status: StreamStatus::Usable, created, retention, now }) => {
                let own = || ServiceTime(clock::unix_millis() - OWN_CLOCK_SLACK_MILLIS);
                return Ok(Beginning { moment: now.unwrap_or_else(own), created, retention });
            }
            Ok(Described { status: StreamStatus::Creating, .. }) => patient = true,
            Ok(Described { status: StreamStatus::Deleting, .. }) if patient => {}
            Ok(Described { status: StreamStatus::Deleting, .. }) => {
                return Err(stream_error(hub, "it is being deleted"));
            }
            Err(failure) if patient && failure.kind() == FailureKind::NotFound => {
                if let Some(shards) = create.take() {
                    create_stream(hub, shards).await?;
                }
            }
            Err(failure) => return Err(KinesisError::refused(&hub.stream, failure)),
        }
        if Instant::now() >= deadline {
            return Err(stream_error(hub, "it did not become active within a minute"));
        }
        sleep(CREATION_POLL).await;
    }
}

/// Creates the stream; that somebody else just did is as good.
async fn create_stream(hub: &Hub, shards: u32) -> Result<(), KinesisError> {
    match hub.service.create(&hub.stream, shards).await {
        Err(failure) if failure.kind() != FailureKind::NotReady => Err(KinesisError::refused(&hub.stream, failure)),
        _ => Ok(()),
    }
}

fn stream_error(hub: &Hub, detail: &str) -> KinesisError {
    let source = ServiceFailure::new(Action::DescribeStreamSummary, FailureKind::NotReady, detail);
    KinesisError::Stream { stream: Arc::clone(&hub.stream), source }
}

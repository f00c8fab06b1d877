//! Starting a subscription. The user gets it once the stream is usable and the first shards are open.

use std::sync::Arc;

use tokio::{
    select,
    sync::{mpsc, oneshot},
    time::{Duration, Instant, sleep},
};

use super::{seek::Seeker, stream::Subscription};
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
    state::{context::SubscriptionContext, shard::Shards},
    types::close_report::CloseReport,
    util::clock,
};

/// How long `subscribe` waits for a stream to become usable.
const CREATION_LIMIT: Duration = Duration::from_mins(1);

/// The pause between two DescribeStreamSummary calls: the service allows twenty a second for a whole account.
const CREATION_POLL: Duration = Duration::from_millis(500);

/// Subtracted from this host's clock if the service does not tell its time: the clock may be ahead by as much.
const LOCAL_CLOCK_SLACK_MILLIS: i64 = 60_000;

/// Marks a subscription as finished if its start fails or is cancelled.
struct Unstarted<'a>(Option<&'a SubscriptionContext>);

impl Drop for Unstarted<'_> {
    fn drop(&mut self) {
        if let Some(context) = self.0 {
            context.lifecycle.finish(CloseReport::default());
        }
    }
}

/// Starts a subscription that its connection has registered.
///
/// # Cancel safety
///
/// A future that is dropped stops what it started and releases the leases that it took.
pub(crate) async fn start(context: Arc<SubscriptionContext>) -> Result<Subscription, KinesisError> {
    let mut unstarted = Unstarted(Some(&context));
    let beginning = select! {
        biased;
        _ = context.lifecycle.closing() => return Err(KinesisError::NotConnected),
        beginning = usable(&context) => beginning?,
    };
    let shards = Arc::new(Shards::default());
    let (opened, pages) = mpsc::unbounded_channel();
    let (seeker, seeks) = mpsc::unbounded_channel();
    let (ready, first_pass) = oneshot::channel();
    let coordinator = coordinator::start(Arc::clone(&context), Arc::clone(&shards), beginning, (opened, seeks), ready);
    renewer::start(Arc::clone(&context), Arc::clone(&shards), coordinator);
    dead_letters::start(&context, &shards);
    unstarted.0 = None;
    let subscription =
        Subscription::new(Arc::clone(&context), shards, pages, Seeker::new(Arc::clone(&context), seeker));
    // The sender is dropped if the subscription is closed meanwhile. The stream then ends.
    let _ = first_pass.await;
    Ok(subscription)
}

/// Waits until the stream can be read, and creates it if `create_if_missing` is set (L4).
async fn usable(context: &SubscriptionContext) -> Result<Beginning, KinesisError> {
    let deadline = Instant::now() + CREATION_LIMIT;
    let mut create = context.settings.create_if_missing;
    let mut may_appear = create.is_some();
    loop {
        match context.service.describe(&context.stream).await {
            Ok(Described { status: StreamStatus::Usable, created, now, .. }) => {
                let local = || ServiceTime(clock::unix_millis() - LOCAL_CLOCK_SLACK_MILLIS);
                return Ok(Beginning { moment: now.unwrap_or_else(local), created });
            }
            Ok(Described { status: StreamStatus::Creating, .. }) => may_appear = true,
            Ok(Described { status: StreamStatus::Deleting, .. }) if may_appear => {}
            Ok(Described { status: StreamStatus::Deleting, .. }) => {
                return Err(stream_error(context, "it is being deleted"));
            }
            Err(failure) if may_appear && failure.kind() == FailureKind::NotFound => {
                if let Some(shards) = create.take() {
                    create_stream(context, shards).await?;
                }
            }
            Err(failure) => return Err(KinesisError::refused(&context.stream, failure)),
        }
        if Instant::now() >= deadline {
            return Err(stream_error(context, "it did not become active within a minute"));
        }
        sleep(CREATION_POLL).await;
    }
}

/// Creates the stream. It is no error if another instance just did.
async fn create_stream(context: &SubscriptionContext, shards: u32) -> Result<(), KinesisError> {
    match context.service.create(&context.stream, shards).await {
        Err(failure) if failure.kind() != FailureKind::NotReady => Err(KinesisError::refused(&context.stream, failure)),
        _ => Ok(()),
    }
}

fn stream_error(context: &SubscriptionContext, detail: &str) -> KinesisError {
    let source = ServiceFailure::new(Action::DescribeStreamSummary, FailureKind::NotReady, detail);
    KinesisError::Stream { stream: Arc::clone(&context.stream), source }
}

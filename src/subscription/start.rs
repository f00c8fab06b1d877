//! Starting a subscription. The user gets it once the stream is usable and the first shards are open.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{
    select,
    sync::{mpsc, oneshot},
    time::{Duration, Instant, sleep},
};

use super::{seek::Seeker, stream::Subscription};
#[cfg(feature = "metrics")]
use crate::telemetry;
use crate::{
    config::present::Present,
    coordination::{
        coordinator::{self, Beginning},
        renewer,
    },
    dead_letters,
    error::{
        KinesisError,
        chain::Chain,
        service::{Action, FailureKind, ServiceFailure},
    },
    kinesis::{Described, StreamStatus},
    state::{context::SubscriptionContext, shard::Shards},
    types::close_report::CloseReport,
    util::clock,
};

/// How long `subscribe` waits for a stream to become usable, and for calls that fail for now.
const START_LIMIT: Duration = Duration::from_mins(1);

/// The pauses after failed calls double from the first to the longest, before jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The pause between two DescribeStreamSummary calls: the service allows twenty a second for a whole account.
const CREATION_POLL: Duration = Duration::from_millis(500);

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
        beginning = checked_streams(&context) => beginning?,
    };
    let present = beginning.present();
    let plan = present.settle_plan(context.settings.plan.clone())?;
    sleep(present.until_plan(&plan)).await;
    let shards = Arc::new(Shards::default());
    let (opened, pages) = mpsc::unbounded_channel();
    let (seeker, seeks) = mpsc::unbounded_channel();
    let (ready, first_pass) = oneshot::channel();
    let coordinator =
        coordinator::start(Arc::clone(&context), Arc::clone(&shards), (beginning, plan), (opened, seeks), ready);
    renewer::start(Arc::clone(&context), Arc::clone(&shards), coordinator);
    dead_letters::start(&context, &shards);
    #[cfg(feature = "metrics")]
    telemetry::start(&context, &shards);
    unstarted.0 = None;
    let subscription =
        Subscription::new(Arc::clone(&context), shards, pages, Seeker::new(Arc::clone(&context), seeker));
    // The sender is dropped if the subscription is closed meanwhile. The stream then ends.
    first_pass.await.unwrap_or(Ok(())).map(|()| subscription)
}

/// Waits until the stream can be read, and its dead-letter stream exists. Creates those that may be created (L4).
async fn checked_streams(context: &SubscriptionContext) -> Result<Beginning, KinesisError> {
    let create = context.settings.create_if_missing;
    let described = usable(context, &context.stream, create).await;
    let Described { created, now, .. } =
        described.map_err(|failure| KinesisError::refused(&context.stream, failure))?;
    let present = Present::new(now.map(|now| now.0), clock::unix_millis());
    context.service_clock.note(present.at_least, Instant::now());
    if let Some(dead_letter) = &context.settings.retries.dead_letter {
        check_dead_letter(context, dead_letter).await?;
    }
    Ok(Beginning::new(present, created))
}

/// Whether the dead-letter stream exists. Credentials may allow nothing but to write to it, and an outage passes before
/// it is needed, so only a stream that is missing or cannot be created is an error.
async fn check_dead_letter(context: &SubscriptionContext, dead_letter: &Arc<str>) -> Result<(), KinesisError> {
    let Err(source) = usable(context, dead_letter, context.settings.retries.create_dead_letter).await else {
        return Ok(());
    };
    match (source.kind(), source.action()) {
        (FailureKind::NotFound | FailureKind::NotReady, _) => Err(KinesisError::DeadLetterStream {
            stream: Arc::clone(&context.stream),
            dead_letter: Arc::clone(dead_letter),
            source,
        }),
        (_, Action::CreateStream) => Err(KinesisError::refused(dead_letter, source)),
        _ => {
            tracing::warn!(
                stream = %context.stream, %dead_letter, error = %Chain(&source),
                "it is not known whether the dead-letter stream exists"
            );
            Ok(())
        }
    }
}

/// Waits until a stream is active, and creates it if it does not exist and may be created with this number of shards.
async fn usable(context: &SubscriptionContext, stream: &str, create: Option<u32>) -> Result<Described, ServiceFailure> {
    let deadline = Instant::now() + START_LIMIT;
    let mut create = create;
    let mut may_appear = create.is_some();
    let mut pauses = pauses();
    loop {
        let pause = match context.service.describe(stream).await {
            Ok(described @ Described { status: StreamStatus::Usable, .. }) => return Ok(described),
            Ok(Described { status: StreamStatus::Creating, .. }) => {
                may_appear = true;
                CREATION_POLL
            }
            Ok(Described { status: StreamStatus::Deleting, .. }) if may_appear => CREATION_POLL,
            Ok(Described { status: StreamStatus::Deleting, .. }) => {
                return Err(not_ready("it is being deleted"));
            }
            Err(failure) if may_appear && failure.kind() == FailureKind::NotFound => {
                match create_stream(context, stream, create).await {
                    Ok(()) => {
                        create = None;
                        CREATION_POLL
                    }
                    Err(failure) => pause_after(stream, failure, deadline, &mut pauses)?,
                }
            }
            Err(failure) => pause_after(stream, failure, deadline, &mut pauses)?,
        };
        if Instant::now() >= deadline {
            return Err(not_ready("it did not become active within a minute"));
        }
        sleep(pause).await;
    }
}

/// Creates the stream, unless that is done. It is no error if another instance just did. A response that cannot be read
/// is none either: the next describe shows whether the stream exists.
async fn create_stream(context: &SubscriptionContext, stream: &str, shards: Option<u32>) -> Result<(), ServiceFailure> {
    let Some(shards) = shards else { return Ok(()) };
    match context.service.create(stream, shards).await {
        Err(failure) if !matches!(failure.kind(), FailureKind::NotReady | FailureKind::Unreadable) => Err(failure),
        _ => Ok(()),
    }
}

/// How long to wait after a failed call. An error if waiting does not mend it, or if there is no time left.
fn pause_after(
    stream: &str,
    failure: ServiceFailure,
    deadline: Instant,
    pauses: &mut impl Iterator<Item = Duration>,
) -> Result<Duration, ServiceFailure> {
    if !passes(failure.kind()) || Instant::now() >= deadline {
        return Err(failure);
    }
    tracing::warn!(
        stream, error = %Chain(&failure),
        "a call of the start failed; the library repeats it for up to a minute"
    );
    let left = deadline.saturating_duration_since(Instant::now());
    Ok(pauses.next().unwrap_or(LONGEST_PAUSE).min(left))
}

/// Whether a failed call of the start may succeed within a minute. An endpoint that cannot be reached is more often
/// wrong than away, so it is an error at once, after the attempts of the SDK.
fn passes(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Throttled | FailureKind::Unavailable | FailureKind::Credentials)
}

/// Pauses that double, each with up to as much again as jitter: a fleet that starts at once is throttled at once.
fn pauses() -> impl Iterator<Item = Duration> {
    let seed = RandomState::new().hash_one(0);
    let pauses = ExponentialBuilder::new().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE);
    pauses.without_max_times().with_jitter().with_jitter_seed(seed).build()
}

fn not_ready(detail: &str) -> ServiceFailure {
    ServiceFailure::new(Action::DescribeStreamSummary, FailureKind::NotReady, detail)
}

//! The consumer: reads the stream and writes the file.

use std::{sync::Arc, time::Duration};

use kinesis_stream::{CloseReport, ShardStats, StatsHandle, prelude::*};
use tokio::time::sleep;

use crate::{archive::Archive, failure::Failure, producer, quake::Quake};

/// If nothing arrives for this long, the missing events are lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The pipeline: decode, append, commit. It shuts down gracefully once `closing` completes.
pub(crate) async fn archive_all(
    subscription: Subscription,
    run: &Arc<str>,
    archive: &Arc<Archive>,
    closing: impl Future<Output = ()> + Send,
) -> Result<CloseReport, Failure> {
    let (file, committer, run) = (Arc::clone(archive), Arc::clone(archive), Arc::clone(run));
    let closer = subscription.closer();
    let pipeline = subscription
        .tolerant()
        // Decode up to 64 events at a time, and keep their order.
        .map(move |delivery| {
            let run = Arc::clone(&run);
            async move { decode(delivery?, &run) }
        })
        .buffered(64)
        .try_filter_map(future::ok)
        // Append all events that are ready, 64 at most, in one write. Appends run one after the other, so the file
        // keeps the order of the shards.
        .try_ready_chunks(64)
        .map_err(|failed| failed.1)
        .and_then(move |quakes| Arc::clone(&file).append(quakes))
        .map_ok(|quakes| stream::iter(quakes).map(Ok))
        .try_flatten()
        // Commits that wait at the same time share one write to the lease store.
        .map_ok(move |quake| Arc::clone(&committer).settle(quake))
        .try_buffer_unordered(64)
        .try_for_each(future::ok);
    let closing = async {
        closing.await;
        Ok(closer.close().await)
    };
    future::try_join(pipeline, closing).await.map(|((), report)| report)
}

/// Decodes the event in a record. Acknowledges and skips a record of another run.
fn decode(delivery: Delivery, run: &str) -> Result<Option<Delivery<Quake>>, Failure> {
    if delivery.headers().get(producer::RUN).is_none_or(|value| value != run) {
        delivery.ack();
        return Ok(None);
    }
    Ok(Some(delivery.try_map(|json| Quake::parse(json)).map_err(Box::new)?))
}

/// Waits until every shard is read up to its tip and all its records are settled. After a restart, only then do we
/// know whether records were redelivered.
pub(crate) async fn caught_up(stats: &StatsHandle) {
    let done = |shard: &ShardStats| shard.behind == Some(Duration::ZERO) && shard.in_flight == 0;
    loop {
        let now = stats.snapshot();
        if now.bytes_held == 0 && now.shards.iter().all(done) {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

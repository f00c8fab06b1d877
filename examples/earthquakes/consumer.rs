//! The consumer: out of the stream, into the file.

use std::{sync::Arc, time::Duration};

use kinesis_stream::{CloseReport, ShardStats, StatsHandle, prelude::*};
use tokio::time::sleep;

use crate::{archive::Archive, failure::Failure, producer, quake::Quake};

/// When nothing has arrived for so long, what is missing is lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The pipeline: decode, append, commit. It ends in good order once `closing` is done.
pub(crate) async fn archive_all(
    subscription: Subscription,
    run: &Arc<str>,
    archive: &Arc<Archive>,
    closing: impl Future<Output = ()> + Send,
) -> Result<CloseReport, Failure> {
    let (file, books, run) = (Arc::clone(archive), Arc::clone(archive), Arc::clone(run));
    let closer = subscription.closer();
    let pipeline = subscription
        .tolerant()
        // Up to 64 events are worked on at a time, and leave in the order in which they came.
        .map(move |delivery| {
            let run = Arc::clone(&run);
            async move { decode(delivery?, &run) }
        })
        .buffered(64)
        .try_filter_map(future::ok)
        // What is there by now, 64 events at most, is one append. They go one after the other, so that the file has
        // the order of the shards.
        .try_ready_chunks(64)
        .map_err(|failed| failed.1)
        .and_then(move |quakes| Arc::clone(&file).append(quakes))
        .map_ok(|quakes| stream::iter(quakes).map(Ok))
        .try_flatten()
        // Commits that wait together share one write to the lease table.
        .map_ok(move |quake| Arc::clone(&books).settle(quake))
        .try_buffer_unordered(64)
        .try_for_each(future::ok);
    let closing = async {
        closing.await;
        Ok(closer.close().await)
    };
    future::try_join(pipeline, closing).await.map(|((), report)| report)
}

/// The event in a record; none in a record of another run, which is acknowledged and left alone.
fn decode(delivery: Delivery, run: &str) -> Result<Option<Delivery<Quake>>, Failure> {
    if delivery.headers().get(producer::RUN).is_none_or(|value| value != run) {
        delivery.ack();
        return Ok(None);
    }
    Ok(Some(delivery.try_map(|json| Quake::parse(json)).map_err(Box::new)?))
}

/// Waits until every shard is read up to its tip and everything from it is settled. After a restart it takes that to
/// know whether records come again.
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

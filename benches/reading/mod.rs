//! Shared by the reading benches: the pages, the bare loop, and a subscription with one consumer.

use aws_sdk_kinesis::{Client, types::ShardIteratorType};
use futures::future::try_join_all;
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::canned::Canned;
use tokio::time::{Duration, sleep};

use crate::cost::Result;

/// The maximum size of a page: what Kinesis returns from a shard per second.
const PAGE_BYTES: usize = 2 << 20;

/// Shards with `pages` pages in all. Each page has 1,000 records, but at most 2 MiB.
pub(crate) fn ending(shards: usize, record_bytes: usize, pages: usize) -> Canned {
    let records_per_page = (PAGE_BYTES / record_bytes.max(1)).clamp(1, 1000);
    Canned { shards, records_per_page, record_bytes, pages: Some((pages / shards).max(1)), ..Canned::default() }
}

/// How many records there are to read.
pub(crate) fn records(canned: &Canned) -> u32 {
    let pages = canned.shards * canned.pages.unwrap_or_default();
    u32::try_from(pages * canned.records_per_page).expect("the number of records fits")
}

/// Describes the records to read.
pub(crate) fn title(canned: &Canned) -> String {
    let &Canned { shards, records_per_page, record_bytes, pages, .. } = canned;
    let pages = pages.unwrap_or_default();
    format!("{record_bytes} B a record, {records_per_page} records a page; shards: {shards}, pages of each: {pages}")
}

/// A task for each shard. It calls GetRecords with the iterator of the previous response, and handles each page before
/// it reads the next.
pub(crate) async fn bare(client: &Client, stream: &'static str, canned: &Canned, handling: Duration) -> Result<u32> {
    let limit = i32::try_from(canned.records_per_page)?;
    let shards = (0..canned.shards).map(|shard| {
        let client = client.clone();
        tokio::spawn(async move {
            let shard = format!("shardId-{shard:012}");
            let place = client.get_shard_iterator().stream_name(stream).shard_id(shard);
            let placed = place.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await?;
            let mut next = placed.shard_iterator;
            let mut read = 0;
            while let Some(iterator) = next {
                let page = client.get_records().shard_iterator(iterator).limit(limit).send().await?;
                read += page.records.iter().map(|record| look(record.data.as_ref())).sum::<u32>();
                handle(handling).await;
                next = page.next_shard_iterator;
            }
            Result::<u32>::Ok(read)
        })
    });
    try_join_all(shards).await?.into_iter().sum()
}

/// Reads everything with a subscription that a separate task consumes, without pacing.
pub(crate) async fn subscribed<F>(
    broker: &ConnectedKinesisBroker,
    stream: &str,
    canned: &Canned,
    consume: impl FnOnce(Subscription) -> F,
) -> Result<u32>
where
    F: Future<Output = Result<u32>> + Send + 'static,
{
    let stream = KinesisStream::new(stream)
        .start_at(KinesisPosition::horizon())
        .read_limit(u32::try_from(canned.records_per_page)?)
        .reads_per_second(u32::MAX);
    let subscription = broker.subscribe(stream).await?;
    let closer = subscription.closer();
    let read = tokio::spawn(consume(subscription)).await??;
    closer.close().await;
    Ok(read)
}

/// One consumer that acknowledges each record.
pub(crate) async fn ack(subscription: Subscription, records: u32) -> Result<u32> {
    let mut deliveries = subscription.tolerant();
    let mut read = 0;
    while read < records
        && let Some(delivery) = deliveries.try_next().await?
    {
        read += look(delivery.payload());
        delivery.ack();
    }
    Ok(read)
}

/// Reads every byte of a record, and counts it.
pub(crate) fn look(data: &[u8]) -> u32 {
    std::hint::black_box(data.iter().fold(0, |sum, byte| sum ^ byte));
    1
}

/// Handles a page: it only waits, as for a database.
pub(crate) async fn handle(handling: Duration) {
    if !handling.is_zero() {
        sleep(handling).await;
    }
}

//! Records in batches: when a batch is yielded, what it holds, and how settling it works (R7, A1, A2, A5).

use futures::{Stream, StreamExt};
use tokio::time::{Duration, timeout};

use crate::{
    error::KinesisError,
    simulation::harness::{Harness, Instance, names},
    subscription::{batch::Batch, batches::Batches, descriptor::KinesisStream},
};

mod behind_combinators;
mod by_shard;
mod errors;
mod filling;
mod limits;
mod settling;

const LONG: Duration = Duration::from_hours(1);

/// The next item or the end.
async fn item(
    batches: &mut (impl Stream<Item = Result<Batch, KinesisError>> + Unpin),
) -> Option<Result<Batch, KinesisError>> {
    timeout(LONG, batches.next()).await.expect("an item comes within an hour")
}

/// The next item, which must be a batch.
async fn next(batches: &mut (impl Stream<Item = Result<Batch, KinesisError>> + Unpin)) -> Batch {
    item(batches).await.expect("the stream continues").unwrap()
}

/// The names of the next batch's records, and the time at which it was yielded.
async fn timed(
    harness: &Harness,
    batches: &mut (impl Stream<Item = Result<Batch, KinesisError>> + Unpin),
) -> (Vec<String>, u128) {
    let batch = next(batches).await;
    let names = batch_names(&batch);
    batch.ack();
    (names, harness.millis())
}

fn batch_names(batch: &Batch) -> Vec<String> {
    names(batch.deliveries()).into_iter().map(ToOwned::to_owned).collect()
}

async fn batches(me: &Instance, stream: KinesisStream, size: usize) -> Batches {
    me.subscribe(stream).await.batches(size).unwrap()
}

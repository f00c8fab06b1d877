//! Work on many records at once, in the order of each key: 10,000 deliveries, each of which yields to the others once.

use futures::stream::iter;
use kinesis_stream::prelude::*;
use tokio::task::yield_now;

use super::{reading::kinesis, settling::OneShard};

/// Futures at the same time.
const AT_ONCE: usize = 32;

/// A shard whose records take turns with `keys` keys.
pub(crate) fn one_shard(keys: usize) -> OneShard {
    OneShard::new(kinesis(1, 1000, 100).keys(keys))
}

/// Works in the order of each key.
pub(crate) fn by_key(shard: &OneShard, held: Vec<Delivery>) {
    let done = iter(held).map(Ok).buffer_by_key(AT_ONCE, settle);
    shard.setup.run(done.try_for_each(async |()| Ok(()))).expect("no error");
}

/// Works in any order.
pub(crate) fn unordered(shard: &OneShard, held: Vec<Delivery>) {
    let done = iter(held).map(settle).buffer_unordered(AT_ONCE);
    shard.setup.run(done.try_for_each(async |()| Ok(()))).expect("no error");
}

async fn settle(delivery: Delivery) -> Result<(), KinesisError> {
    yield_now().await;
    delivery.ack();
    Ok(())
}

//! Work on many records at once, in the order of each key: 10,000 records in hand, each of which lets the others go first
//! once.

use futures::stream::iter;
use kinesis_stream::prelude::*;
use tokio::task::yield_now;

use super::{reading::kinesis, settling::Hands};

/// Futures at the same time.
const AT_ONCE: usize = 32;

/// A shard whose records have so many keys, by turns.
pub(crate) fn hands(keys: usize) -> Hands {
    Hands::new(kinesis(1, 1000, 100).keys(keys))
}

/// Works in the order of each key.
pub(crate) fn by_key(hands: &Hands, held: Vec<Delivery>) {
    let done = iter(held).map(Ok).buffer_by_key(AT_ONCE, settle);
    hands.ground.run(done.try_for_each(async |()| Ok(()))).expect("no error");
}

/// Works in no order.
pub(crate) fn unordered(hands: &Hands, held: Vec<Delivery>) {
    let done = iter(held).map(settle).buffer_unordered(AT_ONCE);
    hands.ground.run(done.try_for_each(async |()| Ok(()))).expect("no error");
}

async fn settle(delivery: Delivery) -> Result<(), KinesisError> {
    yield_now().await;
    delivery.ack();
    Ok(())
}

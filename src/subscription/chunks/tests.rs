//! Chunks under a paused clock.

use futures::{StreamExt, stream};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};

use super::*;

type Item = Result<u32, &'static str>;

const LIMIT: Duration = Duration::from_millis(50);

/// A stream that yields what is sent into it.
fn channel() -> (UnboundedSender<Item>, impl Stream<Item = Item> + Unpin) {
    let (sender, mut receiver) = unbounded_channel();
    (sender, stream::poll_fn(move |cx| receiver.poll_recv(cx)))
}

fn numbers(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

fn oks(range: std::ops::Range<u32>) -> Vec<Item> {
    range.map(Ok).collect()
}

#[tokio::test(start_paused = true)]
async fn a_chunk_is_yielded_when_it_is_full_or_when_its_first_item_has_waited_long_enough() {
    let (sender, source) = channel();
    let mut chunks = source.chunks_timeout(3, LIMIT);
    for item in oks(0..4) {
        sender.send(item).unwrap();
    }
    let start = Instant::now();
    assert_eq!((chunks.next().await, start.elapsed()), (Some(oks(0..3)), Duration::ZERO));
    let late = async {
        sleep(LIMIT / 2).await;
        sender.send(Ok(4)).unwrap();
    };
    let (chunk, ()) = futures::join!(chunks.next(), late);
    assert_eq!((chunk, start.elapsed()), (Some(oks(3..5)), LIMIT));
    assert!(timeout(LIMIT * 100, chunks.next()).await.is_err());
    // The limit counts from the first item, however long the stream was idle.
    sender.send(Ok(5)).unwrap();
    assert_eq!((chunks.next().await, start.elapsed()), (Some(oks(5..6)), LIMIT * 102));
}

#[tokio::test(start_paused = true)]
async fn the_last_chunk_is_yielded_at_once_and_the_stream_then_stays_ended() {
    let start = Instant::now();
    let mut chunks = stream::iter(0..5).chunks_timeout(3, LIMIT);
    assert_eq!(chunks.size_hint(), (2, Some(5)));
    assert_eq!(chunks.by_ref().collect::<Vec<_>>().await, [numbers(0..3), numbers(3..5)]);
    assert_eq!((chunks.next().await, chunks.is_terminated(), start.elapsed()), (None, true, Duration::ZERO));
    assert_eq!(chunks.size_hint(), (0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_yielded_after_the_items_before_it_and_the_stream_continues() {
    let items = [Ok(0), Ok(1), Err("one"), Err("two"), Ok(2), Ok(3), Ok(4), Err("three"), Ok(5)];
    let chunks = stream::iter(items).try_chunks_timeout(3, LIMIT);
    let expected = [Ok(numbers(0..2)), Err("one"), Err("two"), Ok(numbers(2..5)), Err("three"), Ok(numbers(5..6))];
    assert_eq!(chunks.collect::<Vec<_>>().await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_in_front_of_an_error_does_not_wait() {
    let (sender, source) = channel();
    let mut chunks = source.try_chunks_timeout(9, LIMIT);
    for item in [Ok(0), Err("gone")] {
        sender.send(item).unwrap();
    }
    let start = Instant::now();
    assert_eq!((chunks.next().await, start.elapsed()), (Some(Ok(numbers(0..1))), Duration::ZERO));
    drop(sender);
    assert!(!chunks.is_terminated());
    assert_eq!((chunks.next().await, chunks.next().await), (Some(Err("gone")), None));
    assert!(chunks.is_terminated());
}

#[tokio::test(start_paused = true)]
async fn a_chunk_without_a_time_limit_waits_until_it_is_full_and_one_of_no_items_has_one() {
    let (sender, source) = channel();
    let mut chunks = source.chunks_timeout(2, Duration::MAX);
    sender.send(Ok(0)).unwrap();
    assert!(timeout(Duration::from_hours(1), chunks.next()).await.is_err());
    sender.send(Ok(1)).unwrap();
    assert_eq!(chunks.next().await, Some(oks(0..2)));

    let ones = stream::iter(0..2).chunks_timeout(0, Duration::ZERO);
    assert_eq!(ones.collect::<Vec<_>>().await, [numbers(0..1), numbers(1..2)]);
    let ready = stream::iter(0..2).chain(stream::pending()).chunks_timeout(9, Duration::ZERO);
    assert_eq!(ready.take(1).collect::<Vec<_>>().await, [numbers(0..2)]);
}

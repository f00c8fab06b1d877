//! Stream combinators on a subscription: which records they yield, in which order, and which checkpoint they leave. The
//! prelude provides everything that they need.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::Sink;
use kinesis_stream::{Checkpoint, MemoryLeaseStore, Tolerant, prelude::*};
use kinesis_stream_support::{AwsError, Emulator, Harness, Op};
use tokio::{
    sync::{Barrier, oneshot},
    time::{Duration, timeout},
};

mod wire;

use self::wire::{PATIENCE, eventually, quick, reading, records, rows, seal, text, texts, up_to_seals};

const STREAM: &str = "stream";

/// A Kinesis whose stream of one shard holds `n` records, and a checkpoint after each of them.
async fn holding(n: usize) -> (Emulator, MemoryLeaseStore, Vec<Checkpoint>) {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    kinesis.put_all(STREAM, said(0..n).into_iter().map(|text| ("key", text))).await;
    let shard = &kinesis.shards(STREAM).await[0].id;
    let stored = kinesis.records(STREAM, shard).await;
    let after = stored.into_iter().map(|record| Checkpoint::After(record.sequence_number.into())).collect();
    (kinesis, MemoryLeaseStore::new(), after)
}

/// The payloads of these records.
fn said(records: std::ops::Range<usize>) -> Vec<String> {
    records.map(|i| format!("record {i}")).collect()
}

async fn tolerant(harness: &Harness, store: &MemoryLeaseStore) -> Tolerant {
    reading(harness, store, quick(STREAM)).await.tolerant()
}

/// The checkpoint of the one shard.
async fn checkpoint(store: &MemoryLeaseStore) -> Option<Checkpoint> {
    rows(store, STREAM).await.into_values().next().unwrap().checkpoint
}

/// Waits for a pipeline to end.
async fn ended<T>(pipeline: impl Future<Output = T>) -> T {
    timeout(PATIENCE, pipeline).await.expect("the pipeline ends in time")
}

/// The records that the next subscription reads.
async fn left_over(harness: &Harness, store: &MemoryLeaseStore) -> Vec<String> {
    let seals = seal(harness, STREAM).await;
    up_to_seals(&mut reading(harness, store, quick(STREAM)).await, seals).await
}

// A1
#[tokio::test]
async fn map_ok_and_try_buffer_unordered_yield_results_as_they_finish_and_settle_every_record() {
    let (kinesis, store, after) = holding(8).await;
    let quakes = tolerant(&kinesis, &store).await;
    // The first record waits for another one, so it cannot be the first result.
    let (told, tell) = oneshot::channel::<()>();
    let (told, tell) = (RefCell::new(Some(tell)), RefCell::new(Some(told)));
    let work = quakes.take(8).map_ok(async |delivery| {
        let text = text(&delivery);
        if text == "record 0" {
            let another = told.borrow_mut().take().unwrap();
            another.await.unwrap();
        } else if let Some(tell) = tell.borrow_mut().take() {
            tell.send(()).unwrap();
        }
        delivery.commit().await?;
        Ok::<_, KinesisError>(text)
    });
    let mut results: Vec<String> = ended(work.try_buffer_unordered(4).try_collect()).await.unwrap();
    assert_ne!(results[0], "record 0");
    results.sort();
    assert_eq!((results, checkpoint(&store).await), (said(0..8), after.last().cloned()));
}

// X1, X2, R10
#[tokio::test]
async fn try_buffer_unordered_continues_past_transient_errors_and_ends_at_a_fatal_error() {
    let (kinesis, store, after) = holding(8).await;
    kinesis.faults().on(Op::GetRecords).first(2).fail(AwsError::INTERNAL_FAILURE);
    let quakes = tolerant(&kinesis, &store).await;
    let done = RefCell::new(Vec::new());
    let pipeline = quakes
        .map_ok(async |delivery| {
            let text = text(&delivery);
            delivery.commit().await.map(|_| text)
        })
        .try_buffer_unordered(4)
        .try_for_each(async |text| {
            done.borrow_mut().push(text);
            if done.borrow().len() == 8 {
                kinesis.delete_stream(STREAM).await;
            }
            Ok(())
        });
    let error = ended(pipeline).await.unwrap_err();
    assert!(matches!(error, KinesisError::StreamGone { .. }), "{error}");
    let mut done = done.into_inner();
    done.sort();
    assert_eq!((done, checkpoint(&store).await), (said(0..8), after.last().cloned()));
}

// X1
#[tokio::test]
async fn a_try_pipeline_that_is_not_tolerant_ends_at_the_first_failed_read_and_loses_no_record() {
    let (kinesis, store, _) = holding(3).await;
    kinesis.faults().on(Op::GetRecords).first(1).fail(AwsError::INTERNAL_FAILURE);
    let quakes = reading(&kinesis, &store, quick(STREAM)).await;
    let error = ended(quakes.try_for_each(async |delivery| delivery.commit().await.map(drop))).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient);
    let mut again = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(texts(&records(&mut again, 3).await), said(0..3));
}

// A1, S3
#[tokio::test]
async fn buffered_works_on_several_records_at_once_and_keeps_their_order() {
    let (kinesis, store, after) = holding(8).await;
    let quakes = tolerant(&kinesis, &store).await;
    // The barrier opens only when four records are being worked on.
    let four = Barrier::new(4);
    let decoded = quakes.take(8).map(async |item| {
        let delivery = item?;
        four.wait().await;
        Ok::<_, KinesisError>(delivery.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()))
    });
    let settled = decoded.buffered(4).and_then(async |delivery| {
        let text = delivery.payload().clone();
        assert_eq!(delivery.commit().await?, Commit::Stored);
        Ok(text)
    });
    let results: Vec<String> = ended(settled.try_collect()).await.unwrap();
    assert_eq!((results, checkpoint(&store).await), (said(0..8), after.last().cloned()));
}

// A1, A4
#[tokio::test]
async fn chunks_timeout_yields_full_batches_and_a_partial_batch_at_the_timeout() {
    let (kinesis, store, after) = holding(10).await;
    let mut quakes = tolerant(&kinesis, &store).await;
    let batches = (&mut quakes).chunks_timeout(4, Duration::from_millis(50)).take(3);
    let settled =
        batches.map(|batch| batch.into_iter().collect::<Result<Vec<Delivery>, _>>()).and_then(async |batch| {
            let texts = texts(&batch);
            assert_eq!(commit_all(batch).await?, Commit::Stored);
            Ok(texts)
        });
    let batches: Vec<Vec<String>> = ended(settled.try_collect()).await.unwrap();
    assert_eq!(batches, [said(0..4), said(4..8), said(8..10)]);
    assert_eq!(checkpoint(&store).await, after.last().cloned());
    assert!(quakes.into_inner().close().await.is_clean());
    assert_eq!(left_over(&kinesis, &store).await, said(0..0));
}

// R7, A4
#[tokio::test]
async fn ready_chunks_yields_all_available_records_in_one_batch() {
    let (kinesis, store, after) = holding(10).await;
    let quakes = tolerant(&kinesis, &store).await;
    eventually("the page is read ahead", async || quakes.get_ref().stats().shards[0].bytes_held > 0).await;
    let mut batches = quakes.ready_chunks(100);
    let batch: Vec<Delivery> = ended(batches.next()).await.unwrap().into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(texts(&batch), said(0..10));
    assert_eq!(commit_all(batch).await.unwrap(), Commit::Stored);
    assert_eq!(checkpoint(&store).await, after.last().cloned());
    kinesis.put(STREAM, "key", "one more").await;
    let batch: Vec<Delivery> = ended(batches.next()).await.unwrap().into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(texts(&batch), ["one more"]);
}

// A3, R4
#[tokio::test]
async fn take_until_leaves_the_other_records_and_a_restart_reads_exactly_those() {
    let (kinesis, store, after) = holding(10).await;
    let mut quakes = tolerant(&kinesis, &store).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let stop = RefCell::new(Some(stop));
    let taken = (&mut quakes).take_until(stopped).and_then(async |delivery| {
        let text = text(&delivery);
        delivery.ack();
        if text == "record 2" {
            stop.borrow_mut().take().unwrap().send(()).unwrap();
        }
        Ok(text)
    });
    let taken: Vec<String> = ended(taken.try_collect()).await.unwrap();
    assert_eq!(taken, said(0..3));
    assert!(quakes.into_inner().close().await.is_clean());
    assert_eq!(checkpoint(&store).await, Some(after[2].clone()));
    assert_eq!(left_over(&kinesis, &store).await, said(3..10));
}

enum Event {
    Record(Delivery),
    Tick,
    End,
}

// S1
#[tokio::test]
async fn select_merges_a_ticker_and_the_records_keep_their_order() {
    let (kinesis, store, after) = holding(10).await;
    let quakes = reading(&kinesis, &store, quick(STREAM)).await;
    let closer = quakes.closer();
    let records = quakes.tolerant().map_ok(Event::Record).chain(stream::iter([Ok(Event::End)]));
    let ticks = stream::unfold(tokio::time::interval(Duration::from_millis(10)), async |mut ticker| {
        ticker.tick().await;
        Some((Ok::<_, KinesisError>(Event::Tick), ticker))
    });
    let mut events = std::pin::pin!(stream::select(records, ticks));
    let (mut taken, mut ticked, mut closing) = (Vec::new(), 0, None);
    while let Some(event) = ended(events.try_next()).await.unwrap() {
        match event {
            Event::Record(delivery) => {
                taken.push(text(&delivery));
                delivery.ack();
            }
            Event::Tick if taken.len() < 10 || ticked < 3 => ticked += 1,
            Event::Tick => {
                let closer = closer.clone();
                closing.get_or_insert_with(|| tokio::spawn(async move { closer.close().await }));
            }
            Event::End => break,
        }
    }
    assert!(closing.unwrap().await.unwrap().is_clean());
    assert_eq!((taken, checkpoint(&store).await), (said(0..10), after.last().cloned()));
}

/// A sink that writes in batches of four and commits the written records.
#[derive(Default)]
struct Table {
    batch: Vec<Delivery>,
    writing: Option<future::BoxFuture<'static, Result<Vec<String>, KinesisError>>>,
    written: Vec<Vec<String>>,
}

impl Table {
    fn poll_written(&mut self, cx: &mut Context<'_>, fill: usize) -> Poll<Result<(), KinesisError>> {
        loop {
            if let Some(writing) = &mut self.writing {
                let texts = ready!(writing.poll_unpin(cx));
                self.writing = None;
                self.written.push(texts?);
            } else if self.batch.len() >= fill {
                let batch = std::mem::take(&mut self.batch);
                self.writing = Some(Box::pin(async move {
                    let texts = texts(&batch);
                    assert_eq!(commit_all(batch).await?, Commit::Stored);
                    Ok(texts)
                }));
            } else {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Sink<Delivery> for &mut Table {
    type Error = KinesisError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_written(cx, 4)
    }

    fn start_send(mut self: Pin<&mut Self>, delivery: Delivery) -> Result<(), Self::Error> {
        self.batch.push(delivery);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let fill = self.batch.len().clamp(1, 4);
        self.poll_written(cx, fill)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_flush(cx)
    }
}

// A1
#[tokio::test]
async fn forward_feeds_a_settling_sink_and_flushes_it_at_the_end() {
    let (kinesis, store, after) = holding(10).await;
    let quakes = tolerant(&kinesis, &store).await;
    let mut table = Table::default();
    ended(quakes.take(10).forward(&mut table)).await.unwrap();
    assert_eq!(table.written.concat(), said(0..10));
    assert!(table.written.iter().all(|batch| batch.len() <= 4), "{:?}", table.written);
    assert_eq!(checkpoint(&store).await, after.last().cloned());

    let (kinesis, store, after) = holding(3).await;
    let quakes = tolerant(&kinesis, &store).await;
    let commits = sink::unfold((), async |(), delivery: Delivery| delivery.commit().await.map(drop));
    ended(quakes.take(3).forward(commits)).await.unwrap();
    assert_eq!(checkpoint(&store).await, after.last().cloned());
}

// A1, A3
#[tokio::test]
async fn for_each_concurrent_settles_every_record_and_a_failed_record_is_redelivered() {
    let (kinesis, store, after) = holding(10).await;
    let quakes = reading(&kinesis, &store, quick(STREAM)).await;
    let closer = quakes.closer();
    let done = RefCell::new(Vec::new());
    let (stop, stopped) = oneshot::channel::<()>();
    let stop = RefCell::new(Some(stop));
    let pipeline = quakes.for_each_concurrent(4, async |item| {
        let delivery = item.unwrap();
        let text = text(&delivery);
        if text == "record 3" && delivery.attempt() == 1 {
            return delivery.nack();
        }
        delivery.commit().await.unwrap();
        done.borrow_mut().push(text);
        if done.borrow().len() == 10 {
            stop.borrow_mut().take().unwrap().send(()).unwrap();
        }
    });
    let closing = async {
        stopped.await.unwrap();
        closer.close().await
    };
    let ((), report) = ended(future::join(pipeline, closing)).await;
    assert!(report.is_clean());
    let mut done = done.into_inner();
    assert_eq!(done.last().unwrap(), "record 3");
    done.sort();
    assert_eq!((done, checkpoint(&store).await), (said(0..10), after.last().cloned()));
}

// A7, S1
#[tokio::test]
async fn buffer_by_key_keeps_the_order_of_each_key_even_with_redeliveries() {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 2).await;
    let key = |i: usize| format!("key {}", i % 8);
    kinesis.put_all(STREAM, (0..160).map(|i| (key(i), i.to_string()))).await;
    let store = MemoryLeaseStore::new();
    let quakes = reading(&kinesis, &store, quick(STREAM)).await;
    let closer = quakes.closer();
    let by_key = RefCell::new(BTreeMap::<String, Vec<usize>>::new());
    let mut work = quakes.tolerant().buffer_by_key(4, async |delivery| {
        let number: usize = text(&delivery).parse().unwrap();
        tokio::task::yield_now().await;
        // One record of every key fails at first, at a different position for each key.
        if number < 72 && number.is_multiple_of(9) && delivery.attempt() == 1 {
            return Ok(0);
        }
        by_key.borrow_mut().entry(delivery.partition_key().unwrap().to_owned()).or_default().push(number);
        delivery.ack();
        Ok(1)
    });
    let (mut settled, mut failed) = (0, 0);
    while settled < 160 {
        match ended(work.try_next()).await.unwrap().unwrap() {
            0 => failed += 1,
            _ => settled += 1,
        }
    }
    assert_eq!(failed, 8);
    let (report, end) = ended(future::join(closer.close(), work.try_next())).await;
    assert!(report.is_clean() && end.unwrap().is_none());
    drop(work);
    let expected = (0..8).map(|k| (key(k), (0..160).skip(k).step_by(8).collect())).collect();
    assert_eq!(by_key.into_inner(), expected);
    for shard in kinesis.shards(STREAM).await {
        let last = kinesis.records(STREAM, &shard.id).await.pop().map(|record| record.sequence_number);
        let covered = rows(&store, STREAM).await[&shard.id].checkpoint.clone();
        assert_eq!(covered, last.map(|number| Checkpoint::After(number.into())));
    }
}

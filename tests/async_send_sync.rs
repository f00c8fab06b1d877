//! Every public type, stream and future can move to other tasks and threads. The compiler checks it.

use std::{error::Error, fmt::Debug, pin::Pin, sync::Arc};

use bytes::Bytes;
use futures::{Sink, Stream, TryStreamExt, stream::FusedStream};
use kinesis_stream::{
    Acker, Action, Batch, BatchFailures, Batches, BufferBy, Checkpoint, ChunksTimeout, CloseReport, Closer, Commit,
    ConnectedKinesisBroker, Delivery, DeliveryStreamExt, DynamoDbLeaseStore, EmbeddedLeaseStore, ErrorClass,
    FailureKind, Headers, Held, KinesisBroker, KinesisError, KinesisPosition, KinesisStream, Lease, LeaseKey,
    LeaseStore, LeaseToken, MemoryLeaseStore, OnDrop, OpenShard, Outgoing, PublishError, PublishOrder, PublishSink,
    PublishStats, PublishTo, Published, Publisher, Record, Seen, SequenceNumber, ServiceFailure, ShardId, ShardState,
    ShardStats, StatsHandle, StoreError, Subscription, SubscriptionStats, Take, Tolerant, TooOld, TryChunkStreamExt,
    TryChunksTimeout, TryMapError, Write, commit_all,
};

fn value<T: Send + Sync + Unpin + Debug + 'static>() {}
fn cloned<T: Clone + Send + Sync + Unpin + Debug + 'static>() {}
fn error<T: Error + Send + Sync + Unpin + 'static>() {}
fn sink<T: Sink<I> + Send + Sync + Unpin + Debug + 'static, I>() {}
fn stream<T: Stream + Send + Unpin + Debug + 'static>() {}

/// A future that can be spawned.
fn spawned<F: Future + Send + 'static>(make: impl FnOnce() -> F) {
    drop(make);
}

/// A future that borrows and can move between threads.
fn sent<F: Future + Send>(make: impl FnOnce() -> F) {
    drop(make);
}

// X3
#[test]
fn every_public_type_can_move_to_another_thread() {
    cloned::<KinesisBroker>();
    value::<ConnectedKinesisBroker>();
    cloned::<Publisher>();
    cloned::<PublishSink>();
    cloned::<(PublishTo, PublishOrder, PublishStats, PublishError)>();
    cloned::<KinesisStream>();
    cloned::<KinesisPosition>();
    cloned::<(OnDrop, TooOld, BatchFailures)>();
    value::<Delivery>();
    value::<Delivery<Vec<String>>>();
    value::<Acker>();
    value::<(Batch, Batch<Vec<String>>)>();
    cloned::<Closer>();
    cloned::<StatsHandle>();
    cloned::<LeaseToken>();
    cloned::<(Commit, CloseReport, OpenShard, SubscriptionStats, ShardStats, ShardState)>();
    cloned::<(Record, Headers, ShardId, SequenceNumber, Outgoing, Published)>();
    cloned::<(Lease, LeaseKey, Held, Take, Seen, Write, Write<Lease>, Checkpoint)>();
    cloned::<(KinesisError, ErrorClass, ServiceFailure, FailureKind, Action, StoreError)>();
    cloned::<(MemoryLeaseStore, EmbeddedLeaseStore, DynamoDbLeaseStore, Arc<dyn LeaseStore>)>();
}

// X3
#[test]
fn every_error_type_implements_error() {
    error::<KinesisError>();
    error::<ServiceFailure>();
    error::<StoreError>();
    error::<PublishError>();
    error::<TryMapError<Bytes, std::str::Utf8Error>>();
}

#[test]
fn every_stream_can_be_polled_on_another_thread() {
    stream::<Subscription>();
    stream::<Tolerant>();
    stream::<Batches>();
    stream::<Batches<Tolerant>>();
    stream::<ChunksTimeout<Tolerant, Result<Delivery, KinesisError>>>();
    stream::<TryChunksTimeout<Tolerant, Delivery, KinesisError>>();
    value::<Subscription>();
    value::<Tolerant>();
    value::<(Batches, Batches<Tolerant>)>();
}

/// A stream that is `Send` and `Unpin`, whatever its futures are.
fn unpinned<T: FusedStream + Send + Unpin + 'static>(make: impl FnOnce() -> T) {
    drop(make);
}

/// A stream that is `Send`, whatever its source and its futures are.
fn fused<T: FusedStream + Send + 'static>(make: impl FnOnce() -> T) {
    drop(make);
}

// X3
#[test]
fn parallel_adapters_can_move_to_another_thread_if_their_futures_can() {
    type Pinned = Pin<Box<dyn Future<Output = Result<(), KinesisError>> + Send>>;
    stream::<BufferBy<Tolerant, Bytes, fn(Delivery) -> Pinned, Pinned>>();
    // The futures of async closures are not `Unpin`, but the adapters over them are, if their source is.
    unpinned(|| given::<Tolerant>().map_ok(|delivery| delivery).batches(1).expect("a size within the limits"));
    unpinned(|| given::<Tolerant>().try_chunks_timeout(1, std::time::Duration::ZERO));
    unpinned(|| given::<Tolerant>().buffer_by_key(32, async |delivery| delivery.commit().await));
    unpinned(|| given::<Subscription>().buffer_by_shard(32, async |delivery| delivery.commit().await));
    let decoded = || given::<Tolerant>().and_then(async |delivery| Ok(delivery.map(|bytes| bytes.len())));
    fused(move || decoded().err_into::<Box<dyn Error + Send + Sync>>().buffer_by_key(32, async |_| Ok(())));
}

fn given<T>() -> T {
    unreachable!("only the compiler looks at this value")
}

#[test]
fn a_sink_can_be_polled_on_another_thread() {
    sink::<PublishSink, Outgoing>();
    sink::<PublishSink, (Outgoing, Acker)>();
}

#[test]
fn every_future_can_be_polled_on_another_thread() {
    spawned(|| given::<KinesisBroker>().connect());
    spawned(|| given::<ConnectedKinesisBroker>().shutdown());
    spawned(|| given::<Subscription>().close());
    spawned(|| given::<Delivery>().commit());
    spawned(|| given::<Delivery<String>>().commit());
    spawned(|| given::<Acker>().commit());
    spawned(|| given::<Batch>().commit());
    spawned(|| given::<Batches>().process(8, async |_| Ok::<_, String>(())));
    spawned(|| given::<Batches<Tolerant>>().process(8, async |batch| batch.is_empty().then_some(()).ok_or("full")));
    spawned(|| given::<Batch<String>>().commit_first(1));
    spawned(|| given::<Batch>().commit_except(|place, delivery| place == 1 && delivery.attempt() > 1));
    spawned(|| commit_all(given::<Vec<Delivery>>()));
    spawned(|| commit_all(given::<Vec<Acker>>()));
    sent(|| given::<&ConnectedKinesisBroker>().subscribe("stream"));
    sent(|| given::<&ConnectedKinesisBroker>().subscribe(given::<KinesisStream>()));
    sent(|| given::<&Publisher>().publish("stream", given::<Outgoing>()));
    sent(|| given::<&Publisher>().publish_all("stream", given::<Vec<Outgoing>>()));
    sent(|| given::<&PublishSink>().publish(given::<Outgoing>()));
    sent(|| given::<&mut PublishSink>().flush());
    spawned(|| given::<PublishSink>().close());
    sent(|| given::<&Closer>().close());
    sent(|| given::<&LeaseToken>().lost());
    let store: fn() -> &'static dyn LeaseStore = given;
    sent(move || store().leases("consumer", "stream"));
    sent(move || store().renew(given()));
}

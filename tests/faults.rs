//! Consumers on a Kinesis that fails, delays, hangs and throttles: an emulator behind a fault layer, which also counts
//! calls.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use futures::{FutureExt, StreamExt, TryStreamExt};
use kinesis_stream::{
    Action, Checkpoint, Commit, Delivery, ErrorClass, FailureKind, KinesisBroker, KinesisError, KinesisPosition,
    LeaseStore, MemoryLeaseStore, Outgoing, StatsHandle, Subscription, Take, Write, commit_all,
};
use kinesis_stream_support::{AwsError, Emulator, Op};
use tokio::time::{Duration, Instant, sleep};

mod wire;

use self::wire::{
    PATIENCE, eventually, instance, item, quick, reading, record, records, rows, seal, text, texts, up_to_seals,
};

const STREAM: &str = "stream";
const SHARD: &str = "shardId-000000000000";
const OTHER: &str = "shardId-000000000001";

async fn kinesis(shards: u32) -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, shards).await;
    kinesis
}

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| i.to_string()).collect()
}

async fn fill(kinesis: &Emulator, range: std::ops::Range<usize>) {
    kinesis.put_all(STREAM, numbered(range).into_iter().map(|text| ("key", text))).await;
}

/// How many reads of the first shard the subscription counted.
fn reads(subscription: &Subscription) -> u64 {
    subscription.stats().shards[0].reads
}

// R7
#[tokio::test]
async fn a_shard_gets_at_most_five_reads_in_any_second_however_large_its_backlog() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..1_000).await;
    // A throttle and an outage in between: retries by the SDK would count as well.
    kinesis.faults().on(Op::GetRecords).nth(4).fail(AwsError::THROTTLED);
    kinesis.faults().on(Op::GetRecords).nth(7).fail(AwsError::INTERNAL_FAILURE);
    kinesis.faults().on(Op::GetRecords).nth(8).fail(AwsError::UNAVAILABLE);
    let hungry = quick(STREAM).read_limit(50).reads_per_second(5);
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), hungry).await;
    let mut said = Vec::new();
    while said.len() < 1_000 {
        match item(&mut subscription).await.unwrap() {
            Ok(delivery) => {
                said.push(text(&delivery));
                delivery.ack();
            }
            Err(error) => assert_eq!(error.class(), ErrorClass::Transient),
        }
    }
    assert_eq!(said, numbered(0..1_000));
    assert!(kinesis.faults().count(Op::GetRecords) >= 23);
    assert_eq!(kinesis.faults().busiest_second(Op::GetRecords, SHARD), 5);
}

// R9
#[tokio::test]
async fn throttled_reads_are_retried_silently_with_the_same_iterator() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..3).await;
    kinesis.faults().on(Op::GetRecords).first(3).fail(AwsError::THROTTLED);
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM)).await;
    assert_eq!(texts(&records(&mut subscription, 3).await), numbered(0..3));
    let stats = &subscription.stats().shards[0];
    assert_eq!((stats.throttles, stats.last_error.is_none()), (3, true));
    let iterators = kinesis.faults().calls(Op::GetRecords).into_iter().take(4);
    let iterators: BTreeSet<String> = iterators.map(|call| call.body()["ShardIterator"].to_string()).collect();
    assert_eq!((iterators.len(), kinesis.faults().count(Op::GetShardIterator)), (1, 1));
}

// R9
#[tokio::test]
async fn a_throttled_read_is_retried_after_one_poll_interval() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::GetRecords).first(3).fail(AwsError::LIMIT_EXCEEDED);
    let poll = Duration::from_millis(300);
    let subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM).poll_interval(poll)).await;
    kinesis.faults().called(Op::GetRecords, 4).await;
    let calls = kinesis.faults().calls(Op::GetRecords);
    for pair in calls.windows(2) {
        let pause = pair[1].at() - pair[0].at();
        assert!(pause >= poll, "{pause:?}");
    }
    drop(subscription);
}

// R7
#[tokio::test]
async fn an_idle_shard_is_read_once_per_poll_interval() {
    let kinesis = kinesis(1).await;
    let poll = Duration::from_millis(200);
    let subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM).poll_interval(poll)).await;
    // The test does not poll the subscription: an idle shard is read anyway.
    kinesis.faults().called(Op::GetRecords, 16).await;
    let calls = kinesis.faults().calls(Op::GetRecords);
    let took = calls[15].at() - calls[0].at();
    assert!(took >= 15 * poll, "sixteen reads in {took:?}");
    assert!(calls.windows(2).all(|pair| pair[1].at() - pair[0].at() >= poll));
    assert_eq!(kinesis.faults().count(Op::GetShardIterator), 1);
    drop(subscription);
}

// R8
#[tokio::test]
async fn no_record_is_lost_or_repeated_when_the_user_pauses_longer_than_an_iterator_lives() {
    let kinesis = Emulator::builder().iterator_seconds(1).start();
    kinesis.create_stream(STREAM, 1).await;
    fill(&kinesis, 0..40).await;
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM).read_limit(5)).await;
    let mut said = texts(&records(&mut subscription, 3).await.into_iter().inspect(|_| ()).collect::<Vec<_>>());
    sleep(Duration::from_millis(2_500)).await;
    while said.len() < 40 {
        let delivery = record(&mut subscription).await;
        if delivery.attempt() == 1 {
            said.push(text(&delivery));
        }
        delivery.ack();
    }
    assert_eq!(said, numbered(0..40));
    assert!(kinesis.faults().count(Op::GetShardIterator) >= 2, "the iterator expired");
}

// R8
#[tokio::test]
async fn an_iterator_that_expires_behind_unsettled_records_continues_with_exactly_the_new_records() {
    let kinesis = Emulator::builder().iterator_seconds(1).start();
    kinesis.create_stream(STREAM, 1).await;
    fill(&kinesis, 0..10).await;
    let slow = quick(STREAM).poll_interval(Duration::from_millis(1_500));
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), slow).await;
    let held = records(&mut subscription, 10).await;
    // The read after the next pause fails with an expired iterator.
    kinesis.faults().called(Op::GetShardIterator, 2).await;
    fill(&kinesis, 10..11).await;
    let seals = seal(&kinesis, STREAM).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, ["10"]);
    assert_eq!(commit_all(held).await.unwrap(), Commit::Stored);
}

// R8, L5
#[tokio::test]
async fn an_iterator_at_the_tip_that_expires_before_the_first_record_skips_no_record() {
    let kinesis = kinesis(1).await;
    let expired = kinesis.faults().on(Op::GetRecords).fail(AwsError::EXPIRED_ITERATOR);
    let at_tip = quick(STREAM).initial_position(KinesisPosition::latest());
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), at_tip).await;
    fill(&kinesis, 0..3).await;
    kinesis.faults().called(Op::GetShardIterator, 3).await;
    expired.lift();
    assert_eq!(texts(&records(&mut subscription, 3).await), numbered(0..3));
}

// L5
#[tokio::test]
async fn a_shard_whose_first_iterator_failed_opens_at_the_time_of_subscribing() {
    let kinesis = kinesis(1).await;
    // The SDK tries three times.
    kinesis.faults().on(Op::GetShardIterator).first(3).fail(AwsError::INTERNAL_FAILURE);
    let at_tip = quick(STREAM).initial_position(KinesisPosition::latest());
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), at_tip).await;
    fill(&kinesis, 0..3).await;
    let error = item(&mut subscription).await.unwrap().unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient);
    let KinesisError::Read { shard, failures: 1, gave_up: false, source, .. } = error else { panic!("{error}") };
    assert_eq!((shard.as_str(), source.action()), (SHARD, Action::GetShardIterator));
    assert_eq!(texts(&records(&mut subscription, 3).await), numbered(0..3));
}

// X1, X2
#[tokio::test]
async fn a_tolerant_pipeline_survives_an_outage_a_throttle_and_a_lost_lease() {
    let kinesis = kinesis(1).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM)).await.tolerant();
    let stats = subscription.get_ref().stats_handle();
    let mut next = async || -> Result<Delivery, KinesisError> {
        Ok(subscription.try_next().await?.expect("the stream has not ended"))
    };

    fill(&kinesis, 0..1).await;
    let first = next().await.unwrap();
    assert_eq!((text(&first).as_str(), first.epoch()), ("0", 1));
    assert_eq!(first.commit().await.unwrap(), Commit::Stored);

    let met = kinesis.faults().count(Op::GetRecords);
    kinesis.faults().on(Op::GetRecords).nth(1).fail(AwsError::INTERNAL_FAILURE);
    kinesis.faults().on(Op::GetRecords).nth(2).fail(AwsError::THROTTLED);
    kinesis.faults().called(Op::GetRecords, met + 3).await;
    fill(&kinesis, 1..2).await;
    let second = next().await.unwrap();
    assert_eq!(text(&second), "1");

    // Another instance takes the shard, reads nothing, and dies.
    let stolen = steal_lease(&store).await;
    noticed(&stats, second.epoch()).await;
    fill(&kinesis, 2..3).await;
    let again = next().await.unwrap();
    assert_eq!((text(&again).as_str(), again.epoch(), again.attempt()), ("1", stolen + 1, 1));
    assert_eq!(second.commit().await.unwrap(), Commit::Superseded);
    assert_eq!(again.commit().await.unwrap(), Commit::Stored);
    let last = next().await.unwrap();
    assert_eq!(text(&last), "2");
    assert_eq!(last.commit().await.unwrap(), Commit::Stored);
}

/// Takes the lease of the first shard from its holder, which may renew it concurrently. Returns the epoch.
async fn steal_lease(store: &MemoryLeaseStore) -> u64 {
    let row = rows(store, STREAM).await.remove(SHARD).unwrap();
    let seen = Some(row.seen());
    let mut theft = Take::new(row.key, "thief").with_seen(seen).with_parents(row.parents);
    loop {
        match store.take(&theft).await.unwrap() {
            Write::Applied(lease) => return lease.epoch,
            Write::Refused(row) => theft.seen = row.map(|row| row.seen()),
        }
    }
}

/// Waits until an instance has noticed that it lost the lease of this epoch. The shard may then be free, held by the
/// thief, or held here again: an intermediate state may be too short to observe.
async fn noticed(stats: &StatsHandle, lost: u64) {
    eventually("the theft is noticed", async || stats.snapshot().shards[0].epoch != Some(lost)).await;
}

/// A configuration with a short timeout per attempt.
fn impatient(kinesis: &Emulator, attempt: Duration) -> SdkConfig {
    let keys = Credentials::new("test", "test", None, None, "test");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .endpoint_url(kinesis.endpoint())
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(attempt).build())
        .build()
}

// R10, L6
#[tokio::test]
async fn a_read_that_is_never_answered_times_out_and_is_retried_under_the_same_lease() {
    let kinesis = kinesis(2).await;
    for (shard, record) in [(SHARD, "hung"), (OTHER, "other")] {
        kinesis.put_to_shard(STREAM, shard, "key", record).await;
    }
    let hung = kinesis.faults().on(Op::GetRecords).shard(SHARD).first(1).hang();
    let store = MemoryLeaseStore::new();
    let broker = KinesisBroker::from_config(impatient(&kinesis, Duration::from_secs(2))).lease_store(store.clone());
    let broker = broker.connect().await.unwrap();
    let mut subscription = broker.subscribe(quick(STREAM)).await.unwrap();

    let other = record(&mut subscription).await;
    assert_eq!(text(&other), "other");
    assert_eq!(other.commit().await.unwrap(), Commit::Stored);
    let error = item(&mut subscription).await.unwrap().unwrap_err();
    let KinesisError::Read { shard, failures: 1, gave_up: false, source, .. } = error else { panic!("{error}") };
    assert_eq!((shard.as_str(), source.kind(), source.action()), (SHARD, FailureKind::Unreachable, Action::GetRecords));
    assert_eq!(text(&record(&mut subscription).await), "hung");
    assert_eq!(hung.hits(), 1);
    let rows = rows(&store, STREAM).await;
    assert!(rows.values().all(|row| row.epoch == 1 && row.owner.is_some()), "{rows:?}");
}

// R10, R13
#[tokio::test]
async fn after_eleven_failures_the_reader_gives_up_and_the_next_reader_starts_where_it_started() {
    let kinesis = kinesis(1).await;
    let store = MemoryLeaseStore::new();
    let at_tip = quick(STREAM).initial_position(KinesisPosition::latest()).drain_timeout(Duration::ZERO);
    let outage = kinesis.faults().on(Op::GetRecords).fail(AwsError::INTERNAL_FAILURE);
    let mut subscription = reading(&kinesis, &store, at_tip).await;
    fill(&kinesis, 0..2).await;
    for n in 1..=11 {
        let error = item(&mut subscription).await.unwrap().unwrap_err();
        let KinesisError::Read { failures, gave_up, .. } = error else { panic!("{error}") };
        assert_eq!((failures, gave_up), (n, n == 11));
    }
    outage.lift();
    let taken = records(&mut subscription, 2).await;
    assert_eq!(texts(&taken), numbered(0..2));
    assert!(taken.iter().all(|delivery| delivery.epoch() == 2));
}

// A5
#[tokio::test]
async fn a_record_that_is_never_settled_blocks_only_its_own_shard_at_the_bound() {
    let kinesis = kinesis(2).await;
    for i in 0..30 {
        kinesis.put_to_shard(STREAM, SHARD, "key", format!("held {i}")).await;
        kinesis.put_to_shard(STREAM, OTHER, "key", format!("free {i}")).await;
    }
    let bounded = quick(STREAM).max_in_flight(10).read_limit(7);
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), bounded).await;
    let (mut held, mut free) = (Vec::new(), 0);
    while held.len() < 10 || free < 30 {
        let delivery = record(&mut subscription).await;
        if delivery.shard().as_str() == SHARD {
            held.push(delivery);
        } else {
            assert_eq!(text(&delivery), format!("free {free}"));
            free += 1;
            delivery.ack();
        }
    }
    // The other shard continues, and this shard delivers no further record.
    for i in 30..60 {
        kinesis.put_to_shard(STREAM, OTHER, "key", format!("free {i}")).await;
        let delivery = record(&mut subscription).await;
        assert_eq!(text(&delivery), format!("free {i}"));
        delivery.ack();
    }
    assert!(subscription.next().now_or_never().is_none());
    let stats = subscription.stats();
    let stands = stats.shards.iter().find(|stats| stats.shard.as_str() == SHARD).unwrap();
    assert_eq!((stands.in_flight, &stands.oldest.as_ref().unwrap().0), (10, held[0].sequence_number()));

    // Settling one record makes room for one more.
    held.pop().unwrap().ack();
    assert_eq!(text(&record(&mut subscription).await), "held 10");
    held.into_iter().for_each(Delivery::ack);
    for i in 11..30 {
        let delivery = record(&mut subscription).await;
        assert_eq!(text(&delivery), format!("held {i}"));
        delivery.ack();
    }
}

// P1
#[tokio::test]
async fn a_put_whose_answer_is_lost_is_retried_and_returns_the_retried_record() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::PutRecord).first(1).apply_then_fail(AwsError::INTERNAL_FAILURE);
    let broker = instance(&kinesis, &MemoryLeaseStore::new()).await;
    let published = broker.publisher().publish(STREAM, Outgoing::new("key", "payload")).await.unwrap();
    // At least once: the stream stores the record twice.
    let stored = kinesis.records(STREAM, SHARD).await;
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[1].sequence_number, published.sequence_number().as_str());
}

// L4
#[tokio::test]
async fn a_stream_is_created_once_even_if_the_answer_is_lost() {
    let kinesis = Emulator::start();
    kinesis.faults().on(Op::CreateStream).first(1).apply_then_fail(AwsError::INTERNAL_FAILURE);
    let creating = quick(STREAM).create_if_missing(2);
    let subscription = reading(&kinesis, &MemoryLeaseStore::new(), creating).await;
    assert_eq!((kinesis.shards(STREAM).await.len(), subscription.stats().shards.len()), (2, 2));
}

// L5, X1
#[tokio::test]
async fn a_failed_first_listing_is_yielded_by_the_stream_and_loses_no_record() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::ListShards).first(3).fail(AwsError::INTERNAL_FAILURE);
    let at_tip = quick(STREAM).initial_position(KinesisPosition::latest());
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), at_tip).await;
    fill(&kinesis, 0..2).await;
    let error = item(&mut subscription).await.unwrap().unwrap_err();
    assert!(matches!(error, KinesisError::List { .. }) && error.class() == ErrorClass::Transient, "{error}");
    assert_eq!(texts(&records(&mut subscription, 2).await), numbered(0..2));
}

// H2
#[tokio::test]
async fn the_last_page_of_a_shard_may_hold_records() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..3).await;
    kinesis.split(STREAM, SHARD).await;
    kinesis
        .faults()
        .on(Op::GetRecords)
        .shard(SHARD)
        .edit(|answer| answer["NextShardIterator"] = serde_json::Value::Null);
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM)).await;
    let taken = records(&mut subscription, 3).await;
    assert_eq!(texts(&taken), numbered(0..3));
    assert!(matches!(rows(&store, STREAM).await[SHARD].checkpoint, Some(Checkpoint::At(_))));
    assert_eq!(commit_all(taken).await.unwrap(), Commit::Stored);
    let ended = async || rows(&store, STREAM).await[SHARD].checkpoint == Some(Checkpoint::ShardEnd);
    eventually("the end is stored", ended).await;
    eventually("the children are read", async || rows(&store, STREAM).await.len() == 3).await;
}

// H2
#[tokio::test]
async fn closing_in_the_middle_of_the_last_page_loses_no_record() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..3).await;
    kinesis.split(STREAM, SHARD).await;
    kinesis
        .faults()
        .on(Op::GetRecords)
        .shard(SHARD)
        .edit(|answer| answer["NextShardIterator"] = serde_json::Value::Null);
    let store = MemoryLeaseStore::new();
    let mut first = reading(&kinesis, &store, quick(STREAM)).await;
    record(&mut first).await.ack();
    assert!(first.close().await.is_clean());
    let seals = seal(&kinesis, STREAM).await;
    let mut second = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, numbered(1..3));
}

// R7
#[tokio::test]
async fn a_read_asks_for_the_number_of_records_in_the_descriptor() {
    let kinesis = kinesis(1).await;
    for (descriptor, limit) in [(quick(STREAM), 1_000), (quick(STREAM).read_limit(7), 7)] {
        kinesis.faults().clear();
        let subscription = reading(&kinesis, &MemoryLeaseStore::new(), descriptor).await;
        kinesis.faults().called(Op::GetRecords, 1).await;
        assert_eq!(kinesis.faults().calls(Op::GetRecords)[0].body()["Limit"], limit);
        drop(subscription);
    }
}

// L6, L9
#[tokio::test]
async fn a_dropped_subscription_stops_reading_and_releases_its_shards() {
    let kinesis = kinesis(4).await;
    let store = MemoryLeaseStore::new();
    // The TTL is a minute: the second instance can be this fast only if the leases were released.
    let lasting = || quick(STREAM).lease_ttl(PATIENCE + PATIENCE);
    let first = reading(&kinesis, &store, lasting()).await;
    kinesis.faults().called(Op::GetRecords, 4).await;
    drop(first);
    eventually("leases are free", async || rows(&store, STREAM).await.values().all(|row| row.owner.is_none())).await;
    let settled = kinesis.faults().count(Op::GetRecords);
    let begun = Instant::now();
    let mut second = reading(&kinesis, &store, lasting()).await;
    let seals = seal(&kinesis, STREAM).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
    assert!(begun.elapsed() < PATIENCE && kinesis.faults().count(Op::GetRecords) > settled);
    assert!(rows(&store, STREAM).await.values().all(|row| row.epoch == 2));
    assert!(reads(&second) > 0);
}

// R6, R10, A3
#[tokio::test]
async fn a_replay_that_loses_its_lease_before_the_first_settlement_restarts_where_it_started() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..10).await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(commit_all(records(&mut first, 10).await).await.unwrap(), Commit::Stored);
    assert!(first.close().await.is_clean());

    let forced = quick(STREAM).start_at(KinesisPosition::horizon());
    let mut replay = reading(&kinesis, &store, forced).await;
    let stats = replay.stats_handle();
    let held = records(&mut replay, 3).await;
    steal_lease(&store).await;
    noticed(&stats, held[0].epoch()).await;
    let mut replay = replay.tolerant();
    let mut epoch = 0;
    for text in numbered(0..5) {
        let delivery = replay.try_next().await.unwrap().unwrap();
        epoch = delivery.epoch();
        assert_eq!(self::text(&delivery), text);
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
    // A settlement counts: from now on the checkpoint is that of the replay.
    steal_lease(&store).await;
    noticed(&stats, epoch).await;
    let delivery = replay.try_next().await.unwrap().unwrap();
    assert_eq!(text(&delivery), "5");
    drop(held);
}

// H4, L5
#[tokio::test]
async fn a_shard_whose_iterator_call_hangs_blocks_no_other_shard() {
    let kinesis = kinesis(2).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM)).await;
    let [low, high] = kinesis.split(STREAM, SHARD).await;
    let hung = kinesis.faults().on(Op::GetShardIterator).shard(&low).hold();
    kinesis.faults().called(Op::GetShardIterator, 4).await;
    let [other, _] = kinesis.split(STREAM, OTHER).await;
    for shard in [&high, &other] {
        kinesis.put_to_shard(STREAM, shard, "key", shard.as_str()).await;
        let delivery = record(&mut subscription).await;
        assert_eq!(text(&delivery), *shard);
        delivery.ack();
    }
    hung.lift();
    kinesis.put_to_shard(STREAM, &low, "key", low.as_str()).await;
    assert_eq!(text(&record(&mut subscription).await), low);
}

// A5
#[tokio::test]
async fn while_the_user_pauses_reading_ahead_stops_at_the_byte_budget() {
    let kinesis = kinesis(2).await;
    let half = vec![0; 512 << 10];
    for shard in [SHARD, OTHER] {
        for _ in 0..3 {
            kinesis.put_to_shard(STREAM, shard, "key", half.clone()).await;
        }
    }
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM).read_limit(1).max_buffered_bytes(600 << 10)).await;
    let held = || subscription.stats().bytes_held;
    eventually("one page is buffered", async || held() > 512 << 10).await;
    // There is room for one page, and none for the page of the other shard.
    sleep(Duration::from_millis(500)).await;
    assert!(held() < 600 << 10);
    assert_eq!(kinesis.faults().count(Op::GetRecords), 1);
    for delivery in records(&mut subscription, 6).await {
        assert_eq!(delivery.payload().len(), 512 << 10);
        delivery.ack();
    }
}

// A5
#[tokio::test]
async fn the_pages_of_a_shard_at_its_bound_do_not_keep_other_shards_from_reading() {
    let kinesis = kinesis(2).await;
    let tight = quick(STREAM).read_limit(3).max_in_flight(2).max_buffered_bytes(250 << 10);
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), tight).await;
    let stats = subscription.stats_handle();
    let idle = async || stats.snapshot().shards.iter().all(|stats| stats.reads > 0);
    eventually("both shards are idle, so that the library expects empty pages", idle).await;
    let reads = kinesis.faults().on(Op::GetRecords).shard(SHARD).hold();
    for i in 0..6 {
        let payload = format!("{i}{}", " ".repeat(if i < 3 { 0 } else { 100 << 10 }));
        kinesis.put_to_shard(STREAM, SHARD, "key", payload).await;
    }
    reads.lift();
    let mut held = vec![record(&mut subscription).await];
    eventually("a second page is buffered", async || stats.snapshot().bytes_held > 300 << 10).await;
    held.push(record(&mut subscription).await);

    // The third record waits for room, and so does the second page.
    kinesis.put_to_shard(STREAM, OTHER, "key", "free").await;
    let free = record(&mut subscription).await;
    assert_eq!(text(&free), "free");
    free.ack();
    held.into_iter().for_each(Delivery::ack);
    for i in 2..6 {
        let delivery = record(&mut subscription).await;
        assert!(text(&delivery).starts_with(&i.to_string()));
        delivery.ack();
    }
}

/// Settles a record in one of all possible ways, by its number, including from other tasks.
async fn work(delivery: Delivery) {
    let number: usize = text(&delivery).parse().unwrap();
    match (delivery.attempt(), number % 20) {
        (1, 0) => delivery.nack(),
        (1, 1) => drop(delivery),
        (_, 2..8) => drop(delivery.commit().await.unwrap()),
        (_, 8..12) => drop(tokio::spawn(delivery.commit()).await.unwrap()),
        (_, 12) => drop(commit_all([delivery]).await.unwrap()),
        (_, 13) => {
            // A commit settles the record at its first poll.
            drop(delivery.commit().now_or_never());
        }
        _ => delivery.ack(),
    }
}

// S1, A1, A3, A7, H1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn settling_from_many_threads_in_every_way_while_shards_split_loses_no_record() {
    let kinesis = kinesis(4).await;
    let store = MemoryLeaseStore::new();
    let descriptor = quick(STREAM).max_in_flight(100).read_limit(60).poll_interval(Duration::from_millis(5));
    let subscription = reading(&kinesis, &store, descriptor).await;
    let closer = subscription.closer();
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let worked = Arc::clone(&seen);
    let pipeline = subscription.tolerant().try_for_each_concurrent(64, move |delivery| {
        let worked = Arc::clone(&worked);
        async move {
            let number: usize = text(&delivery).parse().unwrap();
            let settles = delivery.attempt() > 1 || number % 20 > 1;
            tokio::spawn(work(delivery)).await.unwrap();
            if settles {
                worked.lock().unwrap().insert(number);
            }
            Ok(())
        }
    });
    let pipeline = tokio::spawn(pipeline);
    for (round, shard) in ["shardId-000000000000", "shardId-000000000002", "shardId-000000000004"].iter().enumerate() {
        let records = (round * 500..(round + 1) * 500).map(|i| (format!("key {i}"), i.to_string()));
        kinesis.put_all(STREAM, records).await;
        kinesis.split(STREAM, shard).await;
    }
    eventually("all records are settled", async || seen.lock().unwrap().len() == 1_500).await;
    assert!(closer.close().await.is_clean());
    pipeline.await.unwrap().unwrap();
    assert!(seen.lock().unwrap().iter().copied().eq(0..1_500));

    let seals = seal(&kinesis, STREAM).await;
    let mut second = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
}

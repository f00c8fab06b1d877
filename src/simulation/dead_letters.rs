//! Records that used up their attempts (A7, X2): dead letters, and the errors that replace them.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::Bytes;
use tokio::time::{Duration, sleep, timeout};

use kinesis_stream_support::Rng;

use super::{
    kinesis::{EPOCH, Written},
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};
use crate::{
    delivery::Delivery,
    error::{
        ErrorClass, KinesisError,
        service::{FailureKind, StoreError},
    },
    simulation::harness::{Harness, Instance, error, horizon, item, millis, name, names, next, seconds, take, within},
    state::{stats::ShardStats, tracker::Commit},
    subscription::{Subscription, descriptor::KinesisStream},
    types::record::Headers,
    wire::envelope,
};

/// The harness's stream, with this many attempts for each record and a dead-letter stream.
fn with_attempts(attempts: u32) -> KinesisStream {
    horizon().max_attempts(attempts).dead_letter("dead")
}

/// The headers of a record, as text.
fn header_texts(headers: &Headers) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name, str::from_utf8(value).unwrap())).collect()
}

/// The value of a header that the library adds to a dead letter.
fn header(written: &Written, name: &str) -> String {
    let (headers, _) = envelope::decode(written.data.clone());
    let value = headers.get(&format!("kinesis-dead-letter-{name}")).unwrap();
    String::from_utf8(value.to_vec()).unwrap()
}

/// The payloads in the dead-letter stream.
fn dead_letters(harness: &Harness) -> Vec<String> {
    let text = |written: Written| String::from_utf8(envelope::decode(written.data).1.to_vec()).unwrap();
    harness.kinesis.written().into_iter().map(text).collect()
}

fn stats(subscription: &Subscription) -> ShardStats {
    subscription.stats().shards.remove(0)
}

/// When dead-letter writes were tried, in whole seconds after the first one.
fn seconds_of_writes(instance: &Instance) -> Vec<u64> {
    let calls = instance.service.script.calls(ServiceOp::PutRecord);
    calls.iter().map(|write| write.at.saturating_sub(calls[0].at).as_secs()).collect()
}

// A7
#[tokio::test(start_paused = true)]
async fn a_spent_record_is_written_unchanged_to_the_dead_letter_stream_and_then_settled() {
    let harness = Harness::new(&["a"]);
    let sent = [("id".to_owned(), Bytes::from("1")), ("id".to_owned(), Bytes::from("2"))];
    harness.kinesis.put_data("a", envelope::encode(&sent, Bytes::from("payload")).unwrap());
    let mut subscription = harness.instance("me").subscribe(with_attempts(3)).await;
    next(&mut subscription).await.nack_because("too early");
    drop(next(&mut subscription).await);
    let last = next(&mut subscription).await.map(|bytes| bytes.len());
    assert_eq!((last.attempt(), *last.payload()), (3, 7));
    last.nack_because(format_args!("no such customer: {}", 17));
    // From here on the test does not poll the subscription.
    sleep(millis(1)).await;
    let written = harness.kinesis.written();
    assert_eq!(written.len(), 1);
    assert_eq!((written[0].stream.as_str(), written[0].key.as_str()), ("dead", "k"));
    let (headers, payload) = envelope::decode(written[0].data.clone());
    assert_eq!(payload, "payload");
    let arrived = EPOCH.to_string();
    let expected = [
        ("id", "1"),
        ("id", "2"),
        ("kinesis-dead-letter-stream", "s"),
        ("kinesis-dead-letter-shard", "a"),
        ("kinesis-dead-letter-sequence-number", "a0"),
        ("kinesis-dead-letter-arrived-at", &arrived),
        ("kinesis-dead-letter-consumer", "test"),
        ("kinesis-dead-letter-attempts", "3"),
        ("kinesis-dead-letter-reason", "no such customer: 17"),
    ];
    assert_eq!(header_texts(&headers), expected);
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
    let shard = stats(&subscription);
    assert_eq!((shard.redeliveries, shard.spent, shard.dead_letters, shard.in_flight), (2, 1, 1, 0));
    assert!(within(&mut subscription, seconds(200)).await.is_empty());
}

// A7
#[tokio::test(start_paused = true)]
async fn the_configured_pauses_apply() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().retry_backoff(millis(200)..=seconds(1))).await;
    let mut record = next(&mut subscription).await;
    for pause in [200, 400, 800, 1_000, 1_000] {
        let before = harness.millis();
        record.nack();
        record = next(&mut subscription).await;
        assert_eq!(harness.millis() - before, pause);
    }
    assert_eq!(record.attempt(), 6);
}

// A7, A2
#[tokio::test(start_paused = true)]
async fn a_dead_letter_says_how_the_record_was_given_back() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let mut subscription = harness.instance("me").subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    drop(next(&mut subscription).await);
    let record = next(&mut subscription).await;
    let worker = AssertUnwindSafe(move || assert_eq!(name(&record), "something else", "on purpose"));
    assert!(catch_unwind(worker).is_err());
    let failed =
        next(&mut subscription).await.try_map(|bytes| bytes[0].is_ascii_digit().then_some(()).ok_or("no digit"));
    let failed = failed.unwrap_err();
    failed.delivery.nack_because(failed.error);
    sleep(millis(1)).await;
    let reasons: Vec<String> = harness.kinesis.written().iter().map(|written| header(written, "reason")).collect();
    assert_eq!(reasons, ["given back", "dropped", "dropped by a panic", "no digit"]);
}

// A7, A2
#[tokio::test(start_paused = true)]
async fn with_ack_on_drop_a_drop_is_not_a_failed_attempt() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(with_attempts(1).ack_on_drop()).await;
    drop(next(&mut subscription).await);
    next(&mut subscription).await.nack();
    sleep(seconds(2)).await;
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (vec!["a1".to_owned()], "after a1"));
}

// A7
#[tokio::test(start_paused = true)]
async fn a_dead_letter_without_a_key_uses_its_sequence_number_as_key() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", ".");
    let mut subscription = harness.instance("me").subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    assert_eq!(harness.kinesis.written()[0].key, "a0");
}

// A7
#[tokio::test(start_paused = true)]
async fn a_second_dead_letter_keeps_the_first_origin_before_the_new_one() {
    let harness = Harness::new(&["a"]);
    let origin = [("kinesis-dead-letter-stream".to_owned(), Bytes::from("first"))];
    harness.kinesis.put_data("a", envelope::encode(&origin, Bytes::from("payload")).unwrap());
    let mut subscription = harness.instance("me").subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    let (headers, _) = envelope::decode(harness.kinesis.written()[0].data.clone());
    let streams: Vec<&str> = header_texts(&headers)
        .into_iter()
        .filter(|(name, _)| name.ends_with("-stream"))
        .map(|(_, stream)| stream)
        .collect();
    assert_eq!(
        (streams, headers.get("kinesis-dead-letter-stream").unwrap().as_ref()),
        (vec!["first", "s"], b"first".as_ref())
    );
}

// A7, X2, R12
#[tokio::test(start_paused = true)]
async fn without_a_dead_letter_stream_a_spent_record_is_yielded_as_an_error_and_then_settled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon().max_attempts(2)).await;
    let mut records = take(&mut subscription, 3).await;
    records.remove(1).nack();
    records.into_iter().for_each(Delivery::ack);
    let again = next(&mut subscription).await;
    assert_eq!((name(&again), again.attempt()), ("a1", 2));
    again.nack_because("no such customer");
    sleep(seconds(5)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
    let spent = error(&mut subscription).await;
    assert_eq!(spent.class(), ErrorClass::Record);
    assert_eq!(spent.to_string(), "stream s, shard a, sequence number a1: given up after attempt 2: no such customer");
    let KinesisError::AttemptsSpent { record, attempts, reason, source } = spent else { panic!("{spent}") };
    assert_eq!((record.payload().as_ref(), record.partition_key(), record.stream()), (&b"a1"[..], Some("k"), "s"));
    assert_eq!((record.shard().as_str(), record.sequence_number().as_str(), record.headers().len()), ("a", "a1", 0));
    assert_eq!((attempts, &*reason, source.is_none()), (2, "no such customer", true));
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a2");
    let shard = stats(&subscription);
    assert_eq!((shard.redeliveries, shard.spent, shard.dead_letters, shard.in_flight), (1, 1, 0, 0));
    assert!(within(&mut subscription, seconds(200)).await.is_empty());
}

// X2
#[tokio::test(start_paused = true)]
async fn every_spent_record_is_yielded_as_a_separate_error() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon().max_attempts(1)).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::nack);
    for number in ["a0", "a1", "a2"] {
        let KinesisError::AttemptsSpent { record, .. } = error(&mut subscription).await else { panic!("{number}") };
        assert_eq!(record.sequence_number().as_str(), number);
    }
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn a_record_stays_unsettled_while_its_dead_letter_fails_and_its_shard_continues() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(4), FailureKind::Throttled);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    let rest = take(&mut subscription, 2).await;
    let failed = error(&mut subscription).await;
    assert_eq!(failed.class(), ErrorClass::Transient);
    assert_eq!(
        failed.to_string(),
        "stream s, shard a, sequence number a0: the record could not be written to the dead-letter stream dead, which \
         will be tried again: kinesis:PutRecord failed: Throttled"
    );
    rest.into_iter().for_each(Delivery::ack);
    sleep(seconds(10)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), stats(&subscription).in_flight), ("at a0", 1));
    sleep(seconds(10)).await;
    assert_eq!(seconds_of_writes(&me), [0, 1, 3, 7, 15]);
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (vec!["a0".to_owned()], "after a2"));
    // Three more failures happened, and the test took none of them: one is left.
    assert!(matches!(error(&mut subscription).await, KinesisError::DeadLetter { .. }));
    assert!(within(&mut subscription, seconds(200)).await.is_empty());
}

// A7
#[tokio::test(start_paused = true)]
async fn a_missing_or_denied_dead_letter_stream_is_tried_once_a_minute() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 20);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(16), FailureKind::NotFound);
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(2), FailureKind::Denied);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    take(&mut subscription, 20).await.into_iter().for_each(Delivery::nack);
    sleep(seconds(300)).await;
    let expected = [[0; 16].as_slice(), &[60, 120], &[180; 20]].concat();
    assert_eq!(seconds_of_writes(&me), expected);
    let mut all = dead_letters(&harness);
    all.sort_by_key(|name| name[1..].parse::<usize>().unwrap());
    assert_eq!(all, crate::simulation::harness::range("a", 0..20));
    assert_eq!(harness.checkpoint("a").await, "after a19");
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn a_record_that_no_dead_letter_can_hold_is_yielded_as_an_error() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_bytes("a", 10 << 20);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord), FailureKind::Rejected);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::nack);
    let mut causes = Vec::new();
    for (number, bytes) in [("a0", (10 << 20) - 1), ("a1", 2)] {
        let KinesisError::AttemptsSpent { record, source, .. } = error(&mut subscription).await else {
            panic!("{number}")
        };
        assert_eq!((record.sequence_number().as_str(), record.payload().len()), (number, bytes));
        let source = source.unwrap();
        assert_eq!(source.kind(), FailureKind::Rejected);
        causes.push(source.to_string());
    }
    causes.sort();
    assert_eq!(causes[0], "kinesis:PutRecord failed: Rejected");
    assert!(causes[1].contains("nothing was sent: invalid record size: at most 10485760 bytes"), "{}", causes[1]);
    sleep(seconds(2)).await;
    assert_eq!((dead_letters(&harness), seconds_of_writes(&me)), (vec!["a2".to_owned()], vec![0, 0]));
    assert_eq!(harness.checkpoint("a").await, "after a2");
    assert_eq!((stats(&subscription).spent, stats(&subscription).dead_letters), (3, 1));
}

// A7
#[tokio::test(start_paused = true)]
async fn sixteen_dead_letters_are_written_concurrently() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 40);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord).always(), Fault::Delay(seconds(1)));
    let mut subscription = me.subscribe(with_attempts(1)).await;
    take(&mut subscription, 40).await.into_iter().for_each(Delivery::nack);
    sleep(seconds(5)).await;
    assert_eq!(seconds_of_writes(&me), [[0; 16].as_slice(), &[1; 16], &[2; 8]].concat());
    assert_eq!(harness.checkpoint("a").await, "after a39");
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_dead_letter_write_under_way() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Delay(seconds(5)));
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    assert!(subscription.close().await.is_clean());
    assert_eq!(harness.millis() / 100, 50);
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (vec!["a0".to_owned()], "after a0"));
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_queued_dead_letter_and_the_record_is_redelivered() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord), FailureKind::Denied);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    let report = subscription.close().await;
    assert_eq!((harness.millis() < 10, report.open[0].deliveries), (true, 1));
    let mut again = me.subscribe(with_attempts(1)).await;
    let record = next(&mut again).await;
    assert_eq!((name(&record), record.attempt(), dead_letters(&harness).len()), ("a0", 1, 0));
    assert_eq!(record.commit().await.unwrap(), Commit::Stored);
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn a_hanging_dead_letter_write_delays_closing_by_the_drain_timeout_only() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Hang);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    let report = subscription.close().await;
    assert_eq!((harness.millis() / 1_000, report.open[0].deliveries), (30, 1));
}

// A7
#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_its_queued_dead_letters() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord), FailureKind::Throttled);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    let mut records = take(&mut subscription, 2).await;
    sleep(millis(2_900)).await;
    records.remove(0).nack();
    harness.steal("a", "thief").await;
    assert!(matches!(error(&mut subscription).await, KinesisError::DeadLetter { .. }));
    assert!(matches!(error(&mut subscription).await, KinesisError::LeaseLost { .. }));
    let again = take(&mut subscription, 2).await;
    assert_eq!((names(&again), again[0].attempt(), again[0].epoch()), (vec!["a0", "a1"], 1, 3));
    assert_eq!((me.service.script.calls(ServiceOp::PutRecord).len(), dead_letters(&harness).len()), (1, 0));
}

// A7, E3
#[tokio::test(start_paused = true)]
async fn no_dead_letter_is_written_past_the_lease_deadline() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(with_attempts(1)).await;
    let record = next(&mut subscription).await;
    me.table.script.plan(Rule::everything(), Fault::Fail(StoreError::new("away")));
    sleep(seconds(15)).await;
    record.nack();
    sleep(seconds(15)).await;
    assert_eq!(dead_letters(&harness), Vec::<String>::new());
    me.table.script.heal();
    sleep(seconds(4)).await;
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (vec!["a0".to_owned()], "after a0"));
    drop(subscription);
}

// A7, H1
#[tokio::test(start_paused = true)]
async fn the_children_of_a_shard_wait_for_its_dead_letters() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(3), FailureKind::Other);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    let failed = error(&mut subscription).await;
    assert!(matches!(failed, KinesisError::DeadLetter { .. }), "{failed}");
    sleep(millis(6_900)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.owner("b").await.as_str()), ("at a0", ""));
    assert!(error(&mut subscription).await.class() == ErrorClass::Transient);
    assert_eq!(name(&next(&mut subscription).await), "b0");
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.millis() / 1_000), ("SHARD_END", 7));
}

// A7, X1
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_dead_letter_write_ends_the_subscription() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Panic);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    assert!(matches!(error(&mut subscription).await, KinesisError::Interrupted { .. }));
    assert!(item(&mut subscription).await.is_none());
}

// A7
#[tokio::test(start_paused = true)]
async fn a_lost_response_writes_a_second_dead_letter_and_loses_nothing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::LoseAnswer(FailureKind::Unreachable));
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        (dead_letters(&harness), harness.checkpoint("a").await.as_str()),
        (vec!["a0".to_owned(); 2], "after a0")
    );
}

/// A random run of one consumer on a shard of forty records, with all kinds of faults on the dead-letter stream.
struct ConsumerRun {
    harness: Harness,
    rng: Rng,
    /// The records that were acknowledged, or carried by an error.
    done: BTreeSet<String>,
    given_back: BTreeSet<String>,
}

impl ConsumerRun {
    fn new(seed: u64) -> Self {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 40);
        Self { harness, rng: Rng(seed), done: BTreeSet::new(), given_back: BTreeSet::new() }
    }

    /// Makes some of the next dead-letter writes fail.
    fn inject_faults(&mut self, instance: &Instance) {
        for _ in 0..self.rng.below(8) {
            let rule = Rule::on(ServiceOp::PutRecord).after(self.rng.index(10)).times(self.rng.index(4));
            let kind = *self.rng.pick(&[FailureKind::Throttled, FailureKind::Denied, FailureKind::Rejected]);
            let fault = match self.rng.below(4) {
                0 => Fault::LoseAnswer(FailureKind::Unreachable),
                1 => Fault::Delay(millis(self.rng.below(5_000))),
                2 => Fault::FailAfter(millis(self.rng.below(5_000)), kind),
                _ => Fault::Fail(kind),
            };
            instance.service.script.plan(rule, fault);
        }
    }

    /// Consumes until no record arrives for a long time, or until chance ends it earlier.
    async fn consume(&mut self, subscription: &mut Subscription) {
        while let Ok(item) = timeout(seconds(200), item(subscription)).await {
            match item.unwrap() {
                Ok(delivery) if self.rng.below(3) > 0 => {
                    self.given_back.insert(name(&delivery).to_owned());
                    delivery.nack();
                }
                Ok(delivery) => {
                    self.done.insert(name(&delivery).to_owned());
                    delivery.ack();
                }
                Err(KinesisError::AttemptsSpent { record, .. }) => {
                    let number = record.sequence_number().to_string();
                    assert!(self.given_back.contains(&number));
                    self.done.insert(number);
                }
                Err(error) => assert_eq!(error.class(), ErrorClass::Transient, "{error}"),
            }
            sleep(millis(self.rng.below(800))).await;
            self.check().await;
            if self.rng.below(60) == 0 {
                return;
            }
        }
    }

    /// Checks that no checkpoint has passed a record that is neither done nor a dead letter. Returns how far the
    /// checkpoint is.
    async fn check(&self) -> usize {
        let dead_letters: BTreeSet<String> = dead_letters(&self.harness).into_iter().collect();
        assert!(dead_letters.is_subset(&self.given_back));
        let checkpoint = self.harness.checkpoint("a").await;
        let covered = checkpoint.strip_prefix("after a").map_or(0, |last| last.parse::<usize>().unwrap() + 1);
        for number in crate::simulation::harness::range("a", 0..covered) {
            assert!(self.done.contains(&number) || dead_letters.contains(&number), "{number} is lost: {checkpoint}");
        }
        covered
    }
}

// A3, A7, X2
#[tokio::test(start_paused = true)]
async fn under_random_faults_no_checkpoint_passes_a_record_that_is_neither_settled_nor_a_dead_letter() {
    for seed in 0..100 {
        let mut run = ConsumerRun::new(seed);
        let mut runs = 0;
        while run.check().await < 40 {
            let me = run.harness.instance("me");
            run.inject_faults(&me);
            let mut subscription = me.subscribe(with_attempts(2)).await;
            run.consume(&mut subscription).await;
            if run.rng.below(2) == 0 {
                subscription.close().await;
            }
            runs += 1;
            assert!(runs < 100, "seed {seed} does not complete");
        }
    }
}

//! Records that used up their attempts, together with the other features of a subscription: keys that wait for them,
//! seeks, hand-overs, the end at the tip, batches (A2, A6, A7, X2).

use futures::{Stream, StreamExt, TryStreamExt};
use tokio::time::{Duration, sleep, timeout};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    lease::Held,
    simulation::harness::{
        CapturedLogs, Harness, Instance, error, horizon, item, millis, name, names, next, seconds, take, within,
    },
    state::tracker::Commit,
    subscription::{
        Subscription, batch::Batch, batches::Batches, buffer_by::DeliveryStreamExt, descriptor::KinesisStream,
    },
    wire::envelope,
};

/// The harness's stream, with this many attempts for each record and a dead-letter stream.
fn with_attempts(attempts: u32) -> KinesisStream {
    horizon().max_attempts(attempts).dead_letter("dead")
}

/// The names of the records in the dead-letter stream, with the reasons.
fn dead_letters(harness: &Harness) -> Vec<String> {
    let texts = |written: super::kinesis::Written| {
        let (headers, payload) = envelope::decode(written.data);
        let reason = headers.get("kinesis-dead-letter-reason").unwrap();
        format!("{}: {}", str::from_utf8(&payload).unwrap(), str::from_utf8(reason).unwrap())
    };
    harness.kinesis.written().into_iter().map(texts).collect()
}

/// An instance whose dead-letter writes are refused for now.
fn with_refused_dead_letters(harness: &Harness, owner: &str) -> Instance {
    let instance = harness.instance(owner);
    instance.service.fail(Rule::on(ServiceOp::PutRecord).always(), FailureKind::Denied);
    instance
}

/// Gives `a0` back at its first attempt, and settles all others. Returns the record, its attempt and the time.
fn but_the_first(harness: &Harness, delivery: Delivery) -> String {
    let what = format!("{}#{} at {}", name(&delivery), delivery.attempt(), harness.millis() / 1_000);
    if name(&delivery) == "a0" && harness.millis() < 1_000 {
        delivery.nack_because("not yet");
    } else {
        delivery.ack();
    }
    what
}

/// All results that arrive within this time, errors as their text.
async fn results_within(
    of: &mut (impl Stream<Item = Result<String, KinesisError>> + Unpin),
    time: Duration,
) -> Vec<String> {
    let mut texts = Vec::new();
    let all = async {
        while let Some(result) = of.next().await {
            texts.push(result.unwrap_or_else(|error| error.to_string()));
        }
    };
    let _ = timeout(time, all).await;
    texts
}

fn in_flight(subscription: &Subscription) -> Vec<usize> {
    subscription.stats().shards.iter().map(|shard| shard.in_flight).collect()
}

// A7
#[tokio::test(start_paused = true)]
async fn a_key_continues_once_its_dead_letter_is_written_and_other_keys_continue_meanwhile() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xxyx");
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Delay(seconds(5)));
    let mut work =
        me.subscribe(with_attempts(1)).await.buffer_by_key(10, async |delivery| Ok(but_the_first(&harness, delivery)));
    let done = results_within(&mut work, seconds(20)).await;
    assert_eq!(done, ["a0#1 at 0", "a2#1 at 0", "a1#1 at 5", "a3#1 at 5"]);
    assert_eq!(
        (dead_letters(&harness), harness.checkpoint("a").await.as_str()),
        (vec!["a0: not yet".to_owned()], "after a3")
    );
}

// A7
#[tokio::test(start_paused = true)]
async fn a_key_waits_while_its_dead_letter_fails() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xx");
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(3), FailureKind::Throttled);
    let subscription = me.subscribe(with_attempts(1)).await.tolerant();
    let mut work = subscription.buffer_by_key(10, async |delivery| Ok(but_the_first(&harness, delivery)));
    assert_eq!(results_within(&mut work, seconds(20)).await, ["a0#1 at 0", "a1#1 at 7"]);
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn without_a_dead_letter_a_key_continues_after_the_error() {
    let spent = "stream s, shard a, sequence number a0: given up after attempt 1: not yet";
    for (stream, refused) in [(horizon().max_attempts(1), false), (with_attempts(1), true)] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put_keys("a", "xx");
        let me = harness.instance("me");
        me.service.fail(Rule::on(ServiceOp::PutRecord).always(), FailureKind::Rejected);
        let mut work =
            me.subscribe(stream).await.buffer_by_key(10, async |delivery| Ok(but_the_first(&harness, delivery)));
        let done = results_within(&mut work, seconds(20)).await;
        assert_eq!((done[0].as_str(), done[2].as_str(), done.len()), ("a0#1 at 0", "a1#1 at 0", 3));
        assert!(done[1].starts_with(spent), "{done:?}");
        assert_eq!(
            (done[1].contains("cannot be a dead letter"), harness.checkpoint("a").await.as_str()),
            (refused, "after a1")
        );
    }
}

// A6, A7
#[tokio::test(start_paused = true)]
async fn a_seek_drops_queued_dead_letters_and_the_records_start_at_attempt_one() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = with_refused_dead_letters(&harness, "me");
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    assert!(matches!(error_after(&mut subscription, 1).await, KinesisError::DeadLetter { .. }));
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    me.service.script.heal();
    let again = take(&mut subscription, 2).await;
    assert_eq!((names(&again), again[0].attempt(), in_flight(&subscription)), (vec!["a0", "a1"], 1, vec![2]));
    sleep(seconds(200)).await;
    assert_eq!(dead_letters(&harness), [""; 0]);
    again.into_iter().for_each(Delivery::ack);
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

/// The error that follows this many records. Acknowledges each of them.
async fn error_after(subscription: &mut Subscription, records: usize) -> KinesisError {
    take(subscription, records).await.into_iter().for_each(Delivery::ack);
    error(subscription).await
}

// A6, A7
#[tokio::test(start_paused = true)]
async fn after_a_seek_no_key_waits_for_earlier_dead_letters_or_errors() {
    for (stream, spent) in [(with_attempts(1), "DeadLetter"), (horizon().max_attempts(1), "AttemptsSpent")] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put_keys("a", "xxy");
        let me = with_refused_dead_letters(&harness, "me");
        let subscription = me.subscribe(stream).await.tolerant();
        let seeker = subscription.get_ref().seeker();
        let mut work = subscription.buffer_by_key(1, async |delivery| Ok(but_the_first(&harness, delivery)));
        // The error waits where the test does not poll for it.
        assert_eq!(work.next().await.unwrap().unwrap(), "a0#1 at 0", "{spent}");
        sleep(seconds(5)).await;
        seeker.seek(KinesisPosition::horizon()).await.unwrap();
        assert_eq!(results_within(&mut work, seconds(20)).await, ["a0#1 at 5", "a1#1 at 5", "a2#1 at 5"], "{spent}");
        assert_eq!((dead_letters(&harness).len(), harness.checkpoint("a").await.as_str()), (0, "after a2"));
    }
}

// A7, E5
#[tokio::test(start_paused = true)]
async fn a_shard_is_handed_over_with_its_queued_dead_letters() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put_keys("a", "xx");
    harness.kinesis.put_keys("b", "yy");
    let me = with_refused_dead_letters(&harness, "A");
    let subscription = me.subscribe(with_attempts(1)).await.tolerant();
    let stats = subscription.get_ref().stats_handle();
    let work = async |delivery: Delivery| {
        delivery.nack();
        Ok(String::new())
    };
    let mut work = subscription.buffer_by_key(10, work);
    // The first record of each key has used up its attempts; the second one waits behind it.
    assert_eq!(results_within(&mut work, seconds(1)).await.len(), 2);
    let mut other = harness.instance("B").subscribe(horizon()).await;
    let (_, came) = tokio::join!(results_within(&mut work, seconds(10)), within(&mut other, seconds(10)));
    let (gone, kept) = if name(&came[0]).starts_with('a') { ("a", "b") } else { ("b", "a") };
    assert_eq!(names(&came), [format!("{gone}0"), format!("{gone}1")]);
    assert!(came.iter().all(|delivery| delivery.attempt() == 1));
    assert!(harness.millis() < 15_000, "no delivery of it is open");
    let open: Vec<usize> = stats.snapshot().shards.iter().map(|shard| shard.in_flight).collect();
    assert_eq!(open, if gone == "a" { [0, 2] } else { [2, 0] });
    me.service.script.heal();
    assert_eq!(results_within(&mut work, seconds(100)).await.len(), 1);
    assert_eq!(dead_letters(&harness), [format!("{kept}0: given back"), format!("{kept}1: given back")]);
}

// A7, E5
#[tokio::test(start_paused = true)]
async fn a_hand_over_waits_for_a_dead_letter_write_under_way() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let me = harness.instance("A");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord).always(), Fault::Delay(seconds(20)));
    let mut subscription = me.subscribe(with_attempts(1)).await;
    take(&mut subscription, 2).await.into_iter().for_each(Delivery::nack);
    let mut other = harness.instance("B").subscribe(horizon()).await;
    let (mine, theirs) = tokio::join!(within(&mut subscription, seconds(40)), within(&mut other, seconds(40)));
    assert_eq!((mine.len(), theirs.len()), (0, 0), "each of them is settled");
    assert_eq!(dead_letters(&harness), ["a0: given back", "b0: given back"]);
    assert_eq!(harness.shares().await.into_values().collect::<Vec<_>>(), [1, 1]);
    assert_eq!((harness.checkpoint("a").await, harness.checkpoint("b").await), ("after a0".into(), "after b0".into()));
}

/// The names of all records to the end of the stream, each settled on arrival, and the kinds of the errors.
async fn to_the_end(subscription: &mut Subscription) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(item) = item(subscription).await {
        match item {
            Ok(delivery) => {
                texts.push(name(&delivery).to_owned());
                delivery.ack();
            }
            Err(KinesisError::AttemptsSpent { record, .. }) => {
                texts.push(format!("{} is spent", record.sequence_number()));
            }
            Err(KinesisError::DeadLetter { .. }) => texts.push("no dead letter".to_owned()),
            Err(error) => panic!("{error}"),
        }
    }
    texts
}

// A7
#[tokio::test(start_paused = true)]
async fn at_the_tip_the_stream_ends_once_every_dead_letter_is_written() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(2), FailureKind::Throttled);
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Delay(seconds(5)));
    let mut subscription = me.subscribe(with_attempts(1).stop_at_tip()).await;
    next(&mut subscription).await.nack();
    assert_eq!(to_the_end(&mut subscription).await, ["a1", "no dead letter", "no dead letter"]);
    assert_eq!((harness.millis() / 1_000, dead_letters(&harness)), (8, vec!["a0: given back".to_owned()]));
    assert!(subscription.close().await.is_clean());
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn at_the_tip_the_stream_ends_after_the_errors_that_carry_spent_records() {
    for (stream, refused_after) in [(horizon().max_attempts(1), 0), (with_attempts(1), 5)] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 3);
        let me = harness.instance("me");
        let refusal = Fault::FailAfter(seconds(refused_after), FailureKind::Rejected);
        me.service.script.plan(Rule::on(ServiceOp::PutRecord).always(), refusal);
        let mut subscription = me.subscribe(stream.stop_at_tip()).await;
        let mut records = take(&mut subscription, 3).await;
        records.remove(1).nack();
        records.into_iter().for_each(Delivery::ack);
        assert_eq!(to_the_end(&mut subscription).await, ["a1 is spent"]);
        assert!(subscription.close().await.is_clean());
        assert_eq!(harness.checkpoint("a").await, "after a2");
    }
}

// A7, E5
#[tokio::test(start_paused = true)]
async fn at_the_tip_the_stream_does_not_wait_for_dead_letters_of_a_lost_shard() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = with_refused_dead_letters(&harness, "me");
    let mut subscription = me.subscribe(with_attempts(1).stop_at_tip()).await;
    next(&mut subscription).await.nack();
    let holder = async {
        sleep(seconds(10)).await;
        harness.steal("a", "other").await;
        let row = harness.row("a").await.unwrap();
        let held = Held { key: row.key, owner: "other".into(), epoch: row.epoch };
        loop {
            harness.table().renew(&held).await.unwrap();
            sleep(seconds(1)).await;
        }
    };
    let mut errors = Vec::new();
    let end = async {
        while let Some(item) = item(&mut subscription).await {
            errors.push(item.unwrap_err());
        }
    };
    tokio::select! {
        () = holder => unreachable!("the subscription never ends"),
        () = end => {}
    }
    assert!(errors.iter().any(|error| matches!(error, KinesisError::LeaseLost { .. })), "{errors:?}");
    assert!((10_000..20_000).contains(&harness.millis()), "{}", harness.millis());
    assert_eq!(dead_letters(&harness), [""; 0]);
}

/// The next batch. Skips errors.
async fn batch(batches: &mut Batches) -> Batch {
    loop {
        let item = timeout(Duration::from_hours(1), batches.next()).await.expect("an item comes within an hour");
        if let Ok(batch) = item.expect("the stream continues") {
            return batch;
        }
    }
}

// A2, A7
#[tokio::test(start_paused = true)]
async fn a_dropped_batch_counts_one_attempt_for_each_record() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut batches = harness.instance("me").subscribe(with_attempts(2)).await.batches(3).unwrap();
    drop(batch(&mut batches).await);
    let again = batch(&mut batches).await;
    assert_eq!(again.iter().map(Delivery::attempt).collect::<Vec<_>>(), [2, 2, 2]);
    drop(again);
    sleep(seconds(2)).await;
    assert_eq!(dead_letters(&harness), ["a0: dropped", "a1: dropped", "a2: dropped"]);
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// A7
#[tokio::test(start_paused = true)]
async fn the_failed_records_of_a_batch_become_dead_letters_and_block_no_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 6);
    let mut batches = harness.instance("me").subscribe(with_attempts(1)).await.batches(2).unwrap();
    let failed = |place: usize, _: &Delivery| place == 0;
    assert_eq!(batch(&mut batches).await.commit_except(failed).await.unwrap(), Commit::Deferred);
    batch(&mut batches).await.nack_because("too many");
    assert_eq!(batch(&mut batches).await.commit_first(1).await.unwrap(), Commit::Deferred);
    sleep(seconds(2)).await;
    assert_eq!(dead_letters(&harness), ["a0: given back", "a2: too many", "a3: too many", "a5: given back"]);
    assert_eq!(harness.checkpoint("a").await, "after a5");
}

// A2, A7
#[tokio::test(start_paused = true)]
async fn records_of_an_unyielded_batch_become_no_dead_letters() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut batches = me.subscribe(with_attempts(1)).await.batches(10).unwrap().max_wait(seconds(60));
    assert!(timeout(seconds(5), batches.next()).await.is_err());
    drop(batches);
    sleep(seconds(5)).await;
    assert_eq!((dead_letters(&harness).len(), harness.checkpoint("a").await.as_str()), (0, "at a0"));
    let again = take(&mut me.subscribe(with_attempts(1)).await, 3).await;
    assert!(again.iter().all(|delivery| delivery.attempt() == 1));
}

// A2, A7
#[tokio::test(start_paused = true)]
async fn a_record_that_only_waited_for_its_key_spends_no_attempt_and_keeps_its_place() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xxx");
    let mut subscription = harness.instance("me").subscribe(with_attempts(1)).await;
    let work = async |delivery: Delivery| -> Result<(), KinesisError> {
        sleep(seconds(60)).await;
        delivery.ack();
        Ok(())
    };
    let mut by_key = (&mut subscription).buffer_by_key(10, work);
    assert!(timeout(seconds(1), by_key.next()).await.is_err());
    drop(by_key);
    sleep(millis(1)).await;
    assert_eq!(dead_letters(&harness), ["a0: dropped"]);
    // The redelivery arrives while its key is busy, and precedes later records of its shard.
    harness.kinesis.put_keys("a", "xx");
    let shown = async |delivery: Delivery| {
        sleep(seconds(5)).await;
        let texts = format!("{}#{}", name(&delivery), delivery.attempt());
        delivery.ack();
        Ok(texts)
    };
    let by_key = (&mut subscription).buffer_by_key(10, shown);
    let done: Vec<String> = by_key.take(4).try_collect().await.unwrap();
    assert_eq!(done, ["a3#1", "a1#1", "a2#1", "a4#1"]);
}

// A2, A7, L9
#[tokio::test(start_paused = true)]
async fn dropping_the_subscription_makes_no_dead_letter_of_running_records() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xyz");
    let me = harness.instance("me");
    let work = async |delivery: Delivery| -> Result<(), KinesisError> {
        sleep(seconds(60)).await;
        delivery.ack();
        Ok(())
    };
    let mut by_key = me.subscribe(with_attempts(1)).await.buffer_by_key(2, work);
    assert!(timeout(seconds(1), by_key.next()).await.is_err());
    drop(by_key);
    sleep(seconds(5)).await;
    assert_eq!(dead_letters(&harness), [""; 0]);
    let again = take(&mut me.subscribe(with_attempts(1)).await, 3).await;
    assert_eq!((names(&again), again[0].attempt()), (vec!["a0", "a1", "a2"], 1));
}

// A2, A7
#[tokio::test(start_paused = true)]
async fn the_warning_about_a_drop_says_what_happens_to_the_record() {
    let table = [
        (horizon(), "will come again"),
        (with_attempts(2), "will come again"),
        (with_attempts(1), "becomes a dead letter"),
        (horizon().max_attempts(1), "comes as an error"),
    ];
    for (stream, becomes) in table {
        let logged = CapturedLogs::new();
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 2);
        let mut subscription = harness.instance("me").subscribe(stream).await;
        drop(take(&mut subscription, 2).await);
        let said = logged.with("dropped without being settled");
        assert_eq!((said.len(), said[0].contains(becomes)), (1, true), "{said:?}");
    }
}

//! A slow consumer slows reading down. It costs neither memory nor other shards (A5).

use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};
use crate::{
    delivery::Delivery,
    simulation::harness::{CapturedLogs, Harness, horizon, millis, name, names, next, range, seconds, take, within},
    state::stats::SubscriptionStats,
};

const MIB: usize = 1 << 20;

// A5
#[tokio::test(start_paused = true)]
async fn a_shard_at_its_bound_pauses_alone_and_continues_after_a_settlement() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 12);
    harness.kinesis.put("b", 30);
    let mut subscription = harness.instance("me").subscribe(horizon().max_in_flight(5)).await;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for record in within(&mut subscription, seconds(1)).await {
        if record.shard().as_str() == "a" { of_a.push(record) } else { of_b.push(record) }
    }
    assert_eq!((names(&of_a), names(&of_b)), (vec!["a0", "a1", "a2", "a3", "a4"], vec!["b0", "b1", "b2", "b3", "b4"]));
    let mut seen = of_b.len();
    while seen < 30 {
        of_b.drain(..).for_each(Delivery::ack);
        of_b = within(&mut subscription, seconds(1)).await;
        assert_eq!(names(&of_b), range("b", seen..seen + 5));
        seen += of_b.len();
    }
    of_a.remove(3).ack();
    assert_eq!(names(&within(&mut subscription, seconds(1)).await), ["a5"]);
    of_a.into_iter().for_each(Delivery::ack);
    assert_eq!(names(&take(&mut subscription, 5).await).len(), 5);
}

// A5
#[tokio::test(start_paused = true)]
async fn after_half_a_minute_at_the_bound_a_warning_names_the_oldest_open_record_once() {
    let logged = CapturedLogs::new();
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 9);
    let mut subscription = harness.instance("me").subscribe(horizon().max_in_flight(4)).await;
    let mut held = take(&mut subscription, 4).await;
    sleep(seconds(29)).await;
    assert_eq!(logged.with("stands still"), Vec::<String>::new());
    sleep(seconds(600)).await;
    let said = logged.with("stands still");
    assert_eq!(said.len(), 1);
    assert!(["stream=s", "shard=a", "sequence_number=a0"].iter().all(|word| said[0].contains(word)), "{said:?}");
    held.remove(0).ack();
    held.extend(take(&mut subscription, 1).await);
    sleep(seconds(60)).await;
    assert!(logged.with("stands still")[1].contains("sequence_number=a1"));
}

// A5
#[tokio::test(start_paused = true)]
async fn a_shard_that_makes_progress_at_its_bound_logs_no_warning() {
    let logged = CapturedLogs::new();
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 300);
    let mut subscription = harness.instance("me").subscribe(horizon().max_in_flight(2)).await;
    let mut held = take(&mut subscription, 2).await;
    for _ in 2..300 {
        sleep(millis(700)).await;
        held.remove(0).ack();
        held.push(next(&mut subscription).await);
    }
    assert_eq!(logged.with("stands still"), Vec::<String>::new());
}

// A5
#[tokio::test(start_paused = true)]
async fn the_bound_does_not_block_redeliveries() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 9);
    let mut subscription = harness.instance("me").subscribe(horizon().max_in_flight(3)).await;
    let mut held = take(&mut subscription, 3).await;
    held.remove(1).nack();
    let again = next(&mut subscription).await;
    assert_eq!((name(&again), again.attempt()), ("a1", 2));
    assert!(within(&mut subscription, seconds(10)).await.is_empty());
    again.ack();
    assert_eq!(name(&next(&mut subscription).await), "a3");
}

// A5
#[tokio::test(start_paused = true)]
async fn max_in_flight_may_be_one() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 20);
    harness.kinesis.split("a", ["b", "c"]);
    let mut subscription = harness.instance("me").subscribe(horizon().max_in_flight(1).read_limit(3)).await;
    for index in 0..20 {
        let record = next(&mut subscription).await;
        assert_eq!(name(&record), format!("a{index}"));
        assert!(within(&mut subscription, seconds(3)).await.is_empty());
        record.ack();
    }
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
}

fn held(stats: &SubscriptionStats) -> usize {
    stats.bytes_held / MIB
}

// A5
#[tokio::test(start_paused = true)]
async fn many_shards_hold_at_most_max_buffered_bytes_while_the_consumer_stands_still() {
    let shards = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let harness = Harness::new(&shards);
    for shard in shards {
        (0..5).for_each(|_| harness.kinesis.put_bytes(shard, MIB));
    }
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).always(), Fault::Delay(millis(50)));
    let mut subscription = me.subscribe(horizon().read_limit(1).max_buffered_bytes(4 * MIB)).await;
    sleep(seconds(600)).await;
    assert_eq!(held(&subscription.stats()), 3, "a fourth first read may bring more than is left");
    let mut taken = Vec::new();
    while taken.len() < 60 {
        taken.push(next(&mut subscription).await);
        assert!(held(&subscription.stats()) <= 4);
    }
    assert!(within(&mut subscription, seconds(60)).await.is_empty());
    for shard in shards {
        assert_eq!(harness.row(shard).await.unwrap().epoch, 1);
        let of_shard = taken.iter().filter(|record| record.shard().as_str() == shard);
        assert_eq!(of_shard.map(name).collect::<Vec<_>>(), range(shard, 0..5));
    }
    assert_eq!(held(&subscription.stats()), 0);
}

// A5
#[tokio::test(start_paused = true)]
async fn records_without_data_count_too() {
    let harness = Harness::new(&["a", "b"]);
    for shard in ["a", "b"] {
        (0..10_000).for_each(|_| harness.kinesis.put_data(shard, ""));
    }
    let stream = || horizon().read_limit(10_000);
    let subscription = harness.instance("me").subscribe(stream()).await;
    sleep(seconds(10)).await;
    // Each with a key of one byte.
    assert_eq!(subscription.stats().bytes_held, 20_000 * (1 + 192));
    subscription.close().await;
    let subscription = harness.instance("me").subscribe(stream().max_buffered_bytes(MIB)).await;
    sleep(seconds(10)).await;
    assert_eq!(subscription.stats().bytes_held, 10_000 * (1 + 192), "one page is read regardless of its size");
}

// A5
#[tokio::test(start_paused = true)]
async fn undeliverable_pages_do_not_stop_reads_of_other_shards() {
    for limit in [1, 4] {
        let harness = Harness::new(&["a", "b", "c"]);
        for shard in ["a", "b"] {
            (0..4).for_each(|_| harness.kinesis.put_bytes(shard, MIB));
        }
        let mut subscription = harness
            .instance("me")
            .subscribe(horizon().read_limit(limit).max_in_flight(2).max_buffered_bytes(MIB))
            .await;
        let stuck = take(&mut subscription, 4).await;
        assert!(within(&mut subscription, seconds(60)).await.is_empty());
        for index in 0..10 {
            harness.kinesis.put_bytes("c", MIB);
            let record = next(&mut subscription).await;
            assert_eq!(name(&record), format!("c{index}"));
            record.ack();
        }
        stuck.into_iter().for_each(Delivery::ack);
        take(&mut subscription, 4).await.into_iter().for_each(Delivery::ack);
    }
}

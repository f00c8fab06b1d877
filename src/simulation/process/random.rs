//! Random failures of records and of whole batches (A8).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use tokio::{runtime::Builder, time::sleep};

use super::{dead, run, two_attempts};
use crate::{
    delivery::Delivery,
    simulation::harness::{Harness, millis, name, seconds},
    subscription::batch::Batch,
    util::mutex::lock,
};

/// What a handler does with one record: how long it takes, how often it fails, and how.
#[derive(Clone, Copy, Debug)]
struct Work {
    takes: u64,
    fails: u32,
    fails_its_batch: bool,
}

fn work() -> impl Strategy<Value = Work> {
    let fails = prop_oneof![9 => Just(0), 1 => 1..4_u32];
    (0..50_u64, fails, any::<bool>()).prop_map(|(takes, fails, fails_its_batch)| Work { takes, fails, fails_its_batch })
}

/// Plays records of two shards and checks the invariants of every run.
async fn play(works: [Vec<Work>; 2], n: usize, size: usize, in_order: bool) {
    let harness = Harness::new(&["a", "b"]);
    let named = |shard: usize| {
        works[shard].iter().enumerate().map(move |(i, work)| (format!("{}{i}", ["a", "b"][shard]), *work))
    };
    let by_name: BTreeMap<String, Work> = named(0).chain(named(1)).collect();
    harness.kinesis.put("a", works[0].len());
    harness.kinesis.put("b", works[1].len());
    let subscription = harness.instance("me").subscribe(two_attempts()).await;
    let (busy, done) = (Mutex::new(BTreeSet::new()), Mutex::new(Vec::<(String, u32)>::new()));
    // Records that are done or given up.
    let over = Mutex::new(BTreeSet::new());
    let handler = async |batch: Arc<Batch>| {
        let shard = batch.deliveries()[0].shard().to_string();
        assert!(batch.iter().all(|delivery| delivery.shard().as_str() == shard) && batch.len() <= size);
        assert!(lock(&busy).insert(shard.clone()), "a shard has one call at a time");
        assert!(lock(&busy).len() <= n);
        let of = |delivery: &Delivery| by_name[name(delivery)];
        let first: usize = batch.iter().map(|delivery| name(delivery)[1..].parse().unwrap()).min().unwrap();
        let before = (0..first).map(|index| format!("{shard}{index}"));
        assert!(!in_order || before.into_iter().all(|name| lock(&over).contains(&name)), "{first} came too early");
        sleep(millis(batch.iter().map(|delivery| of(delivery).takes).max().unwrap_or(0))).await;
        lock(&busy).remove(&shard);
        let fails = |delivery: &Delivery| delivery.attempt() <= of(delivery).fails;
        if batch.iter().any(|delivery| fails(delivery) && of(delivery).fails_its_batch) {
            let spent = batch.iter().filter(|delivery| batch.len() == 1 && delivery.attempt() == 2);
            lock(&over).extend(spent.map(|delivery| name(delivery).to_owned()));
            return Err("poison");
        }
        let ended = batch.iter().filter(|delivery| !fails(delivery) || delivery.attempt() == 2);
        lock(&over).extend(ended.map(|delivery| name(delivery).to_owned()));
        let failed: Vec<usize> = (0..batch.len()).filter(|index| fails(&batch.deliveries()[*index])).collect();
        let settled = batch.iter().filter(|delivery| !fails(delivery));
        lock(&done).extend(settled.map(|delivery| (name(delivery).to_owned(), delivery.attempt())));
        Ok(failed)
    };
    let stats = subscription.stats_handle();
    let work = subscription.batches(size).unwrap().process(n, handler);
    run(if in_order { work.in_order() } else { work }, seconds(200)).await;
    let done = done.into_inner().unwrap();
    for (shard, of) in [("a", &works[0]), ("b", &works[1])] {
        let at_first = done.iter().filter(|(name, attempt)| name.starts_with(shard) && *attempt == 1);
        let first: Vec<usize> = at_first.map(|(name, _)| name[1..].parse().unwrap()).collect();
        assert!(first.is_sorted(), "first attempts keep the order of the shard: {first:?}");
        let settled: BTreeSet<&String> =
            done.iter().map(|(name, _)| name).filter(|name| name.starts_with(shard)).collect();
        let expected = of.iter().filter(|work| work.fails < 2).count();
        assert_eq!(settled.len(), expected, "every record that can be processed is processed");
        assert_eq!(
            harness.checkpoint(shard).await,
            of.len().checked_sub(1).map_or(String::new(), |last| format!("after {shard}{last}"))
        );
    }
    let processed: BTreeSet<&String> = done.iter().map(|(name, _)| name).collect();
    assert_eq!(processed.len(), done.len(), "a record is settled once");
    assert_eq!(dead(&harness).len() + done.len(), by_name.len());
    assert_eq!(stats.snapshot().shards.iter().map(|shard| shard.acked).sum::<u64>(), done.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    // A8, A7, S1
    #[test]
    fn random_failures_settle_each_record_once_in_the_order_of_its_shard(
        a in proptest::collection::vec(work(), 0..40),
        b in proptest::collection::vec(work(), 0..40),
        n in 1..4_usize,
        size in 1..12_usize,
        in_order: bool,
    ) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play([a, b], n, size, in_order));
    }
}

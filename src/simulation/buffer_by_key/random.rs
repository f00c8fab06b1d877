//! Random failures and durations (A7).

use std::{collections::BTreeMap, sync::Mutex};

use futures::StreamExt;
use proptest::prelude::*;
use tokio::{
    runtime::Builder,
    time::{Duration, sleep, timeout},
};

use crate::{
    delivery::Delivery,
    simulation::harness::{Harness, horizon, millis, name},
    subscription::delivery_stream_ext::DeliveryStreamExt,
    util::mutex::lock,
};

/// How the handler treats the attempts of one record.
#[derive(Clone, Copy, Debug)]
struct Work {
    takes: u64,
    fails: u32,
    nacks: bool,
}

fn work() -> impl Strategy<Value = Work> {
    (0..50_u64, prop_oneof![6 => Just(0), 1 => 1..3_u32], any::<bool>()).prop_map(|(takes, fails, nacks)| Work {
        takes,
        fails,
        nacks,
    })
}

/// Plays records of these keys and checks the invariants of every run.
async fn play(records: &[(u8, Work)], n: usize, max_waiting: usize, max_in_flight: usize) {
    let harness = Harness::new(&["a", "b"]);
    let (mut works, mut of_key, mut put) = (BTreeMap::new(), BTreeMap::<String, Vec<String>>::new(), [0, 0]);
    for (key, work) in records {
        let shard = usize::from(key % 2);
        let (name, key) = (format!("{}{}", ["a", "b"][shard], put[shard]), char::from(b'k' + key).to_string());
        harness.kinesis.put_keys(["a", "b"][shard], &key);
        put[shard] += 1;
        works.insert(name.clone(), *work);
        of_key.entry(key).or_default().push(name);
    }
    let subscription = harness.instance("me").subscribe(horizon().max_in_flight(max_in_flight)).await;
    let (running, settled) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeMap::<String, Vec<String>>::new()));
    let work = async |delivery: Delivery| {
        let (key, named) = (delivery.partition_key().unwrap().to_owned(), name(&delivery).to_owned());
        assert_eq!(
            lock(&running).insert(key.clone(), named.clone()),
            None,
            "{named} runs while another record of its key does"
        );
        assert!(lock(&running).len() <= n);
        let before = lock(&settled).get(&key).map_or(0, Vec::len);
        assert_eq!(of_key[&key][before], named, "a record runs once those before it are settled");
        let Work { takes, fails, nacks } = works[&named];
        sleep(millis(takes)).await;
        lock(&running).remove(&key);
        if delivery.attempt() <= fails {
            if nacks {
                delivery.nack();
            }
            return Ok(false);
        }
        lock(&settled).entry(key).or_default().push(named);
        delivery.ack();
        Ok(true)
    };
    let mut work = subscription.buffer_by_key(n, work).max_waiting(max_waiting);
    let all = async {
        let mut left = records.len();
        while left > 0 {
            left -= usize::from(work.next().await.unwrap().unwrap());
        }
    };
    timeout(Duration::from_mins(20), all).await.expect("every record completes");
    drop(work);
    assert_eq!(settled.into_inner().unwrap(), of_key);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    // A7
    #[test]
    fn random_failures_and_durations_keep_the_order_of_each_key_and_complete_every_record(
        records in proptest::collection::vec((0..6_u8, work()), 0..60),
        n in 1..8_usize,
        max_waiting in 1..10_usize,
        max_in_flight in 1..20_usize,
    ) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(&records, n, max_waiting, max_in_flight));
    }
}

//! The contract of a lease store, and the further guarantees of the table.

use std::{collections::BTreeSet, sync::Arc};

use kinesis_stream::{Checkpoint, LeaseStore, Take, Write, contract};
use kinesis_stream_support::{Faults, Op};

use crate::lease_table::{
    CONSUMER, LeaseTable, PATH, STREAM, after, held, key, key_of, lease, n, names, row, s, ss, taken, taking,
};

// E2
#[tokio::test(flavor = "multi_thread")]
async fn the_store_fulfils_the_contract() {
    contract::run(Arc::new(LeaseTable::new().await.store())).await;
}

// E2, E3: a row holds no time of any host
#[tokio::test]
async fn a_row_uses_the_attribute_names_and_types_of_the_kcl() {
    let table = LeaseTable::new().await;
    let store = table.store();
    let one = taken(&store, "one").await;
    let mut item = table.item(PATH).await;
    let id = item.remove("takeId").unwrap();
    assert!(id.as_s().unwrap().len() == 36, "{id:?}");
    let horizon = || ("checkpoint", s("TRIM_HORIZON"));
    let expected = [
        ("leaseKey", s(PATH)),
        ("leaseOwner", s("one")),
        ("leaseCounter", n(1)),
        horizon(),
        ("checkpointSubSequenceNumber", n(0)),
        ("ownerSwitchesSinceCheckpoint", n(0)),
        ("parentShardId", ss(["shardId-000000000000", "shardId-000000000001"])),
        ("epoch", n(1)),
        ("streamCreated", n(1_700_000_000_123)),
        ("openAtInitialPosition", aws_sdk_dynamodb::types::AttributeValue::Bool(true)),
    ];
    assert_eq!(item, expected.map(|(name, value)| (name.to_owned(), value)).into());

    let ours = ["openAtInitialPosition", "openAtSequenceNumber", "openAtTimestamp"];
    let cases = [
        (Checkpoint::At("5".into()), "TRIM_HORIZON", Some(("openAtSequenceNumber", s("5")))),
        (Checkpoint::Since(-7), "TRIM_HORIZON", Some(("openAtTimestamp", n(-7)))),
        (after("6"), "6", None),
        (Checkpoint::Since(8), "TRIM_HORIZON", Some(("openAtTimestamp", n(8)))),
        (Checkpoint::ShardEnd, "SHARD_END", None),
    ];
    for (checkpoint, word, own) in cases {
        store.checkpoint(&one, &checkpoint).await.unwrap();
        let item = table.item(PATH).await;
        assert_eq!((&item["checkpoint"], &item["checkpointSubSequenceNumber"]), (&s(word), &n(0)));
        let there: Vec<_> = ours.iter().filter_map(|name| Some((*name, item.get(*name)?.clone()))).collect();
        assert_eq!(there, Vec::from_iter(own));
    }

    store.release(&one).await.unwrap();
    let bare = Take::new(key(), "one").with_seen(Some(lease(&store).await.seen()));
    assert!(!table.item(PATH).await.contains_key("leaseOwner"), "a free row has no owner");
    store.take(&bare).await.unwrap();
    let item = table.item(PATH).await;
    assert!(!item.contains_key("parentShardId") && !item.contains_key("streamCreated"), "{:?}", names(&item));
}

#[tokio::test]
async fn owner_changes_are_counted_until_the_next_checkpoint() {
    let table = LeaseTable::new().await;
    let store = table.store();
    let switches = async || table.item(PATH).await["ownerSwitchesSinceCheckpoint"].clone();
    taken(&store, "one").await;
    taken(&store, "one").await;
    assert_eq!(switches().await, n(0), "an owner takes its own row");
    taken(&store, "two").await;
    let three = taken(&store, "three").await;
    assert_eq!(switches().await, n(2));
    store.release(&three).await.unwrap();
    let four = taken(&store, "four").await;
    assert_eq!(switches().await, n(2), "taking a free row does not count");
    store.renew(&four).await.unwrap();
    assert_eq!(switches().await, n(2));
    store.checkpoint(&four, &after("1")).await.unwrap();
    assert_eq!(switches().await, n(0));
}

// E2
#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_checkpoint_and_renewal_both_take_effect() {
    let table = LeaseTable::new().await;
    let store = table.store();
    let one = taken(&store, "one").await;
    for round in 1..=50 {
        let checkpoint = after(&round.to_string());
        let (saved, renewed) = tokio::join!(store.checkpoint(&one, &checkpoint), store.renew(&one));
        assert_eq!((saved.unwrap(), renewed.unwrap()), (Write::Applied(()), Write::Applied(())));
        let row = lease(&store).await;
        assert_eq!((row.checkpoint, row.counter), (Some(checkpoint), 1 + 2 * round));
    }
}

// E2
#[tokio::test]
async fn a_manually_deleted_row_is_refused_to_its_holder_and_can_be_taken_again() {
    let table = LeaseTable::new().await;
    let store = table.store();
    let one = taken(&store, "one").await;
    for _ in 0..5 {
        store.renew(&one).await.unwrap();
    }
    let delete = table.server.client().delete_item().table_name(&table.name).key("leaseKey", s(PATH));
    delete.send().await.unwrap();
    assert_eq!(store.renew(&one).await.unwrap(), Write::Refused(None));
    assert_eq!(row(&store).await, None);
    let anew = taken(&store, "one").await;
    assert_eq!((anew.epoch, store.renew(&anew).await.unwrap()), (1, Write::Applied(())));
    assert_eq!(lease(&store).await.counter, 2);
}

// S4
#[tokio::test]
async fn two_consumers_on_one_table_have_separate_rows() {
    let table = LeaseTable::new().await;
    let store = table.store();
    for consumer in ["audit", "audit/eu", "billing \"b\" OR 1=1"] {
        for shard in ["shardId-000000000000", "shardId-000000000001"] {
            let mut take = taking("one", None);
            take.key.consumer = consumer.into();
            take.key.shard = shard.into();
            assert!(matches!(store.take(&take).await.unwrap(), Write::Applied(_)));
        }
    }
    for consumer in ["audit", "audit/eu", "billing \"b\" OR 1=1"] {
        let rows = store.leases(consumer, STREAM).await.unwrap();
        assert!(rows.iter().all(|row| &*row.key.consumer == consumer));
        assert_eq!(rows.len(), 2, "{consumer}");
    }
    assert_eq!(store.leases("aud", STREAM).await.unwrap(), []);
}

// E1
#[tokio::test]
async fn a_table_of_several_megabytes_is_read_to_its_end() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    let store = table.through(&faults);
    let filler = s(&"x".repeat(1_200));
    let mut puts = tokio::task::JoinSet::new();
    for i in 0..2_000 {
        let (table, filler) = (table.clone(), filler.clone());
        // Every third row belongs to another consumer.
        let consumer = if i % 3 == 0 { "other" } else { CONSUMER };
        puts.spawn(async move {
            let row = format!("{consumer}/{STREAM}/shardId-{i:012}");
            table.put(&row, [("leaseCounter", n(1)), ("filler", filler)]).await;
        });
        if puts.len() >= 64 {
            puts.join_next().await.unwrap().unwrap();
        }
    }
    puts.join_all().await;
    let rows = store.leases(CONSUMER, STREAM).await.unwrap();
    let shards: BTreeSet<_> = rows.iter().map(|row| row.key.clone()).collect();
    let expected: BTreeSet<_> =
        (0..2_000).filter(|i| i % 3 != 0).map(|i| key_of(&format!("shardId-{i:012}"))).collect();
    assert_eq!((rows.len(), shards), (1_333, expected));
    assert!(faults.count(Op::Scan) >= 3, "more than two megabytes take at least three pages");
    assert!(faults.calls(Op::Scan).iter().all(|scan| scan.body()["ConsistentRead"] == true));
}

#[tokio::test]
async fn a_store_that_did_not_take_a_row_reads_its_counter_and_then_writes() {
    let table = LeaseTable::new().await;
    let one = taken(&table.store(), "one").await;
    let faults = Faults::default();
    let other = table.through(&faults);
    assert_eq!(other.renew(&one).await.unwrap(), Write::Applied(()));
    assert_eq!(other.renew(&one).await.unwrap(), Write::Applied(()));
    assert_eq!((faults.count(Op::GetItem), faults.count(Op::UpdateItem)), (1, 2));
    assert!(matches!(other.renew(&held("two", 1)).await.unwrap(), Write::Refused(Some(_))));
    assert_eq!(faults.count(Op::UpdateItem), 2, "a store does not write to a row that it does not hold");
}

#[tokio::test]
async fn a_checkpoint_that_could_not_be_read_back_is_not_written() {
    let table = LeaseTable::new().await;
    let store = table.store();
    let one = taken(&store, "one").await;
    for number in ["", "LATEST", "12a"] {
        let error = store.checkpoint(&one, &after(number)).await.unwrap_err().to_string();
        assert!(error.ends_with("cannot be stored: a sequence number is digits"), "{error}");
    }
    assert_eq!(lease(&store).await.checkpoint, None);
}

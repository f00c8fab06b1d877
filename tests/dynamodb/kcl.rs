//! Rows that the KCL wrote, and migration from the KCL and back.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use kinesis_stream::{
    Checkpoint, DynamoDbLeaseStore, Held, Lease, LeaseKey, LeaseStore, Seen, StoreErrorKind, Take, Write,
};

use crate::lease_table::{CONSUMER, LeaseTable, STREAM, after, n, names, s, ss};

const SHARD: &str = "shardId-000000000000";

async fn bare() -> (LeaseTable, DynamoDbLeaseStore) {
    let table = LeaseTable::new().await;
    let store = table.store().bare_shard_ids();
    (table, store)
}

fn take(owner: &str, seen: Option<Seen>) -> Take {
    let key = LeaseKey::new(CONSUMER, STREAM, SHARD);
    Take::new(key, owner).with_seen(seen).with_parents(vec!["shardId-9".into()])
}

async fn taken(store: &DynamoDbLeaseStore, owner: &str) -> (Lease, Held) {
    let rows = store.leases(CONSUMER, STREAM).await.unwrap().rows;
    let take = take(owner, rows.iter().find(|row| row.key.shard.as_str() == SHARD).map(Lease::seen));
    let Write::Applied(lease) = store.take(&take).await.unwrap() else { panic!("no other instance interferes") };
    let held = Held::new(take.key, take.owner, lease.epoch);
    (lease, held)
}

async fn only(store: &DynamoDbLeaseStore) -> Lease {
    let mut rows = store.leases(CONSUMER, STREAM).await.unwrap().rows;
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

// S4
#[tokio::test]
async fn reading_resumes_from_a_checkpoint_of_the_kcl_without_loss() {
    let cases = [
        ("LATEST", 0, None),
        ("AT_TIMESTAMP", 0, None),
        ("TRIM_HORIZON", 0, Some(Checkpoint::Since(0))),
        ("4959", 0, Some(after("4959"))),
        ("4959", 3, Some(Checkpoint::At("4959".into()))),
        ("SHARD_END", 0, Some(Checkpoint::ShardEnd)),
    ];
    for (word, sub_sequence, meant) in cases {
        let (table, store) = bare().await;
        let kcl = [
            ("leaseOwner", s("worker-1")),
            ("leaseCounter", n(41)),
            ("ownerSwitchesSinceCheckpoint", n(2)),
            ("checkpoint", s(word)),
            ("checkpointSubSequenceNumber", n(sub_sequence)),
            ("parentShardId", ss(["shardId-8", "shardId-7"])),
            ("entityType", s("LEASE")),
        ];
        table.put(SHARD, kcl).await;
        let row = only(&store).await;
        assert_eq!((row.epoch, row.counter, row.owner.as_deref()), (0, 41, Some("worker-1")));
        assert!(row.is_foreign);
        assert_eq!(row.checkpoint, meant, "{word}, {sub_sequence}");
        assert_eq!(row.parents, ["shardId-7".into(), "shardId-8".into()]);
        let (lease, held) = taken(&store, "one").await;
        assert_eq!((lease.epoch, lease.counter, lease.checkpoint), (1, 42, meant), "the take keeps it");
        assert_eq!(table.item(SHARD).await["checkpoint"], s(word), "and leaves it unchanged");
        assert_eq!(store.renew(&held).await.unwrap(), Write::Applied(()));
    }
}

#[tokio::test]
async fn a_row_of_the_kcl_can_be_requested_and_deleted_like_any_other() {
    let (table, store) = bare().await;
    table.put(SHARD, [("leaseOwner", s("worker-1")), ("leaseCounter", n(0)), ("checkpoint", s("SHARD_END"))]).await;
    let key = take("one", None).key;
    assert_eq!(store.ask(&key, Seen::new(0, 0), "one").await.unwrap(), Write::Applied(()));
    let row = only(&store).await;
    assert_eq!((row.wanted_by.as_deref(), row.seen()), (Some("one"), Seen::new(0, 1)));
    assert_eq!(store.delete(&key, row.seen()).await.unwrap(), Write::Applied(()));
    let gone = Seen::new(0, 0);
    assert_eq!(store.ask(&key, gone, "one").await.unwrap(), Write::Refused(None));
    assert_eq!(store.delete(&key, gone).await.unwrap(), Write::Refused(None));
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap().rows, []);
}

#[tokio::test]
async fn rows_of_the_kcl_that_are_not_leases_are_ignored() {
    let (table, store) = bare().await;
    table.put(SHARD, [("leaseCounter", n(1)), ("checkpoint", s("LATEST"))]).await;
    for kind in ["WORKER_METRIC_STATS", "STREAM", "LEADER", "CLIENT_VERSION_MIGRATION", "TABLE_MIGRATION"] {
        table.put(kind, [("entityType", s(kind)), ("checkpoint", n(7)), ("leaseCounter", s("x"))]).await;
    }
    table.put("123456789012:orders:1700000000:shardId-000000000000", [("leaseCounter", n(1))]).await;
    table.put("default/orders/shardId-000000000000", [("leaseCounter", n(1))]).await;
    assert_eq!(only(&store).await.key.shard.as_str(), SHARD);
}

#[tokio::test]
async fn unknown_attributes_survive_take_checkpoint_and_release() {
    let (table, store) = bare().await;
    let foreign = [
        ("childShardIds", ss(["shardId-1", "shardId-2"])),
        ("startingHashKey", s("0")),
        ("endingHashKey", s("340282366920938463463374607431768211455")),
        ("throughputKBps", AttributeValue::N("12.5".into())),
        ("entityType", s("LEASE")),
        ("somethingNew", AttributeValue::Bool(true)),
    ];
    let kcl = [
        ("leaseOwner", s("worker-1")),
        ("leaseCounter", n(3)),
        ("checkpoint", s("5")),
        ("checkpointOwner", s("worker-0")),
        ("pendingCheckpoint", s("6")),
        ("pendingCheckpointSubSequenceNumber", n(0)),
        ("pendingCheckpointState", AttributeValue::B(Blob::new(*b"state"))),
    ];
    let mut item: crate::lease_table::Item =
        foreign.iter().cloned().chain(kcl).map(|(k, v)| (k.to_owned(), v)).collect();
    item.insert("leaseKey".into(), s(SHARD));
    table.server.put(&table.name, item).await;

    let (lease, held) = taken(&store, "one").await;
    assert_eq!(lease.checkpoint, Some(after("5")), "a pending checkpoint does not count");
    let item = table.item(SHARD).await;
    assert!(item.contains_key("pendingCheckpoint"), "a take keeps it for the next reader");
    assert!(!item.contains_key("checkpointOwner"), "but it ends a hand-over, as in the KCL");
    store.checkpoint(&held, &after("7")).await.unwrap();
    store.release(&held).await.unwrap();
    let item = table.item(SHARD).await;
    for (name, value) in foreign {
        assert_eq!(item.get(name), Some(&value), "{name}");
    }
    let pending: Vec<_> = names(&item).into_iter().filter(|name| name.starts_with("pending")).collect();
    assert!(pending.is_empty(), "a later checkpoint removes it, as in the KCL: {pending:?}");
}

// S4
#[tokio::test]
async fn an_application_can_move_from_the_kcl_and_back_on_the_same_table() {
    let (table, store) = bare().await;
    table.put(SHARD, [("leaseOwner", s("worker-1")), ("leaseCounter", n(9)), ("checkpoint", s("100"))]).await;
    let (lease, held) = taken(&store, "one").await;
    assert_eq!(lease.checkpoint, Some(after("100")));
    store.checkpoint(&held, &Checkpoint::At("150".into())).await.unwrap();
    store.checkpoint(&held, &after("200")).await.unwrap();
    store.release(&held).await.unwrap();

    // The KCL finds every attribute that it needs.
    let item = table.item(SHARD).await;
    let needed = ["leaseCounter", "checkpoint", "checkpointSubSequenceNumber", "ownerSwitchesSinceCheckpoint"];
    assert!(needed.iter().all(|name| item.contains_key(*name)), "{:?}", names(&item));
    assert_eq!((&item["checkpoint"], item.get("leaseOwner")), (&s("200"), None));

    // The KCL takes the row, conditional on the counter alone, and continues.
    let AttributeValue::N(counter) = &item["leaseCounter"] else { panic!("a number") };
    let update = table.server.client().update_item().table_name(&table.name).key("leaseKey", s(SHARD));
    let update = update
        .condition_expression("leaseCounter = :seen")
        .update_expression(
            "SET leaseOwner = :owner, leaseCounter = :next, checkpoint = :at ADD ownerSwitchesSinceCheckpoint :one",
        )
        .expression_attribute_values(":seen", AttributeValue::N(counter.clone()))
        .expression_attribute_values(":next", n(counter.parse::<i64>().unwrap() + 1))
        .expression_attribute_values(":owner", s("worker-2"))
        .expression_attribute_values(":one", n(1))
        .expression_attribute_values(":at", s("300"));
    update.send().await.unwrap();
    assert!(matches!(store.renew(&held).await.unwrap(), Write::Refused(Some(_))), "we no longer hold it");
    assert!(only(&store).await.is_foreign, "the KCL kept our attributes");

    let (lease, held) = taken(&store, "one").await;
    assert!(!only(&store).await.is_foreign);
    assert_eq!((lease.epoch, lease.checkpoint), (2, Some(after("300"))));
    assert_eq!(store.renew(&held).await.unwrap(), Write::Applied(()));
}

#[tokio::test]
async fn a_position_that_the_kcl_cannot_express_is_the_horizon_for_it() {
    let (table, store) = bare().await;
    let (_, held) = taken(&store, "one").await;
    assert_eq!(table.item(SHARD).await["checkpoint"], s("TRIM_HORIZON"), "no record was read yet");
    for checkpoint in [Checkpoint::At("5".into()), Checkpoint::Since(5)] {
        store.checkpoint(&held, &checkpoint).await.unwrap();
        assert_eq!(table.item(SHARD).await["checkpoint"], s("TRIM_HORIZON"));
        assert_eq!(only(&store).await.checkpoint, Some(checkpoint));
    }
}

#[tokio::test]
async fn a_table_of_bare_shard_ids_rejects_a_second_stream() {
    let (_table, store) = bare().await;
    store.leases(CONSUMER, STREAM).await.unwrap();
    let error = store.clone().leases(CONSUMER, "returns").await.unwrap_err().to_string();
    assert!(error.contains("needs another table for stream \"returns\""), "{error}");
}

// E2
#[tokio::test]
async fn a_write_that_would_pass_the_largest_number_is_refused_and_names_the_row() {
    let (table, store) = bare().await;
    let most = i64::MAX - 1;
    for (name, other) in [("epoch", "leaseCounter"), ("leaseCounter", "epoch")] {
        table.put(SHARD, [("leaseOwner", s("one")), (name, n(most)), (other, n(1))]).await;
        let before = only(&store).await;
        let error = store.take(&take("two", Some(before.seen()))).await.unwrap_err().to_string();
        let start = format!("table {:?}, row {SHARD:?}: {name} is {most}, the largest number", table.name);
        assert!(error.starts_with(&start), "{error}");
        assert_eq!(only(&store).await, before);
    }
    let most = Held::new(take("one", None).key, "one", 1);
    let error = store.renew(&most).await.unwrap_err().to_string();
    assert!(error.contains(": leaseCounter is 9223372036854775806, the largest number"), "{error}");
    table.put(SHARD, [("leaseCounter", n(i64::MAX))]).await;
    assert_eq!(store.leases(CONSUMER, STREAM).await.unwrap().unreadable.len(), 1);
}

// E6
#[tokio::test]
async fn a_malformed_row_is_listed_as_unreadable_and_fails_its_own_writes() {
    let (table, store) = bare().await;
    for (name, value) in [("leaseCounter", s("x")), ("leaseOwner", n(1)), ("checkpoint", s("five"))] {
        table.put(SHARD, [(name, value)]).await;
        let leases = store.leases(CONSUMER, STREAM).await.unwrap();
        let [spoilt] = &leases.unreadable[..] else { panic!("{leases:?}") };
        assert_eq!((&spoilt.key.shard, spoilt.error.kind()), (&SHARD.into(), StoreErrorKind::UnreadableRow));
        let error = spoilt.error.to_string();
        let start = format!("table {:?}, row {SHARD:?}: {name} makes no sense: ", table.name);
        assert!(error.starts_with(&start), "{error}");
        let take = take("one", None);
        assert_eq!(store.take(&take).await.unwrap_err().to_string(), error, "a refused take reports the same row");
    }
}

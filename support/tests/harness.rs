//! The helpers of the harness, on the emulator or on the server that the environment names.

use std::collections::BTreeSet;

use kinesis_stream_support::{Harness, Stored, unique};

#[tokio::test]
async fn put_returns_the_shard_and_sequence_number_of_the_record() {
    let kinesis = Harness::from_env();
    let stream = &unique("put");
    kinesis.create_stream(stream, 2).await;
    let (shard, sequence_number) = kinesis.put(stream, "key", "data").await;
    let stored = Stored { key: "key".into(), data: b"data".into(), sequence_number };
    assert_eq!(kinesis.records(stream, &shard).await, [stored]);
}

#[tokio::test]
async fn put_to_shard_puts_a_record_into_the_given_shard() {
    let kinesis = Harness::from_env();
    let stream = &unique("put-to-shard");
    kinesis.create_stream(stream, 3).await;
    for shard in kinesis.shards(stream).await {
        let sequence_number = kinesis.put_to_shard(stream, &shard.id, "same key", shard.id.as_str()).await;
        let stored = Stored { key: "same key".into(), data: shard.id.clone().into(), sequence_number };
        assert_eq!(kinesis.records(stream, &shard.id).await, [stored]);
    }
}

#[tokio::test]
async fn put_all_keeps_the_order_of_the_records() {
    let kinesis = Harness::from_env();
    let stream = &unique("put-all");
    kinesis.create_stream(stream, 1).await;
    let numbered = (0..1200).map(|i| i.to_string());
    kinesis.put_all(stream, numbered.clone().map(|i| ("key", i))).await;
    let shard = &kinesis.shards(stream).await[0].id;
    let read = kinesis.records(stream, shard).await;
    assert!(read.iter().map(|record| String::from_utf8_lossy(&record.data)).eq(numbered));
}

#[tokio::test]
async fn a_split_closes_the_parent_and_a_merge_joins_the_children() {
    let kinesis = Harness::from_env();
    let stream = &unique("reshard");
    kinesis.create_stream(stream, 1).await;
    let parent = kinesis.shards(stream).await.remove(0);
    let [low, high] = kinesis.split(stream, &parent.id).await;
    let merged = kinesis.merge(stream, &low, &high).await;

    let shards = kinesis.shards(stream).await;
    let closed: Vec<_> = shards.iter().filter(|shard| shard.closed).map(|shard| &shard.id).collect();
    assert_eq!(closed, [&parent.id, &low, &high]);
    let child = shards.iter().find(|shard| shard.id == merged).unwrap();
    assert_eq!(child.parents.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&low, &high]));
    assert_eq!(child.hash_keys, parent.hash_keys);
}

#[tokio::test]
async fn a_deleted_stream_is_gone_and_its_name_is_free() {
    let kinesis = Harness::from_env();
    let stream = &unique("delete");
    kinesis.create_stream(stream, 1).await;
    kinesis.delete_stream(stream).await;
    kinesis.create_stream(stream, 2).await;
    assert_eq!(kinesis.shards(stream).await.len(), 2);
}

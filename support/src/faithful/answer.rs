//! Answers of the emulator, set right.

use ferrokinesis::{shard_iterator::decode_shard_iterator, store::Store, types::Shard};
use serde_json::{Value, json};

use super::memory::{Memory, Millis};

/// `PutRecord`, `PutRecords`: when the records arrived is remembered. Entries that failed have no number.
pub(super) fn remember(memory: &mut Memory, question: &Value, answer: &Value, now: Millis) {
    let stream = question["StreamName"].as_str().unwrap_or_default();
    let entries = answer["Records"].as_array().map_or(std::slice::from_ref(answer), Vec::as_slice);
    for entry in entries {
        if let (Some(shard), Some(number)) = (entry["ShardId"].as_str(), entry["SequenceNumber"].as_str()) {
            memory.arrive(stream, shard, number, now);
        }
    }
}

/// `GetRecords`: arrivals in milliseconds, and how far the page is behind the tip.
pub(super) fn date(memory: &Memory, question: &Value, answer: &mut Value, now: Millis) {
    let iterator = question["ShardIterator"].as_str().unwrap_or_default();
    let Ok((_, stream, shard, _)) = decode_shard_iterator(iterator) else { return };
    let mut last = None;
    for record in answer["Records"].as_array_mut().into_iter().flatten() {
        let number = record["SequenceNumber"].as_str().unwrap_or_default();
        if let Some(at) = memory.arrived(&stream, &shard, number) {
            last = Some((number.to_owned(), at));
            record["ApproximateArrivalTimestamp"] = seconds(at);
        }
    }
    if let Some((number, at)) = last
        && memory.newest(&stream, &shard) != Some(number.as_str())
    {
        answer["MillisBehindLatest"] = now.saturating_sub(at).max(1).into();
    }
}

/// `GetRecords`: the end of a shard names its children.
pub(super) async fn name_children(store: &Store, question: &Value, answer: &mut Value) {
    let iterator = question["ShardIterator"].as_str().unwrap_or_default();
    let Ok((_, stream, shard, _)) = decode_shard_iterator(iterator) else { return };
    if answer["NextShardIterator"].is_null()
        && let Ok(stream) = store.get_stream(&stream).await
    {
        let of_this = |child: &&Shard| parents(child).any(|parent| parent == shard);
        let children: Vec<Value> = stream.shards.iter().filter(of_this).map(child).collect();
        answer["ChildShards"] = children.into();
    }
}

/// `ListShards`: a token that knows its stream, and no closed shards where only open ones were asked for.
pub(super) fn relist(question: &Value, answer: &mut Value) {
    if let Some(last) = answer["NextToken"].as_str() {
        answer["NextToken"] = format!("{}:{last}", question["StreamName"].as_str().unwrap_or_default()).into();
    }
    if question["ShardFilter"]["Type"] == "AT_LATEST"
        && let Some(shards) = answer["Shards"].as_array_mut()
    {
        shards.retain(|shard| shard["SequenceNumberRange"]["EndingSequenceNumber"].is_null());
    }
}

/// `DescribeStreamSummary`: when the stream was made, so that two of one name differ.
pub(super) fn date_stream(memory: &Memory, question: &Value, answer: &mut Value) {
    if let Some(at) = question["StreamName"].as_str().and_then(|stream| memory.created(stream)) {
        answer["StreamDescriptionSummary"]["StreamCreationTimestamp"] = seconds(at);
    }
}

fn parents(shard: &Shard) -> impl Iterator<Item = &str> {
    [&shard.parent_shard_id, &shard.adjacent_parent_shard_id].into_iter().filter_map(Option::as_deref)
}

fn child(shard: &Shard) -> Value {
    json!({
        "ShardId": shard.shard_id,
        "ParentShards": parents(shard).collect::<Vec<_>>(),
        "HashKeyRange": {
            "StartingHashKey": shard.hash_key_range.starting_hash_key,
            "EndingHashKey": shard.hash_key_range.ending_hash_key,
        },
    })
}

/// The wire has seconds, with a fraction.
fn seconds(at: Millis) -> Value {
    std::time::Duration::from_millis(at).as_secs_f64().into()
}

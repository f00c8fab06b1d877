//! Corrects responses of the emulator.

use ferrokinesis::{shard_iterator::decode_shard_iterator, store::Store, types::Shard};
use serde_json::{Value, json};

use super::memory::{Memory, Millis};

/// `PutRecord`, `PutRecords`: remembers when the records arrived. Failed entries have no sequence number.
pub(super) fn remember(memory: &mut Memory, request_json: &Value, answer: &Value, now: Millis) {
    let stream = request_json["StreamName"].as_str().unwrap_or_default();
    let entries = answer["Records"].as_array().map_or(std::slice::from_ref(answer), Vec::as_slice);
    for entry in entries {
        if let (Some(shard), Some(number)) = (entry["ShardId"].as_str(), entry["SequenceNumber"].as_str()) {
            memory.arrive(stream, shard, number, now);
        }
    }
}

/// `GetRecords`: sets arrival times in milliseconds, and how far the page is behind the tip.
pub(super) fn date(memory: &Memory, request_json: &Value, answer: &mut Value, now: Millis) {
    let iterator = request_json["ShardIterator"].as_str().unwrap_or_default();
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

/// `GetRecords`: adds the children of the shard at its end.
pub(super) async fn name_children(store: &Store, request_json: &Value, answer: &mut Value) {
    let iterator = request_json["ShardIterator"].as_str().unwrap_or_default();
    let Ok((_, stream, shard, _)) = decode_shard_iterator(iterator) else { return };
    if answer["NextShardIterator"].is_null()
        && let Ok(stream) = store.get_stream(&stream).await
    {
        let of_this = |child: &&Shard| parents(child).any(|parent| parent == shard);
        let children: Vec<Value> = stream.shards.iter().filter(of_this).map(child).collect();
        answer["ChildShards"] = children.into();
    }
}

/// `ListShards`: puts the stream into the token, and removes closed shards if the caller asked for open ones only.
pub(super) fn relist(request_json: &Value, answer: &mut Value) {
    if let Some(last) = answer["NextToken"].as_str() {
        answer["NextToken"] = format!("{}:{last}", request_json["StreamName"].as_str().unwrap_or_default()).into();
    }
    if request_json["ShardFilter"]["Type"] == "AT_LATEST"
        && let Some(shards) = answer["Shards"].as_array_mut()
    {
        shards.retain(|shard| shard["SequenceNumberRange"]["EndingSequenceNumber"].is_null());
    }
}

/// `DescribeStreamSummary`: sets the creation time, so that two streams of the same name differ.
pub(super) fn date_stream(memory: &Memory, request_json: &Value, answer: &mut Value) {
    if let Some(at) = request_json["StreamName"].as_str().and_then(|stream| memory.created(stream)) {
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

/// The wire format has seconds with a fraction.
fn seconds(at: Millis) -> Value {
    std::time::Duration::from_millis(at).as_secs_f64().into()
}

//! Requests that the emulator would take wrongly, put so that it takes them rightly.

use serde_json::{Value, json};

use super::memory::{Memory, Millis};

/// `GetShardIterator` with `AT_TIMESTAMP`: the same place by sequence number. A future time is left to the emulator,
/// which rejects it as the service does.
pub(super) fn place_by_number(question: &Value, memory: &Memory, now: Millis) -> Option<Value> {
    let at = (question["ShardIteratorType"] == "AT_TIMESTAMP").then(|| millis(&question["Timestamp"]))??;
    let (stream, shard) = (question["StreamName"].as_str()?, question["ShardId"].as_str()?);
    let numbered = |kind: &str, number: &str| {
        json!({
            "StreamName": stream, "ShardId": shard,
            "ShardIteratorType": kind, "StartingSequenceNumber": number,
        })
    };
    if at > now {
        return None;
    }
    Some(match (memory.first_since(stream, shard, at), memory.newest(stream, shard)) {
        (Some(first), _) => numbered("AT_SEQUENCE_NUMBER", first),
        (None, Some(newest)) => numbered("AFTER_SEQUENCE_NUMBER", newest),
        (None, None) => json!({ "StreamName": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON" }),
    })
}

/// `ListShards`: a token becomes the stream and shard that it stands for, and the page gets its bound.
pub(super) fn list_from_token(question: &Value, shards_per_page: u64) -> Value {
    let mut asked = question.clone();
    if let Some((stream, last)) = question["NextToken"].as_str().and_then(|token| token.split_once(':')) {
        asked = json!({
            "StreamName": stream, "ExclusiveStartShardId": last,
            "MaxResults": question["MaxResults"].clone(),
        });
    }
    let wanted = question["MaxResults"].as_u64().unwrap_or(shards_per_page);
    asked["MaxResults"] = wanted.min(shards_per_page).into();
    asked
}

/// The wire has seconds, with a fraction.
fn millis(seconds: &Value) -> Option<Millis> {
    let time = std::time::Duration::try_from_secs_f64(seconds.as_f64()?).ok()?;
    // A double holds today's milliseconds to about a quarter of a microsecond: round, do not cut.
    Millis::try_from((time.as_micros() + 500) / 1000).ok()
}

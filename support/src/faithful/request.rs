//! Rewrites requests that the emulator would handle wrongly.

use serde_json::{Value, json};

use super::memory::{Memory, Millis};

/// `GetShardIterator` with `AT_TIMESTAMP`: asks for the same place by sequence number. Leaves a future time to the
/// emulator, which rejects it as the service does.
pub(super) fn place_by_number(request_json: &Value, memory: &Memory, now: Millis) -> Option<Value> {
    let at = (request_json["ShardIteratorType"] == "AT_TIMESTAMP").then(|| millis(&request_json["Timestamp"]))??;
    let (stream, shard) = (request_json["StreamName"].as_str()?, request_json["ShardId"].as_str()?);
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

/// `ListShards`: replaces a token by the stream and shard that it stands for, and limits the page.
pub(super) fn list_from_token(request_json: &Value, shards_per_page: u64) -> Value {
    let mut asked = request_json.clone();
    if let Some((stream, last)) = request_json["NextToken"].as_str().and_then(|token| token.split_once(':')) {
        asked = json!({
            "StreamName": stream, "ExclusiveStartShardId": last,
            "MaxResults": request_json["MaxResults"].clone(),
        });
    }
    let wanted = request_json["MaxResults"].as_u64().unwrap_or(shards_per_page);
    asked["MaxResults"] = wanted.min(shards_per_page).into();
    asked
}

/// The wire format has seconds with a fraction.
fn millis(seconds: &Value) -> Option<Millis> {
    let time = std::time::Duration::try_from_secs_f64(seconds.as_f64()?).ok()?;
    // A double holds today's milliseconds to about a quarter of a microsecond: round, do not truncate.
    Millis::try_from((time.as_micros() + 500) / 1000).ok()
}

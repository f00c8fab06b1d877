//! One call, as the fault layer received it.

use axum::body::Bytes;
use ferrokinesis::shard_iterator::decode_shard_iterator;
use serde_json::Value;
use tokio::time::Instant;

use crate::{op::Op, wire::WireRequest};

/// A call that reached the server, whatever its outcome.
#[derive(Clone, Debug)]
pub struct Call {
    op: Op,
    stream: Option<String>,
    shard: Option<String>,
    at: Instant,
    body: Bytes,
}

impl Call {
    pub(super) fn of(asked: &WireRequest) -> Self {
        let (stream, shard) = target(asked);
        Self { op: asked.op, stream, shard, at: Instant::now(), body: asked.body.clone() }
    }

    /// The operation.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// The stream or the table of the call. `None` for puts: their bodies are not parsed.
    #[must_use]
    pub fn stream(&self) -> Option<&str> {
        self.stream.as_deref()
    }

    /// The shard that `GetRecords`, `GetShardIterator`, `SplitShard` or `MergeShards` names, or the shard of the lease
    /// that `DeleteItem`, `GetItem` or `UpdateItem` names.
    #[must_use]
    pub fn shard(&self) -> Option<&str> {
        self.shard.as_deref()
    }

    /// When it arrived, by the real clock.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.at
    }

    /// The request as JSON. Null if it is not JSON.
    #[must_use]
    pub fn body(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether the request contains this text.
    pub(super) fn says(&self, text: &str) -> bool {
        self.body.windows(text.len().max(1)).any(|part| part == text.as_bytes())
    }

    pub(super) fn size(&self) -> usize {
        self.body.len()
    }
}

/// The stream and shard of a call. Large bodies (puts) are not parsed.
fn target(asked: &WireRequest) -> (Option<String>, Option<String>) {
    let text = |field: &Value| field.as_str().map(str::to_owned);
    match asked.op {
        // An iterator encodes its stream and shard.
        Op::GetRecords => {
            let iterator = asked.json()["ShardIterator"].take();
            match decode_shard_iterator(iterator.as_str().unwrap_or_default()) {
                Ok((_, stream, shard, _)) => (Some(stream), Some(shard)),
                Err(_) => (None, None),
            }
        }
        Op::PutRecord | Op::PutRecords => (None, None),
        Op::CreateTable | Op::DescribeTable | Op::Scan => (text(&asked.json()["TableName"]), None),
        // A lease table: the row's key ends with the shard.
        Op::DeleteItem | Op::GetItem | Op::UpdateItem => {
            let body = asked.json();
            let row = body["Key"]["leaseKey"]["S"].as_str();
            let shard = row.map(|row| row.rsplit_once('/').map_or(row, |(_, shard)| shard).to_owned());
            (text(&body["TableName"]), shard)
        }
        _ => {
            let body = asked.json();
            let shard = ["ShardId", "ShardToSplit", "ShardToMerge"].iter().find_map(|field| text(&body[*field]));
            (text(&body["StreamName"]), shard)
        }
    }
}

//! The five operations.

use std::{
    fmt, str,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    Canned, Tally,
    page::{Template, position, sequence_number},
    tally::Count,
};
use crate::{
    faults::AwsError,
    op::Op,
    wire::{self, WireRequest},
};

/// The maximum number of shards on one page of a listing.
const LISTED_AT_ONCE: usize = 1_000;

/// The service, and a function that returns the counts of its calls.
pub(super) fn router(canned: Canned) -> (Router, impl Fn() -> Tally) {
    let template = Template::new(canned.records_per_page, &vec![0; canned.record_bytes], usize::MAX);
    let service = Arc::new(Service::new(canned, template));
    let asked = Arc::clone(&service);
    (Router::new().fallback(handle).with_state(service), move || asked.tally())
}

async fn handle(State(service): State<Arc<Service>>, request: Request) -> Response {
    let asked = match WireRequest::read(request).await {
        Ok(asked) => asked,
        Err(refused) => return refused.into_response(),
    };
    let _in_flight = service.count(asked.op).map(Count::enter);
    if !service.canned.latency.is_zero() {
        sleep(service.canned.latency).await;
    }
    let answer = service.answer(asked.op, &asked.body);
    answer.map_or(AwsError::INVALID_ARGUMENT.into_response(), |answer| wire::answer(StatusCode::OK, answer))
}

#[derive(Debug)]
pub(super) struct Service {
    canned: Canned,
    template: Template,
    /// The number of records put so far.
    put: AtomicUsize,
    listings: Count,
    iterators: Count,
    reads: Count,
}

impl Service {
    pub(super) fn new(canned: Canned, template: Template) -> Self {
        let [listings, iterators, reads] = [const { Count::new() }; 3];
        Self { canned, template, put: AtomicUsize::new(0), listings, iterators, reads }
    }

    fn count(&self, op: Op) -> Option<&Count> {
        match op {
            Op::ListShards => Some(&self.listings),
            Op::GetShardIterator => Some(&self.iterators),
            Op::GetRecords => Some(&self.reads),
            _ => None,
        }
    }

    fn tally(&self) -> Tally {
        Tally {
            listings: self.listings.all(),
            iterators: self.iterators.all(),
            iterators_at_once: self.iterators.most(),
            reads: self.reads.all(),
            reads_at_once: self.reads.most(),
        }
    }

    /// The response to a request with this body. `None` for a request that it does not support.
    pub(super) fn answer(&self, op: Op, body: &[u8]) -> Option<Vec<u8>> {
        if op == Op::PutRecords {
            return Some(self.put(body).into_bytes());
        }
        let request_json = serde_json::from_slice(body).unwrap_or_default();
        match op {
            Op::DescribeStreamSummary => Some(self.describe(&request_json).to_string().into_bytes()),
            Op::ListShards => Some(self.list(&request_json).to_string().into_bytes()),
            Op::GetShardIterator => self.place(&request_json).map(|placed| placed.to_string().into_bytes()),
            Op::GetRecords => self.read(&request_json),
            _ => None,
        }
    }

    fn describe(&self, request_json: &Value) -> Value {
        let stream = request_json["StreamName"].as_str().unwrap_or_default();
        json!({ "StreamDescriptionSummary": {
            "StreamName": stream,
            "StreamARN": format!("arn:aws:kinesis:us-east-1:000000000000:stream/{stream}"),
            "StreamStatus": "ACTIVE",
            "RetentionPeriodHours": 24,
            "StreamCreationTimestamp": 1_517_363_000,
            "EnhancedMonitoring": [],
            "OpenShardCount": if self.canned.pages.is_none() { self.canned.shards } else { 0 },
        } })
    }

    /// A token is the number of the first shard of its page.
    fn list(&self, request_json: &Value) -> Value {
        let shards = self.canned.shards;
        let width = u128::MAX / u128::try_from(shards.max(1)).unwrap_or(u128::MAX);
        let last = |i: u128| if i + 1 == shards as u128 { u128::MAX } else { width * (i + 1) - 1 };
        let shard = |i: usize| {
            let mut range = json!({ "StartingSequenceNumber": sequence_number(i, 0) });
            if let Some(pages) = self.canned.pages {
                range["EndingSequenceNumber"] = sequence_number(i, pages * self.canned.records_per_page).into();
            }
            json!({
                "ShardId": format!("shardId-{i:012}"),
                "HashKeyRange": {
                    "StartingHashKey": (width * i as u128).to_string(),
                    "EndingHashKey": last(i as u128).to_string(),
                },
                "SequenceNumberRange": range,
            })
        };
        let first = request_json["NextToken"].as_str().and_then(|token| token.parse().ok()).unwrap_or(0);
        let end = shards.min(first + LISTED_AT_ONCE);
        let mut page = json!({ "Shards": (first..end).map(shard).collect::<Vec<_>>() });
        if end < shards {
            page["NextToken"] = end.to_string().into();
        }
        page
    }

    /// An iterator points to the start of a page: the first page, or the page with the requested record or the one
    /// after it.
    fn place(&self, request_json: &Value) -> Option<Value> {
        let shard = request_json["ShardId"].as_str()?.strip_prefix("shardId-")?.parse().ok()?;
        let record = match request_json["StartingSequenceNumber"].as_str() {
            None => 0,
            Some(number) => {
                position(number)? + usize::from(request_json["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER")
            }
        };
        let at = PagePosition { shard, page: record / self.canned.records_per_page.max(1) };
        (shard < self.canned.shards).then(|| json!({ "ShardIterator": at.to_string() }))
    }

    /// A result for each record. The request is not parsed: its number of partition keys is its number of records.
    fn put(&self, request_json: &[u8]) -> String {
        let count = str::from_utf8(request_json).unwrap_or_default().matches(r#""PartitionKey":"#).count();
        let first = self.put.fetch_add(count, Ordering::Relaxed);
        let mut answer = r#"{"FailedRecordCount":0,"Records":["#.to_owned();
        for position in first..first + count {
            let number = sequence_number(0, position);
            let comma = if position == first { "" } else { "," };
            answer.push_str(comma);
            answer.push_str(r#"{"SequenceNumber":""#);
            answer.push_str(&number);
            answer.push_str(r#"","ShardId":"shardId-000000000000"}"#);
        }
        answer.push_str("]}");
        answer
    }

    fn read(&self, request_json: &Value) -> Option<Vec<u8>> {
        let PagePosition { shard, page } = PagePosition::parse(request_json["ShardIterator"].as_str()?)?;
        let pages = self.canned.pages.unwrap_or(usize::MAX);
        let next = (page + 1 < pages).then(|| PagePosition { shard, page: page + 1 }.to_string());
        Some(if page < pages { self.template.fill(shard, page, next) } else { br#"{"Records":[]}"#.to_vec() })
    }
}

/// The position of a page in a shard, written `<shard>/<page>`.
struct PagePosition {
    shard: usize,
    page: usize,
}

impl PagePosition {
    fn parse(text: &str) -> Option<Self> {
        let (shard, page) = text.split_once('/')?;
        Some(Self { shard: shard.parse().ok()?, page: page.parse().ok()? })
    }
}

impl fmt::Display for PagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shard, self.page)
    }
}

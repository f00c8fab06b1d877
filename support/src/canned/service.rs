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
    wire::{self, Asked},
};

/// The most shards on one page of a listing.
const LISTED_AT_ONCE: usize = 1_000;

/// The service, and what tells how often it was asked.
pub(super) fn router(canned: Canned) -> (Router, impl Fn() -> Tally) {
    let template = Template::new(canned.records_per_page, &vec![0; canned.record_bytes], usize::MAX);
    let service = Arc::new(Service::new(canned, template));
    let asked = Arc::clone(&service);
    (Router::new().fallback(handle).with_state(service), move || asked.tally())
}

async fn handle(State(service): State<Arc<Service>>, request: Request) -> Response {
    let asked = match Asked::read(request).await {
        Ok(asked) => asked,
        Err(refused) => return refused.into_response(),
    };
    let _under_way = service.count(asked.op).map(Count::enter);
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
    /// How many records were put.
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

    /// The answer to a request with this body. None if it makes no sense here.
    pub(super) fn answer(&self, op: Op, body: &[u8]) -> Option<Vec<u8>> {
        if op == Op::PutRecords {
            return Some(self.put(body).into_bytes());
        }
        let question = serde_json::from_slice(body).unwrap_or_default();
        match op {
            Op::DescribeStreamSummary => Some(self.describe(&question).to_string().into_bytes()),
            Op::ListShards => Some(self.list(&question).to_string().into_bytes()),
            Op::GetShardIterator => self.place(&question).map(|placed| placed.to_string().into_bytes()),
            Op::GetRecords => self.read(&question),
            _ => None,
        }
    }

    fn describe(&self, question: &Value) -> Value {
        let stream = question["StreamName"].as_str().unwrap_or_default();
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
    fn list(&self, question: &Value) -> Value {
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
        let first = question["NextToken"].as_str().and_then(|token| token.parse().ok()).unwrap_or(0);
        let end = shards.min(first + LISTED_AT_ONCE);
        let mut page = json!({ "Shards": (first..end).map(shard).collect::<Vec<_>>() });
        if end < shards {
            page["NextToken"] = end.to_string().into();
        }
        page
    }

    /// An iterator stands before a page: the first, or the one that holds the record asked for or the one after it.
    fn place(&self, question: &Value) -> Option<Value> {
        let shard = question["ShardId"].as_str()?.strip_prefix("shardId-")?.parse().ok()?;
        let record = match question["StartingSequenceNumber"].as_str() {
            None => 0,
            Some(number) => position(number)? + usize::from(question["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"),
        };
        let at = Place { shard, page: record / self.canned.records_per_page.max(1) };
        (shard < self.canned.shards).then(|| json!({ "ShardIterator": at.to_string() }))
    }

    /// A result for each record. The request is not parsed: it has as many partition keys as records.
    fn put(&self, question: &[u8]) -> String {
        let count = str::from_utf8(question).unwrap_or_default().matches(r#""PartitionKey":"#).count();
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

    fn read(&self, question: &Value) -> Option<Vec<u8>> {
        let Place { shard, page } = Place::parse(question["ShardIterator"].as_str()?)?;
        let pages = self.canned.pages.unwrap_or(usize::MAX);
        let next = (page + 1 < pages).then(|| Place { shard, page: page + 1 }.to_string());
        Some(if page < pages { self.template.fill(shard, page, next) } else { br#"{"Records":[]}"#.to_vec() })
    }
}

/// A place in a shard, written `<shard>/<page>`.
struct Place {
    shard: usize,
    page: usize,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let (shard, page) = text.split_once('/')?;
        Some(Self { shard: shard.parse().ok()?, page: page.parse().ok()? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shard, self.page)
    }
}

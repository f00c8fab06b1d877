//! Corrects the emulator where it differs from the service. Only this layer edits calls without a rule of the test.
//!
//! | operation | the emulator | here |
//! |---|---|---|
//! | `DescribeStreamSummary` | the creation time is a whole second, two seconds early | in the millisecond of `CreateStream` |
//! | `GetRecords` | `ApproximateArrivalTimestamp` in whole seconds | in milliseconds |
//! | | `MillisBehindLatest` is 0 before the tip | time since the last record of the page, at least 1 |
//! | | no `ChildShards` at the end of a shard | the shards that name it as a parent |
//! | `GetShardIterator` | `AT_TIMESTAMP` by the second; past the newest record, the whole shard | by the millisecond; no old record |
//! | `ListShards` | rejects `NextToken` | continues where the previous page ended |
//! | | `AT_LATEST` lists closed shards | open ones only |
//!
//! Not corrected (test these on another server, or with `edit`):
//!
//! - `GetRecords` responses above 10 MiB, and records above 1 MiB;
//! - the parents of shards that `UpdateShardCount` made;
//! - requests by ARN alone, the other shard filters, enhanced fan-out;
//! - a last page of a shard that holds records (here the last page is always empty);
//! - a stream that is deleted and created again within one second: the emulator accepts the old stream's sequence
//!   numbers for the new one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use ferrokinesis::{store::Store, util::current_time_ms};
use serde_json::Value;

mod memory;
mod request;
mod response;

use self::memory::Memory;
use crate::{
    op::Op,
    wire::{WireRequest, WireResponse},
};

/// The data behind the corrections: the emulator's store, and the times that the emulator does not keep.
#[derive(Clone)]
pub(crate) struct Faithful {
    store: Store,
    memory: Arc<Mutex<Memory>>,
    shards_per_page: u64,
}

pub(crate) async fn layer(State(faithful): State<Faithful>, request: Request, next: Next) -> Response {
    faithful.through(request, next).await.unwrap_or_else(IntoResponse::into_response)
}

impl Faithful {
    pub(crate) fn new(store: Store, shards_per_page: u64) -> Self {
        Self { store, memory: Arc::default(), shards_per_page }
    }

    async fn through(&self, request: Request, next: Next) -> Result<Response, StatusCode> {
        let mut asked = WireRequest::read(request).await?;
        if asked.op == Op::Other {
            // The response may be an endless stream.
            return Ok(next.run(asked.into_request()).await);
        }
        let op = asked.op;
        let mut request_json = asked.json();
        if let Some(better) = self.better(op, &request_json) {
            asked.rewrite(&better);
            request_json = better;
        }
        let mut answer = WireResponse::read(next.run(asked.into_request()).await).await?;
        if answer.succeeded() {
            self.correct(op, &request_json, &mut answer).await;
        }
        Ok(answer.into_response())
    }

    /// The request to send to the emulator instead, if it needs another one.
    fn better(&self, op: Op, request_json: &Value) -> Option<Value> {
        match op {
            Op::GetShardIterator => request::place_by_number(request_json, &self.memory(), current_time_ms()),
            Op::ListShards => Some(request::list_from_token(request_json, self.shards_per_page)),
            _ => None,
        }
    }

    async fn correct(&self, op: Op, request_json: &Value, answer: &mut WireResponse) {
        let now = current_time_ms();
        let mut body = answer.json();
        match op {
            Op::CreateStream => {
                return self.memory().create(request_json["StreamName"].as_str().unwrap_or_default(), now);
            }
            Op::PutRecord | Op::PutRecords => return response::remember(&mut self.memory(), request_json, &body, now),
            Op::DescribeStreamSummary => response::date_stream(&self.memory(), request_json, &mut body),
            Op::ListShards => response::relist(request_json, &mut body),
            Op::GetRecords => {
                response::date(&self.memory(), request_json, &mut body, now);
                response::name_children(&self.store, request_json, &mut body).await;
            }
            _ => return,
        }
        answer.rewrite(&body);
    }

    /// A panic leaves no half-done change here, so poison does not matter.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Where the emulator differs from the service, and is set right. The one place that edits without being asked.
//!
//! | operation | the emulator | here |
//! |---|---|---|
//! | `DescribeStreamSummary` | a stream is made in a whole second, two seconds early | in the millisecond of `CreateStream` |
//! | `GetRecords` | `ApproximateArrivalTimestamp` in whole seconds | in milliseconds |
//! | | `MillisBehindLatest` is 0 before the tip | time since the last record of the page, 1 at least |
//! | | no `ChildShards` at the end of a shard | the shards that name it as a parent |
//! | `GetShardIterator` | `AT_TIMESTAMP` by the second; past the newest record, the whole shard | by the millisecond; nothing old |
//! | `ListShards` | `NextToken` is refused | it goes on where the page before ended |
//! | | `AT_LATEST` lists closed shards | open ones only |
//!
//! Not set right, to be tested on another server or by an edit of one's own: `GetRecords` answers above 10 MiB, the
//! parents of shards made by `UpdateShardCount`, records above 1 MiB, requests by ARN alone, the other shard filters,
//! enhanced fan-out; that the last page of a shard may hold records (here it is always an empty one); and a sequence
//! number of a stream deleted in the same second in which its namesake was made, which is taken for the namesake's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use ferrokinesis::{store::Store, util::current_time_ms};
use serde_json::Value;

mod answer;
mod memory;
mod question;

use self::memory::Memory;
use crate::{
    op::Op,
    wire::{Answer, Asked},
};

/// What it takes to know better than the emulator: its store, and the moments that it forgets.
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
        let mut asked = Asked::read(request).await?;
        if asked.op == Op::Other {
            // The answer may be a stream without an end.
            return Ok(next.run(asked.into_request()).await);
        }
        let op = asked.op;
        let mut question = asked.json();
        if let Some(better) = self.better(op, &question) {
            asked.rewrite(&better);
            question = better;
        }
        let mut answer = Answer::read(next.run(asked.into_request()).await).await?;
        if answer.succeeded() {
            self.correct(op, &question, &mut answer).await;
        }
        Ok(answer.into_response())
    }

    /// The question that the emulator should have been asked, where that is another.
    fn better(&self, op: Op, question: &Value) -> Option<Value> {
        match op {
            Op::GetShardIterator => question::place_by_number(question, &self.memory(), current_time_ms()),
            Op::ListShards => Some(question::list_from_token(question, self.shards_per_page)),
            _ => None,
        }
    }

    async fn correct(&self, op: Op, question: &Value, answer: &mut Answer) {
        let now = current_time_ms();
        let mut body = answer.json();
        match op {
            Op::CreateStream => {
                return self.memory().create(question["StreamName"].as_str().unwrap_or_default(), now);
            }
            Op::PutRecord | Op::PutRecords => return answer::remember(&mut self.memory(), question, &body, now),
            Op::DescribeStreamSummary => answer::date_stream(&self.memory(), question, &mut body),
            Op::ListShards => answer::relist(question, &mut body),
            Op::GetRecords => {
                answer::date(&self.memory(), question, &mut body, now);
                answer::name_children(&self.store, question, &mut body).await;
            }
            _ => return,
        }
        answer.rewrite(&body);
    }

    /// Nothing is left half done where a panic could poison it.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

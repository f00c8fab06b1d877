//! The service as one instance sees it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::FutureExt;

use super::{
    kinesis::{Kinesis, shard_of},
    script::{Fault, LoggedCall, Rule, Script},
};
use crate::{
    config::position::Origin,
    error::service::{Action, FailureKind, ServiceFailure},
    kinesis::{Call, Described, Fetched, ListedPage, Listing, Placed, Put, PutEntry, Service},
    types::id::ShardId,
};

pub(crate) use crate::error::service::Action as ServiceOp;

/// The service behind a script of faults.
#[derive(Debug)]
pub(crate) struct ScriptedService {
    kinesis: Arc<Kinesis>,
    pub(crate) script: Script<Action, FailureKind>,
    loses_connections: AtomicBool,
}

impl ScriptedService {
    pub(crate) fn new(kinesis: &Arc<Kinesis>) -> Self {
        Self { kinesis: Arc::clone(kinesis), script: Script::new(), loses_connections: AtomicBool::new(false) }
    }

    /// Makes these calls fail without effect.
    pub(crate) fn fail(&self, rule: Rule<Action>, kind: FailureKind) {
        self.script.plan(rule, Fault::Fail(kind));
    }

    /// From now on, `Unreachable` stands for a connection that breaks before the response begins.
    pub(crate) fn lose_connections(&self) {
        self.loses_connections.store(true, Ordering::Relaxed);
    }

    /// The positions of the iterators that were requested on a shard.
    pub(crate) fn places(&self, shard: &str) -> Vec<String> {
        let places = |call: LoggedCall<ServiceOp>| (call.op == ServiceOp::GetShardIterator).then_some(call.what);
        self.script.of(shard).into_iter().filter_map(places).collect()
    }

    /// The limit of each read of a shard.
    pub(crate) fn limits(&self, shard: &str) -> Vec<u32> {
        let reads = self.script.of(shard).into_iter().filter(|call| call.op == ServiceOp::GetRecords);
        reads.map(|call| call.what.split_once(' ').unwrap().0.parse().unwrap()).collect()
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        (op, shard, what): (ServiceOp, Option<ShardId>, String),
        act: impl FnOnce(&Kinesis) -> Result<T, FailureKind> + Send + 'a,
    ) -> Call<'a, T> {
        let answer = async move {
            let answer = self.script.play((op, shard, what), async { act(&self.kinesis) }).await;
            answer.map_err(|kind| {
                let failure = ServiceFailure::new(op, kind, format!("{kind:?}"));
                let is_lost = kind == FailureKind::Unreachable && self.loses_connections.load(Ordering::Relaxed);
                if is_lost { failure.on_a_lost_connection() } else { failure }
            })
        };
        answer.boxed()
    }
}

impl Service for ScriptedService {
    fn describe<'a>(&'a self, stream: &'a str) -> Call<'a, Described> {
        let call = (ServiceOp::DescribeStreamSummary, None, stream.to_owned());
        self.call(call, move |kinesis| kinesis.describe(stream))
    }

    fn create<'a>(&'a self, stream: &'a str, shards: u32) -> Call<'a, ()> {
        let what = format!("{stream} {shards}");
        self.call((ServiceOp::CreateStream, None, what), move |kinesis| kinesis.create_other(stream))
    }

    fn list<'a>(&'a self, from: Listing<'a>) -> Call<'a, ListedPage> {
        self.call((ServiceOp::ListShards, None, format!("{from:?}")), move |kinesis| kinesis.list(from))
    }

    fn place<'a>(&'a self, _stream: &'a str, shard: &'a ShardId, origin: &'a Origin) -> Call<'a, Placed> {
        let what = format!("{origin:?}");
        self.call((ServiceOp::GetShardIterator, Some(shard.clone()), what), move |kinesis| kinesis.place(shard, origin))
    }

    fn read<'a>(&'a self, iterator: &'a str, limit: u32) -> Call<'a, Fetched> {
        let what = format!("{limit} from {iterator}");
        self.call((ServiceOp::GetRecords, Some(shard_of(iterator)), what), move |kinesis| kinesis.read(iterator, limit))
    }

    fn put<'a>(&'a self, stream: &'a str, entry: PutEntry) -> Call<'a, Put> {
        let what = format!("{stream} {}", entry.partition_key);
        self.call((ServiceOp::PutRecord, None, what), move |kinesis| {
            Ok(kinesis.write(stream, &entry.partition_key, entry.data))
        })
    }

    fn put_all<'a>(&'a self, _stream: &'a str, _entries: Vec<PutEntry>) -> Call<'a, Vec<Result<Put, ServiceFailure>>> {
        self.call((ServiceOp::PutRecords, None, String::new()), |_| Err(FailureKind::Rejected))
    }
}

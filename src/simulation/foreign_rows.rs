//! Another program, such as the Kinesis Client Library, holds leases in the same table (E5).

use futures::FutureExt;
use tokio::time::sleep;

use super::{
    harness::{Harness, horizon, seconds},
    scripted_table::TableOp,
};
use crate::{
    config::position::Checkpoint,
    lease::{Held, Lease, LeaseKey, LeaseStore, Leases, MemoryLeaseStore, Seen, StoreFuture, Take, Write},
};

/// A table in which the rows of the owner `kcl` are foreign.
#[derive(Clone, Debug, Default)]
struct SharedTable(MemoryLeaseStore);

impl LeaseStore for SharedTable {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        async move {
            let rows = self.0.leases(consumer, stream).await?.rows.into_iter();
            let marked = rows.map(|row| {
                let is_foreign = row.owner.as_deref() == Some("kcl");
                row.with_is_foreign(is_foreign)
            });
            Ok(marked.collect())
        }
        .boxed()
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.0.take(take)
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.0.renew(held)
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.0.checkpoint(held, checkpoint)
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.0.release(held)
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.0.ask(key, seen, by)
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.0.delete(key, seen)
    }
}

// E5
#[tokio::test(start_paused = true)]
async fn a_lease_of_another_program_is_not_requested_and_is_taken_once_it_has_expired() {
    for (owner, requests) in [("kcl", 0), ("other", 2)] {
        let shards = ["a", "b", "c", "d"];
        let harness = Harness::on(&shards, SharedTable::default());
        for shard in shards {
            harness.steal(shard, owner).await;
        }
        let me = harness.instance("me");
        let _subscription = me.subscribe(horizon()).await;
        for _ in 0..30 {
            sleep(seconds(1)).await;
            for shard in shards {
                let row = harness.row(shard).await.unwrap();
                harness.table().renew(&Held::new(row.key, owner, 1)).await.unwrap();
            }
        }
        assert_eq!(me.table.script.calls(TableOp::Want).len(), requests, "{owner}");
        assert_eq!(harness.shares().await, [(owner.to_owned(), 4)].into());
        // It stops.
        sleep(seconds(60)).await;
        assert_eq!(harness.shares().await, [("me".to_owned(), 4)].into());
    }
}

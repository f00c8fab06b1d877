//! A store as a user would write one over a database.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kinesis_stream::{
    Checkpoint, Held, Lease, LeaseKey, LeaseStore, Leases, Seen, ShardId, StoreError, StoreFuture, Take, Write,
};

/// A store as a user would write one over a database: a table of text columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: Arc<tokio::sync::Mutex<BTreeMap<LeaseKey, Columns>>>,
}

#[derive(Clone, Debug)]
struct Columns {
    owner: String,
    epoch: u64,
    counter: u64,
    checkpoint: String,
    parents: String,
    created: Option<i64>,
    wanted_by: String,
    ttl: Option<Duration>,
}

fn to_text(checkpoint: &Checkpoint) -> Result<String, StoreError> {
    match checkpoint {
        Checkpoint::Since(unix_millis) => Ok(format!("since {unix_millis}")),
        Checkpoint::At(number) => Ok(format!("at {number}")),
        Checkpoint::After(number) => Ok(format!("after {number}")),
        Checkpoint::ShardEnd => Ok("SHARD_END".into()),
        other => Err(StoreError::new(format!("this table cannot hold a checkpoint {other}"))),
    }
}

fn from_text(text: &str) -> Result<Option<Checkpoint>, StoreError> {
    match text.split_once(' ') {
        Some(("since", unix_millis)) => {
            let moment = unix_millis.parse().map_err(|_| StoreError::new(format!("not a time: {text}")))?;
            Ok(Some(Checkpoint::Since(moment)))
        }
        Some(("at", number)) => Ok(Some(Checkpoint::At(number.into()))),
        Some(("after", number)) => Ok(Some(Checkpoint::After(number.into()))),
        None if text == "SHARD_END" => Ok(Some(Checkpoint::ShardEnd)),
        None if text.is_empty() => Ok(None),
        _ => Err(StoreError::new(format!("not a checkpoint: {text}"))),
    }
}

fn name(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

impl Columns {
    fn lease(&self, key: &LeaseKey) -> Result<Lease, StoreError> {
        Ok(Lease::new(key.clone(), self.seen())
            .with_owner(name(&self.owner))
            .with_checkpoint(from_text(&self.checkpoint)?)
            .with_parents(self.parents.split_whitespace().map(Into::into).collect())
            .with_stream_created(self.created)
            .with_wanted_by(name(&self.wanted_by))
            .with_ttl(self.ttl))
    }

    fn seen(&self) -> Seen {
        Seen::new(self.epoch, self.counter)
    }
}

impl Table {
    /// `UPDATE .. SET .. WHERE ..`. Returns the current row if it updated nothing.
    async fn update(
        &self,
        key: &LeaseKey,
        condition: impl Fn(&Columns) -> bool,
        set: impl FnOnce(&mut Columns),
    ) -> Result<Write, StoreError> {
        let mut rows = self.rows.lock().await;
        match rows.get_mut(key) {
            Some(row) if condition(row) => {
                set(row);
                row.counter += 1;
                Ok(Write::Applied(()))
            }
            Some(row) => Ok(Write::Refused(Some(row.lease(key)?))),
            None => Ok(Write::Refused(None)),
        }
    }

    /// An operator's mistake.
    pub(crate) async fn delete_everything(&self) {
        self.rows.lock().await.clear();
    }
}

fn holds(held: &Held) -> impl Fn(&Columns) -> bool {
    move |row| row.owner == *held.owner && row.epoch == held.epoch
}

impl LeaseStore for Table {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        Box::pin(async move { self.read_leases(consumer, stream).await?.into_rows() })
    }

    fn read_leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        Box::pin(async move {
            let rows = self.rows.lock().await;
            let of = rows.iter().filter(|(key, _)| *key.consumer == *consumer && *key.stream == *stream);
            let mut leases = Leases::default();
            of.for_each(|(key, row)| leases.push(key.clone(), row.lease(key)));
            Ok(leases)
        })
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        Box::pin(async move {
            let mut rows = self.rows.lock().await;
            let old = rows.get(&take.key);
            if old.map(Columns::seen) != take.seen {
                return Ok(Write::Refused(old.map(|row| row.lease(&take.key)).transpose()?));
            }
            let parents: Vec<&str> = take.parents.iter().map(ShardId::as_str).collect();
            let before = old.map(|row| from_text(&row.checkpoint)).transpose()?.flatten();
            let checkpoint = take.checkpoint_after(before).as_ref().map(to_text).transpose()?;
            let row = Columns {
                owner: take.owner.to_string(),
                epoch: old.map_or(0, |row| row.epoch) + 1,
                counter: old.map_or(0, |row| row.counter) + 1,
                checkpoint: checkpoint.unwrap_or_default(),
                parents: parents.join(" "),
                created: take.stream_created,
                wanted_by: String::new(),
                ttl: take.ttl,
            };
            let lease = row.lease(&take.key)?;
            rows.insert(take.key.clone(), row);
            Ok(Write::Applied(lease))
        })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        Box::pin(self.update(&held.key, holds(held), |_| ()))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        Box::pin(async move {
            let text = to_text(checkpoint)?;
            let ends = *checkpoint == Checkpoint::ShardEnd;
            let change = |row: &mut Columns| {
                row.checkpoint = text;
                if ends {
                    row.wanted_by.clear();
                }
            };
            self.update(&held.key, holds(held), change).await
        })
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        Box::pin(self.update(&held.key, holds(held), |row| row.owner.clear()))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        Box::pin(self.update(key, move |row| row.seen() == seen, |row| by.clone_into(&mut row.wanted_by)))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        Box::pin(async move {
            let mut rows = self.rows.lock().await;
            match rows.get(key) {
                Some(row) if row.seen() == seen => {
                    rows.remove(key);
                    Ok(Write::Applied(()))
                }
                row => Ok(Write::Refused(row.map(|row| row.lease(key)).transpose()?)),
            }
        })
    }
}

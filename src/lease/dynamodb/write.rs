//! The writes: each is one conditional call on one row, and a refusal shows the row.

use std::sync::Arc;

use aws_sdk_dynamodb::{
    Client,
    operation::{delete_item::DeleteItemError, update_item::UpdateItemError},
    types::{ReturnValue, ReturnValuesOnConditionCheckFailure::AllOld},
};

use super::{
    DynamoDbLeaseStore,
    attribute::{
        CHECKPOINT_OWNER, COUNTER, EPOCH, Item, KEY, OWNER, PARENTS, STREAM_CREATED, SWITCHES, TAKE_ID, WANTED_BY,
        number, text,
    },
    checkpoint,
    expression::{Expression, set_of},
    row::{MOST, Row},
    table::CallLabel,
    take_id,
};
use crate::{
    config::position::Checkpoint,
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, Seen, Take, Write, next_count::next_count},
    types::id::ShardId,
};

/// How often a holder's write is tried on a row whose counter changes. Two writes can change it, each once in a renewal
/// interval: an instance that asks for the shard, and a late write of this holder.
const TRIES: u32 = 5;

/// The outcome of a call. A refusal has the current row; none if there is no row.
enum WriteOutcome {
    Applied(Option<Item>),
    Refused(Option<Item>),
}

impl DynamoDbLeaseStore {
    pub(super) async fn take_lease(&self, take: &Take) -> Result<Write<Lease>, StoreError> {
        let id = take_id::new(&take.owner);
        let first = self.take_step(take, &id, false).await?;
        match &first {
            // The row is still as it was seen, so the take was refused because another owner has it: it changes hands.
            Write::Refused(Some(row)) if Some(row.seen()) == take.seen && row.owner.is_some() => {
                self.take_step(take, &id, true).await
            }
            _ => Ok(first),
        }
    }

    /// One try of a take. With `switches` it counts as a change of the owner; without, it is only applied if it is
    /// none.
    async fn take_step(&self, take: &Take, id: &str, switches: bool) -> Result<Write<Lease>, StoreError> {
        let seen = take.seen.unwrap_or(Seen { epoch: 0, counter: 0 });
        let write = match take.seen {
            None => Expression::when_there_is_no_row(),
            Some(seen) if switches => Expression::when_seen(seen),
            Some(seen) => Expression::when_seen(seen).when_free_or_of(&take.owner),
        };
        let write = write
            .set(OWNER, text(&*take.owner))
            .set(EPOCH, number(self.next(&take.key, EPOCH, seen.epoch)?))
            .set(COUNTER, number(self.next(&take.key, COUNTER, seen.counter)?))
            .set(TAKE_ID, text(id))
            .set_or_remove(PARENTS, set_of(take.parents.iter().map(ShardId::as_str)))
            .set_or_remove(STREAM_CREATED, take.stream_created.map(number))
            .remove([WANTED_BY, CHECKPOINT_OWNER]);
        // A time is given only if the row that was seen keeps no checkpoint, and the write is conditional on that row.
        let write = if take.seen.is_none() || take.forget_checkpoint || take.since.is_some() {
            checkpoint::written(write, take.since.map(Checkpoint::Since).as_ref())
        } else {
            write.add(SWITCHES, u64::from(switches))
        };
        let taken = match self.update(&take.key, &write, ReturnValue::AllNew).await? {
            WriteOutcome::Applied(Some(row)) => row,
            // An earlier attempt of this call took the lease, but its response was lost.
            WriteOutcome::Refused(Some(row)) if self.row(&row).was_taken_by(id) => row,
            WriteOutcome::Refused(row) => return Ok(Write::Refused(self.lease(&take.key, row)?)),
            WriteOutcome::Applied(None) => {
                return Err(StoreError::new("DynamoDB did not return the new row of a take"));
            }
        };
        let lease = self.row(&taken).lease(take.key.clone())?;
        let held = Held { key: take.key.clone(), owner: Arc::clone(&take.owner), epoch: lease.epoch };
        self.counters.taken(&held, lease.counter);
        Ok(Write::Applied(lease))
    }

    /// A write of the holder, conditional on the counter of the last response. If only the counter differs, another
    /// instance asked for the shard or a write of this holder was late: the write is tried again with the current
    /// counter.
    pub(super) async fn write_as(
        &self,
        held: &Held,
        change: impl Fn(Expression) -> Expression + Send + Sync,
    ) -> Result<Write, StoreError> {
        let mut counter = match self.counters.of(held) {
            Some(counter) => counter,
            None => match self.find(&held.key).await? {
                Some(row) if holds(&row, held) => row.counter,
                other => return Ok(Write::Refused(other)),
            },
        };
        for _ in 0..TRIES {
            let next = self.next(&held.key, COUNTER, counter)?;
            let write = change(Expression::when_held(held, counter)).set(COUNTER, number(next));
            match self.update(&held.key, &write, ReturnValue::None).await? {
                WriteOutcome::Applied(_) => {
                    self.counters.saw(held, next);
                    return Ok(Write::Applied(()));
                }
                WriteOutcome::Refused(row) => match self.lease(&held.key, row)? {
                    Some(row) if holds(&row, held) => counter = row.counter,
                    other => {
                        self.counters.forget(held);
                        return Ok(Write::Refused(other));
                    }
                },
            }
            self.counters.saw(held, counter);
        }
        let (table, key) = (&self.table.name, self.keys.text(&held.key)?);
        Err(StoreError::new(format!("table {table:?}, row {key:?}: it changed {TRIES} times during one write")))
    }

    /// A write on a row, conditional on it being as seen.
    pub(super) async fn write_seen(
        &self,
        key: &LeaseKey,
        seen: Seen,
        change: impl FnOnce(Expression) -> Expression,
    ) -> Result<Write, StoreError> {
        let next = self.next(key, COUNTER, seen.counter)?;
        let write = change(Expression::when_seen(seen)).set(COUNTER, number(next));
        let outcome = self.update(key, &write, ReturnValue::None).await?;
        self.outcome(key, outcome)
    }

    pub(super) async fn delete_seen(&self, key: &LeaseKey, seen: Seen) -> Result<Write, StoreError> {
        let (row, write) = (self.keys.text(key)?, Expression::when_seen(seen));
        let label = CallLabel { operation: "DeleteItem", row: Some(&row) };
        let send = |client: Client| {
            let call = client
                .delete_item()
                .table_name(&*self.table.name)
                .key(KEY, text(&row))
                .condition_expression(write.condition())
                .set_expression_attribute_names(write.names())
                .set_expression_attribute_values(write.values())
                .return_values_on_condition_check_failure(AllOld);
            async move {
                match call.send().await {
                    Ok(_) => Ok(WriteOutcome::Applied(None)),
                    Err(error) => match error.as_service_error() {
                        Some(DeleteItemError::ConditionalCheckFailedException(refusal)) => {
                            Ok(WriteOutcome::Refused(refusal.item.clone()))
                        }
                        _ => Err(error),
                    },
                }
            }
        };
        let outcome = self.table.call(label, send).await?;
        self.outcome(key, outcome)
    }

    async fn update(
        &self,
        key: &LeaseKey,
        write: &Expression,
        returned: ReturnValue,
    ) -> Result<WriteOutcome, StoreError> {
        let row = self.keys.text(key)?;
        let label = CallLabel { operation: "UpdateItem", row: Some(&row) };
        let send = |client: Client| {
            let call = client
                .update_item()
                .table_name(&*self.table.name)
                .key(KEY, text(&row))
                .set_update_expression(write.changes())
                .condition_expression(write.condition())
                .set_expression_attribute_names(write.names())
                .set_expression_attribute_values(write.values())
                .return_values(returned.clone())
                .return_values_on_condition_check_failure(AllOld);
            async move {
                match call.send().await {
                    Ok(response) => Ok(WriteOutcome::Applied(response.attributes)),
                    Err(error) => match error.as_service_error() {
                        Some(UpdateItemError::ConditionalCheckFailedException(refusal)) => {
                            Ok(WriteOutcome::Refused(refusal.item.clone()))
                        }
                        _ => Err(error),
                    },
                }
            }
        };
        self.table.call(label, send).await
    }

    fn outcome(&self, key: &LeaseKey, outcome: WriteOutcome) -> Result<Write, StoreError> {
        match outcome {
            WriteOutcome::Applied(_) => Ok(Write::Applied(())),
            WriteOutcome::Refused(row) => Ok(Write::Refused(self.lease(key, row)?)),
        }
    }

    /// The row of a refusal.
    fn lease(&self, key: &LeaseKey, row: Option<Item>) -> Result<Option<Lease>, StoreError> {
        row.map(|row| self.row(&row).lease(key.clone())).transpose()
    }

    /// The next epoch or counter of a row.
    fn next(&self, key: &LeaseKey, attribute: &str, count: u64) -> Result<u64, StoreError> {
        let (table, row) = (&self.table.name, self.keys.text(key)?);
        next_count(format_args!("table {table:?}, row {row:?}"), attribute, count, MOST)
    }

    pub(super) fn row<'a>(&'a self, item: &'a Item) -> Row<'a> {
        Row { table: &self.table.name, item }
    }
}

fn holds(row: &Lease, held: &Held) -> bool {
    row.owner.as_ref() == Some(&held.owner) && row.epoch == held.epoch
}

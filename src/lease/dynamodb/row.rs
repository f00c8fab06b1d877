//! Reads a row that this library, the KCL or a person wrote. A value that makes no sense is an error that names the row
//! and the attribute.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{
    attribute::{
        AT_TIMESTAMP, CHECKPOINT, COUNTER, ENTITY_TYPE, EPOCH, Item, KEY, LATEST, LEASE, OPEN_AT_INITIAL,
        OPEN_AT_SEQUENCE, OPEN_AT_TIMESTAMP, OWNER, PARENTS, SHARD_END, STREAM_CREATED, SUB_SEQUENCE, TAKE_ID,
        TRIM_HORIZON, WANTED_BY,
    },
    checkpoint::is_number,
    take_id,
};
use crate::{
    config::position::Checkpoint,
    error::service::{StoreError, StoreErrorKind},
    lease::{Lease, LeaseKey},
    types::id::ShardId,
    util::cut::cut,
};

/// The largest epoch and counter. The KCL reads them as 64-bit numbers with a sign, and every write adds one.
pub(super) const MOST: u64 = i64::MAX as u64 - 1;

/// A row as DynamoDB returned it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) table: &'a str,
    pub(super) item: &'a Item,
}

impl<'a> Row<'a> {
    /// Its key. Every row of a lease table has one; if it is absent, this is empty.
    pub(super) fn key(&self) -> &'a str {
        match self.item.get(KEY) {
            Some(AttributeValue::S(key)) => key,
            _ => "",
        }
    }

    /// Whether the row is a lease: the KCL keeps other entities in the same table.
    pub(super) fn is_lease(&self) -> bool {
        self.item.get(ENTITY_TYPE).is_none_or(|kind| kind.as_s().is_ok_and(|kind| kind == LEASE))
    }

    /// Whether this take made the current owner the owner.
    pub(super) fn was_taken_by(&self, take_id: &str) -> bool {
        self.item.get(TAKE_ID).is_some_and(|id| id.as_s().is_ok_and(|id| id == take_id))
    }

    /// Whether this library made the current owner the owner, or there is none. The KCL takes a row and keeps the
    /// attributes of this library, so their presence says nothing: the take id names the owner that it made.
    fn is_free_or_ours(&self) -> bool {
        let Some(AttributeValue::S(owner)) = self.item.get(OWNER) else { return true };
        self.item.get(TAKE_ID).is_some_and(|id| id.as_s().is_ok_and(|id| take_id::made(id, owner)))
    }

    /// The whole row as a lease.
    pub(super) fn lease(&self, key: LeaseKey) -> Result<Lease, StoreError> {
        Ok(Lease {
            key,
            owner: self.text(OWNER)?.map(Into::into),
            epoch: self.count(EPOCH)?,
            counter: self.count(COUNTER)?,
            checkpoint: self.checkpoint()?,
            parents: self.parents()?,
            stream_created: self.millis(STREAM_CREATED)?,
            wanted_by: self.text(WANTED_BY)?.map(Into::into),
            is_foreign: !self.is_free_or_ours(),
        })
    }

    /// The checkpoint, in the format of this library or of the KCL.
    fn checkpoint(&self) -> Result<Option<Checkpoint>, StoreError> {
        match self.text(CHECKPOINT)? {
            None | Some(LATEST | AT_TIMESTAMP) => Ok(None),
            Some(SHARD_END) => Ok(Some(Checkpoint::ShardEnd)),
            Some(TRIM_HORIZON) => self.at_the_horizon(),
            Some(digits) if is_number(digits) => Ok(Some(match self.count(SUB_SEQUENCE)? {
                0 => Checkpoint::After(digits.into()),
                _ => Checkpoint::At(digits.into()),
            })),
            Some(_) => Err(self.nonsense(CHECKPOINT, "a sequence number or one of the words of the KCL")),
        }
    }

    fn at_the_horizon(&self) -> Result<Option<Checkpoint>, StoreError> {
        if let Some(number) = self.text(OPEN_AT_SEQUENCE)? {
            return Ok(Some(Checkpoint::At(number.into())));
        }
        if let Some(millis) = self.millis(OPEN_AT_TIMESTAMP)? {
            return Ok(Some(Checkpoint::Since(millis)));
        }
        Ok(if self.has(OPEN_AT_INITIAL) { None } else { Some(Checkpoint::Since(0)) })
    }

    pub(super) fn has(&self, attribute: &str) -> bool {
        self.item.contains_key(attribute)
    }

    pub(super) fn text(&self, attribute: &str) -> Result<Option<&'a str>, StoreError> {
        match self.item.get(attribute) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(self.nonsense(attribute, "a string (S)")),
        }
    }

    /// A count; 0 if it is absent. It is at most [`MOST`], because every write adds one.
    pub(super) fn count(&self, attribute: &str) -> Result<u64, StoreError> {
        let needed = "a whole number (N) from 0 to 2^63 - 2";
        match self.item.get(attribute) {
            None => Ok(0),
            Some(AttributeValue::N(digits)) => {
                let count = digits.parse().ok().filter(|count| *count <= MOST);
                count.ok_or_else(|| self.nonsense(attribute, needed))
            }
            Some(_) => Err(self.nonsense(attribute, needed)),
        }
    }

    pub(super) fn millis(&self, attribute: &str) -> Result<Option<i64>, StoreError> {
        let needed = "Unix milliseconds (N)";
        match self.item.get(attribute) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => {
                digits.parse().map(Some).map_err(|error| self.nonsense(attribute, needed).caused_by(error))
            }
            Some(_) => Err(self.nonsense(attribute, needed)),
        }
    }

    /// Sorted, because a set has no order.
    fn parents(&self) -> Result<Vec<ShardId>, StoreError> {
        match self.item.get(PARENTS) {
            None => Ok(Vec::new()),
            Some(AttributeValue::Ss(parents)) => {
                let mut parents: Vec<_> = parents.iter().map(|parent| ShardId::from(parent.as_str())).collect();
                parents.sort();
                Ok(parents)
            }
            Some(_) => Err(self.nonsense(PARENTS, "a set of strings (SS)")),
        }
    }

    pub(super) fn nonsense(&self, attribute: &str, needed: &str) -> StoreError {
        let given = format!("{:?}", self.item.get(attribute));
        let given = cut(&given);
        StoreError::new(format!(
            "table {:?}, row {:?}: {attribute} makes no sense: {needed} is needed, but it is {given}; correct or \
             delete the row",
            self.table,
            self.key()
        ))
        .with_kind(StoreErrorKind::UnreadableRow)
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::primitives::Blob;

    use super::*;
    use crate::{
        config::position::Checkpoint,
        lease::dynamodb::attribute::{
            CHECKPOINT, OPEN_AT_INITIAL, OPEN_AT_SEQUENCE, OPEN_AT_TIMESTAMP, SUB_SEQUENCE, number, text,
        },
    };

    fn read<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Result<Lease, StoreError> {
        let mut item: Item = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        item.insert(KEY.into(), text("c/s/x"));
        let key = LeaseKey { consumer: "c".into(), stream: "s".into(), shard: "x".into() };
        Row { table: "leases", item: &item }.lease(key)
    }

    #[test]
    fn a_bare_row_is_a_free_lease_of_epoch_zero() {
        let lease = read([]).unwrap();
        assert_eq!((lease.owner, lease.epoch, lease.counter, lease.checkpoint), (None, 0, 0, None));
    }

    #[test]
    fn checkpoints_of_this_library_and_of_the_kcl_are_read_as_meant() {
        let yes = AttributeValue::Bool(true);
        let checkpoint = |word: &str, name: &str, value| read([(CHECKPOINT, text(word)), (name, value)]).unwrap();
        let table = [
            ("LATEST", "x", text(""), None),
            ("AT_TIMESTAMP", "x", text(""), None),
            ("TRIM_HORIZON", "x", text(""), Some(Checkpoint::Since(0))),
            ("TRIM_HORIZON", OPEN_AT_INITIAL, yes, None),
            ("TRIM_HORIZON", OPEN_AT_TIMESTAMP, number(-5), Some(Checkpoint::Since(-5))),
            ("TRIM_HORIZON", OPEN_AT_SEQUENCE, text("007"), Some(Checkpoint::At("007".into()))),
            ("SHARD_END", SUB_SEQUENCE, number(0), Some(Checkpoint::ShardEnd)),
            ("12", SUB_SEQUENCE, number(0), Some(Checkpoint::After("12".into()))),
            ("12", SUB_SEQUENCE, number(3), Some(Checkpoint::At("12".into()))),
            // The KCL continued with a row of this library and kept the attribute that it does not know.
            ("12", OPEN_AT_SEQUENCE, text("7"), Some(Checkpoint::After("12".into()))),
        ];
        for (word, name, value, meant) in table {
            assert_eq!(checkpoint(word, name, value.clone()).checkpoint, meant, "{word}, {name} {value:?}");
        }
    }

    #[test]
    fn a_value_that_makes_no_sense_is_an_error_that_names_row_and_attribute() {
        let table = [
            (OWNER, number(1)),
            (COUNTER, text("1")),
            (COUNTER, number(-1)),
            (COUNTER, number("1.5")),
            (COUNTER, number("9223372036854775807")),
            (EPOCH, number("9223372036854775807")),
            (COUNTER, number("18446744073709551616")),
            (EPOCH, AttributeValue::Bool(true)),
            (CHECKPOINT, text("")),
            (CHECKPOINT, text("12a")),
            (CHECKPOINT, number(12)),
            (PARENTS, text("shardId-0")),
            (STREAM_CREATED, text("1")),
            (STREAM_CREATED, number("1e99")),
            (WANTED_BY, AttributeValue::B(Blob::new([0]))),
        ];
        for (name, value) in table {
            let error = read([(name, value.clone())]).unwrap_err().to_string();
            let start = format!("table \"leases\", row \"c/s/x\": {name} makes no sense: ");
            assert!(error.starts_with(&start), "{name} {value:?}: {error}");
        }
    }

    // X3
    #[test]
    fn an_error_about_a_long_value_is_short_and_says_what_to_do() {
        let error = read([(CHECKPOINT, text("x".repeat(300_000)))]).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("table \"leases\", row \"c/s/x\": checkpoint makes no sense: "), "{said}");
        assert!(said.ends_with("bytes); correct or delete the row"), "{said}");
        assert!(said.len() < 1_000 && format!("{error:?}").len() < 1_000);
    }

    // E5
    #[test]
    fn a_row_is_foreign_unless_our_take_made_its_owner() {
        let owner = |owner: &str| (OWNER, text(owner));
        let taken = |owner: &str| (TAKE_ID, text(take_id::new(owner)));
        let table = [
            (read([]), false),
            (read([taken("a")]), false),
            (read([owner("a"), taken("a")]), false),
            (read([owner("a b"), taken("a b")]), false),
            (read([owner("worker"), (EPOCH, number(0))]), true),
            // The KCL took it from us.
            (read([owner("worker"), (EPOCH, number(7)), taken("a")]), true),
            // A version of this library that wrote no owner.
            (read([owner("a"), (EPOCH, number(7)), (TAKE_ID, text("11111111-2222-4333-8444-555555555555"))]), true),
            (read([owner("a"), (TAKE_ID, number(1))]), true),
        ];
        for (row, is_foreign) in table {
            let row = row.unwrap();
            assert_eq!(row.is_foreign, is_foreign, "{row:?}");
        }
    }

    #[test]
    fn only_rows_of_leases_are_leases() {
        let is_lease = |kind: AttributeValue| {
            let item = Item::from([(ENTITY_TYPE.to_owned(), kind)]);
            Row { table: "leases", item: &item }.is_lease()
        };
        assert!(is_lease(text("LEASE")) && Row { table: "leases", item: &Item::new() }.is_lease());
        assert!(!is_lease(text("WORKER_METRIC_STATS")) && !is_lease(text("lease")) && !is_lease(number(1)));
    }
}

//! The expressions of a conditional write. Names and values are parameters, never part of the text.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;

use super::attribute::{COUNTER, EPOCH, Item, KEY, OWNER, number, text};
use crate::lease::{Held, Seen};

/// A write that is being built.
#[derive(Clone, Debug, Default)]
pub(super) struct Expression {
    when: Vec<String>,
    set: Vec<String>,
    remove: Vec<String>,
    names: HashMap<String, String>,
    values: Item,
}

impl Expression {
    /// Only if there is no row.
    pub(super) fn when_there_is_no_row() -> Self {
        let mut new = Self::default();
        let key = new.name(KEY);
        new.when.push(format!("attribute_not_exists({key})"));
        new
    }

    /// Only if the row is as it was seen.
    pub(super) fn when_seen(seen: Seen) -> Self {
        let mut new = Self::default();
        let key = new.name(KEY);
        new.when.push(format!("attribute_exists({key})"));
        new.when_number(EPOCH, seen.epoch).when_number(COUNTER, seen.counter)
    }

    /// Only if this is the holder and the row has this counter.
    pub(super) fn when_held(held: &Held, counter: u64) -> Self {
        let mut new = Self::when_seen(Seen { epoch: held.epoch, counter });
        let (name, value) = (new.name(OWNER), new.value("if_owner", text(&*held.owner)));
        new.when.push(format!("{name} = {value}"));
        new
    }

    /// And only if the row is free or this owner has it.
    pub(super) fn when_free_or_of(mut self, owner: &str) -> Self {
        let (name, value) = (self.name(OWNER), self.value("if_owner", text(owner)));
        self.when.push(format!("(attribute_not_exists({name}) OR {name} = {value})"));
        self
    }

    /// An absent number is 0: the KCL writes no epoch.
    fn when_number(mut self, attribute: &'static str, expected: u64) -> Self {
        let (name, value) = (self.name(attribute), self.value(&format!("if_{attribute}"), number(expected)));
        self.when.push(match expected {
            0 => format!("(attribute_not_exists({name}) OR {name} = {value})"),
            _ => format!("{name} = {value}"),
        });
        self
    }

    /// Sets an attribute.
    pub(super) fn set(mut self, attribute: &'static str, to: AttributeValue) -> Self {
        let (name, value) = (self.name(attribute), self.value(attribute, to));
        self.set.push(format!("{name} = {value}"));
        self
    }

    /// Sets an attribute, or removes it.
    pub(super) fn set_or_remove(self, attribute: &'static str, to: Option<AttributeValue>) -> Self {
        match to {
            Some(to) => self.set(attribute, to),
            None => self.remove([attribute]),
        }
    }

    /// Adds to a number that may be absent.
    pub(super) fn add(mut self, attribute: &'static str, n: u64) -> Self {
        let name = self.name(attribute);
        let (zero, n) = (self.value("zero", number(0)), self.value(attribute, number(n)));
        self.set.push(format!("{name} = if_not_exists({name}, {zero}) + {n}"));
        self
    }

    /// Removes attributes, if the row has them.
    pub(super) fn remove(mut self, attributes: impl IntoIterator<Item = &'static str>) -> Self {
        for attribute in attributes {
            let name = self.name(attribute);
            self.remove.push(name);
        }
        self
    }

    /// The condition.
    pub(super) fn condition(&self) -> String {
        self.when.join(" AND ")
    }

    /// The changes; none for a delete.
    pub(super) fn changes(&self) -> Option<String> {
        let clause = |word: &str, parts: &[String]| (!parts.is_empty()).then(|| format!("{word} {}", parts.join(", ")));
        let clauses: Vec<_> =
            [clause("SET", &self.set), clause("REMOVE", &self.remove)].into_iter().flatten().collect();
        (!clauses.is_empty()).then(|| clauses.join(" "))
    }

    pub(super) fn names(&self) -> Option<HashMap<String, String>> {
        (!self.names.is_empty()).then(|| self.names.clone())
    }

    pub(super) fn values(&self) -> Option<Item> {
        (!self.values.is_empty()).then(|| self.values.clone())
    }

    /// Some names are reserved words, so every name gets a placeholder.
    fn name(&mut self, attribute: &'static str) -> String {
        let name = format!("#{attribute}");
        self.names.insert(name.clone(), attribute.to_owned());
        name
    }

    fn value(&mut self, name: &str, value: AttributeValue) -> String {
        let name = format!(":{name}");
        self.values.insert(name.clone(), value);
        name
    }
}

/// A set of strings; none if it would be empty, since DynamoDB allows no empty set.
pub(super) fn set_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<AttributeValue> {
    let texts: BTreeSet<_> = texts.into_iter().map(str::to_owned).collect();
    (!texts.is_empty()).then(|| AttributeValue::Ss(texts.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseKey;

    #[test]
    fn every_name_and_value_is_a_parameter() {
        let key = LeaseKey { consumer: "c".into(), stream: "s".into(), shard: "x".into() };
        let held = Held { key, owner: "o'; DROP".into(), epoch: 3 };
        let write = Expression::when_held(&held, 7).set(COUNTER, number(8)).remove([OWNER]);
        assert_eq!(
            write.condition(),
            "attribute_exists(#leaseKey) AND #epoch = :if_epoch AND #leaseCounter = :if_leaseCounter \
             AND #leaseOwner = :if_owner"
        );
        assert_eq!(write.changes().unwrap(), "SET #leaseCounter = :leaseCounter REMOVE #leaseOwner");
        assert_eq!(write.values().unwrap()[":if_owner"], text("o'; DROP"));
        assert_eq!(write.names().unwrap()["#epoch"], "epoch");
    }

    #[test]
    fn an_absent_epoch_counts_as_zero() {
        let write = Expression::when_seen(Seen { epoch: 0, counter: 2 });
        assert_eq!(
            write.condition(),
            "attribute_exists(#leaseKey) AND (attribute_not_exists(#epoch) OR #epoch = :if_epoch) \
             AND #leaseCounter = :if_leaseCounter"
        );
        assert_eq!(write.changes(), None);
    }

    #[test]
    fn a_set_has_no_duplicates_and_an_empty_one_is_none() {
        assert_eq!(set_of(["b", "a", "b"]), Some(AttributeValue::Ss(vec!["a".into(), "b".into()])));
        assert_eq!(set_of([]), None);
    }
}

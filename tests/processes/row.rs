//! A row of the lease table, as DynamoDB stores it.

use serde_json::Value;

/// How far a shard is read, according to its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The row names no record.
    Beginning,
    At(String),
    After(String),
    End,
}

/// A row of the lease table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) owner: Option<String>,
    pub(crate) epoch: u64,
    pub(crate) counter: u64,
    pub(crate) place: Place,
    pub(crate) wanted_by: Option<String>,
}

impl Row {
    /// `None` if the item is malformed.
    pub(crate) fn of(item: &Value) -> Option<Self> {
        let text = |name: &str| item[name]["S"].as_str().map(str::to_owned);
        let number = |name: &str| item[name]["N"].as_str()?.parse().ok();
        let place = match text("checkpoint")? {
            word if word == "SHARD_END" => Place::End,
            word if word == "TRIM_HORIZON" => text("openAtSequenceNumber").map_or(Place::Beginning, Place::At),
            number => Place::After(number),
        };
        Some(Self {
            owner: text("leaseOwner"),
            epoch: number("epoch")?,
            counter: number("leaseCounter")?,
            place,
            wanted_by: text("wantedBy"),
        })
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.place == Place::End
    }
}

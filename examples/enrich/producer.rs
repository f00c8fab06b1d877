//! The producer, and the result that its records must have.

use std::collections::{HashMap, HashSet};

use kinesis_stream::{Publisher, prelude::*};
use kinesis_stream_support::earthquakes;
use serde_json::Value;

use crate::{ByKey, Failure, Place, Row};

/// Every hundredth event is truncated.
const TRUNCATED: usize = 100;

/// The published records.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// The good records of each key, in order.
    pub(crate) by_key: ByKey,
    /// The truncated records.
    pub(crate) truncated: HashSet<Place>,
}

/// Publishes every event, one after the other, so each key has an order.
pub(crate) async fn publish(to: &Publisher, stream: &str) -> Result<Published, Failure> {
    let mut published = Published::default();
    for (i, (_, event)) in earthquakes::by_network().enumerate() {
        let json: Value = serde_json::from_str(event)?;
        let degrees = |field: &str| json[field].as_f64().unwrap_or_default();
        let key = format!("{:.0} {:.0}", degrees("lat"), degrees("lon"));
        let is_truncated = i % TRUNCATED == 0;
        let payload = if is_truncated { &event.as_bytes()[..40] } else { event.as_bytes() };
        let stored = to.publish(stream, Outgoing::new(key.clone(), payload)).await?;
        let place = (stored.shard().clone(), stored.sequence_number().clone());
        if is_truncated {
            published.truncated.insert(place);
        } else {
            published.by_key.entry(key).or_default().push(place);
        }
    }
    Ok(published)
}

impl Published {
    /// All records.
    pub(crate) fn places(&self) -> HashSet<Place> {
        self.by_key.values().flatten().chain(&self.truncated).cloned().collect()
    }

    /// Checks that the rows of each key are its good records, in order, and that the dead letters are the truncated
    /// ones. Ignores records of other programs.
    pub(crate) fn check(&self, rows: &[Row], dead: &HashMap<Place, String>) -> Result<(), Failure> {
        let ours = self.places();
        let mut enriched = ByKey::new();
        for row in rows.iter().filter(|row| ours.contains(&row.place)) {
            enriched.entry(row.key.clone()).or_default().push(row.place.clone());
        }
        if enriched != self.by_key {
            return Err("not every good record was enriched exactly once, in the order of its key".into());
        }
        let dead: HashMap<&Place, &str> =
            dead.iter().filter(|(place, _)| ours.contains(*place)).map(|(place, why)| (place, why.as_str())).collect();
        if dead.len() != self.truncated.len() || !self.truncated.iter().all(|place| dead.contains_key(place)) {
            return Err("the dead letters are not the truncated records".into());
        }
        if dead.values().any(|why| !why.starts_with("not an event")) {
            return Err("a dead letter does not state the reason".into());
        }
        Ok(())
    }
}

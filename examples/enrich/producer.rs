//! The producer, and what is to become of what it published.

use std::collections::{HashMap, HashSet};

use kinesis_stream::{Publisher, prelude::*};
use kinesis_stream_support::earthquakes;
use serde_json::Value;

use crate::{ByKey, Failure, Place, Row};

/// Every hundredth event is cut off in the middle.
const SPOILT: usize = 100;

/// What was published.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Those that can be enriched.
    pub(crate) by_key: ByKey,
    /// Those that cannot.
    pub(crate) spoilt: HashSet<Place>,
}

/// Publishes every event, one after the other, which is what gives a key its order.
pub(crate) async fn publish(to: &Publisher, stream: &str) -> Result<Published, Failure> {
    let mut published = Published::default();
    for (i, (_, event)) in earthquakes::by_network().enumerate() {
        let json: Value = serde_json::from_str(event)?;
        let degrees = |field: &str| json[field].as_f64().unwrap_or_default();
        let key = format!("{:.0} {:.0}", degrees("lat"), degrees("lon"));
        let is_spoilt = i % SPOILT == 0;
        let payload = if is_spoilt { &event.as_bytes()[..40] } else { event.as_bytes() };
        let stored = to.publish(stream, Outgoing::new(key.clone(), payload)).await?;
        let place = (stored.shard().clone(), stored.sequence_number().clone());
        if is_spoilt {
            published.spoilt.insert(place);
        } else {
            published.by_key.entry(key).or_default().push(place);
        }
    }
    Ok(published)
}

impl Published {
    /// All records.
    pub(crate) fn places(&self) -> HashSet<Place> {
        self.by_key.values().flatten().chain(&self.spoilt).cloned().collect()
    }

    /// Whether the rows of each key are what was published, in its order, and the dead letters are the others. Records of
    /// others are left out.
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
        if dead.len() != self.spoilt.len() || !self.spoilt.iter().all(|place| dead.contains_key(place)) {
            return Err("the dead letters are not the records that cannot be enriched".into());
        }
        if dead.values().any(|why| !why.starts_with("not an event")) {
            return Err("a dead letter does not say why".into());
        }
        Ok(())
    }
}

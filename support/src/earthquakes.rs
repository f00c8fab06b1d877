//! Real data to put into a stream: a week of earthquakes from the U.S. Geological Survey.

/// 1,707 events in order of time, one JSON object a line. `data/README.md` names the source.
pub const EVENTS: &str = include_str!("../data/earthquakes.ndjson");

/// The seismic network of each event, its partition key, and the event as JSON.
///
/// ```
/// use kinesis_stream_support::earthquakes;
///
/// let (network, json) = earthquakes::by_network().next().expect("there are events");
/// assert_eq!(network, "uw");
/// assert!(json.contains("Washington"));
/// ```
pub fn by_network() -> impl Iterator<Item = (&'static str, &'static str)> {
    EVENTS.lines().filter_map(|event| Some((network(event)?, event)))
}

fn network(event: &str) -> Option<&str> {
    let (_, rest) = event.split_once(r#""net": ""#)?;
    rest.split_once('"').map(|(network, _)| network)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_event_is_json_and_names_its_network() {
        let mut networks = BTreeSet::new();
        for (network, json) in by_network() {
            let event: Value = serde_json::from_str(json).unwrap();
            assert_eq!(event["net"], network);
            networks.insert(network);
        }
        assert_eq!((by_network().count(), networks.len()), (1707, 12));
    }
}

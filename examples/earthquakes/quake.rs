//! An event: the fields that the archive needs.

use kinesis_stream_support::earthquakes;
use serde_json::Value;

/// One event.
#[derive(Debug)]
pub(crate) struct Quake {
    /// Unique among all events.
    pub(crate) id: String,
    /// The seismic network that reported it.
    pub(crate) network: String,
    /// The bytes of the record, and a newline.
    pub(crate) line: Vec<u8>,
}

impl Quake {
    /// Reads one line of JSON.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let event: Value = serde_json::from_slice(json)?;
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        Ok(Self { id: text("id"), network: text("net"), line: [json, b"\n"].concat() })
    }
}

/// How many events there are.
pub(crate) fn all() -> usize {
    earthquakes::by_network().count()
}

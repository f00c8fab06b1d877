//! An event, as far as the archive needs to know it.

use kinesis_stream_support::earthquakes;
use serde_json::Value;

/// One event.
#[derive(Debug)]
pub(crate) struct Quake {
    /// Unlike that of every other event.
    pub(crate) id: String,
    /// The seismic network that reported it.
    pub(crate) network: String,
    /// The event as it came, on a line of its own.
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

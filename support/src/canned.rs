//! A Kinesis that answers from templates, as fast as bytes can be copied, for benchmarks.
//!
//! It serves one stream under any name, and five operations: `DescribeStreamSummary`, `ListShards`, `GetShardIterator`,
//! `GetRecords`, and `PutRecords`, which stores nothing and reports the first shard for every record. Sequence numbers
//! grow along each shard and never repeat. It runs in another process, so that a benchmark measures the client alone.
//! That process ends with the one that spawned it.
//!
//! A benchmark serves from the same program. Its `main` must first check whether it was spawned to serve:
//!
//! ```no_run
//! use kinesis_stream_support::canned::{self, Canned};
//!
//! # fn main() -> std::io::Result<()> {
//! canned::serve_if_spawned();
//! let kinesis = Canned { shards: 4, pages: Some(100), ..Canned::default() }.spawn()?;
//! println!("reading from {}", kinesis.endpoint());
//! # Ok(())
//! # }
//! ```
//!
//! To avoid even sockets, [`Canned::in_process`] gives the same as an HTTP client for the SDK.

use std::{fmt, num::ParseIntError, str::FromStr, time::Duration};

mod in_process;
mod page;
mod process;
mod service;
mod tally;

pub use self::{
    in_process::InProcess,
    process::{Process, serve, serve_if_spawned},
    tally::Tally,
};

/// The configuration of the canned stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canned {
    /// How many shards it has.
    pub shards: usize,
    /// How many records a page of `GetRecords` holds, whatever its limit is.
    pub records_per_page: usize,
    /// How many bytes a record holds.
    pub record_bytes: usize,
    /// After how many pages a shard ends. With `None` it is open and endless.
    pub pages: Option<usize>,
    /// Extra time for each response, like network latency, in whole milliseconds. Any number of responses can wait at
    /// the same time.
    pub latency: Duration,
}

impl Default for Canned {
    /// One endless shard with pages of 1,000 records of 1 KiB, answered at once.
    fn default() -> Self {
        Self { shards: 1, records_per_page: 1000, record_bytes: 1024, pages: None, latency: Duration::ZERO }
    }
}

/// Five numbers: shards, records per page, bytes per record, pages (0 for an endless shard), milliseconds of latency.
impl fmt::Display for Canned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shards, records_per_page, record_bytes, pages, latency } = self;
        write!(f, "{shards} {records_per_page} {record_bytes} {} {}", pages.unwrap_or(0), latency.as_millis())
    }
}

/// Parses the numbers that `Display` writes. Missing numbers take their defaults.
impl FromStr for Canned {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut number = || numbers.next().transpose();
        let default = Self::default();
        Ok(Self {
            shards: number()?.unwrap_or(default.shards),
            records_per_page: number()?.unwrap_or(default.records_per_page),
            record_bytes: number()?.unwrap_or(default.record_bytes),
            pages: number()?.filter(|pages| *pages > 0),
            latency: number()?.map_or(default.latency, |millis| Duration::from_millis(millis as u64)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_round_trips_through_text() {
        let endless = Canned::default();
        let ending = Canned { pages: Some(7), ..endless };
        let slow = Canned { latency: Duration::from_millis(20), ..endless };
        for canned in [endless, ending, slow] {
            assert_eq!(canned.to_string().parse(), Ok(canned));
        }
    }
}

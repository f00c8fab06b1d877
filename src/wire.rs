//! The bytes of a record on the wire: pure codecs without I/O.
//!
//! - `envelope`: a record's headers, in front of its payload. Publishing encodes it; reading decodes it.
//! - `aggregate`: aggregated records of the Kinesis Producer Library. Reading recognises them. Publishing builds them
//!   if the cargo feature `kpl` is on.
//!
//! Kinesis itself stores a blob and a partition key and knows neither format. Both formats belong to other programs
//! too, so they never change here; tests compare them byte by byte.
//!
//! This folder uses `error` and `types` only. Read `envelope` first.

pub(crate) mod aggregate;
pub(crate) mod envelope;

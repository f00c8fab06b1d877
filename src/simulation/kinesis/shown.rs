//! What tests set of the model, and what they see of it.

use bytes::Bytes;

/// How the service treats a sequence number that it no longer keeps. All three behaviours occur on the real service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnTrimmed {
    Reject,
    /// Reads begin at the oldest record that is kept.
    Land,
    /// Reads succeed at the far end of the retention and never find a record.
    Stick,
}

/// A record that was put into another stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) stream: String,
    pub(crate) key: String,
    pub(crate) data: Bytes,
}

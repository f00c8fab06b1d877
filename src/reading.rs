//! TITLE reading

pub(crate) mod pacing;
pub(crate) mod read_ahead;
pub(crate) mod reader;
pub(crate) mod slow_reads;
pub(crate) mod stuck_iterator;

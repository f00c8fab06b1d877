//! TITLE state

pub(crate) mod context;
pub(crate) mod dead_letter_queue;
pub(crate) mod events;
pub(crate) mod lifecycle;
pub(crate) mod page;
pub(crate) mod settlement;
pub(crate) mod shard;
pub(crate) mod stats;
pub(crate) mod tracker;

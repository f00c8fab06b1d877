//! TITLE coordination

pub(crate) mod balance;
pub(crate) mod coordinator;
pub(crate) mod due_queue;
pub(crate) mod expiry;
pub(crate) mod lineage;
pub(crate) mod renewer;
pub(crate) mod shard_list;

//! Which instance reads which shard.
//!
//! Two tasks of a subscription live here. The [`coordinator`] decides which shards to read: it lists the shards, takes
//! their leases and starts their readers. The [`renewer`] keeps those leases: it renews them, stores checkpoints and
//! releases them. The other files hold pure rules that both use, with the time passed in.
//!
//! Read in this order:
//!
//! 1. [`lineage`]: which shards may be read now, given splits and merges.
//! 2. [`shard_list`]: which shards there are, combined from several listings.
//! 3. [`expiry`]: which leases of other instances have expired.
//! 4. [`balance`]: which leases to request from other instances.
//! 5. [`coordinator`]: the task that applies these rules.
//! 6. [`renewer`] with [`due_queue`]: the task that renews this instance's leases, stores checkpoints and releases
//!    leases.
//!
//! `subscription` starts both tasks. Nothing below this folder imports from it.

pub(crate) mod balance;
pub(crate) mod coordinator;
pub(crate) mod due_queue;
pub(crate) mod expiry;
pub(crate) mod lineage;
pub(crate) mod renewer;
pub(crate) mod shard_list;

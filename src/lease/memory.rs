//! Leases in this process's memory.

/// Leases in memory.
#[derive(Debug, Default)]
pub struct MemoryLeaseStore;

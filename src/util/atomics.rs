//! The atomics that stand outside a lock. The test of their interleavings replaces them with those of shuttle, which
//! switches threads at each access.

#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8};

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8};

//! How this crate takes a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: no step of this crate that holds a lock can panic half-way, so what a lock protects
/// is whole whenever the lock is free.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! How this crate locks a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, also if it is poisoned. No code of this crate panics half-way while it holds a lock, so the value
/// behind a free lock is always consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

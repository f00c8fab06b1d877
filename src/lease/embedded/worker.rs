//! The one thread that reads and writes the file, and the queue of its calls.
//!
//! **The store commits in groups.** Calls wait in one queue of 1,024. One thread takes all that are in it, runs them in
//! one transaction and responds once that is on the disk. So a single call waits for no other, and a thousand calls at
//! once cost one `fsync`. One queue keeps a holder's calls in order, whether or not the caller still waits. A
//! transaction that fails or panics fails its calls; then the thread reopens the file, since the database fails
//! every call after a disk error.
//!
//! **The last clone of the store waits for the thread,** so that the file is free once the clone is dropped. This
//! blocks for the milliseconds of one commit. If the file became free at some later time, reopening it would need
//! guesses about when.

use std::{
    path::{Path, PathBuf},
    thread,
};

use tokio::sync::mpsc;

use super::{
    call::{Call, call},
    failure,
    file::LeaseFile,
    rows::{Rows, StepError},
};
use crate::error::service::StoreError;

/// The length of the queue, and so the largest group. While the queue is full, further callers wait outside of it; a
/// future that is dropped there leaves no call behind.
const QUEUE: usize = 1_024;

/// The queue and its thread. The thread ends when this is dropped, and closes the file.
pub(super) struct Worker {
    path: PathBuf,
    /// None once the worker is being dropped.
    queue: Option<mpsc::Sender<Box<dyn Call>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(file: LeaseFile) -> Result<Self, StoreError> {
        let (queue, calls) = mpsc::channel(QUEUE);
        let path = file.path().to_owned();
        let thread = thread::Builder::new().name("lease file".to_owned()).spawn(move || work(file, calls));
        let thread = thread.map_err(|error| failure::no_thread(&path, error))?;
        Ok(Self { path, queue: Some(queue), thread: Some(thread) })
    }

    /// A worker whose thread has ended.
    #[cfg(test)]
    pub(super) fn ended(path: PathBuf) -> Self {
        Self { path, queue: Some(mpsc::channel(QUEUE).0), thread: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the thread run a step, and waits until its changes are on the disk.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Rows<'_>) -> Result<T, StepError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = || failure::ended(&self.path);
        let (call, response) = call(step);
        self.queue.as_ref().ok_or_else(ended)?.send(call).await.map_err(|_| ended())?;
        response.await.map_err(|_| ended())?
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its callers already got an error.
            let _ = thread.join();
        }
    }
}

/// Runs all queued calls as one group, again and again until the queue is closed.
fn work(mut file: LeaseFile, mut calls: mpsc::Receiver<Box<dyn Call>>) {
    let mut group = Vec::new();
    while calls.blocking_recv_many(&mut group, QUEUE) > 0 {
        // An abandoned call need not run. After a disk that hung, there are many.
        group.retain(|call| !call.is_abandoned());
        if group.is_empty() {
            continue;
        }
        let outcome = file.run(&mut group);
        for call in group.drain(..) {
            call.respond(outcome.clone());
        }
    }
}

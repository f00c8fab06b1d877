//! The one thread that reads and writes the file, and the line in which calls wait for it.

use std::{
    path::{Path, PathBuf},
    thread,
};

use tokio::sync::mpsc;

use super::{
    call::{Call, call},
    file::LeaseFile,
    rows::{Rows, Trouble},
    trouble,
};
use crate::error::service::StoreError;

/// How many calls stand in line, and so are one group at most. Who comes when it is full waits in front of it, and leaves
/// no trace when given up there.
const LINE: usize = 1_024;

/// The line, and the thread at its end. It ends with this, and closes the file.
pub(super) struct Worker {
    path: PathBuf,
    /// Until the worker is dropped.
    line: Option<mpsc::Sender<Box<dyn Call>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(file: LeaseFile) -> Result<Self, StoreError> {
        let (line, calls) = mpsc::channel(LINE);
        let path = file.path().to_owned();
        let thread = thread::Builder::new().name("lease file".to_owned()).spawn(move || work(file, calls));
        let thread = thread.map_err(|error| trouble::no_thread(&path, error))?;
        Ok(Self { path, line: Some(line), thread: Some(thread) })
    }

    /// One whose thread is gone.
    #[cfg(test)]
    pub(super) fn ended(path: PathBuf) -> Self {
        Self { path, line: Some(mpsc::channel(LINE).0), thread: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Has the thread do a step, and waits until what it did is on the disk.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Rows<'_>) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = || trouble::ended(&self.path);
        let (call, answered) = call(step);
        self.line.as_ref().ok_or_else(ended)?.send(call).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.line = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was told to those who waited.
            let _ = thread.join();
        }
    }
}

/// Does whatever stands in line as one group, until nobody can come any more.
fn work(mut file: LeaseFile, mut calls: mpsc::Receiver<Box<dyn Call>>) {
    let mut group = Vec::new();
    while calls.blocking_recv_many(&mut group, LINE) > 0 {
        // What was given up may be done or not; after a disk that hung, there is much of it.
        group.retain(|call| !call.is_abandoned());
        if group.is_empty() {
            continue;
        }
        let outcome = file.run(&mut group);
        for call in group.drain(..) {
            call.answer(outcome.clone());
        }
    }
}

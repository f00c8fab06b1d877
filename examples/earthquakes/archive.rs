//! The file to which the consumer writes the events.

use std::{
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use kinesis_stream::{Acker, Commit, Delivery};
use tokio::task::spawn_blocking;

use crate::{failure::Failure, quake::Quake, status::Status};

/// Receives the status of each event.
type Report = Box<dyn Fn(Status) + Send + Sync>;

/// An append-only file of events, one JSON object a line.
pub(crate) struct Archive {
    path: PathBuf,
    file: Arc<fs::File>,
    report: Report,
}

impl Archive {
    /// Creates an empty file.
    pub(crate) fn create(path: &Path, report: impl Fn(Status) + Send + Sync + 'static) -> Result<Self, Failure> {
        let failed = |source| Failure::File { path: path.to_owned(), source };
        fs::File::create(path).map_err(failed)?;
        Self::reopen(path, report)
    }

    /// Opens an existing file. A killed consumer may have left half a line at its end; this cuts it off.
    pub(crate) fn reopen(path: &Path, report: impl Fn(Status) + Send + Sync + 'static) -> Result<Self, Failure> {
        let opened = || {
            let file = fs::OpenOptions::new().append(true).open(path)?;
            let whole = fs::read(path)?.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
            file.set_len(u64::try_from(whole).unwrap_or(u64::MAX))?;
            Ok(file)
        };
        let file = opened().map_err(|source| Failure::File { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file), report: Box::new(report) })
    }

    pub(crate) fn report(&self, status: Status) {
        (self.report)(status);
    }

    /// Appends events. When this returns they are on the disk, so the caller may settle them.
    pub(crate) async fn append(self: Arc<Self>, quakes: Vec<Delivery<Quake>>) -> Result<Vec<Delivery<Quake>>, Failure> {
        let lines: Vec<&[u8]> = quakes.iter().map(|quake| quake.payload().line.as_slice()).collect();
        let written = (&*self.file).write_all(&lines.concat());
        written.map_err(|source| self.failed(source))?;
        for quake in &quakes {
            self.report(Status::Written(quake.payload().id.clone()));
        }
        let file = Arc::clone(&self.file);
        let synced = spawn_blocking(move || file.sync_data()).await.unwrap_or_else(|error| Err(error.into()));
        synced.map_err(|source| self.failed(source))?;
        Ok(quakes)
    }

    /// Commits one event, and reports the result.
    pub(crate) async fn settle(self: Arc<Self>, quake: Delivery<Quake>) -> Result<(), Failure> {
        let id = quake.payload().id.clone();
        self.report(match Acker::from(quake).commit().await? {
            Commit::Stored => Status::Stored(id),
            Commit::Deferred => Status::Deferred(id),
            _ => Status::Returned(id),
        });
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The events in the file, without an incomplete last line.
    pub(crate) fn written(&self) -> Result<Vec<Quake>, Failure> {
        let text = fs::read_to_string(&self.path).map_err(|source| self.failed(source))?;
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        Ok(whole.filter_map(|line| Quake::parse(line.trim_end().as_bytes()).ok()).collect())
    }

    fn failed(&self, source: io::Error) -> Failure {
        Failure::File { path: self.path.clone(), source }
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("path", &self.path).finish_non_exhaustive()
    }
}

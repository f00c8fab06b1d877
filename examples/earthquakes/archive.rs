//! The file that the events go to.

use std::{
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use kinesis_stream::{Acker, Commit, Delivery};
use tokio::task::spawn_blocking;

use crate::{failure::Failure, news::News, quake::Quake};

/// Who is told what becomes of the events.
type Tell = Box<dyn Fn(News) + Send + Sync>;

/// See the module.
pub(crate) struct Archive {
    path: PathBuf,
    file: Arc<fs::File>,
    tell: Tell,
}

impl Archive {
    /// An empty file.
    pub(crate) fn create(path: &Path, tell: impl Fn(News) + Send + Sync + 'static) -> Result<Self, Failure> {
        let failed = |source| Failure::File { path: path.to_owned(), source };
        fs::File::create(path).map_err(failed)?;
        Self::go_on(path, tell)
    }

    /// A file that is there. Whoever was killed while writing to it may have left half a line, which is cut off.
    pub(crate) fn go_on(path: &Path, tell: impl Fn(News) + Send + Sync + 'static) -> Result<Self, Failure> {
        let opened = || {
            let file = fs::OpenOptions::new().append(true).open(path)?;
            let whole = fs::read(path)?.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
            file.set_len(u64::try_from(whole).unwrap_or(u64::MAX))?;
            Ok(file)
        };
        let file = opened().map_err(|source| Failure::File { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file), tell: Box::new(tell) })
    }

    pub(crate) fn tell(&self, news: News) {
        (self.tell)(news);
    }

    /// Appends events. When this is done they are on the disk, so they can be settled.
    pub(crate) async fn append(self: Arc<Self>, quakes: Vec<Delivery<Quake>>) -> Result<Vec<Delivery<Quake>>, Failure> {
        let lines: Vec<&[u8]> = quakes.iter().map(|quake| quake.payload().line.as_slice()).collect();
        let written = (&*self.file).write_all(&lines.concat());
        written.map_err(|source| self.failed(source))?;
        for quake in &quakes {
            self.tell(News::Written(quake.payload().id.clone()));
        }
        let file = Arc::clone(&self.file);
        let synced = spawn_blocking(move || file.sync_data()).await.unwrap_or_else(|error| Err(error.into()));
        synced.map_err(|source| self.failed(source))?;
        Ok(quakes)
    }

    /// Commits one event, and tells what that came to.
    pub(crate) async fn settle(self: Arc<Self>, quake: Delivery<Quake>) -> Result<(), Failure> {
        let id = quake.payload().id.clone();
        self.tell(match Acker::from(quake).commit().await? {
            Commit::Stored => News::Stored(id),
            Commit::Deferred => News::Deferred(id),
            _ => News::Returned(id),
        });
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the file holds, line by line, as far as they are whole.
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

//! One pipe for all: what workers say, what is written to the table, and what is done to whom. Whoever writes goes on
//! only when its line is in the pipe, so a line that caused another one comes before it: the journal is in order, also
//! between processes.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use kinesis_stream_support::Written;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, sleep, timeout_at},
};

use crate::{PATIENCE, row::Row};

/// How often to look whether there is time for this process, and how late it may be.
const BEAT: Duration = Duration::from_millis(20);
const STALL: Duration = Duration::from_millis(150);

/// A line, and when it was read.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Instant,
    pub(crate) line: Value,
}

impl Entry {
    pub(crate) fn event(&self) -> &str {
        self.text("event")
    }

    /// A field that is a text, or nothing.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.line[field].as_str().unwrap_or_default()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.line["epoch"].as_u64().unwrap()
    }

    pub(crate) fn is(&self, event: &str, owner: &str) -> bool {
        self.event() == event && self.text("owner") == owner
    }

    /// The row that was written, if this is a write that was applied.
    pub(crate) fn row(&self) -> Option<Row> {
        if self.event() == "wrote" { Row::of(&self.line["row"]) } else { None }
    }
}

/// What is in the journal, and what follows from it.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) entries: Vec<Entry>,
    /// The rows of the table as they are, by shard.
    pub(crate) rows: BTreeMap<String, Row>,
}

impl Book {
    /// What a worker said last before it ended.
    pub(crate) fn last_word(&self, owner: &str) -> Option<&Entry> {
        let words = ["closed", "error"];
        self.entries.iter().rev().find(|entry| words.contains(&entry.event()) && entry.text("owner") == owner)
    }
}

/// As text, with the seconds since the first line.
impl fmt::Display for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            let since = entry.at - self.entries[0].at;
            writeln!(f, "{:8.3} {}", since.as_secs_f64(), entry.line)?;
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    writer: PipeWriter,
    book: Arc<Mutex<Book>>,
    grown: watch::Receiver<()>,
}

impl Journal {
    pub(crate) fn start() -> Self {
        let (reader, writer) = io::pipe().unwrap();
        let (news, grown) = watch::channel(());
        let book = Arc::default();
        let kept = Arc::clone(&book);
        thread::spawn(move || keep(reader, &kept, &news));
        Self { writer, book, grown }
    }

    /// An end of the pipe for a process.
    pub(crate) fn stdout(&self) -> Stdio {
        self.writer.try_clone().unwrap().into()
    }

    /// Notes what is done to a worker.
    pub(crate) fn deed(&self, deed: &str, owner: &str) {
        enter(&self.writer, &json!({ "event": deed, "owner": owner }));
    }

    /// What notes the writes to a table.
    pub(crate) fn scribe(&self) -> impl Fn(Written) + Send + Sync + use<> {
        let writer = self.writer.try_clone().unwrap();
        move |written| enter(&writer, &line(&written))
    }

    /// Notes every time when the machine had no time for this process. Who was to take a shard over had none either.
    pub(crate) fn pulse(&self) -> AbortHandle {
        let writer = self.writer.try_clone().unwrap();
        let pulse = async move {
            loop {
                let before = Instant::now();
                sleep(BEAT).await;
                if before.elapsed() > BEAT + STALL {
                    enter(&writer, &json!({ "event": "stall" }));
                }
            }
        };
        tokio::spawn(pulse).abort_handle()
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the book has what is looked for.
    pub(crate) async fn find<T>(&self, what: &str, look: impl Fn(&Book) -> Option<T>) -> T {
        self.find_within(PATIENCE, look).await.unwrap_or_else(|| panic!("{what}: not within {PATIENCE:?}"))
    }

    /// As [`find`](Self::find), or nothing if it does not come in time.
    pub(crate) async fn find_within<T>(&self, time: Duration, look: impl Fn(&Book) -> Option<T>) -> Option<T> {
        let (end, mut grown) = (Instant::now() + time, self.grown.clone());
        loop {
            grown.mark_unchanged();
            if let Some(found) = look(&self.book()) {
                return Some(found);
            }
            timeout_at(end, grown.changed()).await.ok()?.unwrap();
        }
    }

    /// Waits for the first line of this kind of this worker.
    pub(crate) async fn event(&self, event: &str, owner: &str) -> Entry {
        let first = |book: &Book| book.entries.iter().find(|entry| entry.is(event, owner)).cloned();
        self.find(&format!("{event} of {owner}"), first).await
    }
}

/// One write to the pipe: the system does not mix those of up to 4 KiB.
fn enter(mut writer: &PipeWriter, line: &Value) {
    writer.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A write as a line. `owner` is the process it came from, whatever it calls itself.
fn line(written: &Written) -> Value {
    let values = &written.question["ExpressionAttributeValues"];
    let key = written.question["Key"]["leaseKey"]["S"].as_str().unwrap_or_default();
    let shard = key.rsplit('/').next().unwrap_or_default();
    let mut line = json!({
        "event": if written.outcome.is_ok() { "wrote" } else { "refused" },
        "owner": written.path,
        "shard": shard,
        "saves": values.get(":checkpoint").is_some() && values.get(":takeId").is_none(),
        "if_epoch": values[":if_epoch"]["N"].as_str().and_then(|epoch| epoch.parse::<u64>().ok()),
    });
    match &written.outcome {
        Ok(row) => line["row"] = row.clone(),
        Err(refusal) => line["why"] = refusal["__type"].clone(),
    }
    line
}

/// Keeps the book until nobody can write any more.
fn keep(reader: PipeReader, book: &Mutex<Book>, news: &watch::Sender<()>) {
    for line in BufReader::new(reader).lines() {
        let at = Instant::now();
        let line: Value = serde_json::from_str(&line.unwrap()).expect("every line is JSON");
        let entry = Entry { at, line };
        let mut book = book.lock().unwrap();
        if let Some(row) = entry.row() {
            book.rows.insert(entry.text("shard").to_owned(), row);
        }
        book.entries.push(entry);
        drop(book);
        news.send_replace(());
    }
}

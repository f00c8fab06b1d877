//! One pipe for everything: the output of the workers, the writes to the table, and the actions of the test. Every
//! writer continues only once its line is in the pipe, so a cause always precedes its effect: the history is in order,
//! even between processes.

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

/// How often to check that this process gets CPU time, and how late that check may be.
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

    /// A text field, or an empty text.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.line[field].as_str().unwrap_or_default()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.line["epoch"].as_u64().unwrap()
    }

    pub(crate) fn is(&self, event: &str, owner: &str) -> bool {
        self.event() == event && self.text("owner") == owner
    }

    /// The written row, if this is an applied write.
    pub(crate) fn row(&self) -> Option<Row> {
        if self.event() == "wrote" { Row::of(&self.line["row"]) } else { None }
    }
}

/// All entries so far, and the rows that result from them.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) entries: Vec<Entry>,
    /// The current rows of the table, by shard.
    pub(crate) rows: BTreeMap<String, Row>,
}

impl History {
    /// The last message of a worker before it ended.
    pub(crate) fn last_message(&self, owner: &str) -> Option<&Entry> {
        let words = ["closed", "error"];
        self.entries.iter().rev().find(|entry| words.contains(&entry.event()) && entry.text("owner") == owner)
    }
}

/// One line per entry, with the seconds since the first entry.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            let since = entry.at - self.entries[0].at;
            writeln!(f, "{:8.3} {}", since.as_secs_f64(), entry.line)?;
        }
        Ok(())
    }
}

/// Writes to the pipe, and collects the history from it.
#[derive(Debug)]
pub(crate) struct Recorder {
    writer: PipeWriter,
    history: Arc<Mutex<History>>,
    grown: watch::Receiver<()>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let (reader, writer) = io::pipe().unwrap();
        let (news, grown) = watch::channel(());
        let history = Arc::default();
        let kept = Arc::clone(&history);
        thread::spawn(move || keep(reader, &kept, &news));
        Self { writer, history, grown }
    }

    /// A writing end of the pipe for a process.
    pub(crate) fn stdout(&self) -> Stdio {
        self.writer.try_clone().unwrap().into()
    }

    /// Records an action on a worker.
    pub(crate) fn action(&self, action: &str, owner: &str) {
        enter(&self.writer, &json!({ "event": action, "owner": owner }));
    }

    /// A function that records writes to a table.
    pub(crate) fn scribe(&self) -> impl Fn(Written) + Send + Sync + use<> {
        let writer = self.writer.try_clone().unwrap();
        move |written| enter(&writer, &line(&written))
    }

    /// Records every stall of the machine, that is, when this process got no CPU time. Then a worker that should take a
    /// shard over probably got none either.
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

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds something in the history.
    pub(crate) async fn find<T>(&self, what: &str, look: impl Fn(&History) -> Option<T>) -> T {
        self.find_within(PATIENCE, look).await.unwrap_or_else(|| panic!("{what}: not within {PATIENCE:?}"))
    }

    /// As [`find`](Self::find), but returns `None` after `time`.
    pub(crate) async fn find_within<T>(&self, time: Duration, look: impl Fn(&History) -> Option<T>) -> Option<T> {
        let (end, mut grown) = (Instant::now() + time, self.grown.clone());
        loop {
            grown.mark_unchanged();
            if let Some(found) = look(&self.history()) {
                return Some(found);
            }
            timeout_at(end, grown.changed()).await.ok()?.unwrap();
        }
    }

    /// Waits for the first event of this kind from this worker.
    pub(crate) async fn event(&self, event: &str, owner: &str) -> Entry {
        let first = |history: &History| history.entries.iter().find(|entry| entry.is(event, owner)).cloned();
        self.find(&format!("{event} of {owner}"), first).await
    }
}

/// One write to the pipe: the system keeps writes of up to 4 KiB atomic.
fn enter(mut writer: &PipeWriter, line: &Value) {
    writer.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A write as a line. `owner` is the process that wrote, whatever owner id it uses.
fn line(written: &Written) -> Value {
    let values = &written.request["ExpressionAttributeValues"];
    let key = written.request["Key"]["leaseKey"]["S"].as_str().unwrap_or_default();
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

/// Collects the history until every writing end of the pipe is closed.
fn keep(reader: PipeReader, history: &Mutex<History>, news: &watch::Sender<()>) {
    for line in BufReader::new(reader).lines() {
        let at = Instant::now();
        let line: Value = serde_json::from_str(&line.unwrap()).expect("every line is JSON");
        let entry = Entry { at, line };
        let mut history = history.lock().unwrap();
        if let Some(row) = entry.row() {
            history.rows.insert(entry.text("shard").to_owned(), row);
        }
        history.entries.push(entry);
        drop(history);
        news.send_replace(());
    }
}

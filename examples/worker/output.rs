//! The output of a worker: one JSON object a line, each in one write, so that several workers can share a pipe.

use std::{
    error::Error,
    io::{self, Write},
    process,
};

use kinesis_stream::{CloseReport, Commit, Delivery, ShardId};
use kinesis_stream_support::chain;
use serde_json::{Value, json};

/// Writes the output.
#[derive(Debug)]
pub(crate) struct Output {
    owner: String,
}

impl Output {
    pub(crate) fn new(owner: String) -> Self {
        Self { owner }
    }

    /// The name of this instance.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Describes a record.
    pub(crate) fn record(delivery: &Delivery) -> Value {
        json!({
            "shard": delivery.shard().as_str(),
            "number": delivery.sequence_number().as_str(),
            "key": delivery.partition_key(),
            "payload": String::from_utf8_lossy(delivery.payload()),
            "epoch": delivery.epoch(),
            "attempt": delivery.attempt(),
        })
    }

    /// The worker has subscribed.
    pub(crate) fn ready(&self) {
        self.print("ready", json!({}));
    }

    /// The work on a record starts.
    pub(crate) fn begun(&self, record: &Value) {
        self.print("begun", record.clone());
    }

    /// The work is done, and the record is not committed yet.
    pub(crate) fn done(&self, record: &Value) {
        self.print("done", record.clone());
    }

    /// The record is committed, with this result.
    pub(crate) fn settled(&self, mut record: Value, commit: Commit) {
        record["commit"] = format!("{commit:?}").to_lowercase().into();
        self.print("settled", record);
    }

    /// Something went wrong.
    pub(crate) fn error(&self, error: &(dyn Error + 'static)) {
        self.print("error", json!({ "error": chain(error) }));
    }

    /// The subscription is closed.
    pub(crate) fn closed(&self, report: &CloseReport) {
        let open: Vec<_> = report.open.iter().map(|open| (open.shard.as_str(), open.deliveries)).collect();
        let unsaved: Vec<_> = report.unsaved.iter().map(ShardId::as_str).collect();
        self.print("closed", json!({ "open": open, "unsaved": unsaved }));
    }

    fn print(&self, event: &str, mut line: Value) {
        line["event"] = event.into();
        line["owner"] = self.owner.as_str().into();
        let text = format!("{line}\n");
        if io::stdout().lock().write_all(text.as_bytes()).is_err() {
            // The reader closed the pipe, as in `worker | head`.
            process::exit(1);
        }
    }
}

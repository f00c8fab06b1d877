//! What a worker says: one JSON object a line, each written in one go, so that several may share a pipe.

use std::{
    error::Error,
    io::{self, Write},
    process,
};

use kinesis_stream::{CloseReport, Commit, Delivery, ShardId};
use kinesis_stream_support::chain;
use serde_json::{Value, json};

/// See the module.
#[derive(Debug)]
pub(crate) struct Lines {
    owner: String,
}

impl Lines {
    pub(crate) fn new(owner: String) -> Self {
        Self { owner }
    }

    /// Who says it.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// What is told of a record.
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

    /// Records come from here on.
    pub(crate) fn ready(&self) {
        self.say("ready", json!({}));
    }

    /// The work on a record begins.
    pub(crate) fn begun(&self, record: &Value) {
        self.say("begun", record.clone());
    }

    /// It is done, and not committed yet.
    pub(crate) fn done(&self, record: &Value) {
        self.say("done", record.clone());
    }

    /// It is committed, and this is what that gave.
    pub(crate) fn settled(&self, mut record: Value, commit: Commit) {
        record["commit"] = format!("{commit:?}").to_lowercase().into();
        self.say("settled", record);
    }

    /// Something went wrong.
    pub(crate) fn error(&self, error: &(dyn Error + 'static)) {
        self.say("error", json!({ "error": chain(error) }));
    }

    /// All is over.
    pub(crate) fn closed(&self, report: &CloseReport) {
        let open: Vec<_> = report.open.iter().map(|open| (open.shard.as_str(), open.deliveries)).collect();
        let unsaved: Vec<_> = report.unsaved.iter().map(ShardId::as_str).collect();
        self.say("closed", json!({ "open": open, "unsaved": unsaved }));
    }

    fn say(&self, event: &str, mut line: Value) {
        line["event"] = event.into();
        line["owner"] = self.owner.as_str().into();
        let text = format!("{line}\n");
        if io::stdout().lock().write_all(text.as_bytes()).is_err() {
            // Nobody listens any more, as in `worker | head`.
            process::exit(1);
        }
    }
}

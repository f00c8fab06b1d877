//! Workers: the example `worker`, each in a separate process.

use std::{
    env,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::OnceLock,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::PATIENCE;

/// A worker process. Dropping this kills it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    child: Child,
}

impl Worker {
    /// Starts a worker.
    pub(crate) fn start(name: &str, arguments: &[String], stdout: Stdio, log: &Path) -> Self {
        let child = Command::new(program())
            .args(arguments)
            .env("RUST_LOG", "kinesis_stream=info")
            .env_remove("AWS_ENDPOINT_URL")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(File::create(log).unwrap())
            .spawn()
            .unwrap();
        Self { name: name.to_owned(), child }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // The process was not reaped yet, so the id is still valid.
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit status, if it ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.ended() {
                Some(status) => return status,
                None => assert!(Instant::now() < end, "{} has not ended in {PATIENCE:?}", self.name),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The up-to-date example: `cargo test --test processes` alone does not build it.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let deps = env::current_exe().unwrap();
        let profile = deps.parent().unwrap().parent().unwrap();
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--message-format=json", "--package", "kinesis-stream"])
            .args(["--features", "dynamodb", "--example", "worker"])
            .args((!profile.ends_with("debug")).then_some("--release"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let messages = String::from_utf8(built.stdout).unwrap();
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut programs = messages.filter(|message| message["target"]["name"] == "worker");
        let program = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
        program.expect("the example `worker` is built")
    })
}

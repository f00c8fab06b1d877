//! The canned service in a process of its own, which ends when its standard input does.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{self, Child, ChildStdout, Command, Stdio},
};

use super::{Canned, Tally, service};
use crate::server::Server;

/// Tells a spawned program that it is to serve, and what.
const VARIABLE: &str = "KINESIS_STREAM_CANNED";

/// A canned service that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
    endpoint: String,
}

impl Process {
    /// Its address, as a URL.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What it was asked so far.
    ///
    /// # Errors
    /// It has ended.
    pub fn tally(&mut self) -> io::Result<Tally> {
        let mut asking = self.child.stdin.as_ref().ok_or_else(|| io::Error::other("a piped input is there"))?;
        asking.write_all(b"\n")?;
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        line.parse().map_err(io::Error::other)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

impl Canned {
    /// Starts this program once more, to serve. Its `main` calls [`serve_if_spawned`] before anything else.
    ///
    /// # Errors
    /// As [`spawn_as`](Self::spawn_as).
    pub fn spawn(&self) -> io::Result<Process> {
        self.spawn_as(&env::current_exe()?)
    }

    /// Starts another program to serve, whose `main` calls [`serve_if_spawned`] before anything else.
    ///
    /// # Errors
    /// The program cannot be started, or does not say where it serves, or this one was itself started to serve.
    pub fn spawn_as(&self, program: &Path) -> io::Result<Process> {
        if env::var_os(VARIABLE).is_some() {
            return Err(io::Error::other("a program that spawns itself must call serve_if_spawned first"));
        }
        let mut command = Command::new(program);
        command.env(VARIABLE, self.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let said = child.stdout.take().ok_or_else(|| io::Error::other("a piped output is there"))?;
        let mut process = Process { child, said: BufReader::new(said), endpoint: String::new() };
        process.said.read_line(&mut process.endpoint)?;
        if process.endpoint.pop().is_none() {
            return Err(io::Error::other("the program ended before it served"));
        }
        Ok(process)
    }
}

/// In a program that [`Canned::spawn`] started: serves, and ends the program. In any other: returns at once.
pub fn serve_if_spawned() {
    if let Some(canned) = env::var(VARIABLE).ok().and_then(|canned| canned.parse().ok()) {
        process::exit(i32::from(serve(canned).is_err()));
    }
}

/// Serves, prints the endpoint, then for each line of standard input what was asked so far, and returns at its end.
///
/// # Errors
/// There is no port, or no standard input or output.
pub fn serve(canned: Canned) -> io::Result<()> {
    let (router, tally) = service::router(canned);
    let server = Server::start("canned-kinesis", router)?;
    println!("{}", server.endpoint());
    for line in io::stdin().lines() {
        line?;
        println!("{}", tally());
    }
    Ok(())
}

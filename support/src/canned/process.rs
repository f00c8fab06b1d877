//! The canned service in a separate process, which ends when its standard input ends.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{self, Child, ChildStdout, Command, Stdio},
};

use super::{Canned, Tally, service};
use crate::server::Server;

/// Tells a spawned program to serve, and with which configuration.
const VARIABLE: &str = "KINESIS_STREAM_CANNED";

/// A running canned service. Dropping it ends the process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    endpoint: String,
}

impl Process {
    /// Its address, as a URL.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The calls so far.
    ///
    /// # Errors
    /// The process has ended.
    pub fn tally(&mut self) -> io::Result<Tally> {
        let mut asking = self.child.stdin.as_ref().ok_or_else(|| io::Error::other("standard input is not piped"))?;
        asking.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.parse().map_err(io::Error::other)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process ends at the end of its input.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

impl Canned {
    /// Starts this program again, to serve. Its `main` must call [`serve_if_spawned`] first.
    ///
    /// # Errors
    /// As [`spawn_as`](Self::spawn_as).
    pub fn spawn(&self) -> io::Result<Process> {
        self.spawn_as(&env::current_exe()?)
    }

    /// Starts another program to serve. Its `main` must call [`serve_if_spawned`] first.
    ///
    /// # Errors
    /// The program does not start or does not print its endpoint, or this program was itself spawned to serve.
    pub fn spawn_as(&self, program: &Path) -> io::Result<Process> {
        if env::var_os(VARIABLE).is_some() {
            return Err(io::Error::other("a program that spawns itself must call serve_if_spawned first"));
        }
        let mut command = Command::new(program);
        command.env(VARIABLE, self.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("standard output is not piped"))?;
        let mut process = Process { child, output: BufReader::new(output), endpoint: String::new() };
        process.output.read_line(&mut process.endpoint)?;
        if process.endpoint.pop().is_none() {
            return Err(io::Error::other("the program ended before it served"));
        }
        Ok(process)
    }
}

/// Serves and then ends the program if [`Canned::spawn`] started it. Returns at once otherwise.
pub fn serve_if_spawned() {
    if let Some(canned) = env::var(VARIABLE).ok().and_then(|canned| canned.parse().ok()) {
        process::exit(i32::from(serve(canned).is_err()));
    }
}

/// Serves and prints the endpoint. Then prints the calls so far for each line of standard input. Returns at its end.
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

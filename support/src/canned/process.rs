//! The canned service in a process of its own, which ends when its standard input does.

use std::{
    env,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{self, Child, Command, Stdio},
};

use super::{Canned, service};
use crate::server::Server;

/// Tells a spawned program that it is to serve, and what.
const VARIABLE: &str = "KINESIS_STREAM_CANNED";

/// A canned service that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    endpoint: String,
}

impl Process {
    /// Its address, as a URL.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
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
        let mut process = Process { child: command.spawn()?, endpoint: String::new() };
        let told = process.child.stdout.take().ok_or_else(|| io::Error::other("a piped output is there"))?;
        BufReader::new(told).read_line(&mut process.endpoint)?;
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

/// Serves, prints the endpoint, and returns at the end of standard input.
///
/// # Errors
/// There is no port, or no standard input or output.
pub fn serve(canned: Canned) -> io::Result<()> {
    let server = Server::start("canned-kinesis", service::router(canned))?;
    println!("{}", server.endpoint());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

//! The emulator in a child process, which ends when its standard input is closed.

use std::{
    env,
    io::{self, BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use kinesis_stream_support::Emulator;

/// The child process. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    endpoint: String,
}

impl Server {
    /// Starts this program again, as the server.
    pub(crate) fn start() -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Self { child: command.spawn()?, endpoint: String::new() };
        let stdout = server.child.stdout.take().ok_or_else(|| io::Error::other("the child has no standard output"))?;
        BufReader::new(stdout).read_line(&mut server.endpoint)?;
        if server.endpoint.pop().is_none() {
            return Err(io::Error::other("the emulator ended before it printed its endpoint"));
        }
        Ok(server)
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Closing its standard input ends it.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Starts the emulator, prints its endpoint, and returns at the end of standard input.
pub(crate) fn serve() -> io::Result<()> {
    let emulator = Emulator::start();
    println!("{}", emulator.endpoint());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

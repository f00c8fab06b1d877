//! The consumer in a child process, which this process kills again and again: with `SIGKILL` on Unix, so it cannot
//! clean up.

use std::{env, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::sleep,
};

use super::{Failure, Options};

/// Consumes all records, with as many processes as that takes. Returns how many of them it killed.
pub(crate) async fn consume(options: &Options, kill_after: usize) -> Result<u32, Failure> {
    let mut kills = 0;
    while kill(start(options)?, kill_after, kills).await? {
        kills += 1;
    }
    Ok(kills)
}

/// Starts this program as the consumer.
fn start(options: &Options) -> Result<Child, Failure> {
    let mut consumer = Command::new(env::current_exe()?);
    consumer.args(["--consume", "--stream", options.stream()]).arg("--db").arg(options.db());
    if let Some(endpoint) = &options.endpoint {
        consumer.args(["--endpoint", endpoint]);
    }
    Ok(consumer.stdout(Stdio::piped()).kill_on_drop(true).spawn()?)
}

/// Kills a consumer once it has inserted `kill_after` rows. Returns false if the consumer ended before.
async fn kill(mut consumer: Child, kill_after: usize, kills: u32) -> Result<bool, Failure> {
    let stdout = consumer.stdout.take().ok_or("the consumer has no output")?;
    let mut batches = BufReader::new(stdout).lines();
    let mut rows = 0;
    while let Some(inserted) = batches.next_line().await? {
        rows += inserted.parse::<usize>()?;
        if rows >= kill_after {
            // It has just committed a transaction. Each consumer dies a bit later than the previous one: before it
            // settles the batch, while it does, after that, or in the middle of the next batch.
            sleep(Duration::from_millis(2) * kills).await;
            consumer.start_kill()?;
            break;
        }
    }
    let status = consumer.wait().await?;
    if !status.success() && rows < kill_after {
        // The consumer has printed the reason.
        return Err(format!("the consumer ended with {status}").into());
    }
    Ok(!status.success())
}

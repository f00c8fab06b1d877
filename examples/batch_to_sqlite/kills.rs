//! The consumer in a process of its own, which is killed again and again: `SIGKILL` on Unix, so it can tidy up nothing.

use std::{env, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::sleep,
};

use super::{Failure, Options};

/// Has everything consumed, over as many processes as that takes, and tells how many of them were killed.
pub(crate) async fn consume(options: &Options, kill_after: usize) -> Result<u32, Failure> {
    let mut kills = 0;
    while kill(start(options)?, kill_after, kills).await? {
        kills += 1;
    }
    Ok(kills)
}

/// This program again, as the consumer.
fn start(options: &Options) -> Result<Child, Failure> {
    let mut consumer = Command::new(env::current_exe()?);
    consumer.args(["--consume", "--stream", options.stream()]).arg("--db").arg(options.db());
    if let Some(endpoint) = &options.endpoint {
        consumer.args(["--endpoint", endpoint]);
    }
    Ok(consumer.stdout(Stdio::piped()).kill_on_drop(true).spawn()?)
}

/// Kills a consumer once it has inserted so many rows. False if it came to its end before.
async fn kill(mut consumer: Child, kill_after: usize, kills: u32) -> Result<bool, Failure> {
    let stdout = consumer.stdout.take().ok_or("the consumer has no output")?;
    let mut batches = BufReader::new(stdout).lines();
    let mut rows = 0;
    while let Some(inserted) = batches.next_line().await? {
        rows += inserted.parse::<usize>()?;
        if rows >= kill_after {
            // It has just committed a transaction. Each one dies a bit later than the one before: before it has settled
            // the batch, while it does, after that, in the middle of the next one.
            sleep(Duration::from_millis(2) * kills).await;
            consumer.start_kill()?;
            break;
        }
    }
    let status = consumer.wait().await?;
    if !status.success() && rows < kill_after {
        // It has said why.
        return Err(format!("the consumer ended with {status}").into());
    }
    Ok(!status.success())
}

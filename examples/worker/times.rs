//! How often and how long: the settings of the library by which instances take over from each other.

use std::time::Duration;

use clap::Args;
use kinesis_stream::KinesisStream;

/// What is not given is as the library has it.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Times, the same for all instances")]
pub(crate) struct Times {
    /// How long a lease lives without a renewal
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    ttl: Option<Duration>,
    /// How often leases are renewed, and those of others looked at
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    renew: Option<Duration>,
    /// How long closing, and handing a shard over, waits for what is in flight
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    drain: Option<Duration>,
    /// The pause after a read that found nothing
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    poll: Option<Duration>,
    /// How often the shards are listed
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    list: Option<Duration>,
}

/// A setting of the descriptor.
type Setting = fn(KinesisStream, Duration) -> KinesisStream;

impl Times {
    pub(crate) fn set(self, stream: KinesisStream) -> KinesisStream {
        let settings: [(Option<Duration>, Setting); 5] = [
            (self.ttl, KinesisStream::lease_ttl),
            (self.renew, KinesisStream::renew_interval),
            (self.drain, KinesisStream::drain_timeout),
            (self.poll, KinesisStream::poll_interval),
            (self.list, KinesisStream::list_interval),
        ];
        let given = settings.into_iter().filter_map(|(time, set)| Some((time?, set)));
        given.fold(stream, |stream, (time, set)| set(stream, time))
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "a number of seconds is needed, as in 1.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

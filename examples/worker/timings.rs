//! The intervals and timeouts that decide how instances take over shards from each other.

use std::time::Duration;

use clap::Args;
use kinesis_stream::KinesisStream;

/// Intervals and timeouts. The library's defaults apply where an option is missing.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Timings, the same for all instances")]
pub(crate) struct Timings {
    /// How long a lease lives without a renewal
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    ttl: Option<Duration>,
    /// How often leases are renewed, and those of other instances read
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    renew: Option<Duration>,
    /// How long closing, and handing a shard over, waits for records in flight
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    drain: Option<Duration>,
    /// The pause after an empty read
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    poll: Option<Duration>,
    /// How often the shards are listed
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    list: Option<Duration>,
}

/// A setter of the descriptor.
type Setting = fn(KinesisStream, Duration) -> KinesisStream;

impl Timings {
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

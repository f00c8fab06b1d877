//! The producer: publishes all events in order of time, many per request. The sink keeps the order of each network.

use kinesis_stream::{KinesisError, Outgoing, Publisher, prelude::*};
use kinesis_stream_support::earthquakes;

use crate::{failure::Failure, progress::Counts};

/// The header with the run to which a record belongs.
pub(crate) const RUN: &str = "run";

/// How many events may be in flight.
const IN_FLIGHT: usize = 1_000;

/// Publishes every event, with its network as the partition key.
pub(crate) async fn publish(publisher: &Publisher, to: &str, run: &str, counts: &Counts) -> Result<(), Failure> {
    let sink = &publisher.sink(to)?;
    let record = |(network, event): (&str, &'static str)| Outgoing::new(network, event).header(RUN, run.to_owned());
    let records: Vec<Outgoing> = earthquakes::by_network().map(record).collect();
    stream::iter(records)
        .map(|record| sink.publish(record))
        .buffered(IN_FLIGHT)
        .map_err(KinesisError::from)
        .try_for_each(async |_| {
            counts.published();
            Ok(())
        })
        .await?;
    Ok(())
}

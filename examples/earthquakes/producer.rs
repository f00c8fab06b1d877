//! The producer: the events of each network one after the other, all networks at once.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use kinesis_stream::{KinesisError, Outgoing, Publisher, prelude::stream};
use kinesis_stream_support::earthquakes;

use crate::{failure::Failure, progress::Counts};

/// The header that names the run to which a record belongs.
pub(crate) const RUN: &str = "run";

/// Publishes every event, with its network as the partition key. One event of a network goes out after the one before it
/// is stored: that is what keeps their order.
pub(crate) async fn publish(publisher: &Publisher, to: &str, run: &str, counts: &Counts) -> Result<(), Failure> {
    let mut networks: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    for (network, event) in earthquakes::by_network() {
        networks.entry(network).or_default().push(event);
    }
    stream::iter(networks.into_iter().map(Ok::<_, KinesisError>))
        .try_for_each_concurrent(None, async |(network, events)| {
            for event in events {
                let event = Outgoing::new(network, event).header(RUN, run.to_owned());
                publisher.publish(to, event).await?;
                counts.published();
            }
            Ok(())
        })
        .await?;
    Ok(())
}

//! Creates, reshards and deletes streams.

use std::error::Error;

use aws_sdk_kinesis::{
    error::DisplayErrorContext, operation::describe_stream_summary::DescribeStreamSummaryError, types::StreamStatus,
};
use tokio::time::{Duration, Instant, sleep};

use super::Harness;
use crate::shard::Shard;

/// How long a stream may take to reach the requested state, and how often to poll it.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(10);

impl Harness {
    /// Creates a stream with this many shards, and waits until it is active.
    ///
    /// # Panics
    /// The service refuses, or takes longer than 30 s.
    pub async fn create_stream(&self, stream: &str, shards: u32) {
        let shards = i32::try_from(shards).expect("a stream has fewer shards than i32::MAX");
        let made = self.client.create_stream().stream_name(stream).shard_count(shards).send().await;
        must("create", stream, made);
        self.wait_for(stream, Some(StreamStatus::Active)).await;
    }

    /// Deletes a stream, and waits until it is gone.
    ///
    /// # Panics
    /// The service refuses, or takes longer than 30 s.
    pub async fn delete_stream(&self, stream: &str) {
        must("delete", stream, self.client.delete_stream().stream_name(stream).send().await);
        self.wait_for(stream, None).await;
    }

    /// The shards of a stream, closed ones too, in the order in which the service lists them.
    ///
    /// # Panics
    /// The service refuses.
    pub async fn shards(&self, stream: &str) -> Vec<Shard> {
        let mut shards = Vec::new();
        let mut page = self.client.list_shards().stream_name(stream).send().await;
        loop {
            let listed = must("list", stream, page);
            shards.extend(listed.shards.into_iter().flatten().map(Shard::from));
            let Some(token) = listed.next_token else { return shards };
            page = self.client.list_shards().next_token(token).send().await;
        }
    }

    /// Splits a shard in the middle, waits until the stream is active again, and returns the children, lower half
    /// first.
    ///
    /// # Panics
    /// There is no such shard, or the service refuses, or takes longer than 30 s.
    pub async fn split(&self, stream: &str, shard: &str) -> [String; 2] {
        let shards = self.shards(stream).await;
        let parent = shards.iter().find(|listed| listed.id == shard).expect("the shard to split is listed");
        let middle = parent.middle().to_string();
        let split = self.client.split_shard().stream_name(stream).shard_to_split(shard).new_starting_hash_key(middle);
        must("split", stream, split.send().await);
        let mut children = self.children(stream, shard).await;
        children.sort_by_key(|child| child.hash_keys);
        let ids: Vec<String> = children.into_iter().map(|child| child.id).collect();
        ids.try_into().expect("a split makes two shards")
    }

    /// Merges two adjacent shards, waits until the stream is active again, and returns the child.
    ///
    /// # Panics
    /// The service refuses, or takes longer than 30 s.
    pub async fn merge(&self, stream: &str, shard: &str, neighbour: &str) -> String {
        let merge = self.client.merge_shards().stream_name(stream).shard_to_merge(shard);
        must("merge", stream, merge.adjacent_shard_to_merge(neighbour).send().await);
        let mut children = self.children(stream, shard).await;
        children.pop().expect("a merge makes a shard").id
    }

    /// The child shards of this shard, once the stream is active.
    async fn children(&self, stream: &str, parent: &str) -> Vec<Shard> {
        self.wait_for(stream, Some(StreamStatus::Active)).await;
        let mut shards = self.shards(stream).await;
        shards.retain(|shard| shard.parents.iter().any(|id| id == parent));
        shards
    }

    /// Waits until the stream has this status. `None` means that the stream does not exist.
    async fn wait_for(&self, stream: &str, wanted: Option<StreamStatus>) {
        let end = Instant::now() + PATIENCE;
        while self.status(stream).await != wanted {
            assert!(Instant::now() < end, "{stream} has not become {wanted:?} in {PATIENCE:?}");
            sleep(POLL_EVERY).await;
        }
    }

    async fn status(&self, stream: &str) -> Option<StreamStatus> {
        let described = self.client.describe_stream_summary().stream_name(stream).send().await;
        if let Err(error) = &described
            && let Some(DescribeStreamSummaryError::ResourceNotFoundException(_)) = error.as_service_error()
        {
            return None;
        }
        must("describe", stream, described).stream_description_summary.map(|summary| summary.stream_status)
    }
}

/// Unwraps the result of a call. A failed call fails the test.
#[track_caller]
pub(super) fn must<T, E: Error>(call: &str, stream: &str, answer: Result<T, E>) -> T {
    answer.unwrap_or_else(|error| panic!("cannot {call} {stream}: {}", DisplayErrorContext(error)))
}

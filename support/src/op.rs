//! The operations of the service, by name.

use axum::http::HeaderMap;

/// An operation of Kinesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// `CreateStream`
    CreateStream,
    /// `DeleteStream`
    DeleteStream,
    /// `DescribeStreamSummary`
    DescribeStreamSummary,
    /// `GetRecords`
    GetRecords,
    /// `GetShardIterator`
    GetShardIterator,
    /// `ListShards`
    ListShards,
    /// `MergeShards`
    MergeShards,
    /// `PutRecord`
    PutRecord,
    /// `PutRecords`
    PutRecords,
    /// `SplitShard`
    SplitShard,
    /// Any other.
    Other,
}

impl Op {
    /// The operation that a request names in its target, `Kinesis_20131202.<operation>`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
        match target.rsplit('.').next().unwrap_or_default() {
            "CreateStream" => Self::CreateStream,
            "DeleteStream" => Self::DeleteStream,
            "DescribeStreamSummary" => Self::DescribeStreamSummary,
            "GetRecords" => Self::GetRecords,
            "GetShardIterator" => Self::GetShardIterator,
            "ListShards" => Self::ListShards,
            "MergeShards" => Self::MergeShards,
            "PutRecord" => Self::PutRecord,
            "PutRecords" => Self::PutRecords,
            "SplitShard" => Self::SplitShard,
            _ => Self::Other,
        }
    }
}

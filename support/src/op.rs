//! The operations of the services, by name.

use axum::http::HeaderMap;

/// An operation of Kinesis, or of DynamoDB.
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
    /// `CreateTable`, of DynamoDB
    CreateTable,
    /// `DeleteItem`, of DynamoDB
    DeleteItem,
    /// `DescribeTable`, of DynamoDB
    DescribeTable,
    /// `GetItem`, of DynamoDB
    GetItem,
    /// `Scan`, of DynamoDB
    Scan,
    /// `UpdateItem`, of DynamoDB
    UpdateItem,
    /// Any other.
    Other,
}

impl Op {
    /// The operation that a request names in its target header, as in `Kinesis_20131202.<operation>`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::named(headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default())
    }

    /// The operation of this target.
    pub(crate) fn named(target: &str) -> Self {
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
            "CreateTable" => Self::CreateTable,
            "DeleteItem" => Self::DeleteItem,
            "DescribeTable" => Self::DescribeTable,
            "GetItem" => Self::GetItem,
            "Scan" => Self::Scan,
            "UpdateItem" => Self::UpdateItem,
            _ => Self::Other,
        }
    }
}

//! Leases in a DynamoDB table: dynoxide in this process, or the server that `KINESIS_STREAM_DYNAMODB_ENDPOINT` names.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

mod consumers;
mod kcl;
mod late;
mod lease_table;
mod lossy;
mod promises;
mod tables;
#[path = "../wire/mod.rs"]
mod wire;

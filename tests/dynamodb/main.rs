//! Leases in a table of DynamoDB: dynoxide in this process, or the server that `KINESIS_STREAM_DYNAMODB_ENDPOINT` names.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

mod consumers;
mod ground;
mod kcl;
mod late;
mod lossy;
mod promises;
mod tables;
#[path = "../wire/mod.rs"]
mod wire;

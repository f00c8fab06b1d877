//! SDK code that Kinesis and DynamoDB share: configuration, credentials and errors.
//!
//! - `config`: loads the SDK's configuration, or checks the one that the user brought, so that the SDK cannot panic.
//! - `classify`: turns an SDK error into a [`ServiceFailure`](crate::error::service::ServiceFailure).
//! - `credentials`: loads credentials in a task of their own, ahead of their end.
//! - `proxy`: which proxy is on the way, and which endpoints are reached directly.
//! - `canned`: an HTTP client with fixed responses, for tests.
//!
//! `broker` loads configurations. `kinesis` and the DynamoDB lease store classify their errors here. The retry rules in
//! the folders above see failure kinds only, never a type of the SDK. Read `config` first.

#[cfg(test)]
pub(crate) mod canned;
pub(crate) mod classify;
pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod proxy;

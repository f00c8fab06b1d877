//! The calls that this library makes on Kinesis, behind a private trait.
//!
//! - `service`: the trait [`Service`] and the values that its calls take.
//! - `answers`: the values that its calls return.
//! - `sdk`: [`SdkService`], which makes the calls with the AWS SDK. Besides `aws`, no other code knows the SDK's
//!   types for Kinesis.
//! - `date_header`: the service's clock, from the `Date` header of a response.
//!
//! Code above this folder sees values of this crate only. An SDK error becomes a
//! [`ServiceFailure`](crate::error::service::ServiceFailure) in [`classify`](crate::aws::classify). Read `service`
//! first, then `sdk`.
//!
//! **Why a private trait.** The library makes seven kinds of call on Kinesis, and all of them go through this trait.
//! Tests put a scripted service here and run all time-driven logic under a paused clock. Tests of the wire format run
//! against an emulator behind a layer of injected faults.

mod answers;
mod date_header;
mod sdk;
mod service;

pub(crate) use self::{
    answers::{Described, Fetched, ListedPage, ListedShard, Placed, Put, RawRecord, ServiceTime, StreamStatus},
    sdk::SdkService,
    service::{Call, Listing, PutEntry, Service},
};

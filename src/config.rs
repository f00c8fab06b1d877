//! What a subscription is configured with: plain values, and pure decisions on them.
//!
//! - `position`: where reading begins: the user's position, the stored checkpoint, and the rules that choose between
//!   them.
//! - `redelivery`: when a record that was given back is redelivered, and when it becomes a dead letter or an error.
//! - `max_age`: which records are too old to be delivered, and what happens to them.
//! - `settings`: all settings of one subscription, with their defaults.
//! - `limits`: the limits of Kinesis, and the checks that refuse a value before a request is sent.
//!
//! The builders in `subscription`, `publishing` and `broker` make these values and document each setting; the folders
//! above only read them. This folder does no I/O and reads no clock: the caller passes the time. Read `position` first,
//! then `settings`.

pub(crate) mod limits;
pub(crate) mod max_age;
pub(crate) mod position;
pub(crate) mod present;
pub(crate) mod redelivery;
pub(crate) mod settings;

//! Kinesis in this process: ferrokinesis behind three layers.
//!
//! From the client inwards:
//!
//! 1. [`faults`]: the faults that a test injects, and the log of calls;
//! 2. the put lock: one `PutRecord` or `PutRecords` at a time. Without it the emulator can deadlock (a reader and a
//!    writer of one stream), and a reader at the tip can overtake a record that has a number but is not stored yet;
//! 3. `faithful`: corrects the responses in which the emulator differs from the service.

use std::{ops::Deref, sync::Arc};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use ferrokinesis::store::StoreOptions;
use tokio::sync::Mutex;

use crate::{
    faithful::{self, Faithful},
    faults::{self, Faults},
    harness::Harness,
    op::Op,
    server::Server,
    wire::BODY_LIMIT,
};

/// An empty Kinesis in this process. It stops when it and every [`Harness`] taken from it are dropped.
///
/// It derefs to its [`Harness`].
#[derive(Clone, Debug)]
pub struct Emulator {
    harness: Harness,
    faults: Faults,
}

impl Emulator {
    /// Starts one with the defaults of [`Builder`].
    ///
    /// # Panics
    /// The system gives no port or no thread.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Configures one that differs from the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The fault layer of this emulator. It starts without rules.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The harness alone. The emulator runs as long as it exists.
    #[must_use]
    pub fn into_harness(self) -> Harness {
        self.harness
    }
}

impl Deref for Emulator {
    type Target = Harness;

    fn deref(&self) -> &Harness {
        &self.harness
    }
}

/// The settings of an emulator.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    iterator_seconds: u64,
    transition_ms: u64,
    shards_per_page: u64,
}

impl Default for Builder {
    fn default() -> Self {
        Self { iterator_seconds: 300, transition_ms: 20, shards_per_page: 1000 }
    }
}

impl Builder {
    /// How long a shard iterator lives, in seconds: 300 by default, as in the service.
    pub fn iterator_seconds(mut self, seconds: u64) -> Self {
        self.iterator_seconds = seconds;
        self
    }

    /// How long creating, updating or deleting a stream takes, in milliseconds: 20 by default.
    pub fn transition_ms(mut self, ms: u64) -> Self {
        self.transition_ms = ms;
        self
    }

    /// The maximum number of shards in one response of `ListShards`: 1,000 by default, as in the service.
    pub fn shards_per_page(mut self, shards: u64) -> Self {
        self.shards_per_page = shards;
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// The system gives no port or no thread.
    #[must_use]
    pub fn start(&self) -> Emulator {
        let faults = Faults::default();
        let server = Server::start("kinesis-emulator", self.router(&faults)).expect("an emulator needs a port");
        Emulator { harness: Harness::on(server), faults }
    }

    fn router(&self, faults: &Faults) -> Router {
        let (emulator, store) = ferrokinesis::create_app(self.options());
        let put_lock = Arc::new(Mutex::new(()));
        emulator
            .layer(DefaultBodyLimit::max(BODY_LIMIT))
            .layer(from_fn_with_state(Faithful::new(store, self.shards_per_page), faithful::layer))
            .layer(from_fn_with_state(put_lock, one_put_at_a_time))
            .layer(from_fn_with_state(faults.clone(), faults::layer))
    }

    fn options(&self) -> StoreOptions {
        StoreOptions {
            create_stream_ms: self.transition_ms,
            delete_stream_ms: self.transition_ms,
            update_stream_ms: self.transition_ms,
            iterator_ttl_seconds: self.iterator_seconds,
            shard_limit: 500,
            ..StoreOptions::default()
        }
    }
}

/// The put lock.
async fn one_put_at_a_time(State(put_lock): State<Arc<Mutex<()>>>, request: Request, next: Next) -> Response {
    let _turn = match Op::of(request.headers()) {
        Op::PutRecord | Op::PutRecords => Some(put_lock.lock().await),
        _ => None,
    };
    next.run(request).await
}

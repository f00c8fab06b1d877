//! Kinesis in this process: ferrokinesis behind three layers.
//!
//! From the client inwards:
//!
//! 1. [`faults`]: what a test wants to go wrong, and the log of calls;
//! 2. the gate: one `PutRecord` or `PutRecords` at a time. Without it the emulator can deadlock (a reader and a
//!    writer of one stream), and a reader at the tip can overtake a record whose number is taken but which is not
//!    stored yet;
//! 3. `faithful`: the answers in which the emulator differs from the service are set right.

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
    ground::Ground,
    op::Op,
    server::Server,
    wire::BODY_LIMIT,
};

/// A Kinesis of one's own: empty, in this process, gone when it and all [`Ground`]s taken from it are dropped.
///
/// It guards the [`Ground`] that it keeps running, and derefs to it.
#[derive(Clone, Debug)]
pub struct Emulator {
    ground: Ground,
    faults: Faults,
}

impl Emulator {
    /// Starts one, as [`Builder`] has it by default.
    ///
    /// # Panics
    /// The system gives no port or no thread.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Prepares one that is to differ from the default.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The faults of this emulator: none yet.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The ground alone. It keeps the emulator running.
    #[must_use]
    pub fn into_ground(self) -> Ground {
        self.ground
    }
}

impl Deref for Emulator {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

/// How an emulator is to be.
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

    /// How long a stream is being created, updated or deleted, in milliseconds: 20 by default.
    pub fn transition_ms(mut self, ms: u64) -> Self {
        self.transition_ms = ms;
        self
    }

    /// How many shards one answer of `ListShards` holds at most: 1,000 by default, as in the service.
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
        Emulator { ground: Ground::on(server), faults }
    }

    fn router(&self, faults: &Faults) -> Router {
        let (emulator, store) = ferrokinesis::create_app(self.options());
        let gate = Arc::new(Mutex::new(()));
        emulator
            .layer(DefaultBodyLimit::max(BODY_LIMIT))
            .layer(from_fn_with_state(Faithful::new(store, self.shards_per_page), faithful::layer))
            .layer(from_fn_with_state(gate, one_put_at_a_time))
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

/// The gate.
async fn one_put_at_a_time(State(gate): State<Arc<Mutex<()>>>, request: Request, next: Next) -> Response {
    let _turn = match Op::of(request.headers()) {
        Op::PutRecord | Op::PutRecords => Some(gate.lock().await),
        _ => None,
    };
    next.run(request).await
}

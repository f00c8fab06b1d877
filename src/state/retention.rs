//! How long the stream keeps records, read when a reader needs to know it.
//!
//! The retention can be raised and lowered while a subscription runs. Readers need it seldom, but often all at once:
//! after an outage, every shard may stand at a record that was trimmed. So they share one call.

use tokio::{
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::{error::service::ServiceFailure, kinesis::Service};

/// How long one response serves all readers.
const LIFETIME: Duration = Duration::from_secs(30);

/// How long a failure serves all readers. A call that hangs for so long counts as one.
const PAUSE: Duration = Duration::from_secs(5);

/// The retention could not be read. It is read again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable;

type Response = Result<Option<Duration>, Unavailable>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Retention(Mutex<Option<(Instant, Response)>>);

impl Retention {
    /// The retention, at most half a minute old. None if the service does not tell.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next caller makes the call again.
    pub(crate) async fn read(&self, service: &dyn Service, stream: &str) -> Response {
        let mut last = self.0.lock().await;
        if let Some((at, response)) = *last
            && Instant::now() < at + if response.is_ok() { LIFETIME } else { PAUSE }
        {
            return response;
        }
        let failed = |failure: ServiceFailure| {
            tracing::debug!(%stream, %failure, "the retention could not be read");
            Unavailable
        };
        let call = tokio::time::timeout(PAUSE, service.describe(stream));
        let response = call
            .await
            .map_or(Err(Unavailable), |described| described.map(|described| described.retention).map_err(failed));
        *last = Some((Instant::now(), response));
        response
    }
}

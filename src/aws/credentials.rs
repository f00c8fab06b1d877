//! Credentials that load in a task of their own.
//!
//! **Why.** The SDK loads credentials inside an attempt of a call, under the timeout of the attempt. A load that takes
//! longer, as with single sign-on, a credential process or a slow STS, is cut off by each attempt and begins again with
//! the next one, without an end. Here a load survives the call that began it, all calls share it, and a call waits for
//! it before its own time begins.
//!
//! Credentials that expire are loaded again ahead of that, while calls still use the old ones.

use std::{
    error::Error,
    fmt,
    sync::{Arc, Mutex},
    time::UNIX_EPOCH,
};

use aws_config::SdkConfig;
use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future},
};
use aws_sdk_kinesis::config::IdentityCache;
use futures::{FutureExt, future::Shared};
use tokio::{
    sync::oneshot,
    time::{Duration, Instant, timeout},
};

use crate::util::{clock, mutex::lock};

/// How long one load may take. A credential process may ask a person.
const LONGEST_LOAD: Duration = Duration::from_mins(2);

/// How far ahead of their end credentials are loaded again, if their life is long enough.
const AHEAD: Duration = Duration::from_mins(5);

/// The last part of their life, in which they are not used: a request takes time, and clocks differ.
const MARGIN: Duration = Duration::from_secs(10);

/// The pause after a refresh that failed or brought credentials that end as soon.
const REFRESH_PAUSE: Duration = Duration::from_secs(10);

/// When credentials without an end are loaded again.
const ENDLESS: Duration = Duration::from_mins(15);

/// No life is longer than this, so that adding it to a time cannot overflow.
const LONGEST_LIFE: Duration = Duration::from_hours(24 * 365);

/// A provider around another one. Clones share the loads and the credentials.
#[derive(Clone)]
pub(crate) struct BackgroundCredentials(Arc<Inner>);

struct Inner {
    provider: SharedCredentialsProvider,
    state: Mutex<LoadState>,
}

#[derive(Default)]
struct LoadState {
    current: Option<(Credentials, Lifetime)>,
    load: Option<Load>,
}

type Loaded = Result<Credentials, LoadError>;
type Load = Shared<oneshot::Receiver<Loaded>>;

/// A load that failed. All calls that waited for it get it.
#[derive(Clone, Debug)]
pub(crate) struct LoadError(Arc<dyn Error + Send + Sync>);

impl LoadError {
    fn new(text: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(text.into().into())
    }

    /// What went wrong.
    pub(crate) fn cause(self) -> Arc<dyn Error + Send + Sync> {
        self.0
    }
}

/// How long credentials are used. Wall time tells that they have expired while the host was suspended.
#[derive(Clone, Copy, Debug)]
struct Lifetime {
    refresh_at: Instant,
    /// The end on the monotonic clock, and in Unix milliseconds.
    end: Option<(Instant, i64)>,
}

/// What to do before credentials are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// Load new ones, and use these meanwhile.
    Refresh,
    /// Wait for new ones.
    Load,
}

impl Lifetime {
    /// The life of credentials that were loaded now.
    fn new(expiry: Option<i64>, now: Instant, unix_now: i64) -> Self {
        let Some(expiry) = expiry else { return Self { refresh_at: now + ENDLESS, end: None } };
        let left = Duration::from_millis(u64::try_from(expiry.saturating_sub(unix_now)).unwrap_or(0)).min(LONGEST_LIFE);
        let (ahead, margin) = (AHEAD.min(left / 4), MARGIN.min(left / 8));
        let margin_millis = i64::try_from(margin.as_millis()).unwrap_or(0);
        let (refresh_after, ends_after) = (left.saturating_sub(ahead), left.saturating_sub(margin));
        Self { refresh_at: now + refresh_after, end: Some((now + ends_after, expiry.saturating_sub(margin_millis))) }
    }

    fn need(&self, now: Instant, unix_now: i64) -> Need {
        if self.end.is_some_and(|(end, unix_end)| now >= end || unix_now >= unix_end) {
            Need::Load
        } else if now >= self.refresh_at {
            Need::Refresh
        } else {
            Need::Nothing
        }
    }
}

/// Makes a configuration load its credentials in a task of their own. None if it has no provider.
pub(crate) fn in_background(config: &SdkConfig) -> (SdkConfig, Option<BackgroundCredentials>) {
    let Some(provider) = config.credentials_provider() else { return (config.clone(), None) };
    let credentials = BackgroundCredentials::new(provider);
    // The provider is the cache. A second one on top would keep credentials that were refreshed.
    let builder = config.clone().into_builder().identity_cache(IdentityCache::no_cache());
    let builder = builder.credentials_provider(SharedCredentialsProvider::new(credentials.clone()));
    (builder.build(), Some(credentials))
}

impl BackgroundCredentials {
    fn new(provider: SharedCredentialsProvider) -> Self {
        Self(Arc::new(Inner { provider, state: Mutex::default() }))
    }

    /// Waits until there are credentials, at most for this time. The load continues after that.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), LoadError> {
        match timeout(limit, self.get()).await {
            Ok(loaded) => loaded.map(drop),
            Err(_) => Err(LoadError::new(format!("the credentials are still being loaded after {limit:?}"))),
        }
    }

    async fn get(&self) -> Loaded {
        let load = {
            let state = &mut *lock(&self.0.state);
            let need = |lifetime: &Lifetime| lifetime.need(Instant::now(), clock::unix_millis());
            match &state.current {
                Some((credentials, lifetime)) if need(lifetime) != Need::Load => {
                    if need(lifetime) == Need::Refresh && state.load.is_none() {
                        state.load = Some(self.begin());
                    }
                    return Ok(credentials.clone());
                }
                _ => state.load.get_or_insert_with(|| self.begin()).clone(),
            }
        };
        let ended = || LoadError::new("the task that loaded the credentials ended");
        let loaded = load.clone().await.unwrap_or_else(|_| Err(ended()));
        // The task removes it, unless it panicked or ended with its runtime.
        lock(&self.0.state).load.take_if(|current| current.ptr_eq(&load));
        loaded
    }

    /// Begins to load.
    fn begin(&self) -> Load {
        let (sender, receiver) = oneshot::channel();
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let loaded = match timeout(LONGEST_LOAD, inner.provider.provide_credentials()).await {
                Ok(Ok(credentials)) => Ok(credentials),
                Ok(Err(error)) => Err(LoadError(Arc::new(error))),
                Err(_) => Err(LoadError(Arc::new(CredentialsError::provider_timed_out(LONGEST_LOAD)))),
            };
            inner.loaded(&loaded);
            // It fails if no call waits.
            let _ = sender.send(loaded);
        });
        receiver.shared()
    }
}

impl Inner {
    fn loaded(&self, loaded: &Loaded) {
        let (now, state) = (Instant::now(), &mut *lock(&self.state));
        state.load = None;
        match loaded {
            Ok(credentials) => {
                let expiry = credentials.expiry().and_then(|expiry| expiry.duration_since(UNIX_EPOCH).ok());
                let expiry = expiry.and_then(|expiry| i64::try_from(expiry.as_millis()).ok());
                let mut lifetime = Lifetime::new(expiry, now, clock::unix_millis());
                lifetime.refresh_at = lifetime.refresh_at.max(now + REFRESH_PAUSE);
                state.current = Some((credentials.clone(), lifetime));
            }
            Err(error) => {
                tracing::warn!(error = %error, cause = %error.0, "the credentials could not be loaded");
                if let Some((_, lifetime)) = &mut state.current {
                    lifetime.refresh_at = now + REFRESH_PAUSE;
                }
            }
        }
    }
}

impl ProvideCredentials for BackgroundCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.get().map(|loaded| loaded.map_err(CredentialsError::provider_error)))
    }
}

impl fmt::Debug for BackgroundCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BackgroundCredentials").field(&self.0.provider).finish()
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no credentials")
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use aws_config::{retry::RetryConfig, timeout::TimeoutConfig};
    use tokio::time::sleep;

    use super::*;
    use crate::{
        aws::canned::Canned,
        error::{chain::Chain, service::FailureKind},
        kinesis::{Listing, SdkService, Service},
    };

    /// A provider that takes time, fails first, and hands out credentials of this life.
    #[derive(Clone, Debug, Default)]
    struct Scripted {
        takes: Duration,
        failures: usize,
        life: Option<Duration>,
        begun: Arc<AtomicUsize>,
    }

    impl ProvideCredentials for Scripted {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let nth = self.begun.fetch_add(1, Ordering::Relaxed);
            future::ProvideCredentials::new(async move {
                sleep(self.takes).await;
                if nth < self.failures {
                    return Err(CredentialsError::not_loaded("the session has ended"));
                }
                let expiry = self.life.map(|life| UNIX_EPOCH + Duration::from_millis(unix_now()) + life);
                Ok(Credentials::new(format!("key{nth}"), "secret", None, expiry, "scripted"))
            })
        }
    }

    fn unix_now() -> u64 {
        u64::try_from(clock::unix_millis()).unwrap()
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Kinesis with these credentials, where one attempt may take a second.
    fn service(provider: &Scripted, answers: usize) -> SdkService {
        let canned = Canned::new(vec![(200, "{}"); answers]);
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(seconds(1.0)).build();
        let provider = SharedCredentialsProvider::new(provider.clone());
        let config = canned.config().credentials_provider(provider).timeout_config(timeouts);
        SdkService::new(&config.retry_config(RetryConfig::disabled()).build())
    }

    // L3
    #[test]
    fn credentials_are_refreshed_ahead_of_their_end_and_not_used_after_it() {
        let (now, hour, minute) = (Instant::now(), 3_600_000, 60_000);
        // Life in milliseconds, time passed on the monotonic clock and on the wall clock, and what is needed.
        let table = [
            (Some(hour), 0, 0, Need::Nothing),
            (Some(hour), 55 * minute - 1, 55 * minute - 1, Need::Nothing),
            (Some(hour), 55 * minute, 55 * minute, Need::Refresh),
            (Some(hour), hour - 10_001, hour - 10_001, Need::Refresh),
            (Some(hour), hour - 10_000, hour - 10_000, Need::Load),
            // The host was suspended, and its monotonic clock stood still.
            (Some(hour), 0, hour - 10_000, Need::Load),
            // Its wall clock was set back.
            (Some(hour), hour, 0, Need::Load),
            (Some(8_000), 5_999, 5_999, Need::Nothing),
            (Some(8_000), 6_000, 6_000, Need::Refresh),
            (Some(8_000), 7_000, 7_000, Need::Load),
            (Some(-5), 0, 0, Need::Load),
            (Some(i64::MAX), hour, hour, Need::Nothing),
            (None, 15 * minute - 1, 15 * minute - 1, Need::Nothing),
            (None, hour * 1_000, hour * 1_000, Need::Refresh),
        ];
        for (life, passed, unix_passed, need) in table {
            let lifetime = Lifetime::new(life, now, 0);
            let later = now + Duration::from_millis(u64::try_from(passed).unwrap());
            assert_eq!(lifetime.need(later, unix_passed), need, "{life:?} after {passed}");
        }
    }

    // L3
    #[tokio::test(start_paused = true)]
    async fn a_load_that_takes_longer_than_an_attempt_is_begun_once_and_finished() {
        for takes in [1.1, 3.5] {
            let provider = Scripted { takes: seconds(takes), ..Scripted::default() };
            let (service, start) = (service(&provider, 2), Instant::now());
            service.list(Listing::Stream("s")).await.unwrap();
            assert_eq!(start.elapsed().as_millis(), seconds(takes).as_millis());
            service.list(Listing::Stream("s")).await.unwrap();
            assert_eq!(provider.begun.load(Ordering::Relaxed), 1);
        }
    }

    // L3
    #[tokio::test(start_paused = true)]
    async fn a_load_survives_the_calls_that_wait_for_it() {
        let provider = Scripted { takes: seconds(3.5), ..Scripted::default() };
        let (service, start) = (service(&provider, 4), Instant::now());
        for _ in 0..3 {
            timeout(seconds(1.0), service.list(Listing::Stream("s"))).await.unwrap_err();
        }
        service.list(Listing::Stream("s")).await.unwrap();
        assert_eq!((start.elapsed().as_millis(), provider.begun.load(Ordering::Relaxed)), (3_500, 1));
    }

    // L3
    #[tokio::test(start_paused = true)]
    async fn a_failed_load_is_a_failure_that_says_so_and_the_next_call_loads_again() {
        let provider = Scripted { takes: seconds(1.5), failures: 2, ..Scripted::default() };
        let service = service(&provider, 1);
        for _ in 0..2 {
            let failed = service.list(Listing::Stream("s")).await.unwrap_err();
            assert_eq!(failed.kind(), FailureKind::Credentials);
            let text = Chain(&failed).to_string();
            assert!(text.starts_with("kinesis:ListShards failed: no credentials: "), "{text}");
            assert!(text.ends_with("the session has ended"), "{text}");
        }
        service.list(Listing::Stream("s")).await.unwrap();
        assert_eq!(provider.begun.load(Ordering::Relaxed), 3);
    }

    // L3
    #[tokio::test(start_paused = true)]
    async fn a_load_that_hangs_is_named_and_begun_again_after_two_minutes() {
        let provider = Scripted { takes: seconds(100_000.0), ..Scripted::default() };
        let credentials = BackgroundCredentials::new(SharedCredentialsProvider::new(provider.clone()));
        let late = credentials.ready(seconds(60.0)).await.unwrap_err();
        assert_eq!(Chain(&late).to_string(), "no credentials: the credentials are still being loaded after 60s");
        let text = Chain(&credentials.ready(seconds(90.0)).await.unwrap_err()).to_string();
        assert!(text.contains("120"), "{text}");
        assert_eq!(provider.begun.load(Ordering::Relaxed), 1);
        credentials.ready(seconds(1.0)).await.unwrap_err();
        assert_eq!(provider.begun.load(Ordering::Relaxed), 2);
    }

    // L3
    #[tokio::test(start_paused = true)]
    async fn a_refresh_keeps_no_call_waiting() {
        let provider = Scripted { takes: seconds(1.5), life: Some(seconds(3_600.0)), ..Scripted::default() };
        let service = service(&provider, 100);
        service.list(Listing::Stream("s")).await.unwrap();
        sleep(seconds(3_400.0)).await;
        for second in 0..4 {
            let start = Instant::now();
            service.list(Listing::Stream("s")).await.unwrap();
            assert_eq!(start.elapsed(), Duration::ZERO, "after {second} s");
            sleep(seconds(1.0)).await;
        }
        assert_eq!(provider.begun.load(Ordering::Relaxed), 2);
    }

    // L3
    #[tokio::test(start_paused = true)]
    async fn calls_at_the_same_time_share_one_load() {
        let provider = Scripted { takes: seconds(2.0), ..Scripted::default() };
        let service = service(&provider, 10);
        let calls = (0..10).map(|_| service.list(Listing::Stream("s")));
        futures::future::try_join_all(calls).await.unwrap();
        assert_eq!(provider.begun.load(Ordering::Relaxed), 1);
    }
}

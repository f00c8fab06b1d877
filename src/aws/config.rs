//! The SDK's configuration: loads it, or checks the one that the user brought. No configuration that passes the check
//! makes the SDK panic.

use std::{fmt, time::Duration};

use aws_config::{
    BehaviorVersion, ConfigLoader, Region, SdkConfig, environment::EnvironmentVariableRegionProvider,
    meta::region::RegionProviderChain, profile::ProfileFileRegionProvider, retry::RetryConfig, timeout::TimeoutConfig,
};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_smithy_runtime::client::defaults::default_http_client_plugin_v2;
use aws_types::{origin::Origin, service_config::ServiceConfigKey};
use http::{Uri, uri::Authority};

use crate::error::KinesisError;

/// The service names under which the environment and profiles configure endpoints.
pub(crate) const KINESIS: &str = "Kinesis";
#[cfg(feature = "dynamodb")]
pub(crate) const DYNAMODB: &str = "DynamoDB";

/// The region for test credentials, if neither the user nor the environment names one.
const TEST_REGION: &str = "us-east-1";

/// Durations above this are refused: the SDK adds some up as floating-point seconds and panics when they overflow,
/// which `Duration::MAX` in the place of "never" provokes.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// How to reach Kinesis. Unset parts come from the SDK's standard chain.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    /// Sign with fixed keys that no AWS account knows and local servers accept.
    pub(crate) test_credentials: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("endpoint", &self.endpoint.as_deref().map(without_user))
            .field("region", &self.region)
            .field("test_credentials", &self.test_credentials)
            .finish()
    }
}

/// A URL without the user and password that it may hold, for texts that people read.
pub(crate) fn without_user(url: &str) -> String {
    let start = url.find("//").map_or(0, |at| at + 2);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    let host = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    format!("{}{}", &url[..start], &url[host..])
}

/// The keys of [`Access::test_credentials`].
pub(crate) fn test_keys() -> Credentials {
    Credentials::new("test", "test", None, None, "test credentials")
}

/// A configuration with these settings instead of its own.
pub(crate) fn with_access(config: SdkConfig, access: &Access) -> Result<SdkConfig, KinesisError> {
    let has_region = config.region().is_some();
    let mut builder = config.into_builder();
    if let Some(endpoint) = &access.endpoint {
        check_endpoint(endpoint)?;
        builder.set_endpoint_url(Some(endpoint.clone()));
        // Otherwise an endpoint of the environment takes precedence.
        builder.insert_origin("endpoint_url", Origin::shared_config());
    }
    if access.test_credentials {
        builder.set_credentials_provider(Some(SharedCredentialsProvider::new(test_keys())));
    }
    if let Some(region) = access.region.clone() {
        builder.set_region(Some(Region::new(region)));
    } else if access.test_credentials && !has_region {
        builder.set_region(Some(Region::from_static(TEST_REGION)));
    }
    Ok(builder.build())
}

/// Loads the configuration for this service. The first request fetches the credentials.
pub(crate) async fn load(access: &Access, service: &str) -> Result<SdkConfig, KinesisError> {
    if let Some(endpoint) = &access.endpoint {
        check_endpoint(endpoint)?;
    }
    check_http_client(has_default_client(BehaviorVersion::latest()))?;
    let config = loader(access).load().await;
    check(&config, service)?;
    Ok(config)
}

fn loader(access: &Access) -> ConfigLoader {
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if let Some(endpoint) = &access.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if access.test_credentials {
        loader = loader.credentials_provider(test_keys()).region(local_region());
    }
    if let Some(region) = &access.region {
        loader = loader.region(Region::new(region.clone()));
    }
    loader
}

/// The standard chain without its last link, the EC2 metadata service: a test would wait for it without an answer.
fn local_region() -> RegionProviderChain {
    RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(Region::from_static(TEST_REGION))
}

/// Checks that a client of this service with this configuration cannot panic.
///
/// It does not ask for a behavior version, sleep implementation, time source or cache: the features with which this
/// crate builds the SDK supply them. They supply an HTTP client only with the feature `default-https-client`.
pub(crate) fn check(config: &SdkConfig, service: &str) -> Result<(), KinesisError> {
    if let Some(endpoint) = endpoint(config, service) {
        check_endpoint(&endpoint)?;
    }
    check_region(config.region())?;
    if config.credentials_provider().is_none() {
        return Err(KinesisError::invalid("credentials", "the SdkConfig holds no credentials provider"));
    }
    let version = || config.behavior_version().unwrap_or_else(BehaviorVersion::latest);
    check_http_client(config.http_client().is_some() || has_default_client(version()))?;
    check_durations(config)
}

/// Whether the SDK brings an HTTP client where the configuration names none. Another crate of the program can have
/// switched that on, so without our own feature the SDK is asked.
fn has_default_client(version: BehaviorVersion) -> bool {
    cfg!(feature = "default-https-client") || default_http_client_plugin_v2(version).is_some()
}

/// Without a client the SDK panics while it loads its standard chain, or fails each call.
fn check_http_client(exists: bool) -> Result<(), KinesisError> {
    if exists {
        return Ok(());
    }
    let remedy = "none is known: enable the cargo feature default-https-client, or set one in an SdkConfig and pass that \
                  to from_config(..)";
    Err(KinesisError::invalid("http_client", remedy))
}

/// The attempt timeouts that can be set: below them no call is answered, above them a dead connection is no news.
const SHORTEST_CALL: Duration = Duration::from_millis(1);
const LONGEST_CALL: Duration = Duration::from_hours(1);

/// Checks that this is a valid timeout for an attempt.
pub(crate) fn check_call_timeout(limit: Duration) -> Result<(), KinesisError> {
    if (SHORTEST_CALL..=LONGEST_CALL).contains(&limit) {
        return Ok(());
    }
    Err(KinesisError::invalid("call_timeout", format!("1 ms to 1 h; given: {limit:?}")))
}

/// Sets the attempt timeout, unless the configuration sets or disables it.
pub(crate) fn with_call_timeout(config: SdkConfig, limit: Duration) -> SdkConfig {
    let timeouts = timeouts(&config, limit);
    config.into_builder().timeout_config(timeouts).build()
}

/// The configuration's timeouts, with this attempt timeout unless the configuration sets or disables it.
pub(crate) fn timeouts(config: &SdkConfig, limit: Duration) -> TimeoutConfig {
    let ours = TimeoutConfig::builder().operation_attempt_timeout(limit);
    match config.timeout_config() {
        Some(theirs) => theirs.to_builder().take_unset_from(ours).build(),
        None => ours.build(),
    }
}

/// The endpoint that a client would use, if it is not the region's default. It can come from the environment or a
/// profile, for this service or for all services; the [`SdkConfig`] itself does not hold it then.
pub(crate) fn endpoint(config: &SdkConfig, service: &str) -> Option<String> {
    let configured = || config.endpoint_url().map(str::to_owned);
    if config.get_origin("endpoint_url").is_client_config() {
        return configured();
    }
    let key = ServiceConfigKey::builder().service_id(service).env("AWS_ENDPOINT_URL").profile("endpoint_url").build();
    let loaded = config.service_config().zip(key.ok()).and_then(|(service, key)| service.load_config(key));
    loaded.or_else(configured)
}

pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), KinesisError> {
    let absolute = endpoint.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some_and(names_a_host)
    });
    if absolute {
        return Ok(());
    }
    Err(KinesisError::invalid(
        "endpoint",
        format!("an absolute http:// or https:// URL is needed; given: {:?}", without_user(endpoint)),
    ))
}

/// Whether the authority names a host and, if it has a port, a valid one: the parser ignores a port that is too large.
fn names_a_host(authority: &Authority) -> bool {
    !authority.host().is_empty() && (authority.port().is_some() || authority.as_str().ends_with(authority.host()))
}

/// The SDK builds a host name from the region, so the region must be a valid label, even if an endpoint is set.
fn check_region(region: Option<&Region>) -> Result<(), KinesisError> {
    let Some(region) = region.map(AsRef::as_ref) else {
        let remedy = "none is known: set AWS_REGION, the region of the AWS profile, or region(..)";
        return Err(KinesisError::invalid("region", remedy));
    };
    let label = (1..=63).contains(&region.len())
        && region.starts_with(|c: char| c.is_ascii_alphanumeric())
        && region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if label {
        return Ok(());
    }
    Err(KinesisError::invalid("region", format!("1 to 63 letters, digits and hyphens are needed; given: {region:?}")))
}

fn check_durations(config: &SdkConfig) -> Result<(), KinesisError> {
    let timeouts = config.timeout_config();
    let retries = config.retry_config();
    let durations = [
        ("connect timeout", timeouts.and_then(TimeoutConfig::connect_timeout)),
        ("operation attempt timeout", timeouts.and_then(TimeoutConfig::operation_attempt_timeout)),
        ("initial backoff", retries.map(RetryConfig::initial_backoff)),
        ("maximum backoff", retries.map(RetryConfig::max_backoff)),
    ];
    match durations.into_iter().find(|(_, duration)| duration.is_some_and(|duration| duration > LONGEST)) {
        Some((what, Some(given))) => {
            let problem = format!("at most a year, or disabled; given: {} seconds", given.as_secs());
            Err(KinesisError::invalid(what, problem))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use aws_config::timeout::TimeoutConfigBuilder;
    use aws_types::{
        sdk_config,
        service_config::{LoadServiceConfig, ServiceConfigKey},
    };

    use super::*;
    use crate::{
        aws::canned::Canned,
        error::chain::Chain,
        kinesis::{SdkService, Service},
    };

    /// The least that passes the check: a region, credentials, and an endpoint without a listener.
    fn minimal() -> sdk_config::Builder {
        let keys = Credentials::new("key", "secret", None, None, "test");
        SdkConfig::builder()
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .endpoint_url("http://127.0.0.1:1")
    }

    fn refusal(config: sdk_config::Builder) -> String {
        check(&config.build(), KINESIS).unwrap_err().to_string()
    }

    // L3
    #[tokio::test]
    async fn a_config_with_a_region_and_credentials_is_enough_to_make_calls() {
        let bare = minimal().retry_config(RetryConfig::disabled()).build();
        assert!(bare.behavior_version().is_none() && bare.sleep_impl().is_none() && bare.http_client().is_none());
        check(&bare, KINESIS).unwrap();
        let failed = SdkService::new(&bare).describe("orders").await.unwrap_err();
        assert!(Chain(&failed).to_string().contains("Connection refused"), "{}", Chain(&failed));
    }

    // L3
    #[test]
    fn a_config_without_a_region_or_credentials_is_refused() {
        assert!(refusal(SdkConfig::builder()).starts_with("invalid region: none is known: set AWS_REGION"));
        assert!(refusal(minimal().region(None)).starts_with("invalid region: none is known: set AWS_REGION"));
        let keyless = SdkConfig::builder().region(Region::from_static("us-east-1"));
        assert_eq!(refusal(keyless), "invalid credentials: the SdkConfig holds no credentials provider");
    }

    // L3
    #[test]
    fn a_build_without_an_http_client_is_refused_with_the_remedy() {
        check_http_client(true).unwrap();
        let refused = check_http_client(false).unwrap_err().to_string();
        assert!(
            refused.starts_with("invalid http_client: none is known: enable the cargo feature default-https-client")
        );
    }

    #[test]
    fn a_region_is_a_label_of_a_host_name() {
        for region in ["us-east-1", "cn-north-1", "test", &"x".repeat(63)] {
            check(&minimal().region(Region::new(region.to_owned())).build(), KINESIS).unwrap();
        }
        for region in ["", "us east", "eu-central-1.evil.example/", "-x", "a\n", "ä", &"x".repeat(64)] {
            let refused = refusal(minimal().region(Region::new(region.to_owned())));
            assert!(refused.ends_with(&format!("given: {region:?}")), "{refused}");
        }
    }

    #[test]
    fn an_endpoint_is_an_absolute_http_url() {
        let good =
            ["http://localhost:4566", "https://kinesis.eu-west-1.amazonaws.com/", "HTTP://[::1]:80", "http://u:p@h/p"];
        for endpoint in good {
            check(&minimal().endpoint_url(endpoint).build(), KINESIS).unwrap();
        }
        let bad = [
            "",
            " ",
            "localhost",
            "localhost:4566",
            "127.0.0.1:4566",
            "//host",
            "http://",
            "http:///path",
            "http://:80",
            "ftp://host",
            "http://a b",
            " http://host",
            "http://host:99999",
            "http://host:x",
            "http://h\u{e4}st",
            "/path",
        ];
        for endpoint in bad {
            let refused = refusal(minimal().endpoint_url(endpoint));
            assert!(refused.ends_with(&format!("given: {endpoint:?}")), "{refused}");
        }
    }

    #[derive(Debug)]
    struct Environment(&'static str);

    impl LoadServiceConfig for Environment {
        fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
            assert_eq!((key.service_id(), key.env(), key.profile()), ("Kinesis", "AWS_ENDPOINT_URL", "endpoint_url"));
            Some(self.0.to_owned())
        }
    }

    // `AWS_ENDPOINT_URL_KINESIS=` makes the SDK panic at the first call.
    #[test]
    fn an_endpoint_from_the_environment_is_checked_like_any_other() {
        check(&minimal().service_config(Environment("http://localhost:4566")).build(), KINESIS).unwrap();
        assert!(refusal(minimal().service_config(Environment(""))).ends_with(r#"given: """#));
    }

    #[test]
    fn a_duration_that_makes_the_sdk_panic_is_refused() {
        let timeouts = |timeouts: TimeoutConfigBuilder| minimal().timeout_config(timeouts.build());
        let max = Duration::MAX;
        let refused = [
            timeouts(TimeoutConfig::builder().connect_timeout(max)),
            timeouts(TimeoutConfig::builder().operation_attempt_timeout(max)),
            minimal().retry_config(RetryConfig::standard().with_initial_backoff(max)),
            minimal().retry_config(RetryConfig::standard().with_max_backoff(max)),
        ];
        for refused in refused.map(refusal) {
            assert!(refused.contains("at most a year"), "{refused}");
        }
    }

    #[test]
    fn a_call_timeout_is_from_a_millisecond_to_an_hour() {
        for limit in [SHORTEST_CALL, Duration::from_secs(30), LONGEST_CALL] {
            check_call_timeout(limit).unwrap();
        }
        for limit in [Duration::ZERO, Duration::from_micros(999), LONGEST_CALL + Duration::from_nanos(1), Duration::MAX]
        {
            let refused = check_call_timeout(limit).unwrap_err().to_string();
            assert_eq!(refused, format!("invalid call_timeout: 1 ms to 1 h; given: {limit:?}"));
        }
    }

    #[test]
    fn a_timeout_of_the_user_takes_precedence_over_the_call_timeout() {
        let attempt = |config: sdk_config::Builder| {
            let limited = with_call_timeout(config.build(), Duration::from_secs(7));
            limited.timeout_config().and_then(TimeoutConfig::operation_attempt_timeout)
        };
        let theirs = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(90)).build();
        let connect = TimeoutConfig::builder().connect_timeout(Duration::from_secs(1)).build();
        assert_eq!(attempt(minimal()), Some(Duration::from_secs(7)));
        assert_eq!(attempt(minimal().timeout_config(connect)), Some(Duration::from_secs(7)));
        assert_eq!(attempt(minimal().timeout_config(theirs)), Some(Duration::from_secs(90)));
        assert_eq!(attempt(minimal().timeout_config(TimeoutConfig::disabled())), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_fails_after_the_call_timeout() {
        let config = with_call_timeout(Canned::new([]).config().build(), Duration::from_secs(7));
        let start = tokio::time::Instant::now();
        SdkService::new(&config).read("i", 1).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_config_that_passes_the_check_never_panics() {
        let year = TimeoutConfig::builder().connect_timeout(LONGEST).operation_attempt_timeout(LONGEST).build();
        let never = TimeoutConfig::builder().read_timeout(Duration::MAX).operation_timeout(Duration::MAX).build();
        let zero = TimeoutConfig::builder().operation_timeout(Duration::ZERO).build();
        let slow = RetryConfig::standard().with_initial_backoff(LONGEST).with_max_backoff(LONGEST);
        let config = || Canned::new([(500, "{}"), (500, "{}")]).config();
        let odd = [
            config().timeout_config(year).retry_config(slow),
            config().timeout_config(never).retry_config(RetryConfig::standard().with_max_attempts(0)),
            config().timeout_config(zero),
            config()
                .timeout_config(TimeoutConfig::disabled())
                .retry_config(RetryConfig::adaptive().with_max_attempts(2)),
            config().use_fips(true).use_dual_stack(true).endpoint_url("http://localhost"),
        ];
        for config in odd.map(sdk_config::Builder::build) {
            check(&config, KINESIS).unwrap();
            let service = SdkService::new(&config);
            service.read("i", 1).await.unwrap_err();
            let minute = Duration::from_mins(1);
            let _ = tokio::time::timeout(minute, service.describe("orders")).await;
        }
    }

    #[tokio::test]
    async fn a_wrong_endpoint_is_refused_before_anything_is_loaded() {
        let access = Access { endpoint: Some("localhost:4566".into()), ..Access::default() };
        let refused = load(&access, KINESIS).await.unwrap_err().to_string();
        assert!(refused.starts_with("invalid endpoint: an absolute http:// or https:// URL is needed"), "{refused}");
        assert!(refused.ends_with(r#"given: "localhost:4566""#), "{refused}");
    }

    #[test]
    fn a_user_and_password_in_an_endpoint_are_not_shown() {
        let table = [
            ("http://user:secret@host/", "http://host/"),
            ("https://user:sec@ret@host:80?a@b", "https://host:80?a@b"),
            ("user:secret@host", "host"),
            ("http://host/a@b", "http://host/a@b"),
            ("http://host", "http://host"),
            ("", ""),
        ];
        for (url, shown) in table {
            assert_eq!(without_user(url), shown);
        }
        let access = Access { endpoint: Some("http://user:secret@host/".into()), ..Access::default() };
        assert!(!format!("{access:?}").contains("secret"));
        let refused = refusal(minimal().endpoint_url("ftp://user:secret@host"));
        assert!(refused.ends_with(r#"given: "ftp://host""#), "{refused}");
    }

    // L3
    #[test]
    fn settings_take_precedence_over_a_given_config_and_fill_its_gaps() {
        let access = Access {
            endpoint: Some("http://localhost:4566".into()),
            region: Some("eu-north-1".into()),
            test_credentials: true,
        };
        for config in [minimal().build(), SdkConfig::builder().build()] {
            let config = with_access(config, &access).unwrap();
            assert_eq!(endpoint(&config, KINESIS).as_deref(), Some("http://localhost:4566"));
            assert_eq!(config.region().map(AsRef::as_ref), Some("eu-north-1"));
            check(&config, KINESIS).unwrap();
        }
        let test_credentials = Access { test_credentials: true, ..Access::default() };
        let bare = with_access(SdkConfig::builder().build(), &test_credentials).unwrap();
        assert_eq!(bare.region().map(AsRef::as_ref), Some(TEST_REGION));
        let kept = with_access(minimal().region(Region::new("eu-west-1")).build(), &test_credentials).unwrap();
        assert_eq!(kept.region().map(AsRef::as_ref), Some("eu-west-1"));
        assert_eq!(kept.endpoint_url(), Some("http://127.0.0.1:1"));
        let wrong = Access { endpoint: Some("localhost".into()), ..Access::default() };
        assert!(with_access(minimal().build(), &wrong).is_err());
    }

    // L3
    #[tokio::test]
    async fn settings_of_the_broker_take_precedence_over_the_standard_chain() {
        let access = Access {
            endpoint: Some("http://localhost:4566".into()),
            region: Some("eu-north-1".into()),
            test_credentials: true,
        };
        let config = load(&access, KINESIS).await.unwrap();
        assert_eq!(config.endpoint_url(), Some("http://localhost:4566"));
        assert_eq!(config.region().map(AsRef::as_ref), Some("eu-north-1"));
        let loaded = load(&Access { region: None, ..access }, KINESIS).await.unwrap();
        assert!(loaded.region().is_some(), "test credentials need no region");
    }
}

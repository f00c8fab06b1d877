//! The proxies that the environment names. The SDK's HTTP client uses them for every endpoint.
//!
//! **A server on this host is reached directly.** A proxy on the way to it is never what a user wants, and an emulator
//! behind a proxy that cannot reach it is an error that nobody understands.
//!
//! **An error names the proxy,** since "connection refused" may be about the proxy.

use std::net::IpAddr;

use aws_config::SdkConfig;
use http::Uri;

/// Makes calls to a server on this host go past proxies. A client that the user brought stays.
#[cfg(feature = "default-https-client")]
pub(crate) fn past_for_this_host(config: SdkConfig, endpoint: Option<&str>) -> SdkConfig {
    let is_plain = |uri: &Uri| uri.scheme_str() == Some("http") && uri.host().is_some_and(is_this_host);
    let direct = endpoint.and_then(|endpoint| endpoint.parse().ok()).is_some_and(|uri| is_plain(&uri));
    if !direct || config.http_client().is_some() {
        return config;
    }
    config.into_builder().http_client(aws_smithy_http_client::Builder::new().build_http()).build()
}

/// Without the SDK's own HTTP client, the user's client decides about proxies.
#[cfg(not(feature = "default-https-client"))]
pub(crate) fn past_for_this_host(config: SdkConfig, _endpoint: Option<&str>) -> SdkConfig {
    config
}

/// Names the proxy on the way to this endpoint, and the variable that sets it. None if there is none, or if it is on
/// this host and reached directly. Without an endpoint, the service is reached by HTTPS.
pub(crate) fn on_the_way(endpoint: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let uri = endpoint.and_then(|endpoint| endpoint.parse::<Uri>().ok()).unwrap_or_default();
    let (is_plain, host) = (uri.scheme_str() == Some("http"), uri.host().unwrap_or("amazonaws.com"));
    let set = |name: &'static str| variable(name).filter(|value| !value.is_empty()).map(|value| (name, value));
    let exceptions = set("NO_PROXY").or_else(|| set("no_proxy")).map(|(_, hosts)| hosts).unwrap_or_default();
    if (is_plain && is_this_host(host)) || exceptions.split(',').any(|exception| is_within(host, exception.trim())) {
        return None;
    }
    let names = if is_plain { ["HTTP_PROXY", "http_proxy"] } else { ["HTTPS_PROXY", "https_proxy"] };
    let (name, proxy) = names.into_iter().chain(["ALL_PROXY", "all_proxy"]).find_map(set)?;
    Some(format!("{} (from {name})", super::config::without_user(&proxy)))
}

fn is_this_host(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Whether the host is this one or below it, as in `NO_PROXY`.
fn is_within(host: &str, exception: &str) -> bool {
    let domain = exception.trim_start_matches('.');
    exception == "*" || !domain.is_empty() && (host == domain || host.ends_with(&format!(".{domain}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // L3
    #[test]
    fn the_proxy_on_the_way_is_named_without_its_password() {
        let proxy = "http://user:secret@proxy:3128";
        let (http, https) = (Some("http://kinesis.test"), Some("https://kinesis.eu-west-1.amazonaws.com"));
        let table: [(_, &[(&str, &str)], _); 11] = [
            (None, &[], None),
            (None, &[("HTTPS_PROXY", proxy)], Some("http://proxy:3128 (from HTTPS_PROXY)")),
            (None, &[("HTTP_PROXY", proxy)], None),
            (https, &[("https_proxy", proxy)], Some("http://proxy:3128 (from https_proxy)")),
            (https, &[("ALL_PROXY", proxy)], Some("http://proxy:3128 (from ALL_PROXY)")),
            (https, &[("ALL_PROXY", proxy), ("NO_PROXY", "localhost, .amazonaws.com")], None),
            (https, &[("ALL_PROXY", proxy), ("NO_PROXY", "*")], None),
            (https, &[("ALL_PROXY", proxy), ("NO_PROXY", "aws.com")], Some("http://proxy:3128 (from ALL_PROXY)")),
            (http, &[("HTTP_PROXY", proxy)], Some("http://proxy:3128 (from HTTP_PROXY)")),
            (Some("http://127.0.0.1:4567"), &[("HTTP_PROXY", proxy), ("ALL_PROXY", proxy)], None),
            (Some("http://[::1]:4567"), &[("HTTP_PROXY", "")], None),
        ];
        for (endpoint, variables, named) in table {
            let variable = |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, to)| (*to).to_owned());
            assert_eq!(on_the_way(endpoint, variable).as_deref(), named, "{endpoint:?} {variables:?}");
        }
    }

    #[cfg(feature = "default-https-client")]
    mod direct {
        use std::{
            env,
            io::{Read, Write},
            net::TcpListener,
            process::Command,
            thread,
        };

        use super::super::*;
        use crate::{
            aws::{
                canned::Canned,
                config::{Access, KINESIS, load},
            },
            kinesis::{Listing, SdkService, Service},
        };

        // L3
        #[test]
        fn only_a_server_on_this_host_is_reached_past_proxies_and_a_client_of_the_user_stays() {
            let changed = |endpoint| past_for_this_host(SdkConfig::builder().build(), endpoint).http_client().is_some();
            for (endpoint, direct) in [
                (Some("http://127.0.0.1:4567"), true),
                (Some("http://localhost:4566/"), true),
                (Some("http://[::1]:80"), true),
                (Some("http://localstack:4566"), false),
                (Some("https://localhost:4566"), false),
                (None, false),
            ] {
                assert_eq!(changed(endpoint), direct, "{endpoint:?}");
            }
            let canned = Canned::new([]);
            let config = past_for_this_host(canned.config().build(), Some("http://127.0.0.1:1"));
            assert!(format!("{:?}", config.http_client()).contains("Canned"));
        }

        /// Serves one empty response, and asks for it as a user's broker does.
        fn list_from_this_host() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
            thread::spawn(move || {
                let (mut stream, mut request) = (listener.accept().unwrap().0, [0; 4_096]);
                assert!(stream.read(&mut request).unwrap() > 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
                while stream.read(&mut request).is_ok_and(|read| read > 0) {}
            });
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let access = Access { endpoint, region: None, test_credentials: true };
                let config = load(&access, KINESIS).await.unwrap();
                SdkService::new(&config).list(Listing::Stream("s")).await.unwrap();
            });
        }

        // L3
        #[test]
        fn a_server_on_this_host_is_reached_although_the_environment_names_a_dead_proxy() {
            const CHILD: &str = "KINESIS_STREAM_BEHIND_A_PROXY";
            if env::var(CHILD).is_ok() {
                return list_from_this_host();
            }
            let this = "aws::proxy::tests::direct::a_server_on_this_host_is_reached_although_the_environment_names_a_dead_proxy";
            let mut child = Command::new(env::current_exe().unwrap());
            for proxy in ["HTTP_PROXY", "ALL_PROXY"] {
                child.env(proxy, "http://127.0.0.1:9");
            }
            let ended = child.args(["--exact", this]).env(CHILD, "1").output().unwrap();
            let told = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && told.contains("1 passed"), "{told}");
        }
    }
}

//! The table: calls on it, its creation, and the texts of its errors.

use std::{
    error::Error,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        create_table::{CreateTableError, builders::CreateTableFluentBuilder},
        describe_table::DescribeTableError,
    },
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus},
};
use tokio::time::{Instant, sleep};

use super::{attribute::KEY, client::ClientSource};
use crate::{
    aws::classify,
    error::{
        KinesisError,
        service::{FailureKind, StoreError, StoreErrorKind},
    },
};

/// How long one call waits for a table that is being created. The library abandons a call after a renewal interval, 3 s
/// by default; before that, this returns an error that says what happens.
const CREATION_WAIT: Duration = Duration::from_secs(2);

/// The pause between two looks at a table that is being created.
const CREATION_POLL: Duration = Duration::from_millis(200);

/// A table and the client for it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: Arc<str>,
    pub(super) source: ClientSource,
    pub(super) create_if_missing: bool,
    /// A call has succeeded, so the table exists. If it is missing later, someone deleted it on purpose.
    seen: Arc<AtomicBool>,
}

/// Names a call in the text of its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallLabel<'a> {
    pub(super) operation: &'static str,
    /// The key of the row.
    pub(super) row: Option<&'a str>,
}

impl Table {
    /// A table by its name, which is checked.
    pub(super) fn new(name: Arc<str>, source: ClientSource) -> Result<Self, KinesisError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if !(3..=255).contains(&name.len()) || !name.chars().all(allowed) {
            let limit = "3 to 255 letters, digits, '_', '.' and '-'";
            return Err(KinesisError::invalid("lease table", format!("{limit}; given: {name:?}")));
        }
        Ok(Self { name, source, create_if_missing: false, seen: Arc::default() })
    }

    /// Makes a call. If the table is missing and `create_if_missing` is set, creates it and makes the call again.
    pub(super) async fn call<T, E, F>(
        &self,
        label: CallLabel<'_>,
        send: impl Fn(Client) -> F + Send + Sync,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
        T: Send,
    {
        let client = self.source.client().await?;
        let mut response = send(client.clone()).await;
        if let Err(error) = &response
            && classify::kind_and_detail(error).0 == FailureKind::NotFound
            && self.create_if_missing
            && !self.seen.load(Ordering::Relaxed)
        {
            self.create(&client).await?;
            response = send(client.clone()).await;
        }
        match response {
            Ok(response) => {
                self.seen.store(true, Ordering::Relaxed);
                Ok(response)
            }
            Err(error) => Err(self.failed(label, &client, error)),
        }
    }

    /// Creates the table, also if another instance does at the same time, and waits until it is active. Each step looks
    /// at the current state, so the next call continues an abandoned one.
    async fn create(&self, client: &Client) -> Result<(), StoreError> {
        let until = Instant::now() + CREATION_WAIT;
        match definition(client, &self.name).send().await {
            Ok(_) => tracing::info!(table = %self.name, "creating the lease table"),
            Err(error) if error.as_service_error().is_some_and(CreateTableError::is_resource_in_use_exception) => {}
            Err(error) => return Err(self.failed(CallLabel { operation: "CreateTable", row: None }, client, error)),
        }
        while !self.is_active(client).await? {
            if Instant::now() + CREATION_POLL > until {
                let table = &self.name;
                let words = "is being created and not active yet, which takes some seconds; the library retries";
                return Err(StoreError::new(format!("table {table:?} {words}")));
            }
            sleep(CREATION_POLL).await;
        }
        Ok(())
    }

    async fn is_active(&self, client: &Client) -> Result<bool, StoreError> {
        match client.describe_table().table_name(&*self.name).send().await {
            Ok(described) => Ok(described.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active)),
            // A new table is not visible everywhere at once.
            Err(error) if error.as_service_error().is_some_and(DescribeTableError::is_resource_not_found_exception) => {
                Ok(false)
            }
            Err(error) => Err(self.failed(CallLabel { operation: "DescribeTable", row: None }, client, error)),
        }
    }

    /// The error of a failed call: the table, the operation, the reason, and what to do.
    fn failed<E>(&self, label: CallLabel<'_>, client: &Client, error: SdkError<E, HttpResponse>) -> StoreError
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let (kind, detail) = classify::kind_and_detail(&error);
        let region = client.config().region().map_or("none", AsRef::as_ref);
        let has_another_key = is_about_the_key(error.code(), error.message());
        let remedy = match kind {
            _ if has_another_key => format!(
                "; the table has another key: give the leases a table whose only key is {KEY:?}, a string (HASH), as the \
                 documentation of DynamoDbLeaseStore shows"
            ),
            FailureKind::NotFound => format!(
                "; there is no such table in region {region:?}: look at the region, create the table as the \
                 documentation of DynamoDbLeaseStore shows, or call create_if_missing()"
            ),
            FailureKind::Denied => {
                format!("; it needs credentials that allow dynamodb:{} on this table", label.operation)
            }
            FailureKind::Throttled => {
                "; the table has no capacity left: bill it on demand, or provision more".to_owned()
            }
            FailureKind::Unreachable => format!("; check the network, the endpoint and the region ({region})"),
            _ => String::new(),
        };
        let table = &self.name;
        let is_denied = matches!(error.code(), Some("AccessDeniedException" | "AccessDenied" | "NotAuthorized"));
        let store_kind = match kind {
            _ if has_another_key || is_denied => StoreErrorKind::Unusable,
            FailureKind::NotFound => StoreErrorKind::Unusable,
            // A key that does not exist, or a wrong signature: new credentials may come.
            FailureKind::Denied | FailureKind::Credentials => StoreErrorKind::Credentials,
            _ => StoreErrorKind::Temporary,
        };
        let failure =
            StoreError::new(format!("table {table:?}, {label} failed: {detail}{remedy}")).with_kind(store_kind);
        if classify::is_answer(&error) { failure.summing_up(error) } else { failure.caused_by(error) }
    }
}

/// Whether the service rejects the key of a row: every call names it in the same form, so the table has another key.
fn is_about_the_key(code: Option<&str>, message: Option<&str>) -> bool {
    code == Some("ValidationException") && message.is_some_and(|message| message.to_lowercase().contains("key"))
}

/// The definition of a table as the KCL makes it: the key of the lease and nothing else.
fn definition(client: &Client, name: &str) -> CreateTableFluentBuilder {
    let key = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash).build();
    let attribute = AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S).build();
    client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_key_schema(key.ok().map(|key| vec![key]))
        .set_attribute_definitions(attribute.ok().map(|attribute| vec![attribute]))
}

impl fmt::Display for CallLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row {
            Some(row) => write!(f, "row {row:?}: {}", self.operation),
            None => f.write_str(self.operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_key_is_told_from_other_rejected_requests() {
        let table = [
            ("ValidationException", "The provided key element does not match the schema", true),
            ("ValidationException", "One or more parameter values were invalid: Type mismatch for key leaseKey", true),
            ("ValidationException", "One or more parameter values were invalid: Missing the key id in the item", true),
            ("ValidationException", "Item size to update has exceeded the maximum allowed size", false),
            ("ResourceNotFoundException", "no key", false),
        ];
        for (code, message, is_about_the_key) in table {
            assert_eq!(super::is_about_the_key(Some(code), Some(message)), is_about_the_key, "{message}");
        }
        assert!(!super::is_about_the_key(Some("ValidationException"), None));
    }

    #[test]
    fn the_name_of_a_table_is_checked_before_any_call() {
        let table = |name: &str| {
            Table::new(name.into(), ClientSource::StandardChain(super::super::client::StandardChain::default()))
        };
        for name in ["abc", "my-leases_v1.2", &"x".repeat(255)] {
            table(name).unwrap();
        }
        for name in ["", "ab", "a/b", "a b", "ärz", "abc\n", &"x".repeat(256)] {
            let refused = table(name).unwrap_err().to_string();
            assert!(refused.starts_with("invalid lease table: 3 to 255 letters"), "{refused}");
            assert!(refused.ends_with(&format!("given: {name:?}")), "{refused}");
        }
    }
}

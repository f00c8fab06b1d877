//! The table: calls on it, its creation, and what is said when a call fails.

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

use super::{attribute::KEY, client::Source};
use crate::{
    aws::classify,
    error::{
        KinesisError,
        service::{FailureKind, StoreError},
    },
};

/// How long one call waits for a table that is being created. The library gives a call up after a renewal interval,
/// 3 s by default, and an error that says what is going on is better than that.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: Arc<str>,
    pub(super) source: Source,
    pub(super) create_if_missing: bool,
    /// A call was answered: the table is there, and one that is missing later was deleted on purpose.
    seen: Arc<AtomicBool>,
}

/// A call, for the text of its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) operation: &'static str,
    /// The key of the row.
    pub(super) row: Option<&'a str>,
}

impl Table {
    /// A table by its name, which is checked.
    pub(super) fn new(name: Arc<str>, source: Source) -> Result<Self, KinesisError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if !(3..=255).contains(&name.len()) || !name.chars().all(allowed) {
            let limit = "3 to 255 letters, digits, '_', '.' and '-'";
            return Err(KinesisError::invalid("lease table", format!("{limit}; given: {name:?}")));
        }
        Ok(Self { name, source, create_if_missing: false, seen: Arc::default() })
    }

    /// Makes a call, and creates the table first if it is missing and is to be created.
    pub(super) async fn call<T, E, F>(
        &self,
        asked: Asked<'_>,
        send: impl Fn(Client) -> F + Send + Sync,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
        T: Send,
    {
        let client = self.source.client().await?;
        let mut answer = send(client.clone()).await;
        if let Err(error) = &answer
            && classify::told(error).0 == FailureKind::NotFound
            && self.create_if_missing
            && !self.seen.load(Ordering::Relaxed)
        {
            self.create(&client).await?;
            answer = send(client.clone()).await;
        }
        match answer {
            Ok(answer) => {
                self.seen.store(true, Ordering::Relaxed);
                Ok(answer)
            }
            Err(error) => Err(self.failed(asked, &client, error)),
        }
    }

    /// Creates the table, or finds that somebody does, and waits for it. Each step looks at what there is, so a call
    /// that is given up in the middle is gone on with by the next one.
    async fn create(&self, client: &Client) -> Result<(), StoreError> {
        let until = Instant::now() + PATIENCE;
        match definition(client, &self.name).send().await {
            Ok(_) => tracing::info!(table = %self.name, "the lease table is being created"),
            Err(error) if error.as_service_error().is_some_and(CreateTableError::is_resource_in_use_exception) => {}
            Err(error) => return Err(self.failed(Asked { operation: "CreateTable", row: None }, client, error)),
        }
        while !self.is_active(client).await? {
            if Instant::now() + LOOK_AGAIN > until {
                let table = &self.name;
                let words = "is being created and not active yet, which takes some seconds; it is tried again";
                return Err(StoreError::new(format!("table {table:?} {words}")));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    async fn is_active(&self, client: &Client) -> Result<bool, StoreError> {
        match client.describe_table().table_name(&*self.name).send().await {
            Ok(described) => Ok(described.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active)),
            // A table that was just created is not seen everywhere at once.
            Err(error) if error.as_service_error().is_some_and(DescribeTableError::is_resource_not_found_exception) => {
                Ok(false)
            }
            Err(error) => Err(self.failed(Asked { operation: "DescribeTable", row: None }, client, error)),
        }
    }

    /// Puts a failure into words: where, what, why, and what to do about it.
    fn failed<E>(&self, asked: Asked<'_>, client: &Client, error: SdkError<E, HttpResponse>) -> StoreError
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let (kind, detail) = classify::told(&error);
        let region = client.config().region().map_or("none", AsRef::as_ref);
        let remedy = match kind {
            FailureKind::NotFound => format!(
                "; there is no such table in region {region:?}: look at the region, create the table as the \
                 documentation of DynamoDbLeaseStore shows, or have it created with create_if_missing()"
            ),
            FailureKind::Denied => {
                format!("; it needs credentials that allow dynamodb:{} on this table", asked.operation)
            }
            FailureKind::Throttled => {
                "; the capacity of the table is spent: bill it on demand, or provision more".to_owned()
            }
            FailureKind::Unreachable => format!("; look at the network, the endpoint and the region ({region})"),
            _ => String::new(),
        };
        let table = &self.name;
        let failure = StoreError::new(format!("table {table:?}, {asked} failed: {detail}{remedy}"));
        if classify::is_answer(&error) { failure.summing_up(error) } else { failure.caused_by(error) }
    }
}

/// A table as the KCL has it: the key of the lease, and nothing beside it.
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

impl fmt::Display for Asked<'_> {
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
    fn the_name_of_a_table_is_checked_before_anything_is_sent() {
        let table = |name: &str| Table::new(name.into(), Source::Chain(super::super::client::Chain::default()));
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

//! A DynamoDB to test against: dynoxide in this process, or an external server.

use std::{collections::HashMap, env, io, sync::Arc};

use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Builder, Config, Credentials, Region, retry::RetryConfig},
    types::{AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};

use crate::server::Server;

mod watch;

pub use self::watch::Written;

/// The environment variable that names a server for [`DynamoDb::from_env`] to use instead of an embedded one.
pub const DYNAMODB_VARIABLE: &str = "KINESIS_STREAM_DYNAMODB_ENDPOINT";

/// A DynamoDB to test against. Clones share one server.
///
/// A helper that fails panics and names the call.
#[derive(Clone, Debug)]
pub struct DynamoDb {
    endpoint: String,
    client: Client,
    /// Runs as long as any clone. `None` if the server is external.
    _server: Option<Arc<Server>>,
}

impl DynamoDb {
    /// Starts an empty one in this process. It stops with its last clone.
    ///
    /// # Panics
    /// The system gives no port or no thread.
    #[must_use]
    pub fn start() -> Self {
        let database = dynoxide::Database::memory().expect("a database in memory needs nothing");
        let server = Server::host("dynamodb-emulator", |listener| async move {
            let never = std::future::pending();
            dynoxide::server::serve_with_shutdown(listener, database, never).await.map_err(io::Error::other)
        });
        let server = server.expect("an emulator needs a port");
        Self { client: client(&server.endpoint()), endpoint: server.endpoint(), _server: Some(Arc::new(server)) }
    }

    /// The server that `KINESIS_STREAM_DYNAMODB_ENDPOINT` names, which other tests may share, or else a new embedded
    /// one.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn from_env() -> Self {
        match env::var(DYNAMODB_VARIABLE) {
            Ok(endpoint) => Self { client: client(&endpoint), endpoint, _server: None },
            Err(_) => Self::start(),
        }
    }

    /// Its address, as a URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// A client of it: test credentials, us-east-1, no retries.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The configuration of such a client, except that the SDK's retries are on.
    #[must_use]
    pub fn config(&self) -> Builder {
        config(&self.endpoint)
    }

    /// Creates a table with this hash key, a string.
    ///
    /// # Panics
    /// The server refuses.
    pub async fn create_table(&self, table: &str, key: &str) {
        let schema = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash);
        let attribute = AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S);
        let create = self.client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
        let create = create.key_schema(schema.build().expect("it is complete"));
        let create = create.attribute_definitions(attribute.build().expect("it is complete"));
        create.send().await.unwrap_or_else(|error| panic!("create {table}: {error:?}"));
    }

    /// Puts an item as it is.
    ///
    /// # Panics
    /// The server refuses.
    pub async fn put(&self, table: &str, item: HashMap<String, AttributeValue>) {
        let put = self.client.put_item().table_name(table).set_item(Some(item)).send().await;
        put.unwrap_or_else(|error| panic!("put into {table}: {error:?}"));
    }

    /// The item with this key.
    ///
    /// # Panics
    /// The server refuses, or there is none.
    pub async fn item(&self, table: &str, key: &str, value: &str) -> HashMap<String, AttributeValue> {
        let get = self.client.get_item().table_name(table).key(key, AttributeValue::S(value.to_owned()));
        let got = get.consistent_read(true).send().await.unwrap_or_else(|error| panic!("get {value}: {error:?}"));
        got.item.unwrap_or_else(|| panic!("there is no item {value}"))
    }
}

fn client(endpoint: &str) -> Client {
    Client::from_conf(config(endpoint).retry_config(RetryConfig::disabled()).build())
}

fn config(endpoint: &str) -> Builder {
    let credentials = Credentials::builder()
        .access_key_id("test")
        .secret_access_key("test")
        .provider_name("kinesis-stream-support")
        .build();
    Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(credentials)
        .endpoint_url(endpoint)
}

//! The reads. All are consistent: they show every write that was applied before.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    DynamoDbLeaseStore,
    attribute::{Item, KEY, text},
    table::CallLabel,
};
use crate::{
    error::service::StoreError,
    lease::{Lease, LeaseKey, Leases},
};

/// How long one page of a scan may take, repeats included. A scan as a whole takes as long as its pages do.
const PAGE_LIMIT: Duration = Duration::from_secs(10);

/// The pause before a page is repeated. The SDK has already repeated the call with its own pauses.
const PAGE_PAUSE: Duration = Duration::from_secs(1);

impl DynamoDbLeaseStore {
    /// The rows of one consumer and stream. The row's key is the only key of the table, so this scans the whole table;
    /// DynamoDB filters out the rows of others.
    pub(super) async fn scan(&self, consumer: &str, stream: &str) -> Result<Leases, StoreError> {
        let prefix = self.keys.prefix(consumer, stream)?;
        let (mut leases, mut from) = (Leases::default(), None);
        for number in 1_u64.. {
            let (rows, next) = self.page_in_time(prefix.as_deref(), from.clone(), number).await?;
            for item in &rows {
                let row = self.row(item);
                if let Some(shard) = self.keys.shard(consumer, stream, row.key())
                    && row.is_lease()
                {
                    let key = LeaseKey { consumer: consumer.into(), stream: stream.into(), shard };
                    leases.push(key.clone(), row.lease(key));
                }
            }
            if next.is_some() && next == from {
                let table = &self.table.name;
                return Err(StoreError::new(format!(
                    "table {table:?}, Scan failed: it has no end, since page {number} ends where it began"
                )));
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
        Ok(leases)
    }

    /// One page, within its limit. A page that fails is repeated, so that one throttled call does not cost the pages
    /// that came before.
    async fn page_in_time(
        &self,
        prefix: Option<&str>,
        from: Option<Item>,
        number: u64,
    ) -> Result<(Vec<Item>, Option<Item>), StoreError> {
        let until = Instant::now() + PAGE_LIMIT;
        loop {
            match timeout_at(until, self.page(prefix, from.clone())).await {
                Ok(Err(_)) if number > 1 && Instant::now() + PAGE_PAUSE < until => sleep(PAGE_PAUSE).await,
                Ok(page) => return page,
                Err(_) => {
                    let table = &self.table.name;
                    return Err(StoreError::new(format!(
                        "table {table:?}, Scan failed: page {number} has no answer within {PAGE_LIMIT:?}"
                    )));
                }
            }
        }
    }

    /// One page of at most a megabyte before filtering, and the key at which the next page begins.
    async fn page(&self, prefix: Option<&str>, from: Option<Item>) -> Result<(Vec<Item>, Option<Item>), StoreError> {
        let send = |client: Client| {
            let mut call =
                client.scan().table_name(&*self.table.name).consistent_read(true).set_exclusive_start_key(from.clone());
            if let Some(prefix) = prefix {
                call = call
                    .filter_expression("begins_with(#key, :prefix)")
                    .expression_attribute_names("#key", KEY)
                    .expression_attribute_values(":prefix", text(prefix));
            }
            call.send()
        };
        let page = self.table.call(CallLabel { operation: "Scan", row: None }, send).await?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key.filter(|key| !key.is_empty())))
    }

    /// One row.
    pub(super) async fn find(&self, key: &LeaseKey) -> Result<Option<Lease>, StoreError> {
        let row = self.keys.text(key)?;
        let send = |client: Client| {
            client.get_item().table_name(&*self.table.name).key(KEY, text(&row)).consistent_read(true).send()
        };
        let found = self.table.call(CallLabel { operation: "GetItem", row: Some(&row) }, send).await?;
        found.item.map(|item| self.row(&item).lease(key.clone())).transpose()
    }
}

//! The hash key of a row, made of consumer, stream and shard.

use std::sync::{Arc, OnceLock};

use crate::{
    error::service::{StoreError, StoreErrorKind},
    lease::LeaseKey,
    types::id::ShardId,
};

const SEPARATOR: char = '/';

/// The two formats of keys.
#[derive(Clone, Debug)]
pub(super) enum Keys {
    /// `consumer/stream/shard`. Stream and shard contain no separator, so the key is parsed from the right.
    Joined,
    /// The shard alone, as in a KCL table for one stream. The first call decides which consumer and stream own the
    /// rows.
    Bare(Arc<OnceLock<(Arc<str>, Arc<str>)>>),
}

impl Keys {
    /// The shard alone.
    pub(super) fn bare() -> Self {
        Self::Bare(Arc::default())
    }

    /// The key of a row.
    pub(super) fn text(&self, key: &LeaseKey) -> Result<String, StoreError> {
        self.check(&key.consumer, &key.stream)?;
        if key.stream.contains(SEPARATOR) || key.shard.as_str().contains(SEPARATOR) {
            return Err(StoreError::new(format!("a stream or shard has no {SEPARATOR:?} in its name: {key}")));
        }
        Ok(match self {
            Self::Joined => key.to_string(),
            Self::Bare(_) => key.shard.to_string(),
        })
    }

    /// The prefix of the keys of a consumer's rows of a stream; none if all rows are theirs.
    pub(super) fn prefix(&self, consumer: &str, stream: &str) -> Result<Option<String>, StoreError> {
        self.check(consumer, stream)?;
        Ok(match self {
            Self::Joined => Some(format!("{consumer}{SEPARATOR}{stream}{SEPARATOR}")),
            Self::Bare(_) => None,
        })
    }

    /// The shard of a row, if it is a row of this consumer and stream.
    pub(super) fn shard(&self, consumer: &str, stream: &str, text: &str) -> Option<ShardId> {
        let shard = match self {
            Self::Joined => {
                let (rest, shard) = text.rsplit_once(SEPARATOR)?;
                (!shard.is_empty() && rest.rsplit_once(SEPARATOR)? == (consumer, stream)).then_some(shard)
            }
            Self::Bare(_) => is_shard_id(text).then_some(text),
        };
        shard.map(ShardId::from)
    }

    /// A table of bare shard ids cannot tell two streams apart.
    fn check(&self, consumer: &str, stream: &str) -> Result<(), StoreError> {
        let Self::Bare(owner) = self else { return Ok(()) };
        let (own_consumer, own_stream) = owner.get_or_init(|| (consumer.into(), stream.into()));
        if (&**own_consumer, &**own_stream) == (consumer, stream) {
            return Ok(());
        }
        Err(StoreError::new(format!(
            "a table of bare shard ids is for one consumer and one stream: this store has those of consumer \
             {own_consumer:?} and stream {own_stream:?}, so consumer {consumer:?} needs another table for stream {stream:?}"
        ))
        .with_kind(StoreErrorKind::Unusable))
    }
}

/// Other keys have other characters as well: those of the KCL for several streams, and joined keys.
fn is_shard_id(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(consumer: &str, stream: &str, shard: &str) -> LeaseKey {
        LeaseKey { consumer: consumer.into(), stream: stream.into(), shard: shard.into() }
    }

    // S4
    #[test]
    fn a_key_is_read_as_it_was_written_for_any_name_of_a_consumer() {
        for consumer in ["default", "", "a/b", "a/", "/", "ä \"'#:", "a/s/x"] {
            let text = Keys::Joined.text(&key(consumer, "s", "shardId-0")).unwrap();
            assert!(text.starts_with(&Keys::Joined.prefix(consumer, "s").unwrap().unwrap()));
            assert_eq!(Keys::Joined.shard(consumer, "s", &text), Some("shardId-0".into()), "{text}");
            assert_eq!(Keys::Joined.shard("a", "b", &text), None, "{text}");
        }
        // The key of one consumer may begin with the prefix of another.
        assert_eq!(Keys::Joined.shard("a", "s", "a/s/t/shardId-0"), None);
        assert_eq!(Keys::Joined.shard("a", "s", "a/s/"), None);
        assert!(Keys::Joined.text(&key("a", "b/c", "x")).is_err());
    }

    #[test]
    fn a_bare_key_is_the_shard_alone() {
        let keys = Keys::bare();
        assert_eq!(keys.text(&key("app", "orders", "shardId-0")).unwrap(), "shardId-0");
        assert_eq!(keys.prefix("app", "orders").unwrap(), None);
        assert_eq!(keys.shard("app", "orders", "shardId-0"), Some("shardId-0".into()));
        for other in ["", "app/orders/shardId-0", "123456789012:orders:1700000000:shardId-0"] {
            assert_eq!(keys.shard("app", "orders", other), None, "{other}");
        }
    }

    #[test]
    fn bare_keys_belong_to_the_first_consumer_and_stream() {
        let keys = Keys::bare();
        keys.prefix("app", "orders").unwrap();
        let error = keys.text(&key("app", "returns", "shardId-0")).unwrap_err().to_string();
        assert!(error.contains(r#"consumer "app" needs another table for stream "returns""#), "{error}");
        keys.text(&key("app", "orders", "shardId-0")).unwrap();
    }
}

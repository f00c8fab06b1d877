//! The names that Kinesis gives: ids of shards, and sequence numbers of records.

use std::{fmt, sync::Arc};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the text unchanged and unchecked, since only the service knows which values are valid.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text as Kinesis writes it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }
    };
}

name! {
    /// A shard's id, as in `shardId-000000000000`. Cheap to clone.
    ///
    /// Ids are ordered as text, so that a map of shards has the same order on every run.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    ShardId
}

name! {
    /// The position of a record in its shard: a decimal number of up to 128 digits. Cheap to clone.
    ///
    /// Sequence numbers can be compared for equality, but deliberately not ordered. The order of a shard is the order
    /// in which it delivered its records. The ending number of a closed shard, and the numbers of some servers, do not
    /// sort that way.
    ///
    /// ```
    /// use kinesis_stream::SequenceNumber;
    ///
    /// let place = SequenceNumber::new("49590338271490256608559692538361571095921575989136588898");
    /// assert_eq!(place, place.clone());
    /// assert!(place.as_str().starts_with("4959"));
    /// ```
    #[derive(Clone, PartialEq, Eq, Hash)]
    SequenceNumber
}

//! The descriptor of a subscription: which stream to read, from which position, and how.
//!
//! The setters are the reference of all settings. Each says its unit, default, reason and limits; `checked` holds them.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use crate::{
    config::{
        limits::{RECORDS_OF_A_READ, check_stream_name, within},
        max_age::TooOld,
        position::KinesisPosition,
        redelivery::DeadLetterFormat,
        settings::{OnDrop, Settings},
    },
    error::KinesisError,
};

/// The longest pause between two reads of an idle shard: a shard iterator expires after five minutes.
const LONGEST_POLL_INTERVAL: Duration = Duration::from_mins(4);

/// A stream to subscribe to, and how to read it. A `&str` converts to one with every setting at its default.
///
/// `subscribe` checks all settings before it sends anything. A setting outside of its limits is a
/// [`KinesisError::Invalid`] that names the setting, the limit and the value.
///
/// - Where to begin: [`initial_position`](Self::initial_position), [`start_at`](Self::start_at),
///   [`create_if_missing`](Self::create_if_missing).
/// - Where to end: [`stop_at_tip`](Self::stop_at_tip), [`drain_timeout`](Self::drain_timeout).
/// - Records that fail: [`on_drop`](Self::on_drop), [`retry_backoff`](Self::retry_backoff),
///   [`max_attempts`](Self::max_attempts), [`dead_letter`](Self::dead_letter),
///   [`dead_letter_if_missing`](Self::dead_letter_if_missing), [`dead_letter_format`](Self::dead_letter_format).
/// - Records that are too old: [`max_age`](Self::max_age), [`too_old`](Self::too_old).
/// - Latency and reads: [`poll_interval`](Self::poll_interval), [`read_limit`](Self::read_limit),
///   [`reads_per_second`](Self::reads_per_second).
/// - Memory: [`max_in_flight`](Self::max_in_flight), [`max_buffered_bytes`](Self::max_buffered_bytes).
/// - Leases: [`checkpoint_interval`](Self::checkpoint_interval), [`renew_interval`](Self::renew_interval),
///   [`lease_ttl`](Self::lease_ttl), [`list_interval`](Self::list_interval), [`max_leases`](Self::max_leases).
/// - Failures that only a person can end: [`patience`](Self::patience).
///
/// ```
/// use std::time::Duration;
///
/// use kinesis_stream::{KinesisPosition, KinesisStream};
///
/// let quakes = KinesisStream::new("quakes")
///     .initial_position(KinesisPosition::horizon())
///     .poll_interval(Duration::from_millis(500))
///     .max_in_flight(2_000);
/// # let _ = quakes;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a descriptor does nothing until it is subscribed to"]
pub struct KinesisStream {
    name: String,
    settings: Settings,
}

impl KinesisStream {
    /// The stream with this name: 1 to 128 characters, each a letter, a digit, `_`, `.` or `-`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), settings: Settings::default() }
    }

    /// Starts every time at this position, whatever was read before, on the shards with which the subscription opens.
    /// Not set by default. Most services want [`initial_position`](Self::initial_position) instead.
    ///
    /// With [`horizon`](KinesisPosition::horizon) or [`timestamp`](KinesisPosition::timestamp), shards that were read
    /// to their end are read again, parents before children. With [`sequence`](KinesisPosition::sequence) the other
    /// shards continue from their checkpoints. The checkpoint of the first record that is settled replaces the old one.
    /// A timestamp that is ahead of the service's clock by a minute or more is refused.
    ///
    /// ```
    /// # use kinesis_stream::{KinesisPosition, KinesisStream};
    /// let replay = KinesisStream::new("quakes").start_at(KinesisPosition::horizon()).stop_at_tip();
    /// # let _ = replay;
    /// ```
    pub fn start_at(mut self, position: KinesisPosition) -> Self {
        self.settings.plan.forced = Some(position.0);
        self
    }

    /// Where to begin in a shard without a checkpoint; a shard with a checkpoint continues there. The default is
    /// [`latest`](KinesisPosition::latest), so that a new consumer is not flooded with old records. The children of a
    /// split or merge are always read from their first record. A timestamp that is ahead of the service's clock by a
    /// minute or more is refused.
    pub fn initial_position(mut self, position: KinesisPosition) -> Self {
        self.settings.plan.initial = Some(position.0);
        self
    }

    /// Creates the stream if it does not exist, with this number of shards in provisioned mode: at least 1. Not set by
    /// default, because a mistyped name should be an error. `subscribe` then waits up to a minute until the stream is
    /// active. The credentials need `kinesis:CreateStream`.
    pub fn create_if_missing(mut self, shards: u32) -> Self {
        self.settings.create_if_missing = Some(shards);
        self
    }

    /// Ends the stream once everything that is there was read: for replays, backfills and tests. By default the stream
    /// does not end.
    ///
    /// A shard is done once the service says that it was read up to its tip
    /// ([`MillisBehindLatest`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html) is 0). A
    /// shard that was read to its end is followed by its children. Records that arrive later are not read. The stream
    /// ends once all of this holds:
    ///
    /// - all shards that this instance reads are done; it does not wait for the shards of other instances;
    /// - all their records were handed out, also those that are redelivered;
    /// - all [dead letters](Self::dead_letter) are written.
    ///
    /// The subscription then [closes](crate::Closer::close): deliveries in flight can be settled for the
    /// [`drain_timeout`](Self::drain_timeout).
    ///
    /// Settle as you go. The children of a shard begin once all its records are settled, so a program that collects all
    /// deliveries before it settles any blocks if the stream was resharded.
    pub fn stop_at_tip(mut self) -> Self {
        self.settings.stop_at_tip = true;
        self
    }

    /// What dropping a delivery without settling it means. The default is [`OnDrop::Redeliver`], because reading a
    /// record twice is better than losing it to an early `?`.
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.settings.on_drop = on_drop;
        self
    }

    /// Makes dropping a delivery acknowledge it: short for `on_drop(OnDrop::Ack)`. This also acknowledges the
    /// deliveries in a cancelled future.
    pub fn ack_on_drop(self) -> Self {
        self.on_drop(OnDrop::Ack)
    }

    /// The shortest and the longest pause before a record that was given back is redelivered. The pause doubles with
    /// every attempt. Both are from 1 ms to 24 h; the default is 1 s to 1 min. A second is short enough for failures
    /// that pass, and a minute keeps a failure that does not pass to one attempt a minute.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kinesis_stream::KinesisStream;
    /// let quakes = KinesisStream::new("quakes").retry_backoff(Duration::from_millis(200)..=Duration::from_secs(10));
    /// # let _ = quakes;
    /// ```
    pub fn retry_backoff(mut self, pauses: RangeInclusive<Duration>) -> Self {
        (self.settings.retries.first_pause, self.settings.retries.longest_pause) = pauses.into_inner();
        self
    }

    /// The most times a record is delivered: at least 1. There is no limit by default, because a record that is given
    /// up is a decision for you to make.
    ///
    /// The attempts of a record are spent once it was given back this often, by [`nack`](crate::Delivery::nack) or by a
    /// drop that redelivers. [`reject`](crate::Delivery::reject) spends them at once, also without a limit. It then
    /// goes to the [`dead_letter`](Self::dead_letter) stream. Without one, the stream yields
    /// [`KinesisError::AttemptsSpent`], which carries the record and settles it. That error is of the class
    /// [`Record`](crate::ErrorClass::Record), so it ends a `try_` pipeline unless the pipeline matches on it.
    ///
    /// [`attempt`](crate::Delivery::attempt) counts the attempts: in this process, under this lease. Attempts start at
    /// 1 again after a restart, after the shard moved to another instance and after a [seek](crate::Seeker), also for a
    /// record whose attempts were spent but that was not yet written or handed out. Two cases spend no attempt: a
    /// record that waited in [`buffer_by_key`](crate::DeliveryStreamExt::buffer_by_key) or in an unfinished batch and
    /// was dropped there, and a record that is given back after the subscription closes or was dropped. The next start
    /// delivers the latter again, whatever its attempts.
    ///
    /// So this limit does not stop a record that kills the process: it is redelivered after every restart. Only the
    /// handler can stop such a record.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.retries.max_attempts = Some(attempts);
        self
    }

    /// The stream that gets the records whose attempts are spent, as dead letters. Not set by default. It must be
    /// another stream than this one. If it does not exist, `subscribe` fails with [`KinesisError::DeadLetterStream`],
    /// unless [`dead_letter_if_missing`](Self::dead_letter_if_missing) creates it. The credentials need
    /// `kinesis:PutRecord` on it, and for this check `kinesis:DescribeStreamSummary`. Without the second permission,
    /// `subscribe` logs a warning and starts without the check.
    ///
    /// Attempts are spent by [`reject`](crate::Delivery::reject), or if [`max_attempts`](Self::max_attempts) is set.
    /// Without `max_attempts`, the stream gets rejected records only.
    ///
    /// ```
    /// # use kinesis_stream::KinesisStream;
    /// let quakes = KinesisStream::new("quakes").max_attempts(5).dead_letter("quakes-dead");
    /// # let _ = quakes;
    /// ```
    ///
    /// A [`DeadLetter`](crate::DeadLetter) holds the record as it was read, where it stood, and why it was given up. It
    /// has the partition key of the record (its sequence number if it had none). It is one JSON object, unless
    /// [`dead_letter_format`](Self::dead_letter_format) says otherwise.
    ///
    /// A task of the library writes the dead letters, whether or not you poll the subscription, and settles a record
    /// only after its dead letter is written. Until then the record holds the checkpoint and the end of its shard; the
    /// other records of the shard continue, up to [`max_in_flight`](Self::max_in_flight). A failed write makes the
    /// stream yield [`KinesisError::DeadLetter`]. The library retries it after 1 s, doubling to 1 min, or after 1 min
    /// at once if the stream does not exist or denies the write. If the dead-letter stream can never take a record,
    /// because what is added makes it too large, the stream yields [`KinesisError::AttemptsSpent`] instead.
    ///
    /// Closing and handing a shard over wait for a write that is under way, as for any delivery. A record that still
    /// waits to be written stays unsettled; the instance that reads the shard next delivers it again, with its attempts
    /// counted from 1. So a record can have two dead letters: if a write succeeded but its response was lost, or if the
    /// shard moved before a checkpoint covered the record.
    pub fn dead_letter(mut self, stream: impl Into<Arc<str>>) -> Self {
        self.settings.retries.dead_letter = Some(stream.into());
        self
    }

    /// Creates the [`dead_letter`](Self::dead_letter) stream if it does not exist, with this number of shards in
    /// provisioned mode: at least 1. Not set by default, because a mistyped name should be an error. `subscribe` waits
    /// up to a minute until the stream is active. Instances that start together create one stream. The credentials need
    /// `kinesis:CreateStream`.
    ///
    /// One shard takes a thousand dead letters or 1 MiB a second. A new stream keeps records for 24 hours; raise its
    /// retention if nobody looks at dead letters every day.
    ///
    /// ```
    /// # use kinesis_stream::KinesisStream;
    /// let quakes = KinesisStream::new("quakes").max_attempts(5).dead_letter("quakes-dead").dead_letter_if_missing(1);
    /// # let _ = quakes;
    /// ```
    pub fn dead_letter_if_missing(mut self, shards: u32) -> Self {
        self.settings.retries.create_dead_letter = Some(shards);
        self
    }

    /// How dead letters are written. The default is [`DeadLetterFormat::Json`], because people have to read them, with
    /// the tools at hand.
    pub fn dead_letter_format(mut self, format: DeadLetterFormat) -> Self {
        self.settings.retries.format = format;
        self
    }

    /// Does not deliver records that are older than this: 1 s to 365 days. There is no limit by default.
    ///
    /// Use it where an old record is worth nothing or does harm: an alert of yesterday, a price of an hour ago. A
    /// consumer that was away then catches up without working through what it missed. What happens to old records says
    /// [`too_old`](Self::too_old).
    ///
    /// The age of a record is the time since the service received it, by the service's clock
    /// ([`arrived_at`](crate::Delivery::arrived_at)). The library looks at it when it hands the record out, also for a
    /// redelivery, and passes a record over only if it is certainly too old. The service does not promise exact times,
    /// so a limit of a few seconds is not exact, either. A record whose arrival is not known is delivered.
    ///
    /// An old record is settled in its place in the order: the checkpoint passes it together with the records before
    /// it. [`ShardStats::too_old`](crate::ShardStats::too_old) counts them, and one warning tells of the first.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kinesis_stream::{KinesisStream, TooOld};
    /// let alerts = KinesisStream::new("alerts").max_age(Duration::from_secs(900)).too_old(TooOld::Skip);
    /// # let _ = alerts;
    /// ```
    pub fn max_age(mut self, age: Duration) -> Self {
        self.settings.max_age.limit = Some(age);
        self
    }

    /// What happens to records that are older than [`max_age`](Self::max_age). By default they go to the
    /// [`dead_letter`](Self::dead_letter) stream if one is set, and are passed over otherwise.
    ///
    /// Dead letters are written one by one, and hold the checkpoint until then. Choose [`TooOld::Skip`] if a consumer
    /// can have missed very many records.
    pub fn too_old(mut self, becomes: TooOld) -> Self {
        self.settings.max_age.too_old = Some(becomes);
        self
    }

    /// The pause after an empty read and after a throttled one: 1 ms to 4 min, 1 s by default. After the last available
    /// records the next read waits for half of it. A shard that lags is polled back to back. The limit is 4 min because
    /// a shard iterator expires after five.
    ///
    /// This pause is most of the latency, and a shorter one costs reads. A shard allows five reads a second, shared by
    /// *all* polling consumers of the stream, whatever library they use. A consumer reads a quiet shard once in an
    /// interval, and a shard with steady records twice, up to [`reads_per_second`](Self::reads_per_second). So `k`
    /// consumers at 200 ms want `5 k` reads a second, and two of them are already throttled. That is why the default is
    /// 1 s: it leaves room for other consumers.
    ///
    /// | interval | a record now and then: median, 99 % | 20 or 500 records a second | reads a second of a shard: quiet, busy | consumers that fit: shards quiet, busy |
    /// |---|---|---|---|---|
    /// | 1 s | 0.5 s, 1.0 s | 0.26 s, 0.6 s | 1, 2 | 5, 2 |
    /// | 400 ms | 0.2 s, 0.4 s | 0.11 s, 0.3 s | 2.5, 5 | 2, 1 |
    /// | 200 ms | 0.1 s, 0.2 s | 0.11 s, 0.2 s | 5, 5 | 1, 1 |
    ///
    /// The latencies are from the put of a record to its delivery, with responses after 10 ms, by the bench `latency`.
    /// Below 200 ms a quiet shard spends its five reads early in a second and waits for the rest of it: at 50 ms the
    /// median is 0.11 s and 99 % are within 0.56 s. Use such intervals only with servers that allow [more
    /// reads](Self::reads_per_second).
    ///
    /// All consumers also share the 2 MiB a second that a shard can be read at. If a shard is written at its limit of 1
    /// MiB a second, two consumers can read it.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// The most records that one read asks for: 1 to 10,000, 1,000 by default. At five reads a second that is five
    /// times the thousand records a second that a shard accepts, so a shard that lags catches up.
    /// [`batches`](crate::Subscription::batches) ask for their size instead, unless they [keep this
    /// limit](crate::Batches::keep_read_limit).
    pub fn read_limit(mut self, records: u32) -> Self {
        self.settings.read_limit = records;
        self
    }

    /// The most reads of one shard in any second: at least 1, by default the 5 that the service allows
    /// ([limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html)). Lower it if other
    /// consumers read the stream, too. Raise it for a local server; the 2 MiB a second at which a shard is read grow
    /// with it.
    pub fn reads_per_second(mut self, reads: u32) -> Self {
        self.settings.reads_per_second = reads;
        self
    }

    /// The most unsettled deliveries of one shard: at least 1, 10,000 by default, ten pages of the default
    /// [`read_limit`](Self::read_limit). A shard at the bound stops reading; the other shards continue. Settled
    /// deliveries behind an unsettled one are bounded as well: by 100,000 records from the oldest unsettled one.
    ///
    /// A pipeline that collects more deliveries than this before it settles any of them blocks without an end.
    /// [`batches`](crate::Subscription::batches) do not block, because a batch goes out after a time; they need a bound
    /// of at least twice their size.
    ///
    /// Each unsettled delivery takes about 300 bytes of heap besides its payload, partition key and headers. The
    /// `Delivery` takes 40 bytes wherever you keep it, an [`Acker`](crate::Acker) 8. A delivery that waits for its
    /// redelivery takes about 600. So 10,000 records of 1 KiB in a pipeline are 13 MiB (bench `memory`).
    pub fn max_in_flight(mut self, deliveries: usize) -> Self {
        self.settings.max_in_flight = deliveries;
        self
    }

    /// The most bytes of records that were read and not yet handed out, for the whole subscription: at least 1, by
    /// default 64 MiB, six pages of the largest size. Each record counts with its data, its partition key and 192 bytes
    /// for the rest of it, so that records without data count, too.
    /// [`SubscriptionStats::bytes_held`](crate::SubscriptionStats::bytes_held) shows the current value. At the bound no
    /// read starts, for any number of shards, until something was handed out.
    ///
    /// A read starts once there is room for the bytes that it may bring:
    ///
    /// - For a shard at its tip: as much as its last read brought, plus 1.2 MiB for each second since then, which
    ///   is as much as a shard accepts: 1 MiB, as 1,000 records. It is less if reads of such shards brought less within
    ///   the last five seconds: a 64th part if all are idle.
    /// - For a shard that lags: as much as its last pages.
    /// - For a shard that was not read yet: a third of the bound and at most 10.2 MiB, until the first such reads have
    ///   shown what they bring. Each small one lowers this, down to 1 MiB.
    ///
    /// Two things exceed the bound: bytes that a read brings beyond that, and reads that take longer than five seconds.
    /// If there is nothing to hand out, one read is always under way, even if a single page is larger than the bound. A
    /// small bound makes shards wait for each other.
    ///
    /// A page that is being received and parsed takes 2.8 times its size, since the text of the response and the parsed
    /// records exist at the same time. So the process needs more memory than this: with 1,000 shards, pages of 10 MiB
    /// and the default, `stats()` showed 60 MiB and the process took at most 184 MiB (bench `memory`).
    pub fn max_buffered_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_buffered_bytes = bytes;
        self
    }

    /// The longest time until the checkpoint of an acknowledged record is stored: 1 ms to 24 h, 1 s by default. After a
    /// crash, records that were acknowledged within that time are redelivered. [`commit`](crate::Delivery::commit) does
    /// not wait for it.
    ///
    /// A busy shard costs one write on the lease store in each interval: 60 a minute by default, and no renewals on
    /// top. An interval twice as long costs half as many writes. If it is longer than
    /// [`renew_interval`](Self::renew_interval), renewals come in between.
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.settings.checkpoint_interval = interval;
        self
    }

    /// How long closing waits for deliveries in flight: at most 24 h, 30 s by default, long enough for most handlers to
    /// finish; zero does not wait. For as long, deliveries stay valid on a shard that another instance asked for, or
    /// whose reader gave up.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// How long a lease is valid without a renewal: at least three times [`renew_interval`](Self::renew_interval), at
    /// most 72 h, 10 s by default. All instances of a consumer need the same value. After a crash, another instance
    /// takes the shards over this much later. An instance that cannot reach the store for this long stops handing out
    /// records. A shorter time takes over sooner and tolerates shorter outages of the store. It does not change how
    /// often the store is written to; that is `renew_interval`.
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.settings.lease_ttl = ttl;
        self
    }

    /// How often this instance renews its leases and reads those of others: 10 ms to 24 h, 3 s by default, so that two
    /// renewals can fail before a lease expires. It is also the timeout of a single call on the lease store.
    ///
    /// In each interval every idle shard costs one write on the lease store, 20 a minute by default, and every instance
    /// costs one read of all leases of the stream. With many shards this is most of what a store costs: 10,000 shards
    /// make 200,000 writes a minute. An interval of 15 s, with a [`lease_ttl`](Self::lease_ttl) of 45 s, makes 40,000.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use kinesis_stream::KinesisStream;
    /// let quakes =
    ///     KinesisStream::new("quakes").renew_interval(Duration::from_secs(15)).lease_ttl(Duration::from_secs(45));
    /// # let _ = quakes;
    /// ```
    pub fn renew_interval(mut self, interval: Duration) -> Self {
        self.settings.renew_interval = interval;
        self
    }

    /// How often this instance lists the shards of the stream: 10 ms to 24 h, 10 s by default. It bounds how late a
    /// shard is found after a split or merge elsewhere. The children of a shard that this instance reads to its end do
    /// not wait for a listing.
    pub fn list_interval(mut self, interval: Duration) -> Self {
        self.settings.list_interval = interval;
        self
    }

    /// The most shards that this instance reads at the same time: at least 1, without a limit by default. If no
    /// instance has room for a shard, no instance reads it:
    /// [`SubscriptionStats::unowned`](crate::SubscriptionStats::unowned) counts these shards, and a warning is logged.
    pub fn max_leases(mut self, shards: usize) -> Self {
        self.settings.max_leases = shards;
        self
    }

    /// How long a failure that only a person can end stays a [`Transient`](crate::ErrorClass::Transient) error: 1 s to
    /// 24 h, 2 min by default. Such failures are a missing permission, a missing lease table or dead-letter stream, a
    /// table with another key, and a KMS key that cannot be used. After that the stream yields one
    /// [`KinesisError::Lasting`] per patience, which also a [tolerant](crate::Subscription::tolerant) pipeline gets.
    /// The library keeps trying. Two minutes are longer than a new permission or table takes to be seen everywhere.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// The name and the settings, if each of them is within its limits.
    pub(crate) fn checked(self) -> Result<(String, Settings), KinesisError> {
        check_stream_name(&self.name)?;
        let settings = &self.settings;
        if settings.create_if_missing == Some(0) {
            return Err(KinesisError::invalid("create_if_missing", "a stream has at least 1 shard; given: 0"));
        }
        within("read_limit", settings.read_limit, 1, RECORDS_OF_A_READ)?;
        within("reads_per_second", settings.reads_per_second, 1, u32::MAX)?;
        within("max_in_flight", settings.max_in_flight, 1, usize::MAX)?;
        within("max_buffered_bytes", settings.max_buffered_bytes, 1, usize::MAX)?;
        within("max_leases", settings.max_leases, 1, usize::MAX)?;
        let (milli, longest) = (Duration::from_millis(1), Duration::from_hours(24));
        let interval = Duration::from_millis(10);
        within("poll_interval", settings.poll_interval, milli, LONGEST_POLL_INTERVAL)?;
        within("checkpoint_interval", settings.checkpoint_interval, milli, longest)?;
        within("drain_timeout", settings.drain_timeout, Duration::ZERO, longest)?;
        within("renew_interval", settings.renew_interval, interval, longest)?;
        within("list_interval", settings.list_interval, interval, longest)?;
        within("lease_ttl", settings.lease_ttl, settings.renew_interval * 3, longest * 3)?;
        within("patience", settings.patience, Duration::from_secs(1), longest)?;
        self.check_retries(milli, longest)?;
        settings.max_age.check(settings.retries.dead_letter.is_some())?;
        Ok((self.name, self.settings))
    }

    fn check_retries(&self, shortest: Duration, longest: Duration) -> Result<(), KinesisError> {
        let retries = &self.settings.retries;
        within("retry_backoff", retries.first_pause, shortest, longest)?;
        within("retry_backoff", retries.longest_pause, retries.first_pause, longest)?;
        within("max_attempts", retries.max_attempts.unwrap_or(1), 1, u32::MAX)?;
        within("dead_letter_if_missing", retries.create_dead_letter.unwrap_or(1), 1, u32::MAX)?;
        let Some(dead_letter) = retries.dead_letter.as_deref() else {
            let alone = "it needs dead_letter, which names the stream; given: dead_letter_if_missing alone";
            let is_alone = retries.create_dead_letter.is_some();
            return if is_alone { Err(KinesisError::invalid("dead_letter_if_missing", alone)) } else { Ok(()) };
        };
        let invalid = |problem: String| KinesisError::invalid("dead_letter", problem);
        check_stream_name(dead_letter).map_err(|refusal| invalid(refusal.to_string()))?;
        if dead_letter == self.name {
            return Err(invalid(format!("another stream than the one that is read; given: {dead_letter}")));
        }
        Ok(())
    }
}

impl From<&str> for KinesisStream {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for KinesisStream {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(stream: KinesisStream) -> String {
        stream.checked().expect_err("the setting is refused").to_string()
    }

    // L4, S2
    #[test]
    fn a_setting_outside_of_its_limits_is_refused_with_the_limit_and_the_value() {
        let stream = || KinesisStream::new("s");
        let milli = Duration::from_millis(1);
        let table = [
            (KinesisStream::new(""), "stream name", "1 to 128", "0"),
            (KinesisStream::new("a b"), "stream name", "letters", "' '"),
            (stream().create_if_missing(0), "create_if_missing", "1 shard", "0"),
            (stream().read_limit(10_001), "read_limit", "10000", "10001"),
            (stream().read_limit(0), "read_limit", "1", "0"),
            (stream().reads_per_second(0), "reads_per_second", "1", "0"),
            (stream().max_in_flight(0), "max_in_flight", "1", "0"),
            (stream().max_buffered_bytes(0), "max_buffered_bytes", "1", "0"),
            (stream().max_leases(0), "max_leases", "1", "0"),
            (stream().retry_backoff(Duration::ZERO..=milli), "retry_backoff", "1ms", "0ns"),
            (stream().retry_backoff(milli..=Duration::MAX), "retry_backoff", "86400s", "18446744073709551615"),
            (stream().retry_backoff(milli * 2..=milli), "retry_backoff", "2ms", "1ms"),
            (stream().max_attempts(0), "max_attempts", "1", "0"),
            (stream().max_attempts(1).dead_letter("a b"), "dead_letter", "letters", "' '"),
            (stream().max_attempts(1).dead_letter("s"), "dead_letter", "another stream", "s"),
            (stream().dead_letter("dead").dead_letter_if_missing(0), "dead_letter_if_missing", "1", "0"),
            (stream().dead_letter_if_missing(1), "dead_letter_if_missing", "needs dead_letter", "alone"),
            (stream().max_age(milli * 999), "max_age", "1s", "999ms"),
            (stream().max_age(Duration::MAX), "max_age", "31536000s", "18446744073709551615"),
            (stream().too_old(TooOld::Skip), "too_old", "needs max_age", "alone"),
            (stream().max_age(milli * 1_000).too_old(TooOld::DeadLetter), "too_old", "need dead_letter", "without it"),
            (stream().poll_interval(Duration::ZERO), "poll_interval", "1ms", "0ns"),
            (stream().checkpoint_interval(Duration::ZERO), "checkpoint_interval", "1ms", "0ns"),
            (stream().drain_timeout(Duration::MAX), "drain_timeout", "86400s", "18446744073709551615"),
            (stream().renew_interval(Duration::ZERO), "renew_interval", "10ms", "0ns"),
            (stream().list_interval(Duration::ZERO), "list_interval", "10ms", "0ns"),
            (stream().patience(milli * 999), "patience", "1s", "999ms"),
            (stream().lease_ttl(Duration::from_secs(8)), "lease_ttl", "9s", "8s"),
        ];
        for (stream, what, limit, given) in table {
            let refusal = refusal(stream);
            assert!(refusal.contains(what) && refusal.contains(limit) && refusal.contains(given), "{refusal}");
        }
    }

    #[test]
    fn the_defaults_are_within_their_limits() {
        assert!(KinesisStream::from("quakes").checked().is_ok());
        assert!(KinesisStream::from("quakes").max_attempts(1).dead_letter("quakes-dead").checked().is_ok());
        assert!(KinesisStream::from("quakes").dead_letter("quakes-dead").checked().is_ok());
    }
}

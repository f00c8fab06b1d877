//! The descriptor of a subscription: which stream to read, from where, and how.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use crate::{
    config::{
        limits::{RECORDS_OF_A_READ, check_stream_name, within},
        position::KinesisPosition,
        settings::{OnDrop, Settings},
    },
    error::KinesisError,
    util::clock,
};

/// A shard iterator lives five minutes; an idle shard that is read less often than this would lose its own.
const LONGEST_POLL_INTERVAL: Duration = Duration::from_mins(4);

/// A stream to subscribe to, and how to read it. A `&str` is one with every setting at its default.
///
/// Settings are checked when the descriptor is used, before anything is sent.
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
    /// The stream of this name: 1 to 128 characters out of letters, digits, `_`, `.` and `-`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), settings: Settings::default() }
    }

    /// Replays at every start: begins here whatever was read before, on the shards with which the subscription opens.
    ///
    /// With [`horizon`](KinesisPosition::horizon) or [`timestamp`](KinesisPosition::timestamp), shards that were read to
    /// their end are read again, parents before children. With [`sequence`](KinesisPosition::sequence) the other shards
    /// go on from their checkpoints. The first record that is settled replaces the old checkpoint. Most services want
    /// [`initial_position`](Self::initial_position) instead.
    pub fn start_at(mut self, position: KinesisPosition) -> Self {
        self.settings.plan.forced = Some(position.0);
        self
    }

    /// Where to begin in a shard that has no checkpoint yet: from there if new, else resume. The default is
    /// [`latest`](KinesisPosition::latest), so that a new consumer is not flooded with the past; children of a split or
    /// merge are always read from their first record.
    pub fn initial_position(mut self, position: KinesisPosition) -> Self {
        self.settings.plan.initial = Some(position.0);
        self
    }

    /// Creates a missing stream with so many shards (provisioned, at least one), and waits up to a minute for it.
    pub fn create_if_missing(mut self, shards: u32) -> Self {
        self.settings.create_if_missing = Some(shards);
        self
    }

    /// Ends the stream when everything was read that there is: for replays, backfills and tests. By default it goes on for
    /// ever.
    ///
    /// A shard is done when the service says that it was read up to its tip
    /// ([`MillisBehindLatest`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html) is 0), or to its
    /// end, where its children follow. What comes into it later is not read. The stream ends when all shards that this
    /// instance reads are done and all their records were handed out, also those that came back, and when no
    /// [dead letter](Self::dead_letter) is still to be written; shards of other instances are not waited for. It then
    /// [closes](crate::Closer::close) by itself: what is in flight may be settled for the
    /// [`drain_timeout`](Self::drain_timeout).
    ///
    /// Settle as you go: the children of a shard that ended begin when all of it is settled, so a program that collects
    /// everything first waits for ever where the stream was resharded.
    pub fn stop_at_tip(mut self) -> Self {
        self.settings.stop_at_tip = true;
        self
    }

    /// What dropping a delivery without settling it means; [`OnDrop::Redeliver`] by default, because losing records by an
    /// early `?` is worse than reading them twice.
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.settings.on_drop = on_drop;
        self
    }

    /// Dropping a delivery acknowledges it: short for `on_drop(OnDrop::Ack)`. It also acknowledges what a cancelled
    /// future held.
    pub fn ack_on_drop(self) -> Self {
        self.on_drop(OnDrop::Ack)
    }

    /// The pauses before a record that was given back is delivered again: the first one, doubled with every attempt, and
    /// the longest. From 1 ms to 24 h, by default a second to a minute: short enough for what passes by itself, and not
    /// more than a call a minute for what does not.
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

    /// How often a record is delivered at most: at least once, without a limit by default. When it is given back that
    /// often, by [`nack`](crate::Delivery::nack) or by a drop that redelivers, its attempts are spent. It then goes to the
    /// [`dead_letter`](Self::dead_letter) stream, or else comes as an item
    /// [`KinesisError::AttemptsSpent`], which carries the record and counts as settled. That item is of the class
    /// [`Record`](crate::ErrorClass::Record), so a `try_` pipeline ends at it unless it matches on it.
    ///
    /// Attempts are those that [`attempt`](crate::Delivery::attempt) counts: of this process, under this lease. A shard
    /// that moves to another instance or was moved by a [seek](crate::Seeker), and a process that restarts, begin at 1 again:
    /// also with a record whose attempts were spent, and that was not yet written or handed out. What waits in
    /// [`buffer_by_key`](crate::DeliveryStreamExt::buffer_by_key) or in a batch that is being filled, and comes out of there
    /// unseen, spends no attempt. What is given back once the subscription closes or was dropped comes again with the
    /// next start, whatever its attempts.
    ///
    /// So this limit does not stop a record that kills the process: such a record comes again after every restart, and the
    /// place to stop it is the handler.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.retries.max_attempts = Some(attempts);
        self
    }

    /// The stream to which a record is published whose attempts are spent: another one than this, with
    /// [`max_attempts`](Self::max_attempts) set, too. None by default. It has to exist, and the credentials need
    /// `kinesis:PutRecord` on it.
    ///
    /// ```
    /// # use kinesis_stream::KinesisStream;
    /// let quakes = KinesisStream::new("quakes").max_attempts(5).dead_letter("quakes-dead");
    /// # let _ = quakes;
    /// ```
    ///
    /// A dead letter is the record as it came: its payload, its partition key (its sequence number, if it had none), and
    /// its headers in their order. Behind these there are more, all of them text:
    ///
    /// | header | says |
    /// |---|---|
    /// | `kinesis-dead-letter-stream` | the stream from which it was read |
    /// | `kinesis-dead-letter-shard` | the shard |
    /// | `kinesis-dead-letter-sequence-number` | its place there |
    /// | `kinesis-dead-letter-arrived-at` | when it arrived there, in milliseconds since 1970 (UTC); absent where the service did not say |
    /// | `kinesis-dead-letter-consumer` | which consumer gave it up |
    /// | `kinesis-dead-letter-attempts` | how often it was delivered |
    /// | `kinesis-dead-letter-reason` | why it was given back the last time: the words of [`nack_because`](crate::Delivery::nack_because), or `given back`, `dropped`, `dropped by a panic` |
    ///
    /// A record that was a dead letter before keeps the headers of that time in front of the new ones, so
    /// [`Headers::get`](crate::Headers::get) finds where it came from first.
    ///
    /// The record is settled only when its dead letter is written, by a task of the library, whether or not the
    /// subscription is polled. As long as that fails it stays unsettled: it holds the checkpoint, and the end of its shard,
    /// while the rest of the shard goes on, up to [`max_in_flight`](Self::max_in_flight). The failure is an item
    /// [`KinesisError::DeadLetter`], and the write is repeated after a second, doubling to a minute; after a minute at once
    /// if the stream does not exist or may not be written to. A record that the stream can never take, because it is too
    /// large with its new headers, comes as [`KinesisError::AttemptsSpent`] instead.
    ///
    /// Closing, and handing a shard over, wait for a write that is under way as for any delivery. A record that still waits
    /// to be written is left unsettled, and is delivered again by whoever reads the shard next, with its attempts counted
    /// from 1. So there may be two dead letters of one record: when a write was applied though its answer was lost, or when
    /// the shard moved before the record was covered by a checkpoint.
    pub fn dead_letter(mut self, stream: impl Into<Arc<str>>) -> Self {
        self.settings.retries.dead_letter = Some(stream.into());
        self
    }

    /// The pause after a read that found nothing, and after a throttled one: 1 ms to 4 minutes, 1 s by default. After the last
    /// records that there are the next read waits for half of it. A shard that is behind is read on at once.
    ///
    /// It is most of the latency, and it costs reads: a shard allows five in a second, which *all* polling consumers of the
    /// stream share, whatever library they use. A consumer reads a quiet shard once in an interval, and one into which records
    /// come steadily twice, up to [`reads_per_second`](Self::reads_per_second). So `k` consumers at 200 ms want `5 k` reads a
    /// second, and from two on they are throttled.
    ///
    /// | interval | a record now and then: median, 99 % | 20 or 500 records a second | reads a second of a shard: quiet, busy | consumers that fit: shards quiet, busy |
    /// |---|---|---|---|---|
    /// | 1 s | 0.5 s, 1.0 s | 0.26 s, 0.6 s | 1, 2 | 5, 2 |
    /// | 400 ms | 0.2 s, 0.4 s | 0.11 s, 0.3 s | 2.5, 5 | 2, 1 |
    /// | 200 ms | 0.1 s, 0.2 s | 0.11 s, 0.2 s | 5, 5 | 1, 1 |
    ///
    /// The latencies are from the put of a record to its delivery, with answers after 10 ms, by the bench `latency`. Below 200 ms
    /// a quiet shard spends its five reads early in a second and waits for the rest of it: at 50 ms the median is 0.11 s and 99 % are within
    /// 0.56 s. So they are for servers that allow [more reads](Self::reads_per_second).
    ///
    /// The 2 MiB a second of a shard are shared, too: of a shard that is written at its limit of 1 MiB a second, two consumers
    /// can read.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// The most records that one read asks for: 1 to 10,000, by default 1,000, which at five reads a second is the
    /// thousand records a second that a shard takes, five times over. [`batches`](crate::Subscription::batches) ask for their
    /// size instead, unless they are told to [keep it](crate::Batches::keep_read_limit).
    pub fn read_limit(mut self, records: u32) -> Self {
        self.settings.read_limit = records;
        self
    }

    /// The most reads in any second on one shard: at least 1, by default the five that the service allows
    /// ([limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html)). Lower it where other
    /// consumers read the stream, too; raise it for a local server, and the 2 MiB a second that a shard is read at grow
    /// with it.
    pub fn reads_per_second(mut self, reads: u32) -> Self {
        self.settings.reads_per_second = reads;
        self
    }

    /// The most unsettled deliveries of one shard: at least 1, 10,000 by default. At the bound that shard waits, the others go
    /// on. A pipeline that collects more than this before it settles any of it stands still for ever:
    /// [`batches`](crate::Subscription::batches) do not, as they go out after a time, and ask for a bound of at least twice their
    /// size. Settled deliveries behind an unsettled one are bounded too, by 100,000 records from the oldest unsettled one.
    ///
    /// Each unsettled delivery takes about 300 bytes of heap beside its payload, its partition key and its headers, and the `Delivery` itself 40
    /// bytes wherever it is kept, an [`Acker`](crate::Acker) alone 8. One that was given back and waits to come again takes about 600. So
    /// 10,000 records of 1 KiB that a pipeline holds are 13 MiB (bench `memory`).
    pub fn max_in_flight(mut self, deliveries: usize) -> Self {
        self.settings.max_in_flight = deliveries;
        self
    }

    /// The most bytes that the subscription holds: records that were read and not yet handed out, as
    /// [`SubscriptionStats::bytes_held`](crate::SubscriptionStats::bytes_held) says. At least 1, 64 MiB by default: six pages
    /// of the largest size. At the bound no read starts, whatever the number of shards, until something was handed out.
    ///
    /// A read starts when there is room for what it may bring:
    ///
    /// - of a shard at its tip, as much as its last read brought, and beyond that 1 MiB for each second since then, as much as a shard
    ///   takes in, or less if reads of such shards have brought less within the last five seconds: where all are idle, a 64th part;
    /// - of a shard that is behind, as much as its last pages;
    /// - of a shard that was not read yet, a sixth of the bound and at most 10 MiB, until the first such reads have shown what they bring:
    ///   less with each one that is small, down to 1 MiB.
    ///
    /// The bound is exceeded by what a read brings beyond that, and by reads that take longer than five seconds. One read is always under
    /// way when there is nothing to hand out, also if a single page is larger than the bound. A small bound makes shards wait for
    /// each other.
    ///
    /// A page that is being received and parsed takes 2.8 times its size, since the text of the answer and what is made of it exist at the
    /// same time. So the process needs more than this: with 1,000 shards, pages of 10 MiB and the default, `stats()` showed 60 MiB and the
    /// process at most 184 MiB (bench `memory`).
    pub fn max_buffered_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_buffered_bytes = bytes;
        self
    }

    /// How long an acknowledged record waits at most for its checkpoint to be stored: at least 1 ms, 1 s by default.
    /// After a crash, what was acknowledged in that time is delivered again. [`commit`](crate::Delivery::commit) does
    /// not wait for it.
    ///
    /// A busy shard costs one write on the lease store in each of these intervals, 60 a minute by default, and no renewals
    /// beside: twice as long is half as many. Where it is longer than [`renew_interval`](Self::renew_interval), renewals come
    /// in between.
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.settings.checkpoint_interval = interval;
        self
    }

    /// How long closing waits for deliveries that are in flight, and how long they stay valid on a shard that another
    /// instance asked for, or whose reader gave up.
    /// 30 s by default; zero does not wait.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// How long a lease lives without being renewed: at least three times
    /// [`renew_interval`](Self::renew_interval), 10 s by default. All instances of a consumer need the same. After a crash
    /// another instance takes the shards over that much later; an instance that cannot reach the store for that long stops
    /// handing out records. It costs nothing by itself: [`renew_interval`](Self::renew_interval) says how often the store is
    /// written to.
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.settings.lease_ttl = ttl;
        self
    }

    /// How often a lease is renewed and the leases of others are looked at: at least 10 ms, 3 s by default, which lets
    /// two renewals fail before the lease is lost. Also the longest that a single call on the lease store may take.
    ///
    /// In each of these intervals every idle shard costs one write on the lease store, 20 a minute by default, and every
    /// instance one read of all leases of the stream. For many shards that is most of what a store costs: at 10,000
    /// shards 200,000 writes a minute, which 15 s, with a [`lease_ttl`](Self::lease_ttl) of 45 s, make 40,000.
    pub fn renew_interval(mut self, interval: Duration) -> Self {
        self.settings.renew_interval = interval;
        self
    }

    /// How often the shards of the stream are listed: at least 10 ms, 10 s by default. The children of a shard that this
    /// instance reads to its end do not wait for it.
    pub fn list_interval(mut self, interval: Duration) -> Self {
        self.settings.list_interval = interval;
        self
    }

    /// The most shards that this instance reads at the same time: at least 1, as many as there are by default. Shards for
    /// which no instance has room are read by nobody; [`SubscriptionStats::unowned`](crate::SubscriptionStats::unowned)
    /// counts them, and a warning says so.
    pub fn max_leases(mut self, shards: usize) -> Self {
        self.settings.max_leases = shards;
        self
    }

    /// The name and the settings, if every one of them is within its limits.
    pub(crate) fn checked(self) -> Result<(String, Settings), KinesisError> {
        check_stream_name(&self.name)?;
        let settings = &self.settings;
        settings.plan.check(clock::unix_millis())?;
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
        self.check_retries(milli, longest)?;
        Ok((self.name, self.settings))
    }

    fn check_retries(&self, shortest: Duration, longest: Duration) -> Result<(), KinesisError> {
        let retries = &self.settings.retries;
        within("retry_backoff", retries.first_pause, shortest, longest)?;
        within("retry_backoff", retries.longest_pause, retries.first_pause, longest)?;
        within("max_attempts", retries.max_attempts.unwrap_or(1), 1, u32::MAX)?;
        let Some(dead_letter) = retries.dead_letter.as_deref() else { return Ok(()) };
        let invalid = |problem: String| KinesisError::invalid("dead_letter", problem);
        check_stream_name(dead_letter).map_err(|refusal| invalid(refusal.to_string()))?;
        if dead_letter == self.name {
            return Err(invalid(format!("another stream than the one that is read; given: {dead_letter}")));
        }
        if retries.max_attempts.is_none() {
            return Err(invalid(format!("it takes records only with max_attempts; given: {dead_letter} without it")));
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
        stream.checked().expect_err("it is refused").to_string()
    }

    // L4, S2
    #[test]
    fn every_setting_outside_of_its_limits_is_refused_with_the_limit_and_the_value() {
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
            (stream().dead_letter("dead"), "dead_letter", "max_attempts", "dead"),
            (stream().poll_interval(Duration::ZERO), "poll_interval", "1ms", "0ns"),
            (stream().checkpoint_interval(Duration::ZERO), "checkpoint_interval", "1ms", "0ns"),
            (stream().drain_timeout(Duration::MAX), "drain_timeout", "86400s", "18446744073709551615"),
            (stream().renew_interval(Duration::ZERO), "renew_interval", "10ms", "0ns"),
            (stream().list_interval(Duration::ZERO), "list_interval", "10ms", "0ns"),
            (stream().lease_ttl(Duration::from_secs(8)), "lease_ttl", "9s", "8s"),
            (stream().start_at(KinesisPosition::timestamp(i64::MAX)), "start_at", "", "9223372036854775807"),
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
    }
}

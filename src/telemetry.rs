//! Exports the statistics of a subscription through the [`metrics`] facade: feature `metrics`.
//!
//! **A task takes a snapshot once a second** and sets counters and gauges from it, so that delivering and settling a
//! record costs the same with and without the feature. Only times of calls are recorded where they are taken
//! (`metering.rs`).
//!
//! **The recorder is looked up when the subscription starts.** Install it before.
//!
//! **Gauges of a shard that this instance lets go become 0** and are not set again: the facade cannot remove them. An
//! exporter with an idle timeout drops them then. Counters have no shard, so their number does not grow with reshards.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use metrics::{Counter, Gauge, Label, Unit, counter, gauge};
use tokio::{select, time::sleep};

use crate::{
    metering::{READS, STORE_CALLS},
    state::{
        context::SubscriptionContext,
        shard::Shards,
        snapshot::snapshot,
        stats::{ErrorCounts, LeaseCounts, ShardStats, SubscriptionState, SubscriptionStats},
    },
    types::id::ShardId,
};

/// How often the statistics are exported.
const INTERVAL: Duration = Duration::from_secs(1);

/// A name, and how to read its value from a part of the statistics.
type Reading<S, V> = (&'static str, fn(&S) -> V);

/// The counters that are sums over all shards.
const SHARD_TOTALS: [Reading<ShardStats, u64>; 14] = [
    ("kinesis_consumer_records_total", |shard| shard.records),
    ("kinesis_consumer_bytes_total", |shard| shard.bytes),
    ("kinesis_consumer_acked_total", |shard| shard.acked),
    ("kinesis_consumer_given_back_total", |shard| shard.given_back),
    ("kinesis_consumer_redeliveries_total", |shard| shard.redeliveries),
    ("kinesis_consumer_spent_total", |shard| shard.spent),
    ("kinesis_consumer_rejected_total", |shard| shard.rejected),
    ("kinesis_consumer_dead_letters_total", |shard| shard.dead_letters),
    ("kinesis_consumer_too_old_total", |shard| shard.too_old),
    ("kinesis_consumer_batches_total", |shard| shard.batches),
    ("kinesis_consumer_halvings_total", |shard| shard.halvings),
    ("kinesis_consumer_reads_total", |shard| shard.reads),
    ("kinesis_consumer_throttles_total", |shard| shard.throttles),
    ("kinesis_consumer_expired_iterators_total", |shard| shard.expired_iterators),
];

const ERRORS: &str = "kinesis_consumer_errors_total";
const ERROR_CLASSES: [Reading<ErrorCounts, u64>; 5] = [
    ("transient", |errors| errors.transient),
    ("loss", |errors| errors.loss),
    ("lasting", |errors| errors.lasting),
    ("record", |errors| errors.record),
    ("fatal", |errors| errors.fatal),
];

const LEASE_CHANGES: &str = "kinesis_consumer_lease_changes_total";
const LEASE_CHANGE_KINDS: [Reading<LeaseCounts, u64>; 3] =
    [("taken", |leases| leases.taken), ("handed_over", |leases| leases.handed_over), ("lost", |leases| leases.lost)];

/// The gauges of each shard that this instance holds.
const SHARD_GAUGES: [Reading<ShardStats, Option<f64>>; 4] = [
    ("kinesis_consumer_lag_seconds", |shard| shard.behind.map(|behind| behind.as_secs_f64())),
    ("kinesis_consumer_unanswered_seconds", |shard| Some(shard.unanswered.unwrap_or_default().as_secs_f64())),
    ("kinesis_consumer_oldest_unsettled_seconds", |shard| {
        Some(shard.oldest.as_ref().map_or(0.0, |(_, age)| age.as_secs_f64()))
    }),
    ("kinesis_consumer_in_flight", |shard| Some(count(shard.in_flight))),
];

/// The gauges of the subscription.
const GAUGES: [Reading<SubscriptionStats, f64>; 4] = [
    ("kinesis_consumer_leases_held", |stats| {
        count(stats.shards.iter().filter(|shard| is_held(shard, &stats.owner)).count())
    }),
    ("kinesis_consumer_unowned_shards", |stats| count(stats.unowned)),
    ("kinesis_consumer_held_bytes", |stats| count(stats.bytes_held)),
    ("kinesis_consumer_failing_seconds", |stats| {
        stats.failing.iter().map(|failure| failure.lasted).max().unwrap_or_default().as_secs_f64()
    }),
];

const HEALTH: &str = "kinesis_consumer_health";
const HEALTH_WORDS: [&str; 5] = ["ok", "behind", "stalled", "denied", "ended"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Every metric: its name, kind, unit and description. `docs/operations.md` has the same list.
const METRICS: &[(&str, Kind, Unit, &str)] = &[
    ("kinesis_consumer_records_total", Kind::Counter, Unit::Count, "Records read."),
    ("kinesis_consumer_bytes_total", Kind::Counter, Unit::Bytes, "Data and partition keys of the records read."),
    ("kinesis_consumer_acked_total", Kind::Counter, Unit::Count, "Deliveries acknowledged."),
    ("kinesis_consumer_given_back_total", Kind::Counter, Unit::Count, "Deliveries given back by a nack or a drop."),
    ("kinesis_consumer_redeliveries_total", Kind::Counter, Unit::Count, "Redeliveries."),
    ("kinesis_consumer_spent_total", Kind::Counter, Unit::Count, "Records that used up their attempts."),
    ("kinesis_consumer_rejected_total", Kind::Counter, Unit::Count, "Records that the consumer rejected."),
    ("kinesis_consumer_dead_letters_total", Kind::Counter, Unit::Count, "Dead letters written."),
    ("kinesis_consumer_too_old_total", Kind::Counter, Unit::Count, "Records that were too old to be delivered."),
    ("kinesis_consumer_batches_total", Kind::Counter, Unit::Count, "Batches given to a handler."),
    ("kinesis_consumer_halvings_total", Kind::Counter, Unit::Count, "Batches halved because their handler failed."),
    ("kinesis_consumer_reads_total", Kind::Counter, Unit::Count, "GetRecords calls that were answered."),
    ("kinesis_consumer_throttles_total", Kind::Counter, Unit::Count, "Calls of readers that the service throttled."),
    ("kinesis_consumer_expired_iterators_total", Kind::Counter, Unit::Count, "Reads whose iterator had expired."),
    (ERRORS, Kind::Counter, Unit::Count, "Errors by class."),
    (LEASE_CHANGES, Kind::Counter, Unit::Count, "Leases taken, handed over on request, and lost to another instance."),
    ("kinesis_consumer_lag_seconds", Kind::Gauge, Unit::Seconds, "How far reading is behind the tip of a shard."),
    ("kinesis_consumer_unanswered_seconds", Kind::Gauge, Unit::Seconds, "How long reads had no answer."),
    ("kinesis_consumer_oldest_unsettled_seconds", Kind::Gauge, Unit::Seconds, "Age of the oldest unsettled delivery."),
    ("kinesis_consumer_in_flight", Kind::Gauge, Unit::Count, "Unsettled deliveries."),
    ("kinesis_consumer_leases_held", Kind::Gauge, Unit::Count, "Leases that this instance holds."),
    ("kinesis_consumer_unowned_shards", Kind::Gauge, Unit::Count, "Shards without room on any instance."),
    ("kinesis_consumer_held_bytes", Kind::Gauge, Unit::Bytes, "Bytes read and not yet delivered."),
    (
        "kinesis_consumer_failing_seconds",
        Kind::Gauge,
        Unit::Seconds,
        "How long work on leases, listings or dead letters has failed.",
    ),
    (HEALTH, Kind::Gauge, Unit::Count, "1 for the word that health() returns, 0 for the others."),
    (STORE_CALLS, Kind::Histogram, Unit::Seconds, "Time of a call on the lease store."),
    (READS, Kind::Histogram, Unit::Seconds, "Time of a GetRecords call, with the retries of the SDK."),
];

/// Starts the task that exports the statistics. It ends with the subscription.
pub(crate) fn start(context: &Arc<SubscriptionContext>, shards: &Arc<Shards>) {
    let (context, shards) = (Arc::clone(context), Arc::clone(shards));
    let mut exporter = Exporter::new(&context.stream, &context.consumer);
    tokio::spawn(async move {
        loop {
            let is_over = select! {
                biased;
                _ = context.lifecycle.over() => true,
                () = sleep(INTERVAL) => false,
            };
            exporter.export(&snapshot(&context, &shards));
            if is_over {
                return;
            }
        }
    });
}

/// Turns snapshots into metrics.
struct Exporter {
    labels: Vec<Label>,
    totals: [Counter; SHARD_TOTALS.len()],
    errors: [Counter; 5],
    lease_changes: [Counter; 3],
    gauges: [Gauge; 4],
    health: [Gauge; 5],
    /// The gauges of the shards that are held.
    held: BTreeMap<ShardId, [Gauge; 4]>,
    /// What was exported of each shard so far.
    exported: BTreeMap<ShardId, [u64; SHARD_TOTALS.len()]>,
    exported_errors: ErrorCounts,
    exported_leases: LeaseCounts,
}

impl Exporter {
    /// Takes the handles, and describes the metrics to the recorder.
    fn new(stream: &Arc<str>, consumer: &Arc<str>) -> Self {
        for (name, kind, unit, text) in METRICS {
            match kind {
                Kind::Counter => metrics::describe_counter!(*name, *unit, *text),
                Kind::Gauge => metrics::describe_gauge!(*name, *unit, *text),
                Kind::Histogram => metrics::describe_histogram!(*name, *unit, *text),
            }
        }
        let labels = vec![Label::new("stream", Arc::clone(stream)), Label::new("consumer", Arc::clone(consumer))];
        let with = |key: &'static str, value: &'static str| [labels.clone(), vec![Label::new(key, value)]].concat();
        Self {
            totals: SHARD_TOTALS.map(|(name, _)| counter!(name, labels.clone())),
            errors: ERROR_CLASSES.map(|(class, _)| counter!(ERRORS, with("class", class))),
            lease_changes: LEASE_CHANGE_KINDS.map(|(kind, _)| counter!(LEASE_CHANGES, with("change", kind))),
            gauges: GAUGES.map(|(name, _)| gauge!(name, labels.clone())),
            health: HEALTH_WORDS.map(|word| gauge!(HEALTH, with("health", word))),
            held: BTreeMap::new(),
            exported: BTreeMap::new(),
            exported_errors: ErrorCounts::default(),
            exported_leases: LeaseCounts::default(),
            labels,
        }
    }

    fn export(&mut self, stats: &SubscriptionStats) {
        for shard in &stats.shards {
            self.count(shard);
        }
        for ((_, read), counter) in ERROR_CLASSES.iter().zip(&self.errors) {
            counter.increment(read(&stats.errors) - read(&self.exported_errors));
        }
        for ((_, read), counter) in LEASE_CHANGE_KINDS.iter().zip(&self.lease_changes) {
            counter.increment(read(&stats.leases) - read(&self.exported_leases));
        }
        (self.exported_errors, self.exported_leases) = (stats.errors, stats.leases);
        for ((_, read), gauge) in GAUGES.iter().zip(&self.gauges) {
            gauge.set(read(stats));
        }
        let health = stats.health().as_str();
        for (word, gauge) in HEALTH_WORDS.iter().zip(&self.health) {
            gauge.set(if *word == health { 1.0 } else { 0.0 });
        }
        self.show_held(stats);
    }

    /// Adds what a shard has counted since the last time.
    fn count(&mut self, shard: &ShardStats) {
        let now = SHARD_TOTALS.map(|(_, read)| read(shard));
        let before = self.exported.insert(shard.shard.clone(), now).unwrap_or_default();
        for (counter, (now, before)) in self.totals.iter().zip(now.into_iter().zip(before)) {
            // A shard that was forgotten and came back counts from 0.
            counter.increment(now.checked_sub(before).unwrap_or(now));
        }
    }

    /// Sets the gauges of the shards that are held, and clears those of shards that were let go.
    fn show_held(&mut self, stats: &SubscriptionStats) {
        let is_over = stats.state == SubscriptionState::Ended;
        let mut before = mem::take(&mut self.held);
        for shard in stats.shards.iter().filter(|shard| is_held(shard, &stats.owner) && !is_over) {
            let gauges = before.remove(&shard.shard).unwrap_or_else(|| self.shard_gauges(&shard.shard));
            for ((_, read), gauge) in SHARD_GAUGES.iter().zip(&gauges) {
                if let Some(value) = read(shard) {
                    gauge.set(value);
                }
            }
            self.held.insert(shard.shard.clone(), gauges);
        }
        for gauge in before.into_values().flatten() {
            gauge.set(0.0);
        }
    }

    fn shard_gauges(&self, shard: &ShardId) -> [Gauge; 4] {
        let labels = [self.labels.clone(), vec![Label::new("shard", shard.to_string())]].concat();
        SHARD_GAUGES.map(|(name, _)| gauge!(name, labels.clone()))
    }
}

/// Whether this instance holds the shard.
fn is_held(shard: &ShardStats, owner: &Arc<str>) -> bool {
    shard.epoch.is_some() && shard.owner.as_ref() == Some(owner)
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use std::iter;

    use metrics::with_local_recorder;
    use metrics_util::{
        CompositeKey,
        debugging::{DebugValue, DebuggingRecorder},
    };

    use super::*;
    use crate::state::stats::samples::{shard, stats};

    /// Exports these snapshots one after the other. Returns what the recorder holds after the last one, as text.
    fn exported(snapshots: &[SubscriptionStats]) -> BTreeMap<String, String> {
        let recorder = DebuggingRecorder::new();
        with_local_recorder(&recorder, || {
            let mut exporter = Exporter::new(&"s".into(), &"c".into());
            for snapshot in snapshots {
                exporter.export(snapshot);
            }
        });
        recorder
            .snapshotter()
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, _, _, value)| (name(&key), show(&value)))
            .collect()
    }

    /// The name with its labels, except stream and consumer, which all have.
    fn name(key: &CompositeKey) -> String {
        let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        assert_eq!(labels[..2], [("stream", "s"), ("consumer", "c")]);
        let more = labels[2..].iter().map(|(key, value)| format!("{key}={value}"));
        iter::once(key.key().name().to_owned()).chain(more).collect::<Vec<_>>().join(" ")
    }

    fn show(value: &DebugValue) -> String {
        match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Gauge(level) => level.to_string(),
            DebugValue::Histogram(times) => format!("{times:?}"),
        }
    }

    // L8
    #[test]
    fn counters_add_up_over_shards_and_snapshots() {
        let mut first = stats();
        (first.shards[0].records, first.shards[1].records) = (5, 2);
        (first.errors.loss, first.leases.taken) = (1, 2);
        let mut second = first.clone();
        // One shard goes on, one was forgotten and counts anew, and one is new.
        (second.shards[0].records, second.shards[1].records) = (8, 1);
        second.shards.push(ShardStats { records: 10, ..shard("c") });
        second.errors.loss = 3;
        let seen = exported(&[first, second.clone(), second]);
        let of = |name: &str| seen[name].as_str();
        assert_eq!(of("kinesis_consumer_records_total"), "21");
        assert_eq!(of("kinesis_consumer_errors_total class=loss"), "3");
        assert_eq!(of("kinesis_consumer_errors_total class=fatal"), "0");
        assert_eq!(of("kinesis_consumer_lease_changes_total change=taken"), "2");
    }

    // L8
    #[test]
    fn the_gauges_of_a_shard_that_was_let_go_become_zero() {
        let mut first = stats();
        first.shards[0].behind = Some(Duration::from_millis(2_500));
        (first.shards[1].in_flight, first.shards[1].oldest) = (3, Some(("7".into(), Duration::from_secs(9))));
        let seen = exported(std::slice::from_ref(&first));
        let of = |seen: &BTreeMap<String, String>, name: &str| seen[name].clone();
        assert_eq!(of(&seen, "kinesis_consumer_lag_seconds shard=a"), "2.5");
        assert_eq!(of(&seen, "kinesis_consumer_oldest_unsettled_seconds shard=b"), "9");
        assert_eq!(of(&seen, "kinesis_consumer_in_flight shard=b"), "3");
        assert_eq!(of(&seen, "kinesis_consumer_leases_held"), "2");
        let mut second = first.clone();
        second.shards[1].owner = Some("other".into());
        let seen = exported(&[first, second]);
        assert_eq!(of(&seen, "kinesis_consumer_lag_seconds shard=a"), "2.5");
        assert_eq!(of(&seen, "kinesis_consumer_oldest_unsettled_seconds shard=b"), "0");
        assert_eq!(of(&seen, "kinesis_consumer_in_flight shard=b"), "0");
        assert_eq!(of(&seen, "kinesis_consumer_leases_held"), "1");
    }

    // L8
    #[test]
    fn one_word_of_health_is_set() {
        let mut sick = stats();
        sick.unowned = 1;
        let mut over = stats();
        over.state = SubscriptionState::Ended;
        for (stats, word) in [(stats(), "ok"), (sick, "stalled"), (over, "ended")] {
            let seen = exported(&[stats]);
            let set = HEALTH_WORDS.map(|word| seen[&format!("kinesis_consumer_health health={word}")].clone());
            assert_eq!(set, HEALTH_WORDS.map(|other| if other == word { "1" } else { "0" }), "{word}");
        }
    }

    // L8
    #[test]
    fn every_metric_is_described_and_documented() {
        let documented: Vec<&str> = include_str!("../docs/operations.md")
            .lines()
            .filter_map(|line| line.strip_prefix("| `kinesis_consumer_"))
            .filter_map(|line| line.split('`').next())
            .collect();
        let described: Vec<&str> =
            METRICS.iter().filter_map(|(name, ..)| name.strip_prefix("kinesis_consumer_")).collect();
        assert_eq!(documented, described);
        for name in exported(&[stats()]).keys() {
            let name = name.split(' ').next().unwrap();
            assert!(METRICS.iter().any(|(described, ..)| *described == name), "{name}");
        }
    }
}

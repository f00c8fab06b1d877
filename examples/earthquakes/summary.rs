//! The result of a run, taken from the file.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use kinesis_stream::CloseReport;
use kinesis_stream_support::earthquakes;

use crate::{archive::Archive, progress::Counts, quake::Quake, tracker::EventTracker};

/// The events of one network: the published ones, and those that arrived.
#[derive(Debug, Default)]
pub(crate) struct Network {
    events: Vec<String>,
    /// In the order of the file, without repeats.
    arrived: Vec<String>,
    repeats: usize,
}

impl Network {
    /// Whether the events that arrived are in the order of the producer.
    fn is_in_order(&self) -> bool {
        let mut events = self.events.iter();
        self.arrived.iter().all(|arrived| events.any(|event| event == arrived))
    }
}

/// Groups the events of the file by network.
pub(crate) fn networks(written: &[Quake]) -> BTreeMap<String, Network> {
    let mut networks: BTreeMap<String, Network> = BTreeMap::new();
    for quake in earthquakes::EVENTS.lines().filter_map(|line| Quake::parse(line.as_bytes()).ok()) {
        networks.entry(quake.network).or_default().events.push(quake.id);
    }
    let mut seen = HashSet::new();
    for quake in written {
        let network = networks.entry(quake.network.clone()).or_default();
        if seen.insert(&quake.id) {
            network.arrived.push(quake.id.clone());
        } else {
            network.repeats += 1;
        }
    }
    networks
}

/// How consuming ended.
#[derive(Debug)]
pub(crate) struct Consumed {
    /// How often the consumer was stopped, and how.
    stops: (usize, &'static str),
    /// What closing left behind.
    left: Option<String>,
}

impl Consumed {
    /// The subscription was closed.
    pub(crate) fn closed(report: &CloseReport, restarts: usize) -> Self {
        let left = (!report.is_clean()).then(|| format!("closing left something behind: {report:?}"));
        Self { stops: (restarts, "restarts"), left }
    }

    /// The consumer process closed its subscription.
    pub(crate) fn exited(kills: usize) -> Self {
        Self { stops: (kills, "kills"), left: None }
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) networks: BTreeMap<String, Network>,
    pub(crate) archive: Arc<Archive>,
    pub(crate) tracker: Arc<EventTracker>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) consumed: Consumed,
    pub(crate) took: Duration,
    pub(crate) interrupted: bool,
}

impl Summary {
    /// Whether the library kept every promise. `false` for an interrupted run.
    pub(crate) fn is_good(&self) -> bool {
        !self.interrupted && self.violations().is_empty()
    }

    fn sum(&self, part: impl Fn(&Network) -> usize) -> usize {
        self.networks.values().map(part).sum()
    }

    /// The broken promises, as text.
    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let totals = self.tracker.totals();
        let missing =
            self.sum(|network| network.events.len()).saturating_sub(self.sum(|network| network.arrived.len()));
        if missing > 0 && !self.interrupted {
            violations.push(format!("{missing} events did not arrive"));
        }
        for (name, _) in self.networks.iter().filter(|(_, network)| !network.is_in_order()) {
            violations.push(format!("the events of {name} are out of order"));
        }
        if totals.unexpected > 0 {
            violations.push(format!("{} redelivered events had not been in flight", totals.unexpected));
        }
        if totals.repeats != self.sum(|network| network.repeats) {
            violations.push(format!("{} repeats were reported, but the file holds another number", totals.repeats));
        }
        violations.extend(self.consumed.left.clone());
        violations
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = self.tracker.totals();
        writeln!(f, "\nnetwork  events  arrived  repeats  order")?;
        for (name, network) in &self.networks {
            let (events, arrived) = (network.events.len(), network.arrived.len());
            let order = if network.is_in_order() { "kept" } else { "BROKEN" };
            writeln!(f, "{name:<8} {events:<7} {arrived:<8} {:<8} {order}", network.repeats)?;
        }
        let (events, arrived) = (self.sum(|network| network.events.len()), self.sum(|network| network.arrived.len()));
        writeln!(f, "{:<8} {events:<7} {arrived:<8} {}", "all", self.sum(|network| network.repeats))?;
        writeln!(
            f,
            "\n{} published, {} written in {:.1} s to {}",
            self.counts.all_published(),
            arrived + totals.repeats,
            self.took.as_secs_f64(),
            self.archive.path().display()
        )?;
        let (stops, how) = self.consumed.stops;
        writeln!(
            f,
            "{stops} {how}, with {} records written but not settled; {} of them were redelivered",
            totals.returned, totals.repeats
        )?;
        for violation in self.violations() {
            writeln!(f, "BROKEN: {violation}")?;
        }
        f.write_str(match (self.interrupted, self.is_good()) {
            (true, _) => "interrupted, and shut down gracefully",
            (false, true) => "every event arrived, in order within its network",
            (false, false) => "a promise was broken",
        })
    }
}

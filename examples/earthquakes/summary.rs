//! What came of it, told from the file that was written.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use kinesis_stream::CloseReport;
use kinesis_stream_support::earthquakes;

use crate::{archive::Archive, books::Books, progress::Counts, quake::Quake};

/// The events of one network: those that were to come, and those that came.
#[derive(Debug, Default)]
pub(crate) struct Network {
    events: Vec<String>,
    /// In the order of the file, each one the first time that it is there.
    arrived: Vec<String>,
    repeats: usize,
}

impl Network {
    /// Whether the order is that of the producer, whatever may be missing.
    fn is_in_order(&self) -> bool {
        let mut events = self.events.iter();
        self.arrived.iter().all(|arrived| events.any(|event| event == arrived))
    }
}

/// Sorts what the file holds by network.
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
    /// How often the consumer was stopped on the way, and how.
    stops: (usize, &'static str),
    /// What was not in good order in the end.
    left: Option<String>,
}

impl Consumed {
    /// The subscription was closed.
    pub(crate) fn closed(report: &CloseReport, restarts: usize) -> Self {
        let left = (!report.is_clean()).then(|| format!("closing left something behind: {report:?}"));
        Self { stops: (restarts, "restarts"), left }
    }

    /// The process of the consumer closed its subscription.
    pub(crate) fn exited(kills: usize) -> Self {
        Self { stops: (kills, "kills"), left: None }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) networks: BTreeMap<String, Network>,
    pub(crate) archive: Arc<Archive>,
    pub(crate) books: Arc<Books>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) consumed: Consumed,
    pub(crate) took: Duration,
    pub(crate) interrupted: bool,
}

impl Summary {
    /// Whether everything is as promised. An interrupted job is not done.
    pub(crate) fn is_good(&self) -> bool {
        !self.interrupted && self.violations().is_empty()
    }

    fn sum(&self, part: impl Fn(&Network) -> usize) -> usize {
        self.networks.values().map(part).sum()
    }

    /// The promises that were broken, in words.
    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let tally = self.books.tally();
        let missing =
            self.sum(|network| network.events.len()).saturating_sub(self.sum(|network| network.arrived.len()));
        if missing > 0 && !self.interrupted {
            violations.push(format!("{missing} events did not arrive"));
        }
        for (name, _) in self.networks.iter().filter(|(_, network)| !network.is_in_order()) {
            violations.push(format!("the events of {name} are out of order"));
        }
        if tally.unexpected > 0 {
            violations.push(format!("{} events came again that had not been in flight", tally.unexpected));
        }
        if tally.repeats != self.sum(|network| network.repeats) {
            violations.push(format!("{} repeats were noted, and the file holds another number", tally.repeats));
        }
        violations.extend(self.consumed.left.clone());
        violations
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = self.books.tally();
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
            arrived + tally.repeats,
            self.took.as_secs_f64(),
            self.archive.path().display()
        )?;
        let (stops, how) = self.consumed.stops;
        writeln!(
            f,
            "{stops} {how}, with {} records written and not settled yet, of which {} came again",
            tally.returned, tally.repeats
        )?;
        for violation in self.violations() {
            writeln!(f, "BROKEN: {violation}")?;
        }
        f.write_str(match (self.interrupted, self.is_good()) {
            (true, _) => "interrupted, and closed in good order",
            (false, true) => "every event arrived, in order within its network",
            (false, false) => "not as promised",
        })
    }
}

//! The report of a run.

use std::fmt;

use crate::{
    checker::Verdict,
    storm::Outcome,
    takeover::{Cause, Takeover},
};

/// The outcomes of all seeds.
#[derive(Debug, Default)]
pub(crate) struct Report(pub(crate) Vec<Outcome>);

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, verdict, records, even_after, .. } = self;
        let Verdict { begun, again, late, refused, .. } = verdict;
        let (even, log) = (even_after.as_secs_f64(), self.log.join(", "));
        write!(
            f,
            "seed {seed}: {records} records, {begun} started, {again} redelivered, {late} late, {refused} late writes refused, "
        )?;
        write!(f, "balanced after {even:.1} s; {log}")?;
        for takeover in verdict.takeovers.iter().filter(|takeover| takeover.is_late()) {
            let stalled = if takeover.stalled { ", the machine stalled" } else { "" };
            write!(
                f,
                "\n  {} took {:.2} s{stalled}: {}",
                takeover.cause,
                takeover.took.unwrap_or_default().as_secs_f64(),
                takeover.what
            )?;
        }
        self.unclean.iter().try_for_each(|word| write!(f, "\n  not clean: {word}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}",
            Columns(["cause", "shards", "s min / median / max", "target", "late / stalled", "redelivered"])
        )?;
        for cause in [Cause::Killed, Cause::Stopped, Cause::Closed, Cause::Balance] {
            writeln!(f, "{}", self.row(cause))?;
        }
        let even = Spread::of(self.0.iter().map(|outcome| outcome.even_after.as_secs_f64()));
        write!(f, "balanced after {even} s")
    }
}

impl Report {
    /// The statistics of the takeovers with this cause. Each takeover is of one shard.
    fn row(&self, cause: Cause) -> Columns<String> {
        let all = self.0.iter().flat_map(|outcome| &outcome.verdict.takeovers);
        let all: Vec<&Takeover> = all.filter(|takeover| takeover.cause == cause).collect();
        let late: Vec<_> = all.iter().filter(|takeover| takeover.is_late()).collect();
        let stalled = late.iter().filter(|takeover| takeover.stalled).count();
        let times = Spread::of(all.iter().filter_map(|takeover| takeover.took).map(|took| took.as_secs_f64()));
        let again: usize = all.iter().map(|takeover| takeover.again).sum();
        let most = all.iter().map(|takeover| takeover.again).max().unwrap_or_default();
        let target = cause.target().map_or("-".to_owned(), |target| format!("{:.1}", target.as_secs_f64()));
        Columns([
            cause.to_string(),
            all.len().to_string(),
            times.to_string(),
            target,
            format!("{} / {stalled}", late.len()),
            format!("{again}, at most {most}"),
        ])
    }
}

struct Columns<T>([T; 6]);

impl<T: fmt::Display> fmt::Display for Columns<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [cause, shards, times, target, past, again] = &self.0;
        write!(f, "{cause:8} {shards:>6} {times:>22} {target:>7} {past:>15} {again:>17}")
    }
}

/// The minimum, median and maximum of some numbers.
struct Spread(Vec<f64>);

impl Spread {
    fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        Self(numbers)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(least), Some(most)) = (self.0.first(), self.0.last()) else { return f.write_str("-") };
        let middle = self.0[self.0.len() / 2];
        write!(f, "{least:.2} / {middle:.2} / {most:.2}")
    }
}

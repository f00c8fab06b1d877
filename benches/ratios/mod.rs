//! Groups of criterion benches, and a table of their results as multiples of the first bench of each group.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use criterion::{Bencher, BenchmarkGroup, Criterion, Throughput};
use serde_json::Value;

pub(crate) use self::cpu::CpuTime;

mod cpu;

/// A group of benches that all handle the same number of records or idle shards.
pub(crate) struct Group<'a> {
    inner: BenchmarkGroup<'a, CpuTime>,
    name: &'static str,
    records: u32,
    benches: Vec<&'static str>,
}

impl<'a> Group<'a> {
    pub(crate) fn new(criterion: &'a mut Criterion<CpuTime>, name: &'static str, records: usize) -> Self {
        let records = u32::try_from(records).expect("the number of records fits");
        let mut inner = criterion.benchmark_group(name);
        inner.throughput(Throughput::Elements(records.into()));
        Self { inner, name, records, benches: Vec::new() }
    }

    /// Measures one bench.
    pub(crate) fn bench(&mut self, name: &'static str, measure: impl FnMut(&mut Bencher<CpuTime>)) {
        self.inner.bench_function(name, measure);
        self.benches.push(name);
    }

    /// Reads the results of this run or an earlier one from criterion's files.
    pub(crate) fn finish(self, results: &Path) -> Table {
        self.inner.finish();
        let rows = self.benches.into_iter().filter_map(|bench| {
            let path = results.join(self.name).join(bench).join("new/estimates.json");
            Some((bench, median(path).ok()? / f64::from(self.records)))
        });
        Table { name: self.name, rows: rows.collect() }
    }
}

/// The nanoseconds per record in each bench of a group.
pub(crate) struct Table {
    name: &'static str,
    rows: Vec<(&'static str, f64)>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:32}    ns each     ratio", self.name)?;
        for (bench, nanos) in &self.rows {
            let ratio = nanos / self.rows[0].1;
            writeln!(f, "  {bench:30}{nanos:11.0}{ratio:10.2}")?;
        }
        Ok(())
    }
}

/// The median in nanoseconds per iteration.
fn median(estimates: PathBuf) -> io::Result<f64> {
    let estimates: Value = serde_json::from_slice(&fs::read(estimates)?)?;
    estimates["median"]["point_estimate"].as_f64().ok_or_else(|| io::Error::other("no median"))
}

//! Faults between an instance and the services that it calls.

use kinesis_stream_support::Rng;

use super::{
    script::{Fault, Rule, Script},
    table::Ask,
    wire::Op,
};
use crate::{
    error::service::{FailureKind, StoreError},
    simulation::harness::{millis, seconds},
};

/// Makes the next calls of one kind fail, hang, run late, or lose their responses.
pub(crate) fn trouble(rng: &mut Rng, wire: &Script<Op, FailureKind>, table: &Script<Ask, StoreError>) {
    let (times, skip) = (1 + rng.index(12), rng.index(10));
    let pause = millis(rng.below(6_000));
    if rng.one_in(2) {
        let op = *rng.pick(&[Op::GetRecords, Op::GetRecords, Op::GetShardIterator, Op::ListShards]);
        let kinds = [
            FailureKind::Throttled,
            FailureKind::IteratorExpired,
            FailureKind::Other,
            FailureKind::Denied,
            FailureKind::Unreachable,
        ];
        let kind = *rng.pick(&kinds);
        let late = Fault::FailAfter(seconds(30), FailureKind::Unreachable);
        let faults =
            [Fault::Fail(kind), Fault::FailAfter(pause, kind), Fault::Delay(pause), Fault::LoseAnswer(kind), late];
        wire.plan(Rule::on(op).after(skip).times(times), rng.pick(&faults).clone());
    } else {
        let asks = [Ask::Take, Ask::Renew, Ask::Checkpoint, Ask::Release, Ask::Leases, Ask::Want, Ask::Delete];
        let error = StoreError::new("scripted");
        let faults = [Fault::Fail(error.clone()), Fault::LoseAnswer(error), Fault::Delay(pause), Fault::Hang];
        table.plan(Rule::on(*rng.pick(&asks)).after(skip).times(times), rng.pick(&faults).clone());
    }
}

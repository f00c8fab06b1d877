//! Faults between an instance and the services that it calls.

use kinesis_stream_support::Rng;

use super::{
    script::{Fault, Rule, Script},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    error::service::{FailureKind, StoreError},
    simulation::harness::{millis, seconds},
};

/// Makes all calls on Kinesis, or all on the lease table, fail for a while: an instance that reaches the one and not
/// the other, or a table that is away for longer than a lease lives.
pub(crate) fn inject_outage(
    rng: &mut Rng,
    service: &Script<ServiceOp, FailureKind>,
    table: &Script<TableOp, StoreError>,
) {
    if rng.one_in(2) {
        let late = Fault::FailAfter(seconds(30), FailureKind::Unreachable);
        let faults = [Fault::Fail(FailureKind::Denied), Fault::Fail(FailureKind::Throttled), late];
        let (lasts, fault) = (seconds(rng.below(180)), rng.pick(&faults).clone());
        // An instance that is just starting is not denied the description of the stream, which would end its start.
        for op in [ServiceOp::GetRecords, ServiceOp::GetShardIterator, ServiceOp::ListShards] {
            service.plan_first(Rule::on(op).always().lasts(lasts), fault.clone());
        }
    } else {
        let faults = [Fault::Fail(StoreError::new("scripted")), Fault::Hang];
        let lasts = seconds(rng.below(40));
        table.plan_first(Rule::everything().lasts(lasts), rng.pick(&faults).clone());
    }
}

/// Makes the next calls of one kind fail, hang, run late, or lose their responses.
pub(crate) fn inject_faults(
    rng: &mut Rng,
    service: &Script<ServiceOp, FailureKind>,
    table: &Script<TableOp, StoreError>,
) {
    let (times, skip) = (1 + rng.index(12), rng.index(10));
    let pause = millis(rng.below(6_000));
    if rng.one_in(2) {
        let op = *rng.pick(&[
            ServiceOp::GetRecords,
            ServiceOp::GetRecords,
            ServiceOp::GetShardIterator,
            ServiceOp::ListShards,
        ]);
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
        service.plan(Rule::on(op).after(skip).times(times), rng.pick(&faults).clone());
    } else {
        let asks = [
            TableOp::Take,
            TableOp::Renew,
            TableOp::Checkpoint,
            TableOp::Release,
            TableOp::Leases,
            TableOp::Want,
            TableOp::Delete,
        ];
        let error = StoreError::new("scripted");
        let faults = [Fault::Fail(error.clone()), Fault::LoseAnswer(error), Fault::Delay(pause), Fault::Hang];
        table.plan(Rule::on(*rng.pick(&asks)).after(skip).times(times), rng.pick(&faults).clone());
    }
}

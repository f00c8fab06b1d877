//! What goes wrong between an instance and the services that it calls.

use super::{
    dice::Dice,
    ground::{millis, seconds},
    script::{Fault, Rule, Script},
    table::Ask,
    wire::Op,
};
use crate::failure::{FailureKind, StoreError};

/// The next calls of one kind fail, hang, are late, or lose their answers.
pub(crate) fn trouble(dice: &mut Dice, wire: &Script<Op, FailureKind>, table: &Script<Ask, StoreError>) {
    let (times, skip) = (1 + dice.index(12), dice.index(10));
    let pause = millis(dice.roll(6_000));
    if dice.one_in(2) {
        let op = *dice.one(&[Op::GetRecords, Op::GetRecords, Op::GetShardIterator, Op::ListShards]);
        let kinds = [
            FailureKind::Throttled,
            FailureKind::IteratorExpired,
            FailureKind::Other,
            FailureKind::Denied,
            FailureKind::Unreachable,
        ];
        let kind = *dice.one(&kinds);
        let late = Fault::FailAfter(seconds(30), FailureKind::Unreachable);
        let faults =
            [Fault::Fail(kind), Fault::FailAfter(pause, kind), Fault::Delay(pause), Fault::LoseAnswer(kind), late];
        wire.plan(Rule::on(op).after(skip).times(times), dice.one(&faults).clone());
    } else {
        let asks = [Ask::Take, Ask::Renew, Ask::Checkpoint, Ask::Release, Ask::Leases, Ask::Want, Ask::Delete];
        let error = StoreError::new("scripted");
        let faults = [Fault::Fail(error.clone()), Fault::LoseAnswer(error), Fault::Delay(pause), Fault::Hang];
        table.plan(Rule::on(*dice.one(&asks)).after(skip).times(times), dice.one(&faults).clone());
    }
}

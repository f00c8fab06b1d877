//! Records that are too old to be delivered (A8).

use crate::{
    config::{max_age::TooOld, redelivery::RedeliveryDecision},
    state::{events::Returned, shard::inner::Shard},
};

impl Shard {
    /// Disposes of a record that the stream has taken up and that is too old. It keeps its place in the order: the
    /// checkpoint passes it once it is settled.
    pub(crate) fn dispose_of_old(&self, old: Returned, becomes: TooOld) {
        match becomes {
            TooOld::Skip => {
                self.count(|counts| counts.too_old += 1);
                self.settle_spent(old.ticket, old.settlement);
            }
            TooOld::DeadLetter => {
                self.put_down(old, |old| {
                    self.count(|counts| {
                        counts.too_old += 1;
                        counts.spent += 1;
                    });
                    self.context.dead_letter_queue.push(old);
                    RedeliveryDecision::DeadLetter
                });
            }
        }
    }
}

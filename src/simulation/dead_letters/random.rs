//! Random faults on the dead-letter stream (A3, A7, X2).

use std::collections::BTreeSet;

use kinesis_stream_support::Rng;

use tokio::time::{sleep, timeout};

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    dead_letters, with_attempts,
};

use crate::{
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{Harness, Instance, item, millis, name, seconds},
    subscription::Subscription,
};

/// A random run of one consumer on a shard of forty records, with all kinds of faults on the dead-letter stream.
struct ConsumerRun {
    harness: Harness,
    rng: Rng,
    /// The records that were acknowledged, or carried by an error.
    done: BTreeSet<String>,
    given_back: BTreeSet<String>,
}

impl ConsumerRun {
    fn new(seed: u64) -> Self {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 40);
        Self { harness, rng: Rng(seed), done: BTreeSet::new(), given_back: BTreeSet::new() }
    }

    /// Makes some of the next dead-letter writes fail.
    fn inject_faults(&mut self, instance: &Instance) {
        for _ in 0..self.rng.below(8) {
            let rule = Rule::on(ServiceOp::PutRecord).after(self.rng.index(10)).times(self.rng.index(4));
            let kind = *self.rng.pick(&[FailureKind::Throttled, FailureKind::Denied, FailureKind::Rejected]);
            let fault = match self.rng.below(4) {
                0 => Fault::LoseAnswer(FailureKind::Unreachable),
                1 => Fault::Delay(millis(self.rng.below(5_000))),
                2 => Fault::FailAfter(millis(self.rng.below(5_000)), kind),
                _ => Fault::Fail(kind),
            };
            instance.service.script.plan(rule, fault);
        }
    }

    /// Consumes until no record arrives for a long time, or until chance ends it earlier.
    async fn consume(&mut self, subscription: &mut Subscription) {
        while let Ok(item) = timeout(seconds(200), item(subscription)).await {
            match item.unwrap() {
                Ok(delivery) if self.rng.below(3) > 0 => {
                    self.given_back.insert(name(&delivery).to_owned());
                    delivery.nack();
                }
                Ok(delivery) => {
                    self.done.insert(name(&delivery).to_owned());
                    delivery.ack();
                }
                Err(KinesisError::AttemptsSpent { record, .. }) => {
                    let number = record.sequence_number().to_string();
                    assert!(self.given_back.contains(&number));
                    self.done.insert(number);
                }
                Err(error) => {
                    assert!(matches!(error.class(), ErrorClass::Transient | ErrorClass::Lasting), "{error}");
                }
            }
            sleep(millis(self.rng.below(800))).await;
            self.check().await;
            if self.rng.below(60) == 0 {
                return;
            }
        }
    }

    /// Checks that no checkpoint has passed a record that is neither done nor a dead letter. Returns how far the
    /// checkpoint is.
    async fn check(&self) -> usize {
        let dead_letters: BTreeSet<String> = dead_letters(&self.harness).into_iter().collect();
        assert!(dead_letters.is_subset(&self.given_back));
        let checkpoint = self.harness.checkpoint("a").await;
        let covered = checkpoint.strip_prefix("after a").map_or(0, |last| last.parse::<usize>().unwrap() + 1);
        for number in crate::simulation::harness::range("a", 0..covered) {
            assert!(self.done.contains(&number) || dead_letters.contains(&number), "{number} is lost: {checkpoint}");
        }
        covered
    }
}

// A3, A7, X2
#[tokio::test(start_paused = true)]
async fn under_random_faults_no_checkpoint_passes_a_record_that_is_neither_settled_nor_a_dead_letter() {
    for seed in 0..100 {
        let mut run = ConsumerRun::new(seed);
        let mut runs = 0;
        while run.check().await < 40 {
            let me = run.harness.instance("me");
            run.inject_faults(&me);
            let mut subscription = me.subscribe(with_attempts(2)).await;
            run.consume(&mut subscription).await;
            if run.rng.below(2) == 0 {
                subscription.close().await;
            }
            runs += 1;
            assert!(runs < 100, "seed {seed} does not complete");
        }
    }
}

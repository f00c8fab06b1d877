//! The end at the tip (A7, X2).

use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    dead_letters, with_attempts, with_refused_dead_letters,
};

use crate::{
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    lease::Held,
    simulation::harness::{Harness, horizon, item, name, next, seconds, take},
    subscription::Subscription,
};

/// The names of all records to the end of the stream, each settled on arrival, and the kinds of the errors.
async fn to_the_end(subscription: &mut Subscription) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(item) = item(subscription).await {
        match item {
            Ok(delivery) => {
                texts.push(name(&delivery).to_owned());
                delivery.ack();
            }
            Err(KinesisError::AttemptsSpent { record, .. }) => {
                texts.push(format!("{} is spent", record.sequence_number()));
            }
            Err(KinesisError::DeadLetter { .. }) => texts.push("no dead letter".to_owned()),
            Err(error) => panic!("{error}"),
        }
    }
    texts
}

// A7
#[tokio::test(start_paused = true)]
async fn at_the_tip_the_stream_ends_once_every_dead_letter_is_written() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(2), FailureKind::Throttled);
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Delay(seconds(5)));
    let mut subscription = me.subscribe(with_attempts(1).stop_at_tip()).await;
    next(&mut subscription).await.nack();
    assert_eq!(to_the_end(&mut subscription).await, ["a1", "no dead letter", "no dead letter"]);
    assert_eq!((harness.millis() / 1_000, dead_letters(&harness)), (8, vec!["a0: given back".to_owned()]));
    assert!(subscription.close().await.is_clean());
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn at_the_tip_the_stream_ends_after_the_errors_that_carry_spent_records() {
    for (stream, refused_after) in [(horizon().max_attempts(1), 0), (with_attempts(1), 5)] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 3);
        let me = harness.instance("me");
        let refusal = Fault::FailAfter(seconds(refused_after), FailureKind::Rejected);
        me.service.script.plan(Rule::on(ServiceOp::PutRecord).always(), refusal);
        let mut subscription = me.subscribe(stream.stop_at_tip()).await;
        let mut records = take(&mut subscription, 3).await;
        records.remove(1).nack();
        records.into_iter().for_each(Delivery::ack);
        assert_eq!(to_the_end(&mut subscription).await, ["a1 is spent"]);
        assert!(subscription.close().await.is_clean());
        assert_eq!(harness.checkpoint("a").await, "after a2");
    }
}

// A7, E5
#[tokio::test(start_paused = true)]
async fn at_the_tip_the_stream_does_not_wait_for_dead_letters_of_a_lost_shard() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = with_refused_dead_letters(&harness, "me");
    let mut subscription = me.subscribe(with_attempts(1).stop_at_tip()).await;
    next(&mut subscription).await.nack();
    let holder = async {
        sleep(seconds(10)).await;
        harness.steal("a", "other").await;
        let row = harness.row("a").await.unwrap();
        let held = Held { key: row.key, owner: "other".into(), epoch: row.epoch };
        loop {
            harness.table().renew(&held).await.unwrap();
            sleep(seconds(1)).await;
        }
    };
    let mut errors = Vec::new();
    let end = async {
        while let Some(item) = item(&mut subscription).await {
            errors.push(item.unwrap_err());
        }
    };
    tokio::select! {
        () = holder => unreachable!("the subscription never ends"),
        () = end => {}
    }
    assert!(errors.iter().any(|error| matches!(error, KinesisError::LeaseLost { .. })), "{errors:?}");
    assert!((10_000..20_000).contains(&harness.millis()), "{}", harness.millis());
    assert_eq!(dead_letters(&harness), [""; 0]);
}

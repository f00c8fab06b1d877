//! Subscriptions that hide the errors the library handles (X2).

use futures::{StreamExt, TryStreamExt, stream::FusedStream};

use super::{script::Rule, scripted_service::ServiceOp};

use crate::{
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, name, take},
};

// X2
#[tokio::test(start_paused = true)]
async fn a_closure_sees_each_error_that_is_hidden_and_no_other_one() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1), FailureKind::Other);
    let mut hidden = Vec::new();
    let note = |error: &KinesisError| hidden.push(error.class());
    let mut quakes = me.subscribe(horizon().read_limit(2)).await.tolerant_with(note);
    for expected in ["a0", "a1", "a2"] {
        let delivery = quakes.try_next().await.unwrap().unwrap();
        assert_eq!(name(&delivery), expected);
        if expected == "a2" { delivery.reject("no digit") } else { delivery.ack() }
    }
    let spent = quakes.next().await.unwrap().unwrap_err();
    assert_eq!(spent.class(), ErrorClass::Record);
    drop(quakes);
    assert_eq!(hidden, [ErrorClass::Transient]);
}

// X2
#[tokio::test(start_paused = true)]
async fn the_subscription_inside_yields_all_its_errors_again() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1), FailureKind::Other);
    let mut subscription = me.subscribe(horizon().read_limit(2)).await.tolerant().into_inner();
    take(&mut subscription, 2).await.into_iter().for_each(crate::Delivery::ack);
    assert_eq!(subscription.next().await.unwrap().unwrap_err().class(), ErrorClass::Transient);
}

// X1, L9
#[tokio::test(start_paused = true)]
async fn a_stream_that_has_ended_says_so_and_stays_ended() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut quakes = harness.instance("me").subscribe(horizon()).await.tolerant();
    quakes.try_next().await.unwrap().unwrap().ack();
    assert!(!quakes.is_terminated() && !quakes.get_ref().is_terminated());
    assert!(quakes.closer().close().await.is_clean());
    assert!(quakes.next().await.is_none() && quakes.next().await.is_none());
    assert!(quakes.is_terminated() && quakes.get_ref().is_terminated());
}

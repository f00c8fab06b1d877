//! The middleware: every call passes here, is logged, and meets the rules in force.

use axum::{
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::Value;

use super::{
    Faults,
    call::Call,
    partial,
    rule::{Action, Rule},
};
use crate::wire::{self, Answer, Asked};

pub(crate) async fn layer(State(faults): State<Faults>, request: Request, next: Next) -> Response {
    let _under_way = faults.enter();
    through(&faults, request, next).await.unwrap_or_else(IntoResponse::into_response)
}

async fn through(faults: &Faults, request: Request, next: Next) -> Result<Response, StatusCode> {
    let mut asked = Asked::read(request).await?;
    let rules = faults.admit(Call::of(&asked));
    let entries = entries(&rules, &asked);
    for rule in &rules {
        if let Some(refusal) = before(rule, &mut asked).await {
            return Ok(refusal);
        }
    }
    let mut response = next.run(asked.into_request()).await;
    for rule in &rules {
        response = after(rule, response, entries).await?;
    }
    Ok(response)
}

/// What a rule does to a call on its way in: its answer, if that is all the call gets.
async fn before(rule: &Rule, asked: &mut Asked) -> Option<Response> {
    match &rule.action {
        Action::Fail(error) => return Some(error.into_response()),
        Action::Delay(time) => tokio::time::sleep(*time).await,
        Action::Hold => rule.lifted().await,
        Action::Hang => std::future::pending().await,
        Action::FailEntries(places, error) => {
            let mut question = asked.json();
            if let Some(count) = partial::take_out(&mut question, places) {
                // The server would not take a request without entries.
                return Some(wire::answer(StatusCode::OK, partial::all_failed(count, *error).to_string()));
            }
            asked.rewrite(&question);
        }
        Action::ApplyThenFail(_) | Action::Edit(_) => {}
    }
    None
}

/// How many entries a request has, if a rule wants to know.
fn entries(rules: &[Rule], asked: &Asked) -> usize {
    let wants = rules.iter().any(|rule| matches!(rule.action, Action::FailEntries(..)));
    let records = if wants { asked.json()["Records"].take() } else { Value::Null };
    records.as_array().map_or(0, Vec::len)
}

/// What a rule does to an answer on its way out.
async fn after(rule: &Rule, response: Response, entries: usize) -> Result<Response, StatusCode> {
    match &rule.action {
        Action::ApplyThenFail(error) => Ok(error.into_response()),
        Action::FailEntries(places, error) => {
            let places = &places[..places.partition_point(|place| *place < entries)];
            edited(response, |body| partial::report(body, places, *error)).await
        }
        Action::Edit(change) => edited(response, &**change).await,
        _ => Ok(response),
    }
}

async fn edited(response: Response, change: impl FnOnce(&mut Value)) -> Result<Response, StatusCode> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let mut answer = Answer::read(response).await?;
    let mut body = answer.json();
    change(&mut body);
    answer.rewrite(&body);
    Ok(answer.into_response())
}

//! The middleware: it logs every call and applies the active rules.

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
use crate::wire::{self, WireRequest, WireResponse};

pub(crate) async fn layer(State(faults): State<Faults>, request: Request, next: Next) -> Response {
    let _in_flight = faults.enter();
    through(&faults, request, next).await.unwrap_or_else(IntoResponse::into_response)
}

async fn through(faults: &Faults, request: Request, next: Next) -> Result<Response, StatusCode> {
    let mut asked = WireRequest::read(request).await?;
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

/// Applies a rule to an incoming call. Returns the response if the rule answers the call itself.
async fn before(rule: &Rule, asked: &mut WireRequest) -> Option<Response> {
    match &rule.action {
        Action::Fail(error) => return Some(error.into_response()),
        Action::Delay(time) => tokio::time::sleep(*time).await,
        Action::Hold => rule.lifted().await,
        Action::Hang => std::future::pending().await,
        Action::FailEntries(places, error) => {
            let mut request_json = asked.json();
            if let Some(count) = partial::take_out(&mut request_json, places) {
                // The server would reject a request without entries.
                return Some(wire::answer(StatusCode::OK, partial::all_failed(count, *error).to_string()));
            }
            asked.rewrite(&request_json);
        }
        Action::ApplyThenFail(_) | Action::Edit(_) => {}
    }
    None
}

/// How many entries a request has, if a rule needs the number.
fn entries(rules: &[Rule], asked: &WireRequest) -> usize {
    let wants = rules.iter().any(|rule| matches!(rule.action, Action::FailEntries(..)));
    let records = if wants { asked.json()["Records"].take() } else { Value::Null };
    records.as_array().map_or(0, Vec::len)
}

/// Applies a rule to a response.
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
    let mut answer = WireResponse::read(response).await?;
    let mut body = answer.json();
    change(&mut body);
    answer.rewrite(&body);
    Ok(answer.into_response())
}

//! `PutRecords` with failed entries.

use serde_json::{Value, json};

use super::AwsError;

/// Removes the entries at these places (ascending) from the request. If none are left, returns how many there were.
pub(super) fn take_out(request_json: &mut Value, places: &[usize]) -> Option<usize> {
    let entries = request_json["Records"].as_array_mut()?;
    let count = entries.len();
    let mut place = 0..;
    entries.retain(|_| place.next().is_some_and(|place| !places.contains(&place)));
    (count > 0 && entries.is_empty()).then_some(count)
}

/// The response to a request with `count` entries that all failed.
pub(super) fn all_failed(count: usize, error: AwsError) -> Value {
    let mut answer = json!({ "Records": [] });
    report(&mut answer, &(0..count).collect::<Vec<_>>(), error);
    answer
}

/// Inserts a failure into the response at the place of each removed entry.
pub(super) fn report(answer: &mut Value, places: &[usize], error: AwsError) {
    let Some(entries) = answer["Records"].as_array_mut() else { return };
    let mut failed = 0;
    for &place in places {
        if place <= entries.len() {
            entries.insert(place, json!({ "ErrorCode": error.code(), "ErrorMessage": AwsError::MESSAGE }));
            failed += 1;
        }
    }
    answer["FailedRecordCount"] = failed.into();
}

//! `PutRecords` of which some entries fail.

use serde_json::{Value, json};

use super::AwsError;

/// Takes the entries at these places, in ascending order, out of the request.
pub(super) fn take_out(question: &mut Value, places: &[usize]) {
    if let Some(entries) = question["Records"].as_array_mut() {
        let mut place = 0..;
        entries.retain(|_| place.next().is_some_and(|place| !places.contains(&place)));
    }
}

/// Tells in the answer, at their places, that the entries taken out have failed.
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

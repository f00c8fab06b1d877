//! Errors with their causes.

use std::{error::Error, iter};

/// The text of an error and of each of its causes, with `: ` in between: an error prints only its own text.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let errors = iter::successors(Some(error), |error| (*error).source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

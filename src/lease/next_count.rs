//! The next epoch or counter of a row. They only grow, so a store refuses a write that would pass the largest number.

use std::fmt::Display;

use crate::error::service::{StoreError, StoreErrorKind};

/// The number after this one, at most `most`. The error names the row and the column.
pub(super) fn next_count(row: impl Display, column: &str, number: u64, most: u64) -> Result<u64, StoreError> {
    match number.checked_add(1).filter(|next| *next <= most) {
        Some(next) => Ok(next),
        None => Err(full(row, column, number)),
    }
}

/// The row cannot be written any more.
pub(super) fn full(row: impl Display, column: &str, number: u64) -> StoreError {
    let what = format!("{row}: {column} is {number}, the largest number, so the row cannot be written");
    StoreError::new(format!("{what}; correct or delete the row")).with_kind(StoreErrorKind::UnreadableRow)
}

#[cfg(test)]
mod tests {
    use super::*;

    // E2
    #[test]
    fn a_number_grows_up_to_the_largest_one_and_no_further() {
        assert_eq!(next_count("row", "epoch", 0, 9).unwrap(), 1);
        assert_eq!(next_count("row", "epoch", 8, 9).unwrap(), 9);
        for (number, most) in [(9, 9), (10, 9), (u64::MAX, u64::MAX)] {
            let error = next_count("row \"a\"", "epoch", number, most).unwrap_err();
            let text = format!(
                "row \"a\": epoch is {number}, the largest number, so the row cannot be written; correct or delete the row"
            );
            assert_eq!((error.to_string(), error.kind()), (text, StoreErrorKind::UnreadableRow));
        }
    }
}

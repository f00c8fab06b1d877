//! What `Debug` shows of data that must not end up in logs: lengths, and in the alternate form a short beginning.

use std::fmt::{self, Debug, Write};

/// How many characters of a payload the alternate form shows.
const SHOWN: usize = 64;

/// A number of bytes.
pub(crate) struct Length(pub(crate) usize);

impl Debug for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0)
    }
}

/// A payload: nothing of it with `{:?}`, its beginning with `{:#?}`.
pub(crate) struct HiddenPayload<'a, T>(pub(crate) &'a T);

impl<T: Debug> Debug for HiddenPayload<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return f.write_str("..");
        }
        let mut beginning = FirstCharacters { f, left: SHOWN };
        if write!(beginning, "{:?}", self.0).is_err() {
            f.write_str("..")?;
        }
        Ok(())
    }
}

/// Writes some characters, and then fails so that the rest is not even formatted.
struct FirstCharacters<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    left: usize,
}

impl Write for FirstCharacters<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.f.write_char(letter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_a_payload_in_its_alternate_form_alone_and_only_its_beginning() {
        assert_eq!(format!("{:?} {:?}", Length(5), HiddenPayload(&"secret")), "<5 bytes> ..");
        assert_eq!(format!("{:#?}", HiddenPayload(&"short")), "\"short\"");
        let long = "x".repeat(1_000_000);
        assert_eq!(format!("{:#?}", HiddenPayload(&long)), format!("\"{}..", "x".repeat(SHOWN - 1)));
    }
}

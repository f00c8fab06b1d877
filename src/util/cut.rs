//! Cuts texts that come from outside: a message of the service, an attribute of a row, a cause. An error or a log line
//! that holds one stays short.

use std::borrow::Cow;

/// The longest text from outside, in bytes.
pub(crate) const LONGEST: usize = 600;

/// The text, or its beginning and its length.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    cut_at(text, LONGEST)
}

/// Like [`cut`], at this many bytes.
pub(crate) fn cut_at(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return text.into();
    }
    format!("{}... ({} bytes)", &text[..text.floor_char_boundary(longest)], text.len()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // X3
    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        for short in ["", "a", &"a".repeat(LONGEST), &"ä".repeat(LONGEST / 2)] {
            assert_eq!(cut(short), short);
        }
        assert_eq!(cut(&"a".repeat(300_000)), format!("{}... (300000 bytes)", "a".repeat(LONGEST)));
        assert_eq!(cut_at("aäb", 2), "a... (4 bytes)");
        assert_eq!(cut_at("ä", 0), "... (2 bytes)");
    }
}

//! The id of a take: a random number, and a mark of the owner that it makes.
//!
//! The random part tells a take whose response was lost from another instance's. The mark tells whether the present
//! owner of a row came by a take of this library: the KCL takes a row and keeps the attributes that it does not know,
//! so their presence says nothing.

use uuid::Uuid;

/// The first bytes are random; the rest is the mark.
const MARK_FROM: usize = 10;

/// A new id for a take that makes this owner.
pub(super) fn new(owner: &str) -> String {
    let mut bytes = *Uuid::new_v4().as_bytes();
    bytes[MARK_FROM..].copy_from_slice(&mark(owner));
    Uuid::from_bytes(bytes).to_string()
}

/// Whether a take with this id made this owner.
pub(super) fn made(id: &str, owner: &str) -> bool {
    Uuid::parse_str(id).is_ok_and(|id| id.as_bytes()[MARK_FROM..] == mark(owner))
}

/// FNV-1a, a hash that is the same on every host and in every version.
fn mark(owner: &str) -> [u8; 16 - MARK_FROM] {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let [_, _, mark @ ..] = owner.bytes().fold(0xcbf2_9ce4_8422_2325, step).to_be_bytes();
    mark
}

#[cfg(test)]
mod tests {
    use super::*;

    // E5
    #[test]
    fn an_id_tells_which_owner_it_made_and_no_two_are_alike() {
        let owners = ["", "a", "b", "instance-1", "instance-2", "ä"];
        for owner in owners {
            let id = new(owner);
            assert_ne!(id, new(owner));
            for other in owners {
                assert_eq!(made(&id, other), owner == other, "{id} {owner} {other}");
            }
        }
        assert!(!made(&Uuid::new_v4().to_string(), "a") && !made("", "a") && !made("a", "a"));
        // Rows live longer than a version of this crate.
        assert!(made("00000000-0000-0000-0000-dc4c8601ec8c", "a"));
    }
}

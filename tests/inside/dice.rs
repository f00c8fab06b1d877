//! Chance that can be repeated.

/// A generator of numbers that look random (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    pub(super) fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).unwrap()
    }

    pub(super) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }
}

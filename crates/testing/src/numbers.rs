//! Numbers that look random and are the same in every run.

/// A deterministic pseudo-random number generator.
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

//! Numbers aligned for the widest registers.

/// Size of a cache line and of the widest register, in bytes.
const LINE: usize = 64;

/// Numbers aligned to the start of a cache line.
pub(super) struct AlignedNumbers<T = f32> {
    values: Vec<T>,
    start: usize,
}

impl<T: Copy + Default> AlignedNumbers<T> {
    /// Allocates zeros.
    pub(super) fn zeros(length: usize) -> Self {
        let line = LINE / size_of::<T>();
        let values = vec![T::default(); length + line];
        let start = values.as_ptr().align_offset(LINE).min(line);
        let mut packed = Self { values, start };
        packed.values.truncate(start + length);
        packed
    }

    /// Returns the numbers.
    pub(super) fn values(&self) -> &[T] {
        &self.values[self.start..]
    }

    /// Returns the numbers for writing; their count stays the same.
    pub(super) fn values_mut(&mut self) -> &mut [T] {
        &mut self.values[self.start..]
    }

    /// Returns the memory used, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<T>()
    }
}

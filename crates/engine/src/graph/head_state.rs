//! Linear attention: a matrix for each head that takes up keys and values and answers queries.

/// The state of one head, a row for each element of a key.
pub(crate) struct HeadState<'s> {
    cell: &'s mut [f32],
    width: usize,
}

impl<'s> HeadState<'s> {
    /// Creates a view of a state of values of this width.
    pub(crate) fn new(cell: &'s mut [f32], width: usize) -> Self {
        let width = width.max(1);
        Self { cell, width }
    }

    /// Multiplies each row by its factor.
    pub(crate) fn decay(&mut self, factor: impl Fn(usize) -> f32) {
        for (at, line) in self.cell.chunks_exact_mut(self.width).enumerate() {
            let factor = factor(at);
            for number in line {
                *number *= factor;
            }
        }
    }

    /// Replaces a value by its difference to the value that the state has for the key, at this rate.
    pub(crate) fn correct(&self, key: &[f32], value: &mut [f32], rate: f32) {
        for (key, line) in key.iter().zip(self.cell.chunks_exact(self.width)) {
            let pairs = value.iter_mut().zip(line);
            pairs.for_each(|(to, number)| *to -= key * number);
        }
        for number in value {
            *number *= rate;
        }
    }

    /// Adds a value under a key.
    pub(crate) fn add(&mut self, key: &[f32], value: &[f32]) {
        for (key, line) in key.iter().zip(self.cell.chunks_exact_mut(self.width)) {
            let pairs = line.iter_mut().zip(value);
            pairs.for_each(|(to, number)| *to += key * number);
        }
    }

    /// Adds the value of a query, multiplied by a scale.
    pub(crate) fn read(&self, query: &[f32], scale: f32, to: &mut [f32]) {
        for (query, line) in query.iter().zip(self.cell.chunks_exact(self.width)) {
            let factor = scale * query;
            let pairs = to.iter_mut().zip(line);
            pairs.for_each(|(to, number)| *to += factor * number);
        }
    }
}

//! Work divided among the threads of the pool that it runs on.

use rayon::prelude::*;

/// Multiplications below which work is not divided: handing over a part takes some microseconds.
const LEAST_WORK: usize = 250_000;

/// How many threads share the work of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Split {
    threads: usize,
}

impl Split {
    /// All work on the thread that calls.
    pub(crate) const ONE: Self = Self { threads: 1 };

    /// The threads of the rayon pool that the caller runs on; outside of any, only the caller.
    pub(crate) fn current() -> Self {
        let inside = rayon::current_thread_index().is_some();
        let threads = if inside {
            rayon::current_num_threads()
        } else {
            1
        };
        Self { threads }
    }

    /// Calls `work` with the rows of `output`, in as many parts as threads are worth it: with the number of a
    /// part's first row and the rows themselves. A row has `row` elements, and takes `cost` multiplications.
    pub(crate) fn rows<T: Send>(
        self,
        output: &mut [T],
        row: usize,
        cost: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let rows = output.len().checked_div(row).unwrap_or(0);
        let parts = self.parts(rows, cost);
        if parts <= 1 {
            if rows > 0 {
                work(0, output);
            }
            return;
        }
        let each = rows.div_ceil(parts);
        let chunks = output.par_chunks_mut(each * row).enumerate();
        chunks.for_each(|(part, chunk)| work(part * each, chunk));
    }

    /// Into how many parts this many rows are divided.
    pub(crate) fn parts(self, rows: usize, cost: usize) -> usize {
        let worth = rows.saturating_mul(cost) / LEAST_WORK;
        self.threads.min(rows).min(worth.max(1))
    }
}

//! Divides work among the threads of the current pool.
//!
//! A thread without work soon sleeps, and waking it takes longer than many operators. A thread that
//! divides work again within [`AWAKE_NANOS`] therefore asks the others to keep looking for work that
//! long. A searching thread takes time from its neighbour on the same core, so it yields after
//! [`SPIN_NANOS`].
//!
//! Each thread has its share of an operator, at the same place in each operator: what it reads is then
//! in its cache. It takes the parts of its share one after the other, then those of the others. A thread
//! that is late or shares its core does less.

use std::hint;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rayon::Yield;

use crate::window::tiles;

/// Minimum number of multiplications for dividing work. Handing over a part takes about a
/// microsecond, and data written by one thread is far from the others.
const MIN_DIVIDED_WORK: usize = 125_000;

/// Minimum number of multiplications of a part, if there are more parts than threads.
const MIN_PART_WORK: usize = 1_000_000;

/// Maximum number of parts for each thread.
const MAX_PARTS_PER_THREAD: usize = 4;

/// How long threads look for more work after work was divided, in nanoseconds. Operators of one run
/// follow each other faster than that.
const AWAKE_NANOS: u64 = 200_000;

/// How long a thread looks before it yields to other programs, in nanoseconds. It also waits this
/// long for another thread to finish its part.
const SPIN_NANOS: u64 = 50_000;

/// Number of looks for work between two reads of the clock.
const LOOKS_PER_CLOCK_READ: usize = 16;

thread_local! {
    static WATCH: Arc<Watch> = Arc::new(Watch::new());
}

/// The state shared by threads that look for work and the thread that divides it.
struct Watch {
    start: Instant,
    /// When work was last divided, in nanoseconds since the start.
    last: AtomicU64,
    /// Number of threads that look for work, or are asked to.
    looking: AtomicUsize,
}

impl Watch {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
            looking: AtomicUsize::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Asks the other threads of the caller's pool to look for work from now on, if work was
    /// divided shortly before.
    fn wake(self: &Arc<Self>, others: usize) {
        let now = self.now();
        let last = self.last.swap(now, Ordering::Relaxed);
        let is_alone = last == 0 || now.saturating_sub(last) > AWAKE_NANOS;
        if is_alone || self.looking.load(Ordering::Relaxed) > 0 {
            return;
        }
        let caller = rayon::current_thread_index();
        for _ in 0..others {
            self.looking.fetch_add(1, Ordering::Relaxed);
            let watch = Arc::clone(self);
            rayon::spawn(move || {
                // The caller has its own work and does not need to look for more.
                if rayon::current_thread_index() != caller {
                    watch.look();
                }
                watch.looking.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    fn look(&self) {
        loop {
            let since = self.now().saturating_sub(self.last.load(Ordering::Relaxed));
            if since >= AWAKE_NANOS {
                return;
            }
            for _ in 0..LOOKS_PER_CLOCK_READ {
                if matches!(rayon::yield_now(), Some(Yield::Executed)) {
                    continue;
                }
                if since < SPIN_NANOS {
                    hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
        }
    }
}

/// Number of threads that share the work of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    threads: usize,
}

impl Split {
    /// All work on the calling thread.
    pub const ONE: Self = Self { threads: 1 };

    /// The threads of the caller's rayon pool; outside of a pool, only the calling thread.
    pub fn current() -> Self {
        let inside = rayon::current_thread_index().is_some();
        let threads = if inside {
            rayon::current_num_threads()
        } else {
            1
        };
        Self { threads }
    }

    /// Calls `work` with the rows of `output`, in as many parts as are worthwhile.
    ///
    /// `work` receives the number of a part's first row and the rows themselves. A row has `row`
    /// elements and takes `cost` multiplications; the last one may be shorter.
    pub(crate) fn rows<T: Send>(
        self,
        output: &mut [T],
        row: usize,
        cost: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        self.runs(output, [row, 1], cost, work);
    }

    /// Like [`rows`](Self::rows), with at least `least` rows in a part if there are as many.
    pub(crate) fn runs<T: Send>(
        self,
        output: &mut [T],
        [row, least]: [usize; 2],
        cost: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        if row == 0 || output.is_empty() {
            return;
        }
        let rows = output.len().div_ceil(row);
        let threads = self.parts(rows, cost).min(rows.div_ceil(least));
        if threads <= 1 {
            work(0, output);
            return;
        }
        WATCH.with(|watch| watch.wake(self.threads - 1));
        let more = rows.saturating_mul(cost) / MIN_PART_WORK / threads;
        let parts = more.clamp(1, MAX_PARTS_PER_THREAD);
        let mut all = ThreadShare {
            sizes: tiles(rows, rows.div_ceil(threads)),
            first: 0,
            rest: output,
        };
        let mut shares = Vec::with_capacity(threads);
        let mut left = 0;
        while let Some((first, rest)) = all.next(row) {
            let rows = rest.len().div_ceil(row);
            let each = rows.div_ceil(parts).max(least);
            left += rows.div_ceil(each);
            shares.push(Mutex::new(ThreadShare {
                sizes: tiles(rows, each),
                first,
                rest,
            }));
        }
        let left = AtomicUsize::new(left);
        run_on_threads(0..threads, &|thread| {
            let (before, own) = shares.split_at(thread.min(shares.len()));
            for share in own.iter().chain(before) {
                let next = || {
                    share
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .next(row)
                };
                while let Some((first, part)) = next() {
                    work(first, part);
                    left.fetch_sub(1, Ordering::Relaxed);
                }
            }
            // A thread that finishes early waits for the short remainder instead of sleeping.
            let start = Instant::now();
            while left.load(Ordering::Relaxed) > 0
                && start.elapsed() < Duration::from_nanos(SPIN_NANOS)
            {
                hint::spin_loop();
            }
        });
    }

    /// Returns the number of rows for each thread, rounded down.
    pub(crate) fn share(self, rows: usize) -> usize {
        rows / self.threads.max(1)
    }

    /// Returns the number of parts for this number of rows.
    pub(crate) fn parts(self, rows: usize, cost: usize) -> usize {
        let worth = rows.saturating_mul(cost) / MIN_DIVIDED_WORK;
        self.threads.min(rows).min(worth.max(1))
    }
}

/// The part of an output for one thread, without what threads have taken.
struct ThreadShare<'a, T, S> {
    /// Numbers of rows to take at a time.
    sizes: S,
    /// Number of the first row.
    first: usize,
    rest: &'a mut [T],
}

impl<'a, T, S: Iterator<Item = usize>> ThreadShare<'a, T, S> {
    /// Takes a part: the number of its first row, and its rows of `row` elements.
    fn next(&mut self, row: usize) -> Option<(usize, &'a mut [T])> {
        let rows = self.sizes.next()?;
        let rest = std::mem::take(&mut self.rest);
        let (part, rest) = rest.split_at_mut((rows * row).min(rest.len()));
        self.rest = rest;
        let first = self.first;
        self.first += rows;
        Some((first, part))
    }
}

/// Calls `work` with each of these numbers on a thread of its own, or on fewer threads if the others
/// are busy until it is done. The first number is for the calling thread.
fn run_on_threads(threads: Range<usize>, work: &(impl Fn(usize) + Sync)) {
    match threads.len() {
        0 => {}
        1 => work(threads.start),
        count => {
            let middle = threads.start + count.div_ceil(2);
            rayon::join(
                || run_on_threads(threads.start..middle, work),
                || run_on_threads(middle..threads.end, work),
            );
        }
    }
}

/// Calls `work` for each group of `count` rows of `row` elements that `rows` covers; `rows` starts
/// at number `first`.
///
/// `work` receives the group, the number of the first row within it, and the rows.
pub(crate) fn by_group<T>(
    first: usize,
    [count, row]: [usize; 2],
    rows: &mut [T],
    mut work: impl FnMut(usize, usize, &mut [T]),
) {
    let (mut at, mut rest) = (first, rows);
    while !rest.is_empty() {
        let here = (count - at % count).min(rest.len() / row);
        let (rows, behind) = rest.split_at_mut(here * row);
        work(at / count, at % count, rows);
        (at, rest) = (at + here, behind);
    }
}

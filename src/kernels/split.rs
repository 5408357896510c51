//! Work divided among the threads of the pool that it runs on.
//!
//! A thread that waits for work sleeps soon, and to wake it takes longer than many an operator. So whoever divides work
//! again within [`AWAKE`] asks the others to go on looking for more for as long. One that looks for what does not come
//! takes time from its neighbour on the same core, so it lets others run when it has looked for [`SPIN`].
//!
//! Threads take the parts of an operator one after the other, until none is left: one that comes late, or whose core
//! others use, does less.

use std::hint;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rayon::Yield;

/// Multiplications below which work is not divided: handing over a part takes about a microsecond, and what one
/// thread wrote is far from the other.
const LEAST_WORK: usize = 125_000;

/// Multiplications of a part where there are more parts than threads.
const LEAST_PART: usize = 1_000_000;

/// Parts for each thread, at most.
const PARTS: usize = 4;

/// How long threads look for more work after some was divided, in nanoseconds. Operators of one run follow each
/// other faster.
const AWAKE: u64 = 200_000;

/// How long they look without letting other programs run, in nanoseconds, and how long one waits so for another that
/// has not finished its part.
const SPIN: u64 = 50_000;

/// Looks for work between two at the clock.
const LOOKS: usize = 16;

thread_local! {
    static WATCH: Arc<Watch> = Arc::new(Watch::new());
}

/// What threads that look for work know of the one that divides it.
struct Watch {
    start: Instant,
    /// When work was divided last, in nanoseconds from the start.
    last: AtomicU64,
    /// How many threads look for work, or are asked to.
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

    /// Asks the other threads of the caller's pool to look for work from now on, if the last was divided just
    /// before.
    fn call(self: &Arc<Self>, others: usize) {
        let now = self.now();
        let last = self.last.swap(now, Ordering::Relaxed);
        let is_alone = last == 0 || now.saturating_sub(last) > AWAKE;
        if is_alone || self.looking.load(Ordering::Relaxed) > 0 {
            return;
        }
        let caller = rayon::current_thread_index();
        for _ in 0..others {
            self.looking.fetch_add(1, Ordering::Relaxed);
            let watch = Arc::clone(self);
            rayon::spawn(move || {
                // The caller has its own work to do, and nobody to wait for.
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
            if since >= AWAKE {
                return;
            }
            for _ in 0..LOOKS {
                if matches!(rayon::yield_now(), Some(Yield::Executed)) {
                    continue;
                }
                if since < SPIN {
                    hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
        }
    }
}

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
        WATCH.with(|watch| watch.call(self.threads - 1));
        let more = rows.saturating_mul(cost) / LEAST_PART;
        let each = rows.div_ceil(more.clamp(parts, parts * PARTS));
        let chunks = output.chunks_mut(each * row).enumerate();
        let left = AtomicUsize::new(chunks.len());
        let chunks = Mutex::new(chunks);
        together(parts, &|| {
            let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((part, chunk)) = next() {
                work(part * each, chunk);
                left.fetch_sub(1, Ordering::Relaxed);
            }
            // Whoever is done sooner need not sleep for the little that is missing.
            let start = Instant::now();
            while left.load(Ordering::Relaxed) > 0 && start.elapsed() < Duration::from_nanos(SPIN) {
                hint::spin_loop();
            }
        });
    }

    /// How many of these a thread has if each has as many: the whole part of it.
    pub(crate) fn share(self, rows: usize) -> usize {
        rows / self.threads.max(1)
    }

    /// Into how many parts this many rows are divided.
    pub(crate) fn parts(self, rows: usize, cost: usize) -> usize {
        let worth = rows.saturating_mul(cost) / LEAST_WORK;
        self.threads.min(rows).min(worth.max(1))
    }
}

/// Calls `work` on so many threads, or on fewer if others have no time before it is done.
fn together(threads: usize, work: &(impl Fn() + Sync)) {
    match threads {
        0 | 1 => work(),
        _ => {
            let half = threads / 2;
            rayon::join(|| together(threads - half, work), || together(half, work));
        }
    }
}

/// Calls `work` for each group of `count` rows of `row` elements that `rows`, from number `first` on, have a part in: with
/// the group, the number of its first row there, and the rows.
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

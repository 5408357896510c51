//! Runs a function over a range of numbers on several threads; the calling thread is one of them.
//!
//! Invariant: results keep the order of the numbers. If a thread cannot be started, the others do
//! its share.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Maximum number of items that a thread takes at once.
const MAX_PORTION: usize = 8;

/// Number of portions per thread, so that no thread has a long portion left at the end.
const PORTIONS_PER_THREAD: usize = 16;

/// Returns the results of `work` for the numbers below `count`, in order. 0 threads means one per
/// core.
pub fn parallel_map<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let threads = match threads {
        _ if count < 2 => 1,
        0 => cores(),
        wanted => wanted,
    };
    let threads = threads.min(count);
    if threads < 2 {
        return (0..count).map(work).collect();
    }
    let taken = (count / threads / PORTIONS_PER_THREAD).clamp(1, MAX_PORTION);
    let next = AtomicUsize::new(0);
    let take = || {
        let mut portions = Vec::new();
        loop {
            let first = next.fetch_add(taken, Ordering::Relaxed);
            if first >= count {
                return portions;
            }
            let numbers = first..count.min(first + taken);
            portions.push((first, numbers.map(&work).collect::<Vec<T>>()));
        }
    };
    let mut portions = thread::scope(|scope| {
        let helper = || thread::Builder::new().spawn_scoped(scope, take).ok();
        let helpers: Vec<_> = (1..threads).map_while(|_| helper()).collect();
        let mut portions = take();
        for helper in helpers {
            match helper.join() {
                Ok(theirs) => portions.extend(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        portions
    });
    portions.sort_unstable_by_key(|(first, _)| *first);
    portions.into_iter().flat_map(|(_, made)| made).collect()
}

/// Returns the number of cores. The value is cached, because the system reads several files for it.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

#[cfg(test)]
mod tests {
    use super::{MAX_PORTION, parallel_map};

    #[test]
    fn results_are_in_order_whoever_made_them() {
        for count in [0, 1, 2, MAX_PORTION, 100 * MAX_PORTION + 3] {
            for threads in [0, 1, 2, 7] {
                let expected: Vec<usize> = (0..count).map(|number| number * 3).collect();
                assert_eq!(parallel_map(count, threads, |number| number * 3), expected);
            }
        }
    }

    #[test]
    #[should_panic(expected = "number 77")]
    fn a_panic_is_the_callers() {
        parallel_map(100, 2, |number| assert!(number != 77, "number {number}"));
    }
}

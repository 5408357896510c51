//! Work on many things of one kind, by as many threads as are wanted; the caller is one of them.
//!
//! Invariant: results are in the order of the things, whoever made them. A thread that cannot be started is
//! one fewer: the others do its part.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Things that a thread takes at once.
const TAKEN: usize = 8;

/// What `work` makes of the numbers below `count`. 0 threads means one for each core.
pub fn spread<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let wanted = match threads {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        wanted => wanted,
    };
    // One more than there are portions would have nothing to do.
    let threads = wanted.min(count.div_ceil(TAKEN));
    if threads < 2 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let take = || {
        let mut portions = Vec::new();
        loop {
            let first = next.fetch_add(TAKEN, Ordering::Relaxed);
            if first >= count {
                return portions;
            }
            let numbers = first..count.min(first + TAKEN);
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

#[cfg(test)]
mod tests {
    use super::{TAKEN, spread};

    #[test]
    fn results_are_in_order_whoever_made_them() {
        for count in [0, 1, TAKEN, TAKEN + 1, 100 * TAKEN + 3] {
            for threads in [0, 1, 2, 7] {
                let expected: Vec<usize> = (0..count).map(|number| number * 3).collect();
                assert_eq!(spread(count, threads, |number| number * 3), expected);
            }
        }
    }

    #[test]
    #[should_panic(expected = "number 77")]
    fn a_panic_is_the_callers() {
        spread(100, 2, |number| assert!(number != 77, "number {number}"));
    }
}

//! A page cache over a [`ReadAt`], with a limit on the number of accesses.
//!
//! Parsers of model headers jump around in large files and read only a small part of them. The
//! cache makes jumps cheap. The budget limits the work that a hostile file can cause: every access
//! counts, even if offsets point back at the same bytes. Invariant: the cache never exceeds
//! [`MAX_PAGES`] pages.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use super::ReadAt;

/// Size of a page, in bytes.
pub const PAGE_SIZE: usize = 4096;
/// Maximum number of cached pages: 8 MiB.
pub const MAX_PAGES: usize = 2048;
/// Default budget, in accesses. Real headers need some thousands to some hundred thousands.
pub const DEFAULT_BUDGET: u64 = 20_000_000;

/// A read that failed.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The range exceeds the file.
    #[error("needs {size} bytes at offset {offset}, but the file has {len} bytes")]
    OutOfBounds {
        /// Start of the range.
        offset: u64,
        /// Number of requested bytes.
        size: u64,
        /// The file's length in bytes.
        len: u64,
    },
    /// The operating system failed to read.
    #[error("cannot read {size} bytes at offset {offset}: {error}")]
    Io {
        /// Start of the read.
        offset: u64,
        /// Number of requested bytes.
        size: u64,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file makes its parser read more than any real header needs.
    #[error("the header is too large: more than {budget} reads at offset {offset}")]
    BudgetSpent {
        /// Offset of the read that exceeded the budget.
        offset: u64,
        /// The budget, in accesses.
        budget: u64,
    },
}

impl PageError {
    /// Returns the file offset of the error.
    pub fn offset(&self) -> u64 {
        match self {
            Self::OutOfBounds { offset, .. }
            | Self::Io { offset, .. }
            | Self::BudgetSpent { offset, .. } => *offset,
        }
    }
}

/// Cached, counted access to a source, for one reader on one thread.
pub struct Pages<'a> {
    source: &'a dyn ReadAt,
    len: u64,
    cache: RefCell<HashMap<u64, Rc<[u8]>>>,
    last: RefCell<Option<(u64, Rc<[u8]>)>>,
    budget: u64,
    left: Cell<u64>,
}

impl<'a> Pages<'a> {
    /// Wraps `source` with the default budget.
    pub fn new(source: &'a dyn ReadAt) -> Self {
        Self::with_budget(source, DEFAULT_BUDGET)
    }

    /// Wraps `source` with a budget in accesses.
    pub fn with_budget(source: &'a dyn ReadAt, budget: u64) -> Self {
        Self {
            source,
            len: source.len(),
            cache: RefCell::default(),
            last: RefCell::default(),
            budget,
            left: Cell::new(budget),
        }
    }

    /// Returns the length of the source, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the source is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Checks that `size` bytes at `offset` lie inside the file, without reading them.
    pub fn check(&self, offset: u64, size: u64) -> Result<(), PageError> {
        match offset.checked_add(size) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(PageError::OutOfBounds {
                offset,
                size,
                len: self.len,
            }),
        }
    }

    /// Fills `buffer` from `offset`. Costs one access per page.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), PageError> {
        self.check(offset, buffer.len() as u64)?;
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let page = self.page(at)?;
            let within = within_page(at);
            let count = (page.len() - within).min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&page[within..within + count]);
            done += count;
        }
        Ok(())
    }

    /// Returns the `N` bytes at `offset`.
    pub fn array<const N: usize>(&self, offset: u64) -> Result<[u8; N], PageError> {
        let mut bytes = [0; N];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns `size` bytes at `offset`, allocated only after the range was found inside the file.
    /// The caller limits `size`.
    pub fn bytes(&self, offset: u64, size: usize) -> Result<Vec<u8>, PageError> {
        self.check(offset, size as u64)?;
        let mut bytes = vec![0; size];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn page(&self, offset: u64) -> Result<Rc<[u8]>, PageError> {
        self.spend(offset)?;
        let number = offset / PAGE_SIZE as u64;
        if let Some((last, page)) = &*self.last.borrow()
            && *last == number
        {
            return Ok(Rc::clone(page));
        }
        let cached = self.cache.borrow().get(&number).map(Rc::clone);
        let page = match cached {
            Some(page) => page,
            None => self.load(number)?,
        };
        *self.last.borrow_mut() = Some((number, Rc::clone(&page)));
        Ok(page)
    }

    fn load(&self, number: u64) -> Result<Rc<[u8]>, PageError> {
        let offset = number * PAGE_SIZE as u64;
        let size = (self.len - offset).min(PAGE_SIZE as u64);
        let mut bytes = vec![0; usize::try_from(size).expect("at most a page")];
        self.source
            .read_exact_at(offset, &mut bytes)
            .map_err(|error| PageError::Io {
                offset,
                size,
                error,
            })?;
        let page: Rc<[u8]> = bytes.into();
        let mut cache = self.cache.borrow_mut();
        if cache.len() >= MAX_PAGES {
            cache.clear();
        }
        cache.insert(number, Rc::clone(&page));
        Ok(page)
    }

    fn spend(&self, offset: u64) -> Result<(), PageError> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(PageError::BudgetSpent {
                offset,
                budget: self.budget,
            }),
        }
    }
}

/// Returns an offset's position within its page.
fn within_page(offset: u64) -> usize {
    usize::try_from(offset % PAGE_SIZE as u64).expect("less than a page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_across_pages_and_refuses_the_rest() {
        let bytes: Vec<u8> = (0..PAGE_SIZE * 3)
            .map(|i| u8::try_from(i % 251).expect("below 251"))
            .collect();
        let pages = Pages::with_budget(&bytes, 6);
        let at = PAGE_SIZE - 2;
        assert_eq!(
            pages.bytes(at as u64, 4).expect("inside"),
            &bytes[at..at + 4]
        );
        assert!(matches!(
            pages.bytes(u64::MAX, 4),
            Err(PageError::OutOfBounds { .. })
        ));
        assert!(matches!(
            pages.array::<4>(bytes.len() as u64 - 3),
            Err(PageError::OutOfBounds { .. })
        ));
        for _ in 0..4 {
            pages.array::<1>(0).expect("within the budget");
        }
        assert!(matches!(
            pages.array::<1>(0),
            Err(PageError::BudgetSpent { .. })
        ));
    }
}

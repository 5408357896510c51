//! The integration tests; files mirror `src`.

mod model;

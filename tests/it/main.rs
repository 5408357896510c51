//! The integration tests; files mirror `src`.

mod architecture;
mod model;
mod readme;

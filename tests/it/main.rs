//! The integration tests; files mirror `src`.

mod architecture;
mod examples;
mod model;
mod readme;

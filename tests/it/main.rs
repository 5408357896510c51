//! The one test binary; its modules mirror `src`.

mod model;

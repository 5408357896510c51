//! Tests of source texts and of package conventions.

mod package;
mod source;

//! Tests of source texts and positions in them.

mod editor;
mod json;
mod lines;
mod strict;

//! JSON text as a tree in which every node knows its byte span.

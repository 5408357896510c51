//! The platform's gate protocol: its messages, and the end of a service ([`instance`]).
//!
//! Invariant: everything that a peer can make grow has a limit: messages, requests in flight,
//! queues, addresses.

pub mod address;
pub mod instance;
pub mod protocol;

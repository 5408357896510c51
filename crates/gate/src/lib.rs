//! The platform's gate protocol: its messages, the end of a service ([`instance`]), and the end of a gate ([`host`]).
//!
//! Invariant: everything that a peer can make grow has a limit: messages, requests in flight,
//! queues, addresses.

pub mod address;
pub mod host;
pub mod instance;
pub mod protocol;

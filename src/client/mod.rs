//! The gateway's client.

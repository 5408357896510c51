//! The gateway over device models: services, tasks, training, accounts, their database, the HTTP
//! API, and a client of that API.
//!
//! Invariant: an accepted request or task gets exactly one answer, whatever models and callers do.
//! This crate does not depend on the command line, which hands it settings and parts.

pub mod account;
pub mod attach;
pub mod batch;
pub mod client;
pub mod database;
pub mod gateway;
pub mod metric;
pub mod objects;
pub mod package;
pub mod service;
pub mod task;
pub mod train;
pub mod webhook;
pub mod worker;

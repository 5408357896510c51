//! Closes a listener without resetting connections.
//!
//! The system completes handshakes by itself, and resets connections that are not yet accepted when
//! their listener closes. So new connections are refused first, and the remaining ones are
//! accepted.

use std::io;

use tokio::net::TcpListener;

/// Drops packets that start a new connection, with a packet filter on the SYN and ACK flags of
/// TCP's header. Established connections are unaffected. Later clients get an error once the
/// listener is closed.
#[cfg(target_os = "linux")]
pub(super) fn refuse_new(listener: &TcpListener) -> io::Result<()> {
    use socket2::{SockFilter, SockRef};

    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let filter = [
        // Load the flags and mask SYN and ACK. If only SYN is set drop the packet, else accept all
        // of it.
        SockFilter::new(0x30, 0, 0, FLAGS),
        SockFilter::new(0x54, 0, 0, SYN | ACK),
        SockFilter::new(0x15, 0, 1, SYN),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    SockRef::from(listener).attach_filter(&filter)
}

/// Other systems lack such a filter.
#[cfg(not(target_os = "linux"))]
pub(super) fn refuse_new(_: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

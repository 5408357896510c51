//! The end of a listener that resets nobody.
//!
//! A system completes connections by itself, and resets those that were not accepted when their listener is closed.

use std::io;

use tokio::net::TcpListener;

/// Drops requests for new connections and lets through what belongs to one that has begun: a filter of packets, which
/// looks at the flags SYN and ACK of TCP's header. Who asks later is refused once the listener is closed.
#[cfg(target_os = "linux")]
pub(super) fn refuse_new(listener: &TcpListener) -> io::Result<()> {
    use socket2::{SockFilter, SockRef};

    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let filter = [
        // Load the flags; leave SYN and ACK; if SYN is alone drop the packet, else keep all of it.
        SockFilter::new(0x30, 0, 0, FLAGS),
        SockFilter::new(0x54, 0, 0, SYN | ACK),
        SockFilter::new(0x15, 0, 1, SYN),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    SockRef::from(listener).attach_filter(&filter)
}

/// Other systems have no such filter.
#[cfg(not(target_os = "linux"))]
pub(super) fn refuse_new(_: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

//! The channel between a child process of this program and its parent.
//!
//! On Unix it is a socket pair whose child end is standard input; reads and writes have a timeout.
//! Elsewhere it is a pair of standard pipes without a timeout. On Unix another thread can cut the
//! channel, which ends a pending wait. Output that a library prints goes neither into the channel
//! nor, on Unix, to the terminal.

#[cfg(not(unix))]
pub(super) use pipes::{Channel, Cut, connect, join, set_time_limit};
#[cfg(target_os = "linux")]
pub(super) use socket::wait_for_end;
#[cfg(unix)]
pub(super) use socket::{Channel, Cut, connect, join, set_time_limit};

#[cfg(unix)]
mod socket {
    use std::io;
    use std::net::Shutdown;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// One end of the channel.
    pub(in crate::runtime::process) type Channel = UnixStream;

    /// Sets the timeout of each read and write.
    pub(in crate::runtime::process) fn set_time_limit(
        channel: &Channel,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        channel.set_read_timeout(limit)?;
        channel.set_write_timeout(limit)
    }

    /// A handle that cuts a channel from another thread.
    #[derive(Debug)]
    pub(in crate::runtime::process) struct Cut(UnixStream);

    impl Cut {
        pub(in crate::runtime::process) fn of(channel: &Channel) -> io::Result<Self> {
            channel.try_clone().map(Self)
        }

        /// Both ends see the end of the channel, even if another process holds a copy of the other
        /// one.
        pub(in crate::runtime::process) fn cut(&self) {
            // It fails only if the other end is gone already.
            let _ = self.0.shutdown(Shutdown::Both);
        }
    }

    /// Starts the command with the other end of a new channel. Its output goes to the returned
    /// pipe.
    pub(in crate::runtime::process) fn connect(
        command: &mut Command,
    ) -> io::Result<(Child, Channel, Box<dyn io::Read + Send>)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (printed, print) = io::pipe()?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(print.try_clone()?)
            .stderr(print)
            .spawn()?;
        // The command holds copies of the pipe's end. Dropping it leaves the child as the only
        // holder.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok((child, ours, Box::new(printed)))
    }

    /// Returns the child's end.
    pub(in crate::runtime::process) fn join() -> io::Result<(Channel, Channel)> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok((stream.try_clone()?, stream))
    }

    /// Waits until the other end is closed, and ignores data in the channel.
    #[cfg(target_os = "linux")]
    pub(in crate::runtime::process) fn wait_for_end(channel: &Channel) {
        use nix::errno::Errno;
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        // Without requested events, `poll` reports only the end.
        let mut ends = [PollFd::new(channel.as_fd(), PollFlags::empty())];
        while poll(&mut ends, PollTimeout::NONE) == Err(Errno::EINTR) {}
    }
}

#[cfg(not(unix))]
mod pipes {
    use std::io::{self, Read, Write};
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
    use std::time::Duration;

    /// The parent's end.
    #[derive(Debug)]
    pub(in crate::runtime::process) struct Channel {
        from: ChildStdout,
        to: ChildStdin,
    }

    /// A pipe cannot be cut: it ends with the child process.
    #[derive(Debug)]
    pub(in crate::runtime::process) struct Cut;

    impl Cut {
        pub(in crate::runtime::process) fn of(_: &Channel) -> io::Result<Self> {
            Ok(Self)
        }

        pub(in crate::runtime::process) fn cut(&self) {}
    }

    /// Pipes have no timeout.
    pub(in crate::runtime::process) fn set_time_limit(
        _: &Channel,
        _: Option<Duration>,
    ) -> io::Result<()> {
        Ok(())
    }

    impl Read for Channel {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.from.read(buffer)
        }
    }

    impl Write for Channel {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            self.to.write(buffer)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.to.flush()
        }
    }

    pub(in crate::runtime::process) fn connect(
        command: &mut Command,
    ) -> io::Result<(Child, Channel, Box<dyn Read + Send>)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let channel = Channel {
            from: child.stdout.take().ok_or_else(gone)?,
            to: child.stdin.take().ok_or_else(gone)?,
        };
        let printed = child.stderr.take().ok_or_else(gone)?;
        Ok((child, channel, Box::new(printed)))
    }

    pub(in crate::runtime::process) fn join() -> io::Result<(io::Stdin, io::Stdout)> {
        Ok((io::stdin(), io::stdout()))
    }
}

//! A hostile library in the place of ONNX Runtime that tries to escape from the sandboxed process
//! that loads it.
//!
//! A test compiles it and replaces the names between at signs with constants. It prints the
//! attempts that succeed and exits.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::FromRawFd;
use std::os::raw::{c_char, c_int, c_long, c_void};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A user's file outside of the model's folder.
const SECRET: &str = "@SECRET@";
/// The model file.
const MODEL: &str = "@MODEL@";
/// A Unix socket in the file system; the test listens on it and on a port.
const SOCKET: &str = "@SOCKET@";
const PORT: &str = "@PORT@";
/// A file descriptor that the tool inherited.
const INHERITED: c_int = 77;

#[repr(C)]
struct Piece {
    base: *mut c_void,
    length: usize,
}

unsafe extern "C" {
    fn chmod(path: *const c_char, mode: u32) -> c_int;
    fn fork() -> c_int;
    fn getppid() -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn prlimit(process: c_int, what: c_int, new: *const c_void, old: *mut c_void) -> c_int;
    fn process_vm_readv(
        process: c_int,
        local: *const Piece,
        locals: c_long,
        remote: *const Piece,
        remotes: c_long,
        flags: c_long,
    ) -> c_long;
    fn ptrace(request: c_long, process: c_int, address: *mut c_void, data: *mut c_void) -> c_long;
    fn setpriority(which: c_int, who: c_int, value: c_int) -> c_int;
    fn shmget(key: c_int, size: usize, flags: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn utimes(path: *const c_char, times: *const c_void) -> c_int;
    fn _exit(code: c_int) -> !;
}

fn reads(path: &str) -> bool {
    let mut byte = [0];
    File::open(path).is_ok_and(|mut file| file.read(&mut byte).is_ok_and(|read| read == 1))
}

fn of_parent(file: &str) -> String {
    format!("/proc/{}/{file}", unsafe { getppid() })
}

fn beside(name: &str) -> String {
    format!("{SECRET}.{name}")
}

fn text(path: &str) -> std::ffi::CString {
    std::ffi::CString::new(path).expect("no zero")
}

fn creates_temporary() -> bool {
    let path = format!("/tmp/pkgtool-{PORT}.escape");
    let created = fs::write(&path, "x").is_ok();
    let _ = fs::remove_file(&path);
    created
}

fn forks() -> bool {
    let child = unsafe { fork() };
    if child == 0 {
        unsafe { _exit(0) }
    }
    child > 0
}

/// Tries to read the parent's first instructions at the address from its memory map. Any result
/// except a denial counts as a success.
fn reads_memory_of_parent() -> bool {
    let mut byte = 0_u8;
    let local = Piece {
        base: (&raw mut byte).cast(),
        length: 1,
    };
    let remote = Piece {
        base: 16 as *mut c_void,
        length: 1,
    };
    let read = unsafe { process_vm_readv(getppid(), &local, 1, &remote, 1, 0) };
    // The error "bad address" (14) shows that other addresses are readable.
    read == 1 || std::io::Error::last_os_error().raw_os_error() == Some(14)
}

fn types_into_terminal() -> bool {
    // Without a terminal, the request fails with error 25 instead of a denial.
    let letter = b'x';
    let done = unsafe { syscall(IOCTL, 0 as c_long, 0x5412 as c_long, &raw const letter) };
    done == 0 || std::io::Error::last_os_error().raw_os_error() == Some(25)
}

fn executes_memory() -> bool {
    let name = text("x");
    let program = unsafe { syscall(MEMFD_CREATE, name.as_ptr(), 0 as c_long) };
    if program < 0 {
        return false;
    }
    let mut file = unsafe { File::from_raw_fd(program as c_int) };
    let _ = file.write_all(b"#!/nothing\n");
    let path = text("");
    let none = std::ptr::null::<c_void>();
    let done = unsafe {
        syscall(
            EXECVEAT,
            program,
            path.as_ptr(),
            none,
            none,
            0x1000 as c_long,
        )
    };
    // The interpreter is missing (error 2): a valid program would have run.
    done == 0 || std::io::Error::last_os_error().raw_os_error() == Some(2)
}

// Numbers of system calls.
const IOCTL: c_long = if cfg!(target_arch = "x86_64") { 16 } else { 29 };
const MEMFD_CREATE: c_long = if cfg!(target_arch = "x86_64") {
    319
} else {
    279
};
const EXECVEAT: c_long = if cfg!(target_arch = "x86_64") {
    322
} else {
    281
};
const PIDFD_OPEN: c_long = 434;
const IO_URING_SETUP: c_long = 425;

/// Returns the names of the attempts that succeed.
fn escapes() -> Vec<&'static str> {
    let none = std::ptr::null_mut::<c_void>();
    let parent = unsafe { getppid() };
    let path = text(SECRET);
    let mut limits = [0_u64; 2];
    let attempts: Vec<(&str, bool)> = vec![
        ("read", reads(SECRET)),
        ("read-system", reads("/etc/passwd")),
        ("read-root", reads(&format!("/proc/self/root{SECRET}"))),
        ("list", fs::read_dir("/etc").is_ok()),
        ("create", fs::write(beside("new"), "x").is_ok()),
        ("create-temporary", creates_temporary()),
        (
            "append",
            OpenOptions::new().append(true).open(SECRET).is_ok(),
        ),
        (
            "change-model",
            OpenOptions::new().write(true).open(MODEL).is_ok(),
        ),
        ("rename", fs::rename(beside("b"), beside("c")).is_ok()),
        ("link", fs::hard_link(beside("a"), beside("hard")).is_ok()),
        (
            "symlink",
            std::os::unix::fs::symlink(SECRET, beside("soft")).is_ok(),
        ),
        ("chmod", unsafe { chmod(path.as_ptr(), 0o600) } == 0),
        ("times", unsafe { utimes(path.as_ptr(), none) } == 0),
        (
            "truncate",
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(beside("a"))
                .is_ok(),
        ),
        ("remove", fs::remove_file(beside("a")).is_ok()),
        (
            "environment",
            std::env::vars().any(|(name, _)| name == "PLANTED"),
        ),
        ("inherited", reads(&format!("/proc/self/fd/{INHERITED}"))),
        ("parent-environment", reads(&of_parent("environ"))),
        ("parent-command", reads(&of_parent("cmdline"))),
        ("parent-memory", File::open(of_parent("mem")).is_ok()),
        ("parent-read", reads_memory_of_parent()),
        (
            "parent-limits",
            unsafe { prlimit(parent, 7, none, (&raw mut limits).cast()) } == 0,
        ),
        ("parent-priority", unsafe { setpriority(0, parent, 0) } == 0),
        (
            "parent-descriptor",
            unsafe { syscall(PIDFD_OPEN, parent as c_long, 0 as c_long) } >= 0,
        ),
        ("signal", unsafe { kill(parent, 0) } == 0),
        ("signal-group", unsafe { kill(0, 0) } == 0),
        ("signal-all", unsafe { kill(-1, 0) } == 0),
        (
            "tcp",
            TcpStream::connect(format!("127.0.0.1:{PORT}")).is_ok(),
        ),
        ("udp", UdpSocket::bind("127.0.0.1:0").is_ok()),
        ("unix", UnixStream::connect(SOCKET).is_ok()),
        ("pair", UnixStream::pair().is_ok()),
        ("program", Command::new("/bin/true").status().is_ok()),
        ("program-in-memory", executes_memory()),
        ("fork", forks()),
        ("terminal", types_into_terminal()),
        (
            "shared-memory",
            unsafe { shmget(0x1234, 4096, 0o1600) } >= 0,
        ),
        (
            "ring",
            unsafe { syscall(IO_URING_SETUP, 0 as c_long, 0 as c_long) } >= 0
                || std::io::Error::last_os_error().raw_os_error() == Some(22),
        ),
        (
            "debug",
            // The parent is seized, because attaching would stop it for ever.
            unsafe { ptrace(0x4206, parent, none, none) } == 0,
        ),
    ];
    attempts
        .into_iter()
        .filter_map(|(name, worked)| worked.then_some(name))
        .collect()
}

/// Returns the names of the allowed operations that succeed; every engine needs them.
fn works() -> Vec<&'static str> {
    let scratch = std::env::temp_dir().join("scratch");
    let in_scratch = fs::write(&scratch, "x").is_ok()
        && fs::read(&scratch).is_ok_and(|text| text == b"x")
        && fs::remove_file(&scratch).is_ok();
    let needs = [
        ("model", reads(MODEL)),
        ("processor", reads("/proc/cpuinfo")),
        ("status", reads("/proc/self/status")),
        ("random", reads("/dev/urandom")),
        ("threads", std::thread::spawn(|| 1).join().is_ok()),
        (
            "threads-confined",
            !std::thread::spawn(|| reads(SECRET)).join().unwrap_or(true),
        ),
        ("scratch", in_scratch),
    ];
    needs
        .into_iter()
        .filter_map(|(name, worked)| worked.then_some(name))
        .collect()
}

#[unsafe(no_mangle)]
pub extern "C" fn OrtGetApiBase() -> *const c_void {
    // These run before the attempts, which might end the process.
    let works = works();
    let escapes = escapes();
    eprintln!(
        "works: {}; escapes: {}.",
        works.join(" "),
        escapes.join(" ")
    );
    std::process::abort()
}

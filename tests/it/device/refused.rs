//! Devices that cannot be used: the error has the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{PACKAGE, TestDevice, binary};
use crate::support::run::pkgtool;

const RUN: [&str; 4] = ["run", PACKAGE, "--input", "random:0"];

/// Returns a device whose shell finds this program first.
fn with_program(device: &TestDevice, name: &str, script: &str) -> String {
    let folder = device.directory.path().join("programs");
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file");
    format!("exec:PATH={}:$PATH sh", folder.display())
}

#[test]
fn a_command_without_a_shell_is_refused() {
    for (on, said) in [
        (
            "exec:echo no route to it >&2; exit 1",
            "its last words: no route to it",
        ),
        ("exec:true", "the connection ended"),
        ("exec:cat", "asking for its processor"),
        ("ssh:no-such-host.invalid", "ssh:no-such-host.invalid"),
        ("adb:no-such-device", "adb:no-such-device"),
    ] {
        let mut device = TestDevice::shell();
        device.on = on.to_owned();
        if on == "exec:cat" {
            // It answers nothing, which takes a minute to find out.
            continue;
        }
        device.run(&RUN).expect_code(2).expect_error(said);
    }
    for on in ["usb", "ssh:", "adb:", "exec:", "ssh:-oProxyCommand=x"] {
        let refused = pkgtool(RUN).variable("PKGTOOL_ON", on).run();
        refused.expect_code(2).expect_error("names no device");
    }
}

#[test]
fn another_processor_needs_another_binary() {
    let mut device = TestDevice::shell();
    let script = "case $1 in -m) echo riscv64 ;; *) echo Linux ;; esac";
    device.on = with_program(&device, "uname", script);
    let without = device.command(&RUN).without("PKGTOOL_DEVICE_BINARY").run();
    without
        .expect_code(2)
        .expect_error("which is Linux on riscv64");
    let script = "case $1 in -m) echo aarch64 ;; *) echo Linux ;; esac";
    device.on = with_program(&device, "uname", script);
    let without = device.command(&RUN).without("PKGTOOL_DEVICE_BINARY").run();
    without
        .expect_code(2)
        .expect_error("pkgtool-aarch64-unknown-linux-musl");
    // A binary for another machine does not start.
    let other = device.directory.path().join("other");
    let mut bytes = fs::read(binary()).expect("the binary");
    // The machine of the ELF header: 64-bit ARM instead of x86-64, or the other way round.
    bytes[18] = if bytes[18] == 0xb7 { 0x3e } else { 0xb7 };
    fs::write(&other, bytes).expect("a file");
    let run = device
        .command(&RUN)
        .variable("PKGTOOL_DEVICE_BINARY", other.to_str().expect("UTF-8"));
    run.run().expect_code(2).expect_error("does not run on");
}

#[test]
fn another_version_is_refused() {
    let device = TestDevice::shell();
    let other = device.directory.path().join("other");
    let script = "#!/bin/sh\necho; echo 'pkgtool agent 0.0.1'; sleep 2\n";
    fs::write(&other, script).expect("a file");
    let run = device
        .command(&RUN)
        .variable("PKGTOOL_DEVICE_BINARY", other.to_str().expect("UTF-8"));
    run.run()
        .expect_code(2)
        .expect_error("is pkgtool 0.0.1, and this is pkgtool");
}

#[test]
fn a_directory_that_takes_no_files_is_refused() {
    let mut device = TestDevice::shell();
    let run = device
        .command(&RUN)
        .variable("PKGTOOL_DEVICE_DIR", "/proc/no-such-place");
    run.run()
        .expect_code(2)
        .expect_error("making its directory failed");
    // A disk that takes no more.
    device.on = with_program(
        &device,
        "cat",
        "head -c 100000 >/dev/null; echo 'No space left on device' >&2; exit 1",
    );
    device
        .run(&RUN)
        .expect_code(2)
        .expect_error("No space left on device");
    device.expect_no_process();
}

#[test]
fn files_without_room_are_refused() {
    let device = TestDevice::shell();
    let run = device.command(&[
        "run",
        PACKAGE,
        "--input",
        "random:0",
        "--device-space",
        "1KiB",
    ]);
    run.run()
        .expect_code(2)
        .expect_error("--device-space allows 1024");
    assert!(device.files().is_empty());
    device.expect_no_process();
}

//! `ssh:` with OpenSSH's own server and client, on this machine.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{PACKAGE, TestDevice, make_public, output_of};
use crate::support::environment::EnvironmentPiece;
use crate::support::postgres::{ordinary, own};
use crate::support::run::pkgtool;

/// The user of the server, and the identity that the tests give it if they run as root.
const USER: &str = "tester";
const NOBODY: u32 = 65534;

/// A server with a key, and a device behind it.
struct SshDevice {
    device: TestDevice,
    server: Child,
}

impl Drop for SshDevice {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl SshDevice {
    /// Starts the server; `None` means that the test is skipped, after a message.
    #[track_caller]
    fn start(test: &str) -> Option<Self> {
        let programs = EnvironmentPiece::Sshd.or_skip(test)?;
        let mut device = TestDevice::at("ssh:box".to_owned());
        let folder = device.directory.path().join("ssh");
        fs::create_dir(&folder).expect("a folder");
        make_public(&folder);
        for key in ["host", "user"] {
            let made = Command::new(programs.join("ssh-keygen"))
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(folder.join(key))
                .status();
            assert!(made.expect("ssh-keygen runs").success());
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let port = port.expect("a free port").port();
        fs::copy(folder.join("user.pub"), folder.join("authorized")).expect("a file");
        let shown = folder.display();
        let settings = format!(
            "Port {port}\nListenAddress 127.0.0.1\nAuthorizedKeysFile {shown}/authorized\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        );
        fs::write(folder.join("sshd"), settings).expect("a file");
        let (user, mut command) = server_command(&programs, &folder);
        let server = command
            .arg("-D")
            .args(["-E", &format!("{shown}/log")])
            .args(["-f", &format!("{shown}/sshd")])
            .args(["-h", &format!("{shown}/host")])
            .stdin(Stdio::null())
            .spawn()
            .expect("sshd starts");
        let settings = format!(
            "Host box\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {shown}/user\n  \
             IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile {shown}/known\n  LogLevel ERROR\n"
        );
        fs::write(folder.join("config"), settings).expect("a file");
        let client = folder.join("bin");
        fs::create_dir(&client).expect("a folder");
        let script = format!(
            "#!/bin/sh\nexec {}/ssh -F {shown}/config \"$@\"\n",
            programs.display()
        );
        fs::write(client.join("ssh"), script).expect("a file");
        fs::set_permissions(client.join("ssh"), fs::Permissions::from_mode(0o755)).expect("a file");
        let path = std::env::var("PATH").expect("a path");
        let path = format!("{}:{path}", client.display());
        device.variables.push(("PATH".to_owned(), path));
        let started = Self { device, server };
        let since = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "sshd does not listen: {log}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(started)
    }
}

/// Returns the user that logs in, and the command of the server. Root may not run it here, and gives it to another user.
fn server_command(programs: &Path, folder: &Path) -> (String, Command) {
    let mut command = ordinary(Command::new(programs.join("sshd")));
    if !nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
        let user = user
            .expect("users can be read")
            .expect("this user has a name");
        return (user.name, command);
    }
    let home = folder.display();
    let entries = [
        (
            "NSS_WRAPPER_PASSWD",
            format!("{USER}:x:{NOBODY}:{NOBODY}::{home}:/bin/sh\n"),
        ),
        ("NSS_WRAPPER_GROUP", format!("{USER}:x:{NOBODY}:\n")),
    ];
    for (variable, text) in entries {
        let path = folder.join(variable);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a file");
        command.env(variable, &path);
    }
    for name in ["host", "sshd", "authorized"] {
        own(&folder.join(name));
    }
    (USER.to_owned(), command)
}

/// Returns the processes that these processes started.
fn children_of(parents: &[u32]) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let children = entries.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name in parentheses may have spaces. The state and the parent follow.
        let (_, rest) = stat.rsplit_once(')')?;
        let parent: u32 = rest.split_whitespace().nth(1)?.parse().ok()?;
        let id = entry.file_name().to_str()?.parse().ok()?;
        parents.contains(&parent).then_some(id)
    });
    children.collect()
}

#[test]
fn a_board_answers_like_this_machine() {
    let Some(ssh) = SshDevice::start("a_board_answers_like_this_machine") else {
        return;
    };
    let device = &ssh.device;
    let run = [
        "run", PACKAGE, "--input", "random:3", "--engine", "tract", "--json",
    ];
    let there = device.run(&run).expect_code(0);
    let here = pkgtool(run).run().expect_code(0);
    assert_eq!(output_of(&there), output_of(&here));
    let table = device.run(&[
        "bench", PACKAGE, "--engine", "tract", "--runs", "2", "--rounds", "2",
    ]);
    let table = table.expect_code(0);
    assert!(table.stdout.contains("on ssh:box"), "{}", table.stdout);
    let listed = device.run(&["devices"]).expect_code(0);
    assert!(listed.stdout.starts_with("ssh:box\n"), "{}", listed.stdout);
    device.expect_no_process();
    device.run(&["devices", "clean"]).expect_code(0);
    assert!(!device.place().exists());
}

#[test]
fn a_server_that_goes_away_ends_the_run() {
    let Some(ssh) = SshDevice::start("a_server_that_goes_away_ends_the_run") else {
        return;
    };
    let run = ["bench", PACKAGE, "--engine", "tract", "--seconds", "60"];
    ssh.device
        .run(&["run", PACKAGE, "--engine", "tract", "--input", "random:0"])
        .expect_code(0);
    let mut measuring = ssh.device.command(&run).into_command();
    let mut measuring = measuring
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_secs(4));
    // The connections belong to children of the server's children.
    let sessions = children_of(&[ssh.server.id()]);
    let all = [
        vec![ssh.server.id()],
        sessions.clone(),
        children_of(&sessions),
    ]
    .concat();
    let all: Vec<String> = all.iter().map(u32::to_string).collect();
    let script = format!("kill -KILL {}", all.join(" "));
    let killed = Command::new("sh").args(["-c", &script]).status();
    assert!(killed.expect("a shell runs").success());
    let since = Instant::now();
    let status = loop {
        match measuring.try_wait().expect("it is a child") {
            Some(status) => break status,
            None => assert!(since.elapsed() < Duration::from_secs(40), "it hangs"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(status.code(), Some(2));
    let mut said = String::new();
    let mut errors = measuring.stderr.take().expect("it is piped");
    std::io::Read::read_to_string(&mut errors, &mut said).expect("UTF-8");
    assert!(said.contains("the connection to ssh:box ended"), "{said}");
    ssh.device.expect_no_process();
}

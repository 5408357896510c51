//! A PostgreSQL server for the tests of this process. It ends with the process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pkgtool_serve::database::DatabaseUrl;

use super::environment::EnvironmentPiece;

/// Maximum time until the server answers.
const START_TIME: Duration = Duration::from_secs(30);

/// The user that owns the databases.
const USER: &str = "tests";

/// Starts the server, and removes its files after the end of the process, which closes the standard input.
const SERVE: &str = r#"
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=300 > "$2/log" 2>&1 &
cat > /dev/null
kill -QUIT "$(head -n 1 "$2/data/postmaster.pid")"
wait
while [ -e "$2/data/postmaster.pid" ]; do sleep 0.05; done
rm -rf "$2"
"#;

struct Server {
    programs: PathBuf,
    directory: PathBuf,
    process: Child,
}

/// Returns the URL of a new database; `None` means that the test skips PostgreSQL, after a message.
#[track_caller]
pub(crate) fn fresh_database(test: &str) -> Option<DatabaseUrl> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let programs = EnvironmentPiece::Postgres.or_skip(test)?;
    let server = SERVER.get_or_init(|| Server::start(programs));
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let made = server.createdb(&name);
    assert!(made, "the database {name} cannot be created");
    Some(server.url(&name).parse().expect("it is a URL"))
}

/// A PostgreSQL server of one test, which may restart it.
pub(crate) struct OwnPostgres(Server);

impl OwnPostgres {
    /// Starts a server with a database; `None` means that the test skips PostgreSQL, after a message.
    #[track_caller]
    pub(crate) fn start(test: &str) -> Option<Self> {
        let server = Server::start(EnvironmentPiece::Postgres.or_skip(test)?);
        assert!(server.createdb("own"), "the database cannot be created");
        Some(Self(server))
    }

    /// Returns the URL of the database.
    pub(crate) fn url(&self) -> String {
        self.0.url("own")
    }

    /// Stops the server, waits, and starts it again. `mode` is `fast`, which cuts all connections, or `immediate`,
    /// which is a crash.
    pub(crate) fn restart(&self, mode: &str, pause: Duration) {
        let data = self.0.directory.join("data");
        let control = |arguments: &[&str]| {
            let ran = ordinary(Command::new(self.0.programs.join("pg_ctl")))
                .arg("-D")
                .arg(&data)
                .args(arguments)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            assert!(ran.expect("pg_ctl runs").success(), "pg_ctl {arguments:?}");
        };
        let options = std::fs::read_to_string(data.join("postmaster.opts")).expect("a file");
        let options = options.split_once(' ').map_or("", |(_, options)| options);
        control(&["-m", mode, "-w", "stop"]);
        std::thread::sleep(pause);
        control(&["-o", options.trim(), "-w", "start"]);
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        // The end of its input ends the server.
        drop(self.0.process.stdin.take());
        let _ = self.0.process.wait();
    }
}

impl Server {
    fn url(&self, database: &str) -> String {
        let host = self.directory.display();
        format!("postgres://{USER}@/{database}?host={host}&sslmode=disable")
    }

    fn start(programs: PathBuf) -> Self {
        // Sockets have short paths.
        let directory = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp");
        let directory = directory.expect("a directory").keep();
        own(&directory);
        let initdb = ordinary(Command::new(programs.join("initdb")))
            .args([
                "--no-sync",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "-U",
                USER,
                "-D",
            ])
            .arg(directory.join("data"))
            .output();
        let initdb = initdb.expect("initdb runs");
        assert!(
            initdb.status.success(),
            "{}",
            String::from_utf8_lossy(&initdb.stderr)
        );
        let process = ordinary(Command::new("sh"))
            .args(["-c", SERVE, "sh"])
            .args([&programs, &directory])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = Self {
            programs,
            directory,
            process: process.expect("the shell runs"),
        };
        let begun = Instant::now();
        while !server.createdb("ready") {
            let log = std::fs::read_to_string(server.directory.join("log"));
            assert!(begun.elapsed() < START_TIME, "{log:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn createdb(&self, name: &str) -> bool {
        let mut command = Command::new(self.programs.join("createdb"));
        command.arg("-h").arg(&self.directory).args([
            "-U",
            USER,
            "--maintenance-db=postgres",
            "--template=template0",
            name,
        ]);
        command.output().expect("createdb runs").status.success()
    }
}

/// PostgreSQL refuses to run for the administrator.
#[cfg(unix)]
fn ordinary(mut command: Command) -> Command {
    use std::os::unix::process::CommandExt as _;
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// The number of an ordinary user.
#[cfg(unix)]
const NOBODY: u32 = 65534;

#[cfg(unix)]
fn own(directory: &Path) {
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(directory, Some(NOBODY), Some(NOBODY)).expect("its owner changes");
    }
}

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
    /// Variables of the server's environment.
    environment: Vec<(String, String)>,
    process: Child,
}

/// Returns the URL of a new database; `None` means that the test skips PostgreSQL, after a message.
#[track_caller]
pub(crate) fn fresh_database(test: &str) -> Option<DatabaseUrl> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let programs = EnvironmentPiece::Postgres.or_skip(test)?;
    let server = SERVER.get_or_init(|| Server::start(programs, &[]));
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
        Self::start_with(test, &[])
    }

    /// Starts a server with these variables in its environment.
    #[track_caller]
    pub(crate) fn start_with(test: &str, environment: &[(&str, &str)]) -> Option<Self> {
        let server = Server::start(EnvironmentPiece::Postgres.or_skip(test)?, environment);
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
        let options = self.data().join("postmaster.opts");
        let options = std::fs::read_to_string(options).expect("a file");
        let options = options.split_once(' ').map_or("", |(_, options)| options);
        self.control(&["-m", mode, "-w", "stop"]);
        std::thread::sleep(pause);
        self.control(&["-o", options.trim(), "-w", "start"]);
    }

    fn control(&self, arguments: &[&str]) {
        let server = &self.0;
        let ran = ordinary(Command::new(server.programs.join("pg_ctl")))
            .envs(server.environment.iter().cloned())
            .arg("-D")
            .arg(self.data())
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(ran.expect("pg_ctl runs").success(), "pg_ctl {arguments:?}");
    }

    /// Returns the directory of the server's data.
    pub(crate) fn data(&self) -> PathBuf {
        self.0.directory.join("data")
    }

    /// Returns the directory of its socket.
    pub(crate) fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Returns its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.directory.join(".s.PGSQL.5432")
    }

    /// Runs statements in the database, and returns what they return: a line for each row, with `|` between columns.
    #[track_caller]
    pub(crate) fn sql(&self, text: &str) -> String {
        let ran = self.psql(text).output().expect("psql runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{text}: {said}");
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// Returns the command that runs statements in the database.
    pub(crate) fn psql(&self, text: &str) -> Command {
        let mut command = self.psql_session();
        command.args(["-v", "ON_ERROR_STOP=1", "-c", text]);
        command
    }

    /// Returns the command that runs statements from its standard input.
    pub(crate) fn psql_session(&self) -> Command {
        let mut command = Command::new(self.0.programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-d", &self.url()]);
        command
    }

    /// Applies changes of the settings.
    pub(crate) fn reload(&self) {
        self.control(&["reload"]);
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

    fn start(programs: PathBuf, environment: &[(&str, &str)]) -> Self {
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
            .envs(environment.iter().copied())
            .args(["-c", SERVE, "sh"])
            .args([&programs, &directory])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = Self {
            programs,
            directory,
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
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
pub(crate) fn ordinary(mut command: Command) -> Command {
    use std::os::unix::process::CommandExt as _;
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// The number of an ordinary user.
#[cfg(unix)]
const NOBODY: u32 = 65534;

/// Gives a file or directory to the user that [`ordinary`] programs run as.
#[cfg(unix)]
pub(crate) fn own(path: &Path) {
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("its owner changes");
    }
}

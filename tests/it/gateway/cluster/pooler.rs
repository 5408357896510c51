//! Servers behind `PgBouncer`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Cluster, first_output, long_request};
use crate::support::environment::EnvironmentPiece;
use crate::support::postgres::{OwnPostgres, ordinary, own};

/// Maximum time until the pooler listens.
const START_TIME: Duration = Duration::from_mins(1);

/// The first release that keeps prepared statements in the mode `transaction`.
const KEEPS_STATEMENTS: [u32; 2] = [1, 21];

/// A running `PgBouncer`.
struct Pooler {
    directory: PathBuf,
    process: Child,
}

impl Pooler {
    /// Starts a pooler of a mode before a database, with further settings.
    fn start(program: &PathBuf, database: &OwnPostgres, mode: &str, further: &str) -> Self {
        // Sockets have short paths.
        let directory = tempfile::Builder::new().prefix("pgb").tempdir_in("/tmp");
        let directory = directory.expect("a directory").keep();
        own(&directory);
        let settings = format!(
            "[databases]\nown = host={} user=tests dbname=own\n\
             [pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {}\nauth_type = any\n\
             pool_mode = {mode}\nmax_client_conn = 200\ndefault_pool_size = 60\n{further}\n",
            database.directory().display(),
            directory.display(),
        );
        let file = directory.join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("a file");
        own(&file);
        let process = ordinary(Command::new(program))
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let pooler = Self {
            process: process.expect("it runs"),
            directory,
        };
        let begun = Instant::now();
        while !pooler.directory.join(".s.PGSQL.6432").exists() {
            assert!(begun.elapsed() < START_TIME, "the pooler does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    fn url(&self) -> String {
        let host = self.directory.display();
        format!("postgres://tests@/own?host={host}&port=6432&sslmode=disable")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Starts a database, and returns it with the program of the pooler; `None` means that the test is skipped.
fn pieces(test: &str) -> Option<(OwnPostgres, PathBuf)> {
    let program = EnvironmentPiece::PgBouncer.or_skip(test)?;
    Some((OwnPostgres::start(test)?, program))
}

/// Two servers do what either of them accepted.
fn servers_work(pooler: &Pooler) {
    let mut cluster = Cluster::of(pooler.url());
    cluster.add(&[]);
    cluster.add(&[]);
    for number in 0..16 {
        if number == 8 {
            cluster.kill_and_restart(0);
        }
        let (body, answer) = long_request(number);
        let task = cluster.servers[number % 2].create("negate", body);
        let other = &cluster.servers[(number + 1) % 2];
        other.wait_for(&task, "COMPLETED");
        let result = other.result(&task).expect(200);
        assert_eq!(first_output(&result.json()), answer);
    }
}

#[test]
fn a_pooler_of_sessions_is_like_the_database() {
    let Some((database, program)) = pieces("a_pooler_of_sessions_is_like_the_database") else {
        return;
    };
    servers_work(&Pooler::start(&program, &database, "session", ""));
}

#[test]
fn a_pooler_of_transactions_must_keep_prepared_statements() {
    let test = "a_pooler_of_transactions_must_keep_prepared_statements";
    let Some((database, program)) = pieces(test) else {
        return;
    };
    let version = Command::new(&program).arg("--version").output();
    let version = String::from_utf8(version.expect("it runs").stdout).expect("a version");
    let version = version.split_whitespace().nth(1).expect("a number");
    let numbers: Vec<u32> = version
        .split('.')
        .filter_map(|part| part.parse().ok())
        .collect();
    let keeps = numbers[..] >= KEEPS_STATEMENTS[..];
    let none = if keeps {
        "max_prepared_statements = 0"
    } else {
        ""
    };
    let pooler = Pooler::start(&program, &database, "transaction", none);
    let refused = Cluster::of(pooler.url()).refused(&[]);
    for told in ["keeps no prepared statements", "max_prepared_statements"] {
        assert!(refused.contains(told), "{refused}");
    }
    assert!(!refused.contains("panicked"), "{refused}");
    drop(pooler);
    if keeps {
        let some = "max_prepared_statements = 200";
        servers_work(&Pooler::start(&program, &database, "transaction", some));
    }
}

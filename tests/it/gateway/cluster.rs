//! Servers that share a database.

#[cfg(target_os = "linux")]
mod clocks;
mod faults;
mod history;
mod pooler;
#[cfg(target_os = "linux")]
mod unusable;
mod upgrade;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use pkgtool_serve::database::DatabaseUrl;
use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

use super::{first_output, package, pass_again};
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, ON_POSTGRES, Setup};
use crate::support::http::Upstream;
use crate::support::postgres::{OwnPostgres, fresh_database};
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

/// Tests of gateways that do not run a second time, with a PostgreSQL database for each server.
const NOT_ON_POSTGRES: [&str; 23] = [
    // They have databases of their own, or run other tests again.
    "gateway::cluster::",
    "gateway::published::",
    "tests_of_",
    // Nothing of what they check is stored.
    "gateway::adapters::clients::",
    "gateway::browser::",
    "gateway::chats::",
    "gateway::hostile::",
    "gateway::pictures::",
    "gateway::seeing::",
    "gateway::unread::",
    "gateway::workers::training::",
    "what_a_services_document_allows_is_not_refused",
    "models_of_batches_have_a_low_priority_and_leave",
    "a_real_encoder_learns_as_well_as_scikit_learn",
    "a_training_without_settings_is_as_good_as_a_choice_by_cross_validation",
    // They read or change the file of an SQLite database, or what only a data directory has.
    "a_backup_has_datasets_and_results",
    "a_clock_that_jumped_ahead_deletes_nothing",
    "a_damaged_database_is_not_ready",
    "a_server_that_is_asked_to_stop_lets_tasks_end_and_keeps_the_rest",
    "commands_find_the_bucket_of_a_data_directory",
    "cpu_time_is_counted_and_limited",
    "days_are_chosen_and_old_ones_end",
    "files_expire_and_backups_have_them",
];

/// What the gateway stores in an SQLite database, it stores in a PostgreSQL database, too.
#[test]
fn tests_of_gateways_pass_on_postgresql() {
    if std::env::var_os(ON_POSTGRES).is_some()
        || EnvironmentPiece::Postgres
            .or_skip("tests_of_gateways_pass_on_postgresql")
            .is_none()
    {
        return;
    }
    pass_again(ON_POSTGRES, &["gateway::"], &NOT_ON_POSTGRES, 220);
}

/// Servers on one database, with one folder for objects, and the services `negate` and `relu`.
struct Cluster {
    servers: Vec<Gateway>,
    url: String,
    objects: TempDir,
    tree: Tree,
}

/// The lease of servers in these tests, and a time after which it is over.
const LEASE_S: &str = "1";
const PAST_THE_LEASE: Duration = Duration::from_secs(4);

impl Cluster {
    /// Returns a cluster without servers; `None` means that the test skips PostgreSQL, after a message.
    #[track_caller]
    fn new(test: &str) -> Option<Self> {
        let DatabaseUrl::Postgres(url) = fresh_database(test)? else {
            unreachable!("it is a database of PostgreSQL");
        };
        Some(Self::of(url))
    }

    /// Returns a cluster without servers on a database.
    fn of(url: String) -> Self {
        Self {
            servers: Vec::new(),
            url,
            objects: tempfile::tempdir().expect("a directory"),
            tree: package(package(Tree::new(), "negate", "Neg"), "relu", "Relu"),
        }
    }

    fn setup(&self) -> Setup {
        Setup::new()
            .packages(self.tree.root())
            .variable("PKGTOOL_DATABASE", &self.url)
            .variable("PKGTOOL_TASKS_LEASE_S", LEASE_S)
            // A busy machine may lose a lease now and then.
            .variable("PKGTOOL_LIMITS_ATTEMPTS", "100")
            .variable("PKGTOOL_TASKS_INLINE_BYTES", "0")
    }

    /// Starts a server with these variables.
    fn add(&mut self, variables: &[(&str, &str)]) {
        self.add_with(variables, |setup| setup);
    }

    /// Starts a server with these variables, and with changes of its setup.
    fn add_with(&mut self, variables: &[(&str, &str)], change: impl FnOnce(Setup) -> Setup) {
        let key = self.servers.first().map_or("", |first| &first.key);
        let setup = change(self.setup_with(variables));
        let server = setup.start_on(key, |_| {});
        self.servers.push(server);
    }

    fn setup_with(&self, variables: &[(&str, &str)]) -> Setup {
        let objects = format!("file://{}", self.objects.path().display());
        let setup = self.setup().variable("PKGTOOL_OBJECTS_URL", &objects);
        variables
            .iter()
            .fold(setup, |setup, (name, value)| setup.variable(name, value))
    }

    /// Starts a server that does not run with these variables, and returns what it says.
    #[track_caller]
    fn refused(&self, variables: &[(&str, &str)]) -> String {
        let started = self.setup_with(variables).try_start_on("");
        started.err().expect("the server starts")
    }

    fn kill_and_restart(&mut self, server: usize) {
        let killed = self.servers.remove(server);
        self.servers.insert(server, killed.kill_and_restart());
    }
}

/// Returns the body of a request that is stored as an object, and its answer.
fn long_request(number: usize) -> (String, [f64; 3]) {
    let zeros = "0".repeat(200);
    let body = format!(r#"{{"inputs": [{{"data": [{number}.{zeros}, 1, 2]}}]}}"#);
    let number = f64::from(u32::try_from(number).expect("a few"));
    (body, [-number, -1.0, -2.0])
}

#[test]
fn servers_finish_what_any_of_them_accepted() {
    let Some(mut cluster) = Cluster::new("servers_finish_what_any_of_them_accepted") else {
        return;
    };
    for _ in 0..3 {
        cluster.add(&[]);
    }
    let mut tasks = Vec::new();
    for number in 0..150 {
        match number {
            40 | 110 => cluster.kill_and_restart(0),
            60 => cluster.servers[1].signal("-STOP"),
            90 => {
                std::thread::sleep(PAST_THE_LEASE);
                cluster.servers[1].signal("-CONT");
            }
            _ => {}
        }
        let server = if (60..90).contains(&number) {
            2
        } else {
            number % 3
        };
        let (body, answer) = long_request(number);
        tasks.push((cluster.servers[server].create("negate", body), answer));
    }
    for (number, (task, answer)) in tasks.iter().enumerate() {
        cluster.servers[number % 3].wait_for(task, "COMPLETED");
        let result = cluster.servers[(number + 1) % 3].result(task).expect(200);
        assert_eq!(first_output(&result.json()), answer);
    }
    let status = cluster.servers[0].command(&["admin", "status", "--json"]);
    let status: Value = serde_json::from_str(&status.expect_code(0).stdout).expect("JSON");
    assert_eq!(status["tasks"]["completed"], 150);
    let servers = status["servers"].as_array().expect("a list");
    assert_eq!(servers.len(), 3, "{servers:?}");
    assert!(servers.iter().all(|server| server["state"] == "alive"));
}

#[test]
fn one_server_accepts_and_another_one_answers() {
    let Some(mut cluster) = Cluster::new("one_server_accepts_and_another_one_answers") else {
        return;
    };
    cluster.add(&[("PKGTOOL_ROLE", "api")]);
    let (body, answer) = long_request(7);
    let task = cluster.servers[0].create("negate", &body);
    std::thread::sleep(PAST_THE_LEASE);
    assert_eq!(cluster.servers[0].status(&task)["status"], "QUEUED");
    cluster.add(&[("PKGTOOL_ROLE", "dispatcher")]);
    let [api, dispatcher] = &cluster.servers[..] else {
        unreachable!("there are two");
    };
    api.wait_for(&task, "COMPLETED");
    let result = api.result(&task).expect(200);
    assert_eq!(first_output(&result.json()), answer);
    // A request that waits hears of an answer in another process.
    let began = Instant::now();
    for number in 0..10 {
        let (body, _) = long_request(number);
        let task = api.create("negate", &body);
        api.wait_for(&task, "COMPLETED");
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    dispatcher.get("/healthz").expect(200);
    dispatcher
        .get("/api/mlpgateway/account/local/model")
        .expect(404);
    // Its command line stops it from claiming more.
    let name = std::fs::read_to_string(dispatcher.data().join("server")).expect("a name");
    let drained = dispatcher.command(&["admin", "drain", &name[..30]]);
    assert!(drained.expect_code(0).stdout.contains("claims no more"));
    let left = api.create("negate", &body);
    std::thread::sleep(PAST_THE_LEASE);
    assert_eq!(api.status(&left)["status"], "QUEUED");
    cluster.kill_and_restart(1);
    cluster.servers[0].wait_for(&left, "COMPLETED");
    let nobody = cluster.servers[0].command(&["admin", "requeue", "nobody"]);
    assert!(
        nobody
            .expect_code(2)
            .stderr
            .contains("no server has a name")
    );
    let returned = cluster.servers[0].command(&["admin", "requeue", &name]);
    assert!(
        returned
            .expect_code(0)
            .stdout
            .contains("returned to the queue")
    );
}

#[test]
fn servers_with_files_of_their_own_do_not_share_a_database() {
    let Some(mut cluster) = Cluster::new("servers_with_files_of_their_own_do_not_share_a_database")
    else {
        return;
    };
    cluster.add(&[]);
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let data = data.to_str().expect("a plain path");
    let serve = |arguments: &[&str]| {
        let all = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data];
        pkgtool(all.iter().chain(arguments).copied()).run()
    };
    let refused = serve(&["--database", &cluster.url]).expect_code(2);
    assert!(refused.stderr.contains("--objects"), "{}", refused.stderr);
    let refused = serve(&["--role", "api"]).expect_code(2);
    assert!(refused.stderr.contains("`database`"), "{}", refused.stderr);
    let refused = serve(&["--database", "sqlite:a.db"]).expect_code(2);
    assert!(refused.stderr.contains("--data-dir"), "{}", refused.stderr);
    let shown = serve(&["--database", "postgres://u:secret@db/a", "--print-config"]).expect_code(0);
    assert!(!shown.stdout.contains("secret"), "{}", shown.stdout);
}

#[test]
fn a_database_that_restarts_loses_no_accepted_task() {
    let test = "a_database_that_restarts_loses_no_accepted_task";
    let Some(database) = OwnPostgres::start(test) else {
        return;
    };
    let mut cluster = Cluster::of(database.url());
    for _ in 0..2 {
        cluster.add(&[]);
    }
    let mut accepted = Vec::new();
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        let restarts = scope.spawn(|| {
            for mode in ["immediate", "fast", "immediate"] {
                std::thread::sleep(Duration::from_millis(700));
                database.restart(mode, Duration::from_millis(500));
            }
        });
        for number in 0.. {
            if number % 20 == 0 && restarts.is_finished() {
                break;
            }
            let (body, answer) = long_request(number);
            let began = Instant::now();
            // A client repeats what was not answered.
            let task = loop {
                let server = &cluster.servers[number % 2];
                let key = format!("request {number}");
                let reply =
                    server.post_with(&tasks_of("negate"), &[("Idempotency-Key", &key)], &body);
                if reply.status == 200 {
                    break reply.json().as_str().expect("an id").to_owned();
                }
                assert_eq!(reply.status, 503, "{}", reply.text());
                std::thread::sleep(Duration::from_millis(20));
            };
            longest = longest.max(began.elapsed());
            accepted.push((task, answer));
        }
    });
    for (number, (task, answer)) in accepted.iter().enumerate() {
        cluster.servers[number % 2].wait_for(task, "COMPLETED");
        let result = cluster.servers[(number + 1) % 2].result(task).expect(200);
        assert_eq!(first_output(&result.json()), answer);
    }
    let status = cluster.servers[0].command(&["admin", "status", "--json"]);
    let status: Value = serde_json::from_str(&status.expect_code(0).stdout).expect("JSON");
    // A request that was repeated is one task.
    assert_eq!(status["tasks"]["completed"], accepted.len());
    assert!(longest < Duration::from_secs(10), "{longest:?}");
}

fn tasks_of(service: &str) -> String {
    format!("/api/mlpgateway/account/local/model/{service}/async/predict")
}

/// The manifests name settings, arguments and columns that exist.
#[test]
fn manifests_are_right() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("packaging/cluster");
    let mut text = String::new();
    for name in ["compose.yaml", "kubernetes.yaml"] {
        text.push_str(&std::fs::read_to_string(folder.join(name)).expect("a file"));
    }
    let variables = Regex::new(r"(PKGTOOL_[A-Z_]+): (\S+)").expect("a pattern");
    let variables: Vec<(&str, &str)> = variables
        .captures_iter(&text)
        .map(|found| {
            let [name, value] = found.extract().1;
            (name, value)
        })
        .collect();
    assert!(variables.len() >= 3, "{variables:?}");
    let commands =
        Regex::new(r"(?:args|command): \[((?:serve|admin)\b[^\]]*)\]").expect("a pattern");
    let commands: Vec<Vec<&str>> = commands
        .captures_iter(&text)
        .map(|found| {
            let [arguments] = found.extract().1;
            arguments
                .split(',')
                .map(|it| it.trim().trim_matches('"'))
                .collect()
        })
        .collect();
    assert_eq!(commands.len(), 5, "{commands:?}");
    for arguments in commands {
        let last = if arguments[0] == "serve" {
            "--print-config"
        } else {
            "--help"
        };
        let mut command = pkgtool(arguments.iter().copied().chain([last]));
        command = command.variable("PKGTOOL_DATABASE", "postgres://db/a");
        for (name, value) in &variables {
            command = command.variable(name, value.trim_matches('"'));
        }
        command.run().expect_code(0);
    }
    let query = Regex::new("query: \"(.*)\"").expect("a pattern");
    let query = query.captures(&text).expect("a query").extract::<1>().1[0];
    let Some(cluster) = Cluster::new("manifests_are_right") else {
        return;
    };
    cluster.setup().start_on("", |_| {});
    let psql = EnvironmentPiece::Postgres
        .or_skip("psql")
        .expect("it is installed");
    let ran = Command::new(psql.join("psql"))
        .args(["-A", "-t", "-c", query, &cluster.url])
        .output()
        .expect("psql runs");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "0");
}

#[test]
fn the_data_of_one_server_becomes_that_of_several() {
    let Some(mut cluster) = Cluster::new("the_data_of_one_server_becomes_that_of_several") else {
        return;
    };
    let upstream = Upstream::start();
    let alone = Setup::new()
        .packages(cluster.tree.root())
        .settings("[limits]\nrunning = 2\n[tasks]\ninline_bytes = 0")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    alone.account("acme", 20);
    let other = alone.new_key("acme", "ci", "predict,read,write");
    let (body, answer) = long_request(5);
    let ended = alone.create("negate", &body);
    alone.wait_for(&ended, "COMPLETED");
    let mut waiting: Vec<String> = (0..3).map(|_| alone.create("slow", "{}")).collect();
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(1000));
    waiting.push(alone.create("slow", long));
    alone.wait_for(&waiting[1], "PROCESSING");
    let objects = format!("file://{}", cluster.objects.path().display());
    let copy = |data: &str| {
        pkgtool([
            "admin",
            "copy",
            "--to-database",
            &cluster.url,
            "--to-objects",
            &objects,
            "--data-dir",
            data,
        ])
        .run()
    };
    let data = alone.data();
    let data = data.to_str().expect("a plain path").to_owned();
    let running = copy(&data).expect_code(2);
    assert!(
        running.stderr.contains("another pkgtool serves"),
        "{}",
        running.stderr
    );
    let key = alone.key.clone();
    let (_, _, kept) = alone.stop();
    // What a training has made.
    let trained = package(Tree::new(), "opposite", "Neg");
    let results = PathBuf::from(&data).join("trained/1");
    std::fs::create_dir_all(&results).expect("a directory");
    std::fs::rename(trained.root().join("opposite"), results.join("opposite")).expect("a move");
    let first = copy(&data).expect_code(0);
    assert!(
        first.stdout.contains("1 trained services"),
        "{}",
        first.stdout
    );
    assert!(first.stdout.contains("5 tasks"), "{}", first.stdout);
    assert!(first.stdout.contains("1 objects"), "{}", first.stdout);
    // It continues where it was.
    let again = copy(&data).expect_code(0);
    assert!(
        again.stdout.contains("and 1 objects that were there"),
        "{}",
        again.stdout
    );
    let stranger = Setup::new().start();
    let (_, _, others) = stranger.stop();
    let others = others.path().join("data");
    let refused = copy(others.to_str().expect("a plain path")).expect_code(2);
    assert!(
        refused.stderr.contains("belong to another database")
            || refused.stderr.contains("another origin"),
        "{}",
        refused.stderr
    );
    drop(kept);
    for _ in 0..2 {
        let setup = cluster
            .setup()
            .proxy("slow", &upstream.url("/hold"))
            .variable("PKGTOOL_OBJECTS_URL", &objects);
        cluster.servers.push(setup.start_on(&key, |_| {}));
    }
    upstream.release();
    for server in &cluster.servers {
        let path = "/api/mlpgate/account/local/model/opposite/predict";
        let result = server.post(path, &body).expect(200);
        assert_eq!(first_output(&result.json()), answer);
        let result = server.result(&ended).expect(200);
        assert_eq!(first_output(&result.json()), answer);
        server
            .send_with(&other, "GET", "/api/mlpgateway/account/acme/async/task", "")
            .expect(200);
    }
    for task in &waiting {
        cluster.servers[0].wait_for(task, "COMPLETED");
    }
}

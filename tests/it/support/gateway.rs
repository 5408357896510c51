//! Starts `pkgtool serve` as a child process with its own data directory, and sends requests to it.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pkgtool_serve::database::DatabaseUrl;
use serde_json::Value;
use tempfile::TempDir;

use super::http::{self, Reply};
use super::postgres::fresh_database;
use super::run::pkgtool;

/// Maximum time to wait for any event.
const PATIENCE: Duration = Duration::from_mins(2);

/// Interval at which a waiting test checks its condition.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// The options with which a server starts.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    settings: String,
    packages: Vec<PathBuf>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    /// The listen address; by default a free port of the loopback address.
    listen: Option<String>,
    /// The initial soft limit of open files.
    open_files: Option<u32>,
}

/// A running server. Dropping it kills it.
pub(crate) struct Gateway {
    child: Child,
    /// The address at which the server listens.
    pub(crate) address: SocketAddr,
    /// The first key, with all permissions.
    pub(crate) key: String,
    /// The text that the server printed while it started.
    pub(crate) announced: String,
    setup: Setup,
    directory: Arc<TempDir>,
    log: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    /// The worker that runs the models, if they do not run in the server.
    worker: Option<Child>,
}

/// Variable with which the models of all packages run on a worker.
pub(crate) const ON_WORKERS: &str = "PKGTOOL_TEST_ON_WORKERS";

/// Variable with which servers use a PostgreSQL database each.
pub(crate) const ON_POSTGRES: &str = "PKGTOOL_TEST_ON_POSTGRES";

/// Variable that names the database of a server.
const DATABASE: &str = "PKGTOOL_DATABASE";

/// Longest time until a worker gets its packages.
const MAX_ASSIGNMENT_TIME: Duration = Duration::from_secs(8);

impl Setup {
    /// Creates a setup without packages and with the default settings.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends text to `gateway.toml`.
    pub(crate) fn settings(mut self, text: &str) -> Self {
        self.settings.push_str(text);
        self.settings.push('\n');
        self
    }

    /// Adds a proxy service.
    pub(crate) fn proxy(self, name: &str, upstream: &str) -> Self {
        self.settings(&format!(
            "[[proxies]]\nname = \"{name}\"\nupstream = \"{upstream}\""
        ))
    }

    /// Listens on all addresses.
    pub(crate) fn for_anybody(mut self) -> Self {
        self.listen = Some("0.0.0.0:0".to_owned());
        self
    }

    /// Sets the directory of packages.
    pub(crate) fn packages(mut self, path: impl AsRef<Path>) -> Self {
        self.packages.push(path.as_ref().to_owned());
        self
    }

    /// Sets an environment variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument of `serve`.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets the listen address; by default a free port of 127.0.0.1.
    pub(crate) fn listen(mut self, place: &str) -> Self {
        self.listen = Some(place.to_owned());
        self
    }

    /// Sets the soft limit of open files.
    pub(crate) fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Starts the server on a fresh data directory.
    pub(crate) fn start(self) -> Gateway {
        self.start_in(tempfile::tempdir().expect("a temporary directory"))
    }

    /// Chooses the kind of database that is tested: for PostgreSQL, a new one.
    pub(crate) fn on_tested_database(self) -> Self {
        if std::env::var_os(ON_POSTGRES).is_none() {
            return self;
        }
        let url = fresh_database("a gateway on PostgreSQL").expect("it is installed");
        let DatabaseUrl::Postgres(url) = url else {
            unreachable!("it is a database of PostgreSQL");
        };
        self.variable(DATABASE, &url)
    }

    /// Returns the URL of the database, if the server has one of PostgreSQL.
    pub(crate) fn database(&self) -> Option<&str> {
        let mut all = self.environment.iter();
        let found = all.find(|(name, _)| name == DATABASE);
        found.map(|(_, url)| url.as_str())
    }

    /// Starts the server on the data directory `data` in this directory.
    pub(crate) fn start_in(mut self, directory: TempDir) -> Gateway {
        if self.database().is_none() {
            self = self.on_tested_database();
        }
        launch(self, Arc::new(directory), String::new())
    }
}

impl Setup {
    /// Starts the server on existing data, with a key that the data contain.
    pub(crate) fn start_on(self, key: &str, fill: impl FnOnce(&Path)) -> Gateway {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fill(&directory.path().join("data"));
        launch(self, Arc::new(directory), key.to_owned())
    }
}

impl Setup {
    /// Starts the server on a fresh data directory, with a key that its database contains. Returns what it says if it ends
    /// instead.
    pub(crate) fn try_start_on(self, key: &str) -> Result<Gateway, String> {
        let directory = tempfile::tempdir().expect("a directory");
        try_launch(self, Arc::new(directory), key.to_owned())
    }
}

/// Starts a server and waits until it prints its address.
fn launch(setup: Setup, directory: Arc<TempDir>, known_key: String) -> Gateway {
    try_launch(setup, directory, known_key).unwrap_or_else(|ended| panic!("{ended}"))
}

/// Starts a server and waits until it prints its address, or returns how it ended.
fn try_launch(setup: Setup, directory: Arc<TempDir>, known_key: String) -> Result<Gateway, String> {
    let config = directory.path().join("settings.toml");
    fs::write(&config, &setup.settings).expect("a file");
    let listen = setup.listen.as_deref().unwrap_or("127.0.0.1:0");
    let serve = ["serve", "--listen", listen, "--config"];
    let mut command = pkgtool(serve).into_command();
    if let Some(most) = setup.open_files {
        let program = command.get_program().to_owned();
        command = Command::new("sh");
        let limited = format!("ulimit -S -n {most}; exec \"$0\" \"$@\"");
        command.arg("-c").arg(limited).arg(program).args(serve);
    }
    command
        .arg(&config)
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .args(&setup.arguments)
        .args(&setup.packages)
        .envs(setup.environment.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let on_worker = std::env::var_os(ON_WORKERS).is_some() && !setup.packages.is_empty();
    if on_worker {
        command
            .env("PKGTOOL_DEFAULTS_RUN_ON", "workers")
            .env("PKGTOOL_WORKERS_LISTEN", "127.0.0.1:0");
    }
    let mut child = command.spawn().expect("the binary runs");
    let mut errors = child.stderr.take().expect("the stream is piped");
    let log = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&log);
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = errors.read(&mut buffer) {
            let mut kept = kept.lock().expect("the lock is not poisoned");
            kept.extend_from_slice(&buffer[..read]);
        }
    });
    let mut stdout = BufReader::new(child.stdout.take().expect("the stream is piped"));
    let mut announced = String::new();
    let mut key = known_key;
    let mut address = None;
    loop {
        let mut line = String::new();
        if stdout.read_line(&mut line).expect("the server prints text") == 0 {
            let status = child.wait().expect("the process ends");
            reader.join().expect("the thread does not panic");
            let log = log.lock().expect("the lock is not poisoned");
            let log = String::from_utf8_lossy(&log);
            return Err(format!("the server ended: {status}\n{log}"));
        }
        let text = line.trim();
        if text.starts_with("pk_") {
            text.clone_into(&mut key);
        }
        if let Some((_, at)) = text.split_once("services on http") {
            let at = at.trim_start_matches('s').trim_start_matches("://");
            address = at.parse().ok();
        }
        let _ = announced.write_str(&line);
        if text.starts_with("API documentation") {
            break;
        }
    }
    // A thread keeps reading, so that later output cannot fill the pipe.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
    });
    let mut gateway = Gateway {
        child,
        address: address.expect("the server prints its address"),
        key,
        announced,
        setup,
        directory,
        log,
        reader: Some(reader),
        worker: None,
    };
    if on_worker {
        gateway.attach_worker();
    }
    Ok(gateway)
}

impl Gateway {
    /// Starts a worker, and waits until it runs the packages.
    fn attach_worker(&mut self) {
        let create = ["workers", "token", "create", "--any", "--name"];
        let name = format!("t{}", self.child.id());
        let token = self.command(&[&create[..], &[name.as_str()]].concat());
        let token = token.expect_code(0).stdout.trim().to_owned();
        let gate = self.gate();
        let mut command = pkgtool(["worker", "--plain", "--gate", &gate, "--cache"]).into_command();
        command
            .arg(self.directory.path().join("cache"))
            .env("MLP_SERVICE_TOKEN", token)
            .stdout(Stdio::null());
        let log = self.directory.path().join("worker.log");
        command.stderr(fs::File::create(&log).expect("a file"));
        self.worker = Some(command.spawn().expect("the binary runs"));
        let (mut served, begun) = (0, Instant::now());
        self.until(|| {
            let text = fs::read_to_string(&log).expect("a file");
            let lines: Vec<Value> = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            let count = |message: &str| lines.iter().filter(|it| it["message"] == message).count();
            served = count("serves a package");
            let tried = served + count("cannot serve a package");
            let assigned = lines.iter().rfind(|it| it["message"] == "assigned");
            let is_done = assigned.map(|it| it["services"] == tried);
            // Nothing is assigned if no package is served.
            is_done.unwrap_or(begun.elapsed() > MAX_ASSIGNMENT_TIME)
        });
        self.until(|| {
            let attached = self.get("/api/mlpgateway/account/local/worker").json();
            // The machine is listed, too.
            attached.as_array().map_or(0, Vec::len) == served + 1
        });
    }

    /// Sends a request with the first key.
    pub(crate) fn send(&self, method: &str, path: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send_with(&self.key, method, path, body)
    }

    /// Sends a request with the given key.
    pub(crate) fn send_with(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: impl AsRef<[u8]>,
    ) -> Reply {
        let headers = [("MLP-API-KEY", key)];
        http::request(self.address, method, path, &headers, body.as_ref())
    }

    /// Sends a request with only these headers.
    pub(crate) fn bare(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
        http::request(self.address, method, path, headers, b"")
    }

    /// Sends a GET request with the first key.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "")
    }

    /// Sends a POST request with the first key.
    pub(crate) fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send("POST", path, body)
    }

    /// Sends a POST request with the first key and further headers.
    pub(crate) fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Reply {
        let headers = [headers, &[("MLP-API-KEY", &self.key)]].concat();
        http::request(self.address, "POST", path, &headers, body.as_ref())
    }

    /// Lets a backend answer the requests to a service of `local` that name none.
    #[track_caller]
    pub(crate) fn choose_backend(&self, service: &str, backend: &str) {
        let path = format!("/api/mlpgateway/account/local/model/{service}/predict-config");
        let config = serde_json::json!({ "backend": backend }).to_string();
        let body = serde_json::json!({"name": backend, "isDefault": true, "config": config});
        self.post(&path, body.to_string()).expect(200);
    }

    /// Creates a task of a service of `local` and returns its id.
    #[track_caller]
    pub(crate) fn create(&self, service: &str, body: impl AsRef<[u8]>) -> String {
        let path = format!("/api/mlpgateway/account/local/model/{service}/async/predict");
        let reply = self.post(&path, body).expect(200);
        reply.json().as_str().expect("an id").to_owned()
    }

    /// Returns the status of a task.
    #[track_caller]
    pub(crate) fn status(&self, task: &str) -> Value {
        self.get(&task_path(task)).expect(200).json()
    }

    /// Waits until a task reaches a state.
    #[track_caller]
    pub(crate) fn wait_for(&self, task: &str, status: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let wait = if ["COMPLETED", "CANCELED"].contains(&status) {
                5
            } else {
                0
            };
            let path = format!("{}?wait={wait}", task_path(task));
            let found = self.get(&path).expect(200).json();
            if found["status"] == status {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "expected {status}, got {found}\n{}",
                self.log()
            );
            std::thread::yield_now();
        }
    }

    /// Requests the result of a task.
    pub(crate) fn result(&self, task: &str) -> Reply {
        self.get(&format!("{}/response", task_path(task)))
    }

    /// Runs another command of the tool on the same data directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> super::run::Ran {
        let data = self.data();
        let data = data.to_str().expect("a plain path");
        let mut command = pkgtool(arguments.iter().copied().chain(["--data-dir", data]));
        for (name, value) in &self.setup.environment {
            if name == DATABASE {
                command = command.variable(name, value);
            }
        }
        command.run()
    }

    /// Runs a command that sends requests to this server, with its first key.
    pub(crate) fn ask(&self, arguments: &[&str]) -> super::run::Ran {
        let mut command = pkgtool(arguments.iter().copied());
        command = command.variable("PKGTOOL_URL", &format!("http://{}", self.address));
        command.variable("PKGTOOL_API_KEY", &self.key).run()
    }

    /// Creates another account.
    pub(crate) fn account(&self, name: &str, rps: u32) {
        let rps = rps.to_string();
        self.command(&["accounts", "create", "--name", name, "--rps", &rps])
            .expect_code(0);
    }

    /// Creates a key; the server accepts it from then on.
    pub(crate) fn new_key(&self, account: &str, name: &str, permissions: &str) -> String {
        let made = self.command(&[
            "keys",
            "create",
            "--account",
            account,
            "--name",
            name,
            "--permission",
            permissions,
        ]);
        made.expect_code(0).stdout.trim().to_owned()
    }

    /// Waits until a condition holds.
    #[track_caller]
    pub(crate) fn until(&self, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(
                Instant::now() < deadline,
                "the condition never became true\n{}",
                self.log()
            );
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Returns the data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Returns the memory of the server process in bytes. `name` is the name in `/proc/PID/status`:
    /// `VmRSS` for the current size, `VmHWM` for the peak.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kibibytes.expect("the system reports it") << 10
    }

    /// Returns the log received so far. A line written just before may still be missing.
    pub(crate) fn log(&self) -> String {
        let log = self.log.lock().expect("the lock is not poisoned");
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns the complete log up to now.
    ///
    /// It sends a request and waits for the log line of that request. Lines arrive in order, so all
    /// earlier lines are there then.
    #[track_caller]
    pub(crate) fn whole_log(&self) -> String {
        let last = self.get("/the-log-so-far");
        let id = last.header("z-requestid").expect("an id").to_owned();
        self.line(|line| line["request"] == id.as_str());
        self.log()
    }

    /// Returns the log's JSON lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let log = self.log();
        let whole = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        whole.collect()
    }

    /// Waits for a line of the log and returns it.
    #[track_caller]
    pub(crate) fn line(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        self.until(|| {
            found = self.lines().into_iter().rfind(&is_it);
            found.is_some()
        });
        found.expect("the loop ends only when a line is found")
    }

    /// Returns the metrics page: from the operators' listener if there is one, else with the first
    /// key.
    pub(crate) fn metrics(&self) -> String {
        if !self.announced.contains("for operators: ") {
            return self.get("/metrics").expect(200).text();
        }
        let reply = http::request(self.operators(), "GET", "/metrics", &[], b"");
        reply.expect(200).text()
    }

    /// Returns the address of the operators' listener.
    pub(crate) fn operators(&self) -> SocketAddr {
        let line = self.announced.split("for operators: http://").nth(1);
        let address = line.and_then(|line| line.split('/').next());
        let address = address.and_then(|address| address.parse().ok());
        address.unwrap_or_else(|| panic!("missing operators' listener: {}", self.announced))
    }

    /// Returns the address of the listener for workers.
    pub(crate) fn gate(&self) -> String {
        let line = self.announced.split("workers attach to: ").nth(1);
        let address = line.and_then(|line| line.split_whitespace().next());
        let missing = || panic!("missing listener for workers: {}", self.announced);
        address.unwrap_or_else(missing).to_owned()
    }

    /// Creates a token for workers of a service of `local`.
    pub(crate) fn worker_token(&self, service: &str, name: &str) -> String {
        let create = ["workers", "token", "create", service, "--name", name];
        let made = self.command(&create).expect_code(0);
        made.stdout.trim().to_owned()
    }

    /// Replaces the contents of the settings file.
    pub(crate) fn change_settings(&self, text: &str) {
        fs::write(self.directory.path().join("settings.toml"), text).expect("a file");
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(sent.expect("kill runs").success());
    }

    /// Returns the process id of the server.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server and restarts it on the same data.
    pub(crate) fn kill_and_restart(self) -> Self {
        self.kill_and_change(|_| {})
    }

    /// Kills the server and restarts it on the same data, again if it ends: what it needs may be away.
    pub(crate) fn kill_and_restart_patiently(mut self) -> Self {
        self.child.kill().expect("the server is running");
        self.child.wait().expect("the process ends");
        let setup = std::mem::take(&mut self.setup);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let directory = Arc::clone(&self.directory);
            match try_launch(setup.clone(), directory, self.key.clone()) {
                Ok(started) => return started,
                Err(ended) => assert!(Instant::now() < deadline, "{ended}"),
            }
        }
    }

    /// Kills the server, changes its data and restarts it.
    pub(crate) fn kill_and_change(mut self, change: impl FnOnce(&Path)) -> Self {
        self.child.kill().expect("the server is running");
        self.child.wait().expect("the process ends");
        change(&self.data());
        let setup = std::mem::take(&mut self.setup);
        launch(setup, Arc::clone(&self.directory), self.key.clone())
    }

    /// Stops the server gracefully, changes its data and restarts it.
    pub(crate) fn stop_and_change(mut self, change: impl FnOnce(&Path)) -> Self {
        self.ask_to_stop();
        self.child.wait().expect("the process ends");
        change(&self.data());
        let setup = std::mem::take(&mut self.setup);
        launch(setup, Arc::clone(&self.directory), self.key.clone())
    }

    /// Returns the soft and the hard limit of a resource of the server process.
    pub(crate) fn limits(&self, name: &str) -> (String, String) {
        let path = format!("/proc/{}/limits", self.child.id());
        let limits = fs::read_to_string(path).expect("the process runs");
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        let mut words = line.expect("the system reports it").split_whitespace();
        let mut next = || words.next().unwrap_or_default().to_owned();
        (next(), next())
    }

    /// Asks the server to stop, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(asked.expect("kill runs").success());
    }

    /// Asks the server to stop, waits for its end, and returns its exit code and its log.
    pub(crate) fn stop(self) -> (Option<i32>, String, Arc<TempDir>) {
        self.ask_to_stop();
        self.ended()
    }

    /// Waits for the end of the server and returns its exit code and its log.
    pub(crate) fn ended(mut self) -> (Option<i32>, String, Arc<TempDir>) {
        let status = self.child.wait().expect("the process ends");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the thread does not panic");
        }
        (status.code(), self.log(), Arc::clone(&self.directory))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // They may have ended already.
        for child in [Some(&mut self.child), self.worker.as_mut()]
            .into_iter()
            .flatten()
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the URL path of a task of `local`.
pub(crate) fn task_path(task: &str) -> String {
    format!("/api/mlpgateway/account/local/async/task/{task}")
}

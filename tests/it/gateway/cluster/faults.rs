//! Servers whose connections to the database are cut, that are killed and frozen, and whose database restarts: nothing
//! that was accepted is lost, nothing is answered twice, and no limit is passed.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::history::{History, TaskState};
use super::{Cluster, PAST_THE_LEASE, first_output};
use crate::support::cut_proxy::CutProxy;
use crate::support::gateway::Gateway;
use crate::support::http::{self, Reply, Upstream};
use crate::support::postgres::OwnPostgres;
use crate::support::random::{Random, lasting, seed};

const TEST: &str = "faults_lose_and_repeat_nothing";

/// Numbers of servers that answer, and that run tasks.
const API: usize = 3;
const DISPATCHERS: usize = 4;

/// How long there are faults.
const FAULTS_LAST: Duration = Duration::from_secs(35);

/// Longest pause between two kills.
const LONGEST_PAUSE_MS: u64 = 900;

/// Longest time that a client waits for an answer, and that tasks need after the faults.
const PATIENCE: Duration = Duration::from_secs(20);
const LAST_PATIENCE: Duration = Duration::from_mins(1);

/// Limits of every account.
const WAITING: u64 = 30;
const RUNNING: u64 = 3;
const STORED_BYTES: u64 = 300_000;

/// The accounts: two that always have tasks waiting, two with one task at a time, and one that stores what it can.
const ACCOUNTS: [&str; 5] = ["large", "larger", "small", "smaller", "hoarder"];
const SMALL: [usize; 2] = [2, 3];
const HOARDER: usize = 4;

/// The accounts of the clients. Several clients of an account meet at its limit.
const CLIENTS: [usize; 9] = [0, 0, 0, 1, 1, 1, 2, 3, HOARDER];

/// Size of a body of the account that stores what it can.
const HOARDED_BYTES: usize = 20_000;

/// What all clients share.
struct Load {
    keys: Vec<String>,
    servers: Vec<Mutex<SocketAddr>>,
    history: History,
    next: AtomicU64,
    is_over: AtomicBool,
}

/// A client of an account.
struct Client<'l> {
    load: &'l Load,
    account: usize,
    random: Random,
}

impl<'l> Client<'l> {
    fn new(load: &'l Load, account: usize, seed: u64) -> Self {
        Self {
            load,
            account,
            random: Random::new(seed),
        }
    }

    fn path(&self, rest: &str) -> String {
        format!(
            "/api/mlpgateway/account/{}/async/task/{rest}",
            ACCOUNTS[self.account]
        )
    }

    /// Sends a request until a server answers it.
    fn ask(&mut self, (method, path): (&str, &str), idempotency: &str, body: &str) -> Reply {
        let key = &self.load.keys[self.account];
        let mut headers = vec![("MLP-API-KEY", key.as_str())];
        if !idempotency.is_empty() {
            headers.push(("Idempotency-Key", idempotency));
        }
        let since = Instant::now();
        loop {
            let server = self.random.below(API as u64);
            let server = &self.load.servers[usize::try_from(server).expect("small")];
            let address = *server.lock().expect("no panic");
            let request = (method, path, &headers[..], body.as_bytes());
            let reply = http::attempt(address, PATIENCE, request);
            match reply {
                Some(reply) if reply.status != 503 => return reply,
                other => assert!(since.elapsed() < LAST_PATIENCE, "{other:?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Creates a task; `None` if the account stores too much.
    fn create(&mut self, service: &str, body: &str, answer: &Value) -> Option<String> {
        let path = format!("/api/mlpgateway/account/local/model/{service}/async/predict");
        let number = self.load.next.fetch_add(1, Ordering::Relaxed);
        let idempotency = format!("request {number}");
        let times = if self.random.below(4) == 0 { 2 } else { 1 };
        let mut first = None;
        for _ in 0..times {
            let task = loop {
                let reply = self.ask(("POST", &path), &idempotency, body);
                if reply.status == 200 {
                    break reply.json().as_str().expect("an id").to_owned();
                }
                assert_eq!(reply.status, 429, "{service}: {}", reply.text());
                if reply.code() == "STORED_BYTES_LIMIT_EXCEEDED" {
                    assert_eq!(
                        first, None,
                        "a request was refused that was accepted before"
                    );
                    return None;
                }
                assert_eq!(reply.code(), "TOO_MANY_IDLE_ASYNC_TASKS");
                std::thread::sleep(Duration::from_millis(30));
            };
            let history = &self.load.history;
            history.accepted(&task, self.account, &idempotency, answer);
            assert_eq!(*first.get_or_insert_with(|| task.clone()), task);
        }
        first
    }

    /// Creates a task of a random service.
    fn create_any(&mut self) -> String {
        let number = i32::try_from(self.random.below(1000)).expect("small");
        let created = if self.random.below(4) == 0 {
            let zeros = "0".repeat(200);
            let body = format!(r#"{{"inputs": [{{"data": [{number}.{zeros}, 1, 2]}}]}}"#);
            self.create("negate", &body, &json!([-f64::from(number), -1.0, -2.0]))
        } else {
            let body = json!({ "number": number });
            self.create("later", &body.to_string(), &body)
        };
        created.expect("this account stores little")
    }

    /// Reads the state of a task; at its end, its answer, too. Returns whether it ended.
    fn look(&mut self, task: &str, wait_s: u64) -> bool {
        let asked_at = Instant::now();
        let path = self.path(&format!("{task}?wait={wait_s}"));
        let reply = self.ask(("GET", &path), "", "");
        assert_eq!(reply.status, 200, "{task}: {}", reply.text());
        let state = reply.json()["status"].as_str().map(TaskState::read);
        let state = state.expect("a state");
        let history = &self.load.history;
        history.saw(task, state, asked_at);
        if state == TaskState::Completed {
            let path = self.path(&format!("{task}/response"));
            let reply = self.ask(("GET", &path), "", "");
            assert_eq!(reply.status, 200, "{task}: {}", reply.text());
            let mut answer = reply.json();
            if !answer["outputs"].is_null() {
                answer = json!(first_output(&answer));
            }
            self.load.history.answered(task, answer);
        }
        state >= TaskState::Completed
    }

    /// Creates one task after the other.
    fn one_at_a_time(&mut self) {
        while !self.load.is_over.load(Ordering::SeqCst) {
            let task = self.create_any();
            while !self.look(&task, 5) {}
        }
    }

    /// Creates as many tasks as may wait.
    fn as_many_as_may_wait(&mut self) {
        while !self.load.is_over.load(Ordering::SeqCst) {
            self.create_any();
        }
    }

    /// Creates as many tasks as may be stored, and deletes the oldest one to make room.
    fn as_many_as_may_be_stored(&mut self) {
        let body = json!({ "much": "x".repeat(HOARDED_BYTES) });
        let mut stored = std::collections::VecDeque::new();
        let mut refused = 0;
        while !self.load.is_over.load(Ordering::SeqCst) {
            if let Some(task) = self.create("echo", &body.to_string(), &body) {
                stored.push_back(task);
                continue;
            }
            refused += 1;
            let oldest: String = stored.pop_front().expect("something is stored");
            while !self.look(&oldest, 5) {}
            self.load.history.deleted(&oldest);
            let path = self.path(&oldest);
            let reply = self.ask(("DELETE", &path), "", "");
            // An attempt whose answer was cut off may have deleted it.
            assert!([200, 204, 404].contains(&reply.status), "{}", reply.text());
        }
        assert!(refused > 5, "{refused}");
    }

    /// Looks at tasks that did not end yet.
    fn watch(&mut self) {
        while !self.load.is_over.load(Ordering::SeqCst) {
            let open = self.load.history.open();
            if open.is_empty() {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let which = self.random.below(open.len() as u64);
            let (account, task) = &open[usize::try_from(which).expect("small")];
            if *account != HOARDER {
                self.account = *account;
                self.look(task, 0);
            }
        }
    }
}

/// Calls a function when it is dropped: a failed test must end the threads that it waits for.
struct OnEnd<F: Fn()>(F);

impl<F: Fn()> Drop for OnEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Counts tasks of accounts in the database again and again, and compares them with the limits.
struct Sampler {
    running: Mutex<Option<Child>>,
    is_over: AtomicBool,
}

impl Sampler {
    const SQL: &str = "WITH active AS (
            SELECT caller, count(*) FILTER (WHERE node IS NULL) AS waiting,
                count(*) FILTER (WHERE node IS NULL AND attempt = 0) AS unclaimed,
                count(*) FILTER (WHERE node IS NOT NULL) AS running, sum(bytes) AS bytes
            FROM task_active GROUP BY caller
        ), done AS (
            SELECT caller, count(*) AS tasks, sum(coalesce(answer_size, length(answer), 0)) AS bytes
            FROM task_done GROUP BY caller
        )
        SELECT 'sample', load.waiting, load.running, load.tasks, load.bytes,
            coalesce(active.waiting, 0), coalesce(active.running, 0),
            coalesce(active.waiting + active.running, 0) + coalesce(done.tasks, 0),
            coalesce(active.bytes, 0) + coalesce(done.bytes, 0),
            coalesce(active.unclaimed, 0),
            (SELECT count(*) FROM task_active JOIN task_done USING (id))
        FROM account_load AS load LEFT JOIN active ON active.caller = account
        LEFT JOIN done ON done.caller = account";

    /// Samples until it is stopped. Returns what must not be, and the number of samples.
    fn run(&self, database: &OwnPostgres) -> (Vec<String>, usize) {
        let (mut found, mut count) = (Vec::new(), 0);
        while !self.is_over.load(Ordering::SeqCst) {
            let mut psql = database.psql_session();
            psql.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut psql = psql.stderr(Stdio::null()).spawn().expect("psql runs");
            let mut input = psql.stdin.take().expect("it is piped");
            let output = psql.stdout.take().expect("it is piped");
            let _ = writeln!(input, "{}\n\\watch 0.05", Self::SQL.replace('\n', " "));
            *self.running.lock().expect("no panic") = Some(psql);
            // It ends when the database restarts.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let numbers = line.strip_prefix("sample|").map(|rest| {
                    let numbers = rest.split('|').map(str::parse::<u64>);
                    numbers.collect::<Result<Vec<_>, _>>().expect("numbers")
                });
                let Some(numbers) = numbers else { continue };
                count += 1;
                if !is_within_limits(&numbers) {
                    found.push(line);
                }
            }
            if let Some(mut psql) = self.running.lock().expect("no panic").take() {
                let _ = psql.wait();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        (found, count)
    }

    fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(psql) = self.running.lock().expect("no panic").as_mut() {
            let _ = psql.kill();
        }
    }
}

/// Counts as the servers keep them equal those of the rows, which are within the limits.
fn is_within_limits(numbers: &[u64]) -> bool {
    let [counted, found] = [&numbers[..4], &numbers[4..8]];
    let [waiting, running, _, bytes] = found else {
        return false;
    };
    let &[unclaimed, twice] = &numbers[8..] else {
        return false;
    };
    counted == found
        // Tasks that return to the queue wait beyond the limit.
        && unclaimed <= WAITING
        && *waiting <= WAITING + RUNNING
        && *running <= RUNNING
        && *bytes <= STORED_BYTES
        && twice == 0
}

/// Kills, freezes and restarts until the faults are over.
fn disturb(
    servers: &mut Vec<Gateway>,
    addresses: &[Mutex<SocketAddr>],
    database: &OwnPostgres,
    random: &mut Random,
) {
    let lasting = lasting(FAULTS_LAST);
    let began = Instant::now();
    let mut restarts = vec![("fast", lasting * 2 / 3), ("immediate", lasting / 3)];
    let frozen = API;
    let mut frozen_at = None;
    let (mut freezes_at, mut killed) = (Duration::from_secs(1), [0, 0]);
    let mut slowest = Duration::ZERO;
    while began.elapsed() < lasting || !restarts.is_empty() {
        if frozen_at.is_none() && began.elapsed() > freezes_at {
            servers[frozen].signal("-STOP");
            frozen_at = Some(Instant::now());
            freezes_at = began.elapsed() + FAULTS_LAST;
        }
        if frozen_at.is_some_and(|at| at.elapsed() > PAST_THE_LEASE) {
            servers[frozen].signal("-CONT");
            frozen_at = None;
        }
        if let Some((mode, _)) = restarts.pop_if(|(_, at)| began.elapsed() > *at) {
            database.restart(mode, Duration::from_millis(300));
        }
        let which = usize::try_from(random.below(servers.len() as u64)).expect("small");
        if frozen_at.is_none() || which != frozen {
            let at = Instant::now();
            let restarted = servers.remove(which).kill_and_restart_patiently();
            slowest = slowest.max(at.elapsed());
            if which < API {
                *addresses[which].lock().expect("no panic") = restarted.address;
            }
            servers.insert(which, restarted);
            killed[usize::from(which >= API)] += 1;
        }
        std::thread::sleep(Duration::from_millis(random.below(LONGEST_PAUSE_MS)));
    }
    if frozen_at.is_some() {
        servers[frozen].signal("-CONT");
    }
    crate::support::environment::say(&format!(
        "{TEST}: killed {killed:?}, slowest start {slowest:?}"
    ));
}

/// Starts the servers, and creates the accounts. The services are `negate`, `later` and `echo`.
fn start(cluster: &mut Cluster, upstream: &Upstream) -> Vec<String> {
    let limits = [WAITING, RUNNING, STORED_BYTES].map(|limit| limit.to_string());
    for number in 0..API + DISPATCHERS {
        let role = if number < API { "api" } else { "dispatcher" };
        let variables = [
            ("PKGTOOL_ROLE", role),
            ("PKGTOOL_LIMITS_WAITING", &limits[0]),
            ("PKGTOOL_LIMITS_RUNNING", &limits[1]),
            ("PKGTOOL_LIMITS_STORED_BYTES", &limits[2]),
            // Fewer places than the large accounts can fill.
            ("PKGTOOL_TASKS_RUNNING", "1"),
        ];
        cluster.add_with(&variables, |setup| {
            setup
                .settings("[defaults]\npublic = true")
                .proxy("later", &upstream.url("/later"))
                .proxy("echo", &upstream.url("/echo"))
        });
    }
    let keys = ACCOUNTS.map(|account| {
        cluster.servers[0].account(account, 1_000_000);
        cluster.servers[0].new_key(account, "k", "predict,read,write")
    });
    keys.to_vec()
}

#[test]
fn faults_lose_and_repeat_nothing() {
    let Some(database) = OwnPostgres::start(TEST) else {
        return;
    };
    let seed = seed(TEST);
    let mut random = Random::new(seed);
    let proxy = CutProxy::start(database.socket(), random.number());
    let url = format!(
        "postgres://tests@127.0.0.1:{}/own?sslmode=disable",
        proxy.port()
    );
    let mut cluster = Cluster::of(url);
    let upstream = Upstream::start();
    let load = Load {
        keys: start(&mut cluster, &upstream),
        servers: cluster.servers[..API]
            .iter()
            .map(|server| Mutex::new(server.address))
            .collect(),
        history: History::default(),
        next: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let sampler = Sampler {
        running: Mutex::new(None),
        is_over: AtomicBool::new(false),
    };
    let (passed_limits, looks) = std::thread::scope(|scope| {
        let counting = scope.spawn(|| sampler.run(&database));
        let mut clients = Vec::new();
        for account in CLIENTS {
            let mut client = Client::new(&load, account, random.number());
            clients.push(scope.spawn(move || match account {
                HOARDER => client.as_many_as_may_be_stored(),
                _ if SMALL.contains(&account) => client.one_at_a_time(),
                _ => client.as_many_as_may_wait(),
            }));
        }
        let mut watcher = Client::new(&load, 0, random.number());
        clients.push(scope.spawn(move || watcher.watch()));
        let end = OnEnd(|| {
            load.is_over.store(true, Ordering::SeqCst);
            sampler.stop();
        });
        proxy.cut(true);
        disturb(&mut cluster.servers, &load.servers, &database, &mut random);
        proxy.cut(false);
        load.is_over.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().expect("a client found what must not be");
        }
        finish(&load);
        drop(end);
        counting.join().expect("no panic")
    });
    assert!(passed_limits.is_empty(), "{passed_limits:?}");
    assert!(looks > 100, "{looks} looks");
    assert!(proxy.count() > 50, "{} cuts", proxy.count());
    check(&load.history, &database);
}

/// Waits for the end of all tasks, and reads their answers.
fn finish(load: &Load) {
    let deadline = Instant::now() + LAST_PATIENCE;
    let mut client = Client::new(load, 0, 1);
    for (account, task) in load.history.open() {
        client.account = account;
        while !client.look(&task, 5) {
            assert!(Instant::now() < deadline, "{task} does not end");
        }
    }
    for (account, task) in load.history.kept() {
        client.account = account;
        client.look(&task, 0);
    }
}

/// Checks the history, and compares it with the database.
fn check(history: &History, database: &OwnPostgres) {
    let kept = database.sql("SELECT id, attempt, outcome FROM task_done");
    let mut claims = HashMap::new();
    for line in kept.lines() {
        let [id, attempt, outcome] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        assert_eq!(outcome, "1", "{line}");
        claims.insert(id.to_owned(), attempt.parse().expect("a number"));
    }
    let violations = history.violations(&claims);
    assert!(violations.is_empty(), "{violations:#?}");
    // A task that is stored was accepted: no request became two tasks.
    let mut stored: Vec<&String> = claims.keys().collect();
    let mut known: Vec<String> = history.kept().into_iter().map(|(_, task)| task).collect();
    stored.sort();
    known.sort();
    assert_eq!(stored, known.iter().collect::<Vec<_>>());
    assert_eq!(database.sql("SELECT count(*) FROM task_active"), "0");
    let repeated = claims.values().filter(|claims| **claims > 1).count();
    assert!(repeated > 0, "no task was ever claimed twice");
    let fair = fairness(database);
    let said = format!(
        "{TEST}: {} tasks, {repeated} claimed again, {fair:?} of small accounts",
        history.len()
    );
    crate::support::environment::say(&said);
    let [overtook, waited] = fair;
    assert!(waited >= 5, "{said}");
    assert!(overtook * 5 >= waited * 4, "{said}");
}

/// Of the tasks of small accounts that came when a large account had many waiting: how many overtook half of those, and
/// how many there are.
fn fairness(database: &OwnPostgres) -> [u64; 2] {
    let sql = "WITH small AS (
            SELECT task_done.* FROM task_done JOIN account ON account.id = caller
            WHERE name LIKE 'small%' AND attempt = 1
        ), large AS (
            SELECT task_done.* FROM task_done JOIN account ON account.id = caller WHERE name LIKE 'large%'
        ), counted AS (
            SELECT small.id, count(*) AS before,
                count(*) FILTER (WHERE large.completed_at > small.completed_at) AS overtaken
            FROM small JOIN large ON large.created_at < small.created_at
                AND large.completed_at > small.created_at
            GROUP BY small.id
        )
        SELECT count(*) FILTER (WHERE overtaken * 2 >= before), count(*) FROM counted WHERE before >= 20";
    let found = database.sql(sql);
    let (overtook, waited) = found.split_once('|').expect("two numbers");
    [overtook, waited].map(|number| number.parse().expect("a number"))
}

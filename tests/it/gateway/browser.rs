//! Tests of the console in Chromium, which `tests/clients/browser.py` drives.
//!
//! `BOOK_UPDATE=1` also takes the pictures of the book.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::adapters::script;
use super::examples;
use crate::support::chat_server::ChatServer;
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, Setup};

/// Adds 100,000 copies of the only task, each a second older than the one before.
const COPIES: &str = "
    CREATE TEMP TABLE copy AS SELECT * FROM task;
    CREATE TEMP TABLE number AS
        WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 100000)
        SELECT n FROM number;
    UPDATE copy SET repeat_key = NULL;
    CREATE TEMP TABLE made AS SELECT copy.*, n FROM copy, number;
    UPDATE made SET
        id = unhex(printf('%012x7%03x8%015x', created_at - n * 1000, 0, n)),
        created_at = created_at - n * 1000,
        completed_at = completed_at - n * 1000;
    ALTER TABLE made DROP COLUMN n;
    INSERT INTO task SELECT * FROM made;";

/// Returns the command that runs a scenario; `None` skips the test.
fn scenario(name: &str, gateway: &Gateway) -> Option<Command> {
    let test = format!("the scenario `{name}` of the console");
    let packages = EnvironmentPiece::Playwright.or_skip(&test)?;
    let chromium = EnvironmentPiece::Chromium.or_skip(&test)?;
    let modules = EnvironmentPiece::OpenAiNode.or_skip(&test)?;
    let link = gateway.announced.lines().find_map(|line| {
        let (_, link) = line.split_once("logs in once: ")?;
        Some(link.to_owned())
    });
    let mut command = Command::new("python3");
    command.arg(script("browser.py")).arg(name);
    command.arg("--chromium").arg(chromium);
    command.arg("--axe").arg(axe(&modules));
    command.args(["--link", &link.expect("a link"), "--key", &gateway.key]);
    command.env("PYTHONPATH", packages);
    Some(command)
}

fn axe(modules: &Path) -> PathBuf {
    modules.join("node_modules/axe-core/axe.min.js")
}

/// Runs a scenario, which fails by its status.
#[track_caller]
fn run(mut command: Command, gateway: &Gateway) -> String {
    let ran = command.output().expect("the interpreter runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success(),
        "{said}\n{complained}\n{}",
        gateway.log()
    );
    said
}

/// Runs a scenario, or skips it; returns what it printed.
#[track_caller]
fn drive(name: &str, gateway: &Gateway) -> Option<String> {
    Some(run(scenario(name, gateway)?, gateway))
}

fn with_examples() -> Gateway {
    Setup::new().packages(examples()).start()
}

#[test]
fn a_browser_walks_every_page() {
    let gateway = with_examples();
    let Some(mut command) = scenario("walk", &gateway) else {
        return;
    };
    if std::env::var_os("BOOK_UPDATE").is_some() {
        let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
        command.arg("--pictures").arg(pictures);
    }
    run(command, &gateway);
}

#[test]
fn a_browser_stops_an_answer() {
    let server = ChatServer::start();
    let setup = Setup::new().proxy("chat", &server.url("/service"));
    let gateway = setup.start();
    if drive("stopped", &gateway).is_some() {
        gateway.until(|| server.left() == 2);
    }
}

#[test]
fn a_browser_turns_pages_of_a_hundred_thousand_tasks() {
    let setup = Setup::new().packages(examples().join("hush-sentence"));
    let gateway = setup.start();
    let body = r#"{"inputs":[{"data":[[5,8,13]]}]}"#;
    let task = gateway.create("hush_sentence", body);
    gateway.wait_for(&task, "COMPLETED");
    let gateway = gateway.stop_and_change(|data| {
        let database = rusqlite::Connection::open(data.join("pkgtool.db")).expect("it opens");
        database.execute_batch(COPIES).expect("tasks are added");
    });
    if let Some(said) = drive("many", &gateway) {
        assert!(said.contains("slowest page: "), "{said}");
    }
}

#[test]
fn a_browser_records_a_sound_and_takes_a_picture() {
    let gateway = with_examples();
    drive("devices", &gateway);
}

#[test]
fn a_browser_runs_a_batch() {
    let server = ChatServer::start();
    let setup = Setup::new().proxy("chat", &server.url("/service"));
    let gateway = setup.start();
    gateway.account("acme", 10);
    drive("batch", &gateway);
}

#[test]
fn a_browser_comes_in_by_key_and_link() {
    let gateway = with_examples();
    drive("doors", &gateway);
}

#[test]
fn a_browser_is_sent_out_when_its_login_expires() {
    // Some ten seconds.
    let setup = Setup::new().settings("console.session_days = 0.00012");
    let gateway = setup.packages(examples().join("hush-sentence")).start();
    drive("expired", &gateway);
}

#[test]
fn hostile_texts_stay_texts_in_a_browser() {
    let gateway = with_examples();
    drive("hostile", &gateway);
}

#[test]
fn a_browser_reaches_the_console_behind_a_prefix_and_tls() {
    let gateway = with_examples();
    drive("prefix", &gateway);
}

#[test]
fn a_browser_paints_the_console_at_once() {
    let gateway = with_examples();
    if let Some(said) = drive("paint", &gateway) {
        assert!(said.contains("first paint: "), "{said}");
    }
}

#[test]
fn a_browser_survives_restarts_of_the_server() {
    // The address stays, as it does for an operator.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let setup = Setup::new().listen(&address);
    let mut gateway = setup.packages(examples().join("hush-sentence")).start();
    let Some(mut command) = scenario("restarted", &gateway) else {
        return;
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter runs");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut go = child.stdin.take().expect("it is piped");
    for _ in 0..2 {
        await_line(&mut lines, "stop", &mut child);
        gateway = gateway.stop_and_change(|_| {
            writeln!(go).expect("the script reads");
            await_line(&mut lines, "start", &mut child);
        });
        writeln!(go).expect("the script reads");
    }
    let status = child.wait().expect("the script ends");
    assert!(status.success(), "{}", gateway.log());
}

fn await_line(
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
    expected: &str,
    child: &mut Child,
) {
    let line = lines.next().and_then(Result::ok);
    if line.as_deref() != Some(expected) {
        let status = child.wait();
        panic!("expected `{expected}`, got {line:?}; the script ended: {status:?}");
    }
}

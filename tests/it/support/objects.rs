//! A server of object storage for one test: moto, by `tests/clients/objects.py`. It ends with the test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use pkgtool_serve::objects::{ObjectStorage, ObjectsError};
use serde_json::Value;

use super::environment::EnvironmentPiece;

/// Name of the bucket that every server has.
pub(crate) const BUCKET: &str = "bodies";

/// The bucket and the prefix of a gateway.
pub(crate) const PLACE: &str = "s3://bodies/gateway/one";

/// A running server.
pub(crate) struct ObjectServer {
    endpoint: String,
    /// The key that may do everything.
    all: ObjectKey,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    process: Child,
}

/// A key of the server.
#[derive(Clone)]
pub(crate) struct ObjectKey {
    id: String,
    secret: String,
}

impl ObjectServer {
    /// Starts a server with a bucket; `None` means that the test is skipped, after a message.
    #[track_caller]
    pub(crate) fn start(test: &str) -> Option<Self> {
        let packages = EnvironmentPiece::Moto.or_skip(test)?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/objects.py");
        let mut process = Command::new("python3")
            .arg(script)
            .env("PYTHONPATH", packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Python runs");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut server = Self {
            endpoint: String::new(),
            all: ObjectKey::new("", ""),
            pipes: Mutex::new((input, output)),
            process,
        };
        let started = server.answer();
        started["endpoint"]
            .as_str()
            .expect("an endpoint")
            .clone_into(&mut server.endpoint);
        server.all = ObjectKey::of(&server.ask(&format!("bucket {BUCKET}")));
        Some(server)
    }

    /// Sends a command of the script and returns its answer.
    pub(crate) fn ask(&self, command: &str) -> Value {
        let mut pipes = self.pipes.lock().expect("the lock is not poisoned");
        writeln!(pipes.0, "{command}").expect("the server reads");
        drop(pipes);
        self.answer()
    }

    fn answer(&self) -> Value {
        let mut line = String::new();
        let mut pipes = self.pipes.lock().expect("the lock is not poisoned");
        pipes.1.read_line(&mut line).expect("the server answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Returns the names of the blobs below the prefix of the gateway.
    pub(crate) fn objects(&self) -> Vec<String> {
        let all = self.ask(&format!("keys {BUCKET}"));
        let all = all.as_array().expect("a list").iter();
        let names = all.map(|name| name.as_str().expect("a name"));
        let own = names.map(|name| name.strip_prefix("gateway/one/").expect("the prefix"));
        own.filter(|name| !name.starts_with("probe/") && *name != "owner")
            .map(str::to_owned)
            .collect()
    }

    /// Creates a key that may only do these actions.
    pub(crate) fn key(&self, actions: &str) -> ObjectKey {
        ObjectKey::of(&self.ask(&format!("user {actions}")))
    }

    /// Returns the environment of a gateway with a key.
    pub(crate) fn variables_with(&self, key: &ObjectKey) -> Vec<(String, String)> {
        let variables = [
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", &key.id),
            ("AWS_SECRET_ACCESS_KEY", &key.secret),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    /// Returns the environment of a gateway that may do everything.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        self.variables_with(&self.all)
    }

    /// Connects to the bucket.
    pub(crate) fn storage(&self) -> Result<ObjectStorage, ObjectsError> {
        let url = PLACE.parse().expect("it is one");
        ObjectStorage::new(&url, self.variables().into_iter())
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        // It has no state that it could lose.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl ObjectKey {
    pub(crate) fn new(id: &str, secret: &str) -> Self {
        Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
        }
    }

    fn of(made: &Value) -> Self {
        let text = |name: &str| made[name].as_str().expect("a text");
        Self::new(text("key"), text("secret"))
    }
}

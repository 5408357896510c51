//! Services whose sessions live on devices: their answers, their devices' departures and returns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{TestDevice, binary, processes_with};
use crate::gateway::adapters::batches;
use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::tree::Tree;

/// A service whose package has one backend.
const SERVICE: &str = "hush_sentence";

/// A device on a cable that can be pulled.
struct Plugged {
    tree: Tree,
    device: TestDevice,
}

impl Plugged {
    fn new() -> Self {
        let tree = Tree::new();
        let script = format!(
            "test -e {} || {{ echo 'no cable' >&2; exit 1; }}\nexec sh\n",
            tree.path("plugged").display()
        );
        fs::write(tree.path("cable"), script).expect("a script");
        let on = format!("exec:sh {}", tree.path("cable").display());
        let device = TestDevice::at(on);
        let plugged = Self { tree, device };
        plugged.plug();
        plugged
    }

    fn plug(&self) {
        fs::write(self.tree.path("plugged"), "").expect("a file");
    }

    /// Pulls the cable: no shell is given, and the connections end.
    fn pull(&self) {
        fs::remove_file(self.tree.path("plugged")).expect("it is plugged");
        signal("-KILL", &self.processes());
    }

    /// Returns the ids of the tool's processes on the device.
    fn processes(&self) -> Vec<String> {
        let place = self.device.place().join("bin");
        let place = place.to_str().expect("UTF-8");
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let id = entry.file_name().into_string().ok()?;
            String::from_utf8_lossy(&line).contains(place).then_some(id)
        });
        ids.collect()
    }

    /// Returns whether the device has a worker, beside the agent that places files.
    fn has_worker(&self) -> bool {
        let place = self.device.place().join("bin");
        processes_with(place.to_str().expect("UTF-8")).len() > 1
    }

    /// Returns the settings of the device, with more of them.
    fn settings(&self, more: &str) -> String {
        format!(
            "[[devices]]\nname = \"desk\"\naddress = \"{}\"\ndirectory = \"{}\"\nbinary = \"{}\"\n{more}\n",
            self.device.on,
            self.device.place().display(),
            binary().display()
        )
    }
}

/// Sends a signal to processes.
fn signal(name: &str, processes: &[String]) {
    for process in processes {
        let mut kill = Command::new("kill");
        let kill = kill.args([name, process]).stderr(Stdio::null());
        // It may have ended.
        let _ = kill.status();
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples")
}

fn path(service: &str) -> String {
    format!("/api/mlpgateway/account/local/model/{service}/predict")
}

fn texts() -> String {
    json!({"texts": ["a dog and a cat", ""]}).to_string()
}

/// Returns why the service is inactive, if it is.
fn inactive(gateway: &Gateway) -> Option<String> {
    let path = format!("/api/mlpgateway/account/local/model/{SERVICE}");
    let service = gateway.get(&path).expect(200).json();
    assert_eq!(
        service["isActive"] == true,
        service["inactiveReason"].is_null(),
        "{service}"
    );
    service["inactiveReason"].as_str().map(str::to_owned)
}

fn package() -> PathBuf {
    examples().join("hush-sentence")
}

/// Returns the answer of this machine.
fn answer_here() -> Value {
    let here = Setup::new().packages(package()).start();
    here.post(&path(SERVICE), texts()).expect(200).json()
}

/// Fails unless two answers have the same vectors. Their last bits depend on the texts that share a run.
#[track_caller]
fn expect_alike(found: &Value, wanted: &Value) {
    let vectors = |answer: &Value| -> Vec<f64> {
        let texts = answer["embedded_texts"].as_array().expect("texts").iter();
        let values = texts.flat_map(|it| it["vector"].as_array().expect("a vector"));
        values.map(|it| it.as_f64().expect("a number")).collect()
    };
    let (found, wanted) = (vectors(found), vectors(wanted));
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-5, "{found} is not {wanted}");
    }
}

#[test]
fn a_service_follows_its_device() {
    let wanted = answer_here();
    let plugged = Plugged::new();
    let operators = "[admin]\nlisten = \"127.0.0.1:0\"";
    let setup = Setup::new().settings(&plugged.settings(operators));
    let gateway = setup.packages(package()).start();
    // The first request waits until the device is connected.
    let answers = |gateway: &Gateway| {
        let reply = gateway.post(&path(SERVICE), texts()).expect(200);
        expect_alike(&reply.json(), &wanted);
    };
    answers(&gateway);
    assert!(plugged.has_worker());
    assert_eq!(inactive(&gateway), None);
    gateway
        .post(&path(SERVICE), "{\"texts\": 1}")
        .expect_error(400, "BAD_REQUEST");
    answers(&gateway);
    answers(&gateway);

    plugged.pull();
    gateway.until(|| inactive(&gateway).is_some_and(|reason| reason.contains("no cable")));
    let reason = inactive(&gateway).expect("the cable is pulled");
    assert!(
        reason.starts_with("its device is away: cannot reach desk"),
        "{reason}"
    );
    gateway
        .post(&path(SERVICE), texts())
        .expect_error(400, "NO_ACTIVE_INSTANCES");
    let tasks = [(); 3].map(|()| gateway.create(SERVICE, texts()));
    let canceled = gateway.create(SERVICE, texts());
    gateway
        .post(&format!("{}/cancel", task_path(&canceled)), "")
        .expect(200);
    // A restart finds no device, and the tasks wait.
    let gateway = gateway.kill_and_restart();
    gateway.until(|| inactive(&gateway).is_some_and(|reason| reason.contains("is away")));
    for task in &tasks {
        assert_eq!(gateway.status(task)["status"], "QUEUED");
    }

    plugged.plug();
    for task in &tasks {
        gateway.wait_for(task, "COMPLETED");
        expect_alike(&gateway.result(task).expect(200).json(), &wanted);
    }
    assert_eq!(gateway.status(&canceled)["status"], "CANCELED");
    assert_eq!(inactive(&gateway), None);
    answers(&gateway);
    // The metrics name the device.
    let line = "pkgtool_device_connected{device=\"desk\"} 1";
    let metrics = gateway.metrics();
    assert!(metrics.contains(line), "{metrics}");
    // Nothing stays when the server stops.
    gateway.stop();
    plugged.device.expect_no_process();
}

#[test]
fn a_cable_that_is_pulled_in_the_middle_loses_no_task() {
    let wanted = answer_here();
    let plugged = Plugged::new();
    let setup = Setup::new().settings(&plugged.settings(""));
    let gateway = setup.packages(package()).start();
    let tasks: Vec<String> = (0..40).map(|_| gateway.create(SERVICE, texts())).collect();
    for round in 0..3 {
        gateway.wait_for(&tasks[10 * round], "COMPLETED");
        plugged.pull();
        if round == 1 {
            gateway.until(|| inactive(&gateway).is_some());
        }
        plugged.plug();
    }
    for task in &tasks {
        gateway.wait_for(task, "COMPLETED");
        expect_alike(&gateway.result(task).expect(200).json(), &wanted);
    }
}

#[test]
fn requests_move_to_another_device() {
    let wanted = answer_here();
    let (first, second) = (Plugged::new(), Plugged::new());
    let other = second.settings("").replace("\"desk\"", "\"shelf\"");
    let settings = first.settings(&other) + "[defaults]\ninstances = 2\nbatch_max_size = 1";
    let gateway = Setup::new().settings(&settings).packages(package()).start();
    let answers = |count: usize| {
        let tasks: Vec<String> = (0..count)
            .map(|_| gateway.create(SERVICE, texts()))
            .collect();
        for task in tasks {
            gateway.wait_for(&task, "COMPLETED");
            expect_alike(&gateway.result(&task).expect(200).json(), &wanted);
        }
    };
    let both = |place: &Plugged| place.has_worker();
    gateway.until(|| {
        answers(12);
        both(&first) && both(&second)
    });
    for pulled in [&first, &second, &first] {
        pulled.pull();
        answers(4);
        pulled.plug();
        gateway.until(|| {
            answers(12);
            both(&first) && both(&second)
        });
    }
}

#[test]
fn a_chat_ends_with_its_device_and_the_next_one_is_answered() {
    let plugged = Plugged::new();
    let setup = Setup::new().settings(&plugged.settings(""));
    let gateway = setup.packages(examples().join("jackdaw")).start();
    let chat = json!({"model": "local/jackdaw", "temperature": 0, "max_tokens": 24,
        "messages": [{"role": "user", "content": "hello"}]});
    let ask = || {
        let reply = gateway.post("/api/adapters/compat/chat/completions", chat.to_string());
        (reply.status, reply.text())
    };
    let content = |text: &str| {
        let reply: Value = serde_json::from_str(text).expect("JSON");
        reply["choices"][0]["message"]["content"].clone()
    };
    let (status, first) = ask();
    assert_eq!(status, 200, "{first}");
    for _ in 0..3 {
        // Somebody pulls the cable while it is answered.
        let (status, text) = std::thread::scope(|scope| {
            let asked = scope.spawn(ask);
            plugged.pull();
            plugged.plug();
            asked.join().expect("it ends")
        });
        assert!([200, 503].contains(&status), "{status} {text}");
        gateway.until(|| {
            let (status, text) = ask();
            assert!([200, 503].contains(&status), "{status} {text}");
            status == 200 && content(&text) == content(&first)
        });
    }
}

#[test]
fn a_lost_session_leaves_the_others_of_its_device() {
    let plugged = Plugged::new();
    let gateway = Setup::new()
        .settings(&plugged.settings(""))
        .packages(package())
        .packages(examples().join("kindred"))
        .start();
    gateway.until(|| gateway.log().contains("a device is connected"));
    let ask = |service: &str| {
        gateway.post(&path(service), texts()).expect(200);
    };
    // The processes that a request starts, and all that there are then.
    let started_by = |service: &str, before: &[String]| {
        ask(service);
        let all = plugged.processes();
        let new = all.iter().filter(|it| !before.contains(it)).cloned();
        (new.collect::<Vec<String>>(), all)
    };
    let (lost, before) = started_by(SERVICE, &plugged.processes());
    let (kept, _) = started_by("kindred", &before);
    assert!(!lost.is_empty() && !kept.is_empty(), "{lost:?} {kept:?}");
    signal("-KILL", &lost);
    for _ in 0..3 {
        ask(SERVICE);
        ask("kindred");
    }
    let living = plugged.processes();
    assert!(
        kept.iter().all(|it| living.contains(it)),
        "{kept:?} {living:?}"
    );
    assert!(lost.iter().all(|it| !living.contains(it)));
}

#[test]
fn a_device_that_says_nothing_is_noticed() {
    let wanted = answer_here();
    let plugged = Plugged::new();
    let setup = Setup::new().settings(&plugged.settings(""));
    let gateway = setup.packages(package()).start();
    let answer = gateway.post(&path(SERVICE), texts()).expect(200);
    expect_alike(&answer.json(), &wanted);
    signal("-STOP", &plugged.processes());
    let task = gateway.create(SERVICE, texts());
    gateway.until(|| inactive(&gateway).is_some());
    // The processes that say nothing are left alone, and others are started.
    gateway.wait_for(&task, "COMPLETED");
    expect_alike(&gateway.result(&task).expect(200).json(), &wanted);
    signal("-CONT", &plugged.processes());
    gateway.stop();
    plugged.device.expect_no_process();
}

#[test]
fn a_batch_waits_for_its_device_and_hinders_no_other() {
    let plugged = Plugged::new();
    plugged.pull();
    let more = "[services.kindred]\nrun_on = \"here\"\npublic = true\n[batches]\nrunning = 2";
    let mut gateway = Setup::new()
        .settings(&plugged.settings(more))
        .packages(package())
        .packages(examples().join("kindred"))
        .start();
    let endpoint = "/v1/embeddings";
    let lines = |service: &str, count: usize| -> Vec<String> {
        let body = json!({"model": format!("local/{service}"), "input": "a dog"});
        let ids = (0..count).map(|id| id.to_string());
        ids.map(|id| batches::line(&id, endpoint, &body)).collect()
    };
    let waiting = batches::create(&gateway, &lines(SERVICE, 6), endpoint);
    gateway.until(|| inactive(&gateway).is_some_and(|reason| reason.contains("is away")));
    batches::wait_for(&gateway, &waiting, "in_progress");
    // Longer than a device may be away before requests are refused.
    std::thread::sleep(Duration::from_secs(12));
    let state = batches::wait_for(&gateway, &waiting, "in_progress");
    assert_eq!(state["request_counts"]["failed"], 0, "{state}");
    // Each account has a batch of its own in progress.
    gateway.account("other", 100);
    let other = gateway.new_key("other", "key", "predict");
    let own = std::mem::replace(&mut gateway.key, other);
    let done = batches::create(&gateway, &lines("kindred", 4), endpoint);
    let done = batches::wait_for(&gateway, &done, "completed");
    gateway.key = own;
    assert_eq!(done["request_counts"]["completed"], 4, "{done}");
    plugged.plug();
    let done = batches::wait_for(&gateway, &waiting, "completed");
    assert_eq!(
        done["request_counts"],
        json!({"total": 6, "completed": 6, "failed": 0})
    );
}

#[test]
fn tasks_go_elsewhere_if_the_settings_say_so() {
    let wanted = answer_here();
    let plugged = Plugged::new();
    plugged.pull();
    let elsewhere = "[defaults]\nwithout_device = \"here\"";
    let setup = Setup::new().settings(&plugged.settings(elsewhere));
    let gateway = setup.packages(package()).start();
    let answers = || {
        let task = gateway.create(SERVICE, texts());
        gateway.wait_for(&task, "COMPLETED");
        expect_alike(&gateway.result(&task).expect(200).json(), &wanted);
    };
    answers();
    assert_eq!(plugged.processes(), [""; 0]);
    assert_eq!(inactive(&gateway), None);
    plugged.plug();
    gateway.until(|| {
        answers();
        plugged.has_worker()
    });
    plugged.pull();
    answers();
    answers();
}

#[test]
fn models_are_placed_by_their_backends() {
    let plugged = Plugged::new();
    let settings = plugged.settings("backends = [\"coreml\"]");
    let gateway = Setup::new()
        .settings(&settings)
        .packages(examples())
        .start();
    gateway.until(|| gateway.log().contains("a device is connected"));
    gateway.post(&path(SERVICE), texts()).expect(200);
    assert!(!plugged.has_worker(), "its backend is xnnpack");
    let listed = gateway
        .get("/api/mlpgateway/account/local/model/glimpse")
        .expect(200)
        .json();
    assert_eq!(listed["isActive"], true, "{listed}");
}

#[test]
fn serve_takes_devices_as_arguments() {
    let device = TestDevice::shell();
    let gateway = Setup::new()
        .packages(package())
        .argument("--on")
        .argument(&device.on)
        .argument("--device-dir")
        .argument(device.place().to_str().expect("UTF-8"))
        .argument("--device-binary")
        .argument(binary().to_str().expect("UTF-8"))
        .start();
    gateway.post(&path(SERVICE), texts()).expect(200);
    assert_eq!(device.files().len(), 1, "{:?}", device.files());
}

#[test]
fn wrong_settings_of_devices_are_refused() {
    let ask = |settings: &str| {
        let tree = Tree::new();
        let file = tree.path("gateway.toml");
        fs::write(&file, settings).expect("a file");
        let file = file.to_str().expect("UTF-8").to_owned();
        crate::support::run::pkgtool(["serve", "--print-config", "--config", &file]).run()
    };
    for (settings, message) in [
        ("[[devices]]", "missing field `address`"),
        ("[[devices]]\naddress = \"usb:1\"", "usb:1"),
        (
            "[[devices]]\naddress = \"local\"",
            "`devices[0].address` is local; this machine is always there",
        ),
        (
            "[[devices]]\naddress = \"adb\"\n[[devices]]\naddress = \"adb\"",
            "`devices[1].address` is adb; give each device once",
        ),
        (
            "[[devices]]\naddress = \"adb\"\nname = \"a\"\n[[devices]]\naddress = \"adb:1\"\nname = \"a\"",
            "`devices[1].name` is a; give each device a name of its own",
        ),
        (
            "[[devices]]\naddress = \"adb\"\nbackends = [\"cuda\"]",
            "unknown backend `cuda`: expected xnnpack, coreml, vulkan, qnn, mlx",
        ),
        (
            "[[devices]]\naddress = \"adb\"\nspace_bytes = 0",
            "`devices[0].space_bytes` is 0; it must be at least 1",
        ),
        (
            "[defaults]\nwithout_device = \"cloud\"",
            "unknown variant `cloud`",
        ),
    ] {
        ask(settings).expect_code(2).expect_error(message);
    }
    let printed = ask("[[devices]]\naddress = \"adb:42\"\nbackends = [\"qnn\"]").expect_code(0);
    assert!(
        printed.stdout.contains("address = \"adb:42\""),
        "{}",
        printed.stdout
    );
    assert!(
        printed.stdout.contains("run_on = \"auto\""),
        "{}",
        printed.stdout
    );
}

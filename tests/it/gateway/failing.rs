//! Tests of services whose models fail: their state in lists, the answers to calls, and the
//! messages for people.

use base64::Engine as _;
use serde_json::{Value, json};

use super::{PREFIXES, of_model, package};
use crate::support::gateway::{Gateway, Setup};
use crate::support::onnx;
use crate::support::tree::Tree;

const WORDS: &str = "the model failed on every input that was tried";

/// Returns packages of a model that always fails and of one that runs.
fn packages() -> Tree {
    let methods = json!({"forward": {
        "inputs": [{"shape": [-1, 2], "dtype": "float32"}],
        "outputs": [{"shape": [7], "dtype": "float32"}]
    }});
    let tree = of_model(Tree::new(), "failing", onnx::failing(), &methods);
    package(tree, "negate", "Neg")
}

fn ask(gateway: &Gateway) -> crate::support::http::Reply {
    let body = json!({"inputs": [{"shape": [1, 2], "data": [1, 2]}]}).to_string();
    gateway.post("/p/local/failing", body)
}

fn info(gateway: &Gateway) -> Value {
    let path = format!("{}/account/local/model/failing", PREFIXES[0]);
    gateway.get(&path).expect(200).json()
}

#[test]
fn a_service_that_fails_always_is_inactive_with_the_reason() {
    let tree = packages();
    let gateway = Setup::new().packages(tree.root()).start();
    assert_eq!(info(&gateway)["isActive"], true, "nobody has asked yet");
    assert!(info(&gateway)["inactiveReason"].is_null());
    for _ in 0..5 {
        let told = ask(&gateway).expect_error(400, "NO_ACTIVE_INSTANCES");
        assert!(told.text().contains(WORDS), "{}", told.text());
    }
    let info = info(&gateway);
    assert_eq!(info["isActive"], false);
    let reason = info["inactiveReason"].as_str().expect("a reason");
    assert!(reason.starts_with(WORDS), "{reason}");
    let model = "/api/mlpcore/providers/xnnpack/models/failing";
    let model = gateway.get(model).expect(200).json();
    assert_eq!(model["isActive"], false);
    assert_eq!(model["inactiveReason"], reason);
    assert_eq!(gateway.get("/readyz").expect(200).json()["inactive"], 1);
    gateway.until(|| gateway.whole_log().contains("the service is inactive"));
    let listed = gateway.ask(&["services"]).expect_code(0);
    let line = listed.stdout.lines().find(|line| line.contains("failing"));
    let line = line.unwrap_or_else(|| panic!("{}", listed.stdout));
    assert!(line.contains("inactive") && line.contains(WORDS), "{line}");
    let other = listed.stdout.lines().find(|line| line.contains("negate"));
    assert!(
        other.is_some_and(|line| line.contains("active")),
        "{}",
        listed.stdout
    );
}

#[test]
fn a_service_that_is_warmed_up_is_tried_at_once() {
    let tree = packages();
    let settings = "[services.failing]\nwarm_up = true";
    let gateway = Setup::new()
        .settings(settings)
        .packages(tree.root())
        .start();
    gateway.until(|| info(&gateway)["isActive"] == false);
    let reason = info(&gateway)["inactiveReason"].to_string();
    assert!(reason.contains(WORDS), "{reason}");
}

/// Returns a PNG of the given size, in base64.
fn png(width: u32, height: u32) -> String {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let picture = image::RgbImage::new(width, height);
    picture
        .write_to(&mut bytes, image::ImageFormat::Png)
        .expect("it is written");
    base64::engine::general_purpose::STANDARD.encode(bytes.into_inner())
}

#[test]
fn sides_of_a_picture_that_a_model_cannot_take_are_the_requests_fault() {
    let tensor = json!({"shape": [1, 3, -1, -1], "dtype": "float32"});
    let methods = json!({"forward": {"inputs": [tensor], "outputs": [tensor]}});
    let tree = of_model(Tree::new(), "blocks", onnx::of_blocks(), &methods);
    let gateway = Setup::new().packages(tree.root()).start();
    let ask = |width, height| {
        let body = json!({"image_base64": png(width, height)}).to_string();
        gateway.post("/p/local/blocks", body)
    };
    let rule = "sides must be multiples of 32: expected for example 96×64, got 100×75";
    for _ in 0..2 {
        let told = ask(100, 75).expect_error(400, "BAD_REQUEST").json();
        assert_eq!(told["error"]["message"], rule);
        assert_eq!(told["error"]["args"]["place"], "$.image_base64");
    }
    ask(96, 64).expect(200);
    let body = json!({"inputs": [{"shape": [1, 3, 2, 32], "data": vec![0; 192]}]});
    let told = gateway.post("/p/local/blocks", body.to_string());
    let told = told.expect_error(400, "BAD_REQUEST").json();
    assert_eq!(told["error"]["args"]["place"], "$.inputs[0].shape");
}

//! Tests of pictures that recipes answer: the forms of a request, its values, and the forms of an answer.

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use image::{ImageFormat, Rgb, RgbImage};
use serde_json::json;

use super::examples;
use crate::support::gateway::{Gateway, Setup};

/// Encodes a picture of 60 x 40 pixels.
fn photo() -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let picture = RgbImage::from_fn(60, 40, |x, y| {
        Rgb([x * 4, y * 6, 90].map(|value| u8::try_from(value).expect("a byte")))
    });
    picture
        .write_to(&mut bytes, ImageFormat::Png)
        .expect("written");
    bytes.into_inner()
}

fn start() -> Gateway {
    Setup::new().packages(examples()).start()
}

#[test]
fn bytes_and_base64_have_the_same_typed_answer() {
    let gateway = start();
    let labels = gateway.post("/p/local/glimpse", photo()).expect(200).json();
    assert_eq!(labels["labels"].as_array().expect("a list").len(), 5);
    let sent = json!({"image": BASE64.encode(photo()), "settings": {"top_k": 2}});
    for _ in 0..3 {
        let two = gateway.post("/p/local/glimpse", sent.to_string());
        let two = two.expect(200).json();
        assert_eq!(two["labels"].as_array().expect("a list").len(), 2);
        assert_eq!(two["labels"][0], labels["labels"][0]);
    }
    let classes = gateway
        .post("/p/local/mosaic_nano", photo())
        .expect(200)
        .json();
    assert_eq!(
        (&classes["width"], &classes["height"]),
        (&json!(60), &json!(40))
    );
    let task = gateway.create("glimpse", sent.to_string());
    gateway.wait_for(&task, "COMPLETED");
    let later = gateway.result(&task).expect(200).json();
    assert_eq!(later["labels"][0], labels["labels"][0]);
}

#[test]
fn an_answer_may_be_a_picture() {
    let gateway = start();
    for service in ["mosaic_nano", "watercolor"] {
        for media_type in ["image/png", "image/jpeg"] {
            let sent = json!({"image": BASE64.encode(photo()), "answer": media_type});
            let reply = gateway.post(&format!("/p/local/{service}"), sent.to_string());
            let reply = reply.expect(200);
            assert_eq!(reply.header("content-type"), Some(media_type));
            let drawn = image::load_from_memory(&reply.body).expect("a picture");
            assert_eq!((drawn.width(), drawn.height()), (60, 40), "{service}");
        }
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let gateway = start();
    let image = BASE64.encode(photo());
    for (body, place, part) in [
        (json!({"image": "AAAA"}), "$.image", "PNG"),
        (json!({"image": ""}), "$.image", "PNG"),
        (
            json!({"image": image, "settings": {"top_k": 0}}),
            "$.settings.top_k",
            "expected an integer",
        ),
        (
            json!({"image": image, "settings": {"topk": 1}}),
            "$.settings.topk",
            "unknown value",
        ),
        (
            json!({"image": image, "answer": "image/png"}),
            "$",
            "labels with scores",
        ),
        (
            json!({"image": image, "answer": "text/html"}),
            "$.answer",
            "application/json",
        ),
    ] {
        let told = gateway.post("/p/local/glimpse", body.to_string());
        let told = told.expect_error(400, "BAD_REQUEST").json();
        assert_eq!(told["error"]["args"]["place"], place, "{told}");
        let message = told["error"]["message"].as_str().expect("a text");
        assert!(message.contains(part), "{told}");
    }
    let cut = &photo()[..60];
    let told = gateway.post("/p/local/glimpse", cut);
    told.expect_error(400, "BAD_REQUEST");
    gateway.post("/p/local/glimpse", photo()).expect(200);
}

#[test]
fn the_registry_names_the_recipe_and_its_values() {
    let gateway = start();
    let model = |provider: &str, name: &str| {
        let path = format!("/api/mlpcore/providers/{provider}/models/{name}");
        gateway.get(&path).expect(200).json()["parameters"].clone()
    };
    let entry = |list: &serde_json::Value, name: &str| {
        let mut entries = list.as_array().expect("a list").iter();
        entries.find(|entry| entry["name"] == name).cloned()
    };
    let glimpse = model("xnnpack", "glimpse");
    let recipe = entry(&glimpse["constants"], "recipe").expect("a recipe");
    let about = recipe["value"].as_str().expect("a text");
    assert!(
        about.starts_with("classification: a picture in, labels"),
        "{about}"
    );
    let expected = [
        json!({"type": "integer", "name": "top_k", "min": 1, "max": 1_000_000, "default": 5, "required": false}),
        json!({"type": "number", "name": "mean", "default": 0.0, "required": false}),
        json!({"type": "string", "name": "labels", "required": false}),
    ];
    for variable in expected {
        let name = variable["name"].as_str().expect("a name");
        assert_eq!(entry(&glimpse["variables"], name), Some(variable.clone()));
    }
    let watercolor = model("mlx", "watercolor");
    let keep_size = entry(&watercolor["variables"], "keep_size").expect("a value");
    assert_eq!(
        (&keep_size["type"], &keep_size["default"]),
        (&json!("boolean"), &json!(true))
    );
    assert_eq!(
        entry(&model("xnnpack", "jackdaw")["constants"], "recipe"),
        None
    );
}

#[test]
fn a_services_document_describes_pictures_and_answers() {
    let gateway = start();
    let document = gateway
        .get("/openapi.json?service=mosaic_nano")
        .expect(200)
        .json();
    let base = "/api/mlpgateway/account/{account}/model/{model}";
    let operation =
        |path: &str, verb: &str| document["paths"][format!("{base}{path}")][verb].clone();
    for path in ["/predict", "/async/predict"] {
        let content = operation(path, "post")["requestBody"]["content"].clone();
        let form = &content["multipart/form-data"]["schema"]["properties"];
        assert_eq!(form["keep_size"], json!({"type": "boolean"}), "{path}");
        assert_eq!(form["answer"]["enum"][1], "image/png");
        let whole = &content["application/json"]["schema"]["anyOf"][1];
        assert_eq!(whole["required"], json!(["image"]), "{path}");
    }
    let answers = &operation("/predict", "post")["responses"]["200"]["content"];
    let typed = &answers["application/json"]["schema"]["anyOf"][0];
    assert!(answers["image/jpeg"].is_object());
    let answer = gateway
        .post("/p/local/mosaic_nano", photo())
        .expect(200)
        .json();
    let check = jsonschema::validator_for(typed).expect("a schema");
    assert!(check.is_valid(&answer), "{answer}");
    assert!(!check.is_valid(&json!({"classes": []})));
    let task = &operation("/async/predict", "post")["responses"]["200"]["content"];
    assert!(task["image/png"].is_null(), "{task}");
}

//! Tests of training an image classifier.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{BASE, derived, ended, fit, succeeded, uploaded};
use crate::gateway::examples;
use crate::support::gateway::Setup;
use crate::support::run::pkgtool;

/// Returns a picture of one colour as a PNG in base64; `shade` darkens it.
fn picture(red: u8, blue: u8, shade: u8) -> String {
    let colour = image::Rgb([red.saturating_sub(shade), 20, blue.saturating_sub(shade)]);
    let picture = image::RgbImage::from_pixel(40, 30, colour);
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture
        .write_to(&mut bytes, image::ImageFormat::Png)
        .expect("it is written");
    STANDARD.encode(bytes.into_inner())
}

#[test]
fn pictures_are_learned_as_texts_are() {
    let gateway = Setup::new().packages(examples().join("twin-view")).start();
    let services = gateway.get(&format!("{BASE}/model")).expect(200).json();
    let name = services[0]["modelName"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert_eq!(services[0]["fittable"], true);
    let row = |content: String, label: &str| {
        json!({"image_base64": content, "label": label}).to_string() + "\n"
    };
    let mut text = String::new();
    for shade in 0..20 {
        text += &row(picture(250, 10, shade * 4), "red");
        text += &row(picture(10, 250, shade * 4), "blue");
    }
    let dataset = uploaded(&gateway, "colours.jsonl", &text);
    derived(&gateway, &name, "colours");
    let number = fit(&gateway, "colours", dataset, &json!({"l2": 0.001}));
    let job = succeeded(&gateway, number);
    assert_eq!(
        job["metrics"]["validation"]["accuracy"],
        json!(1.0),
        "{job}"
    );
    let predict = format!("{BASE}/model/colours/predict");
    for (red, blue, label) in [(240, 0, "red"), (0, 240, "blue"), (200, 20, "red")] {
        let body = json!({"image_base64": picture(red, blue, 1)}).to_string();
        let answer = gateway.post(&predict, body).expect(200).json();
        assert_eq!(answer["labels"][0]["label"], label, "{answer}");
    }
    // The command says the same about a file.
    let trained = gateway.data().join("trained/1/colours");
    let (photo, trained) = (trained.join("photo.png"), trained.to_string_lossy());
    std::fs::write(&photo, STANDARD.decode(picture(240, 0, 1)).expect("base64")).expect("written");
    let photo = photo.to_string_lossy();
    let said = pkgtool(["run", &trained, &photo, "--json"])
        .run()
        .expect_code(0);
    assert_eq!(said.json()["answer"]["labels"][0]["label"], "red");
    for (given, words) in [
        (["a red car", "--json"], "no such picture"),
        (["--text", "red"], "takes a picture, not texts"),
    ] {
        let arguments = ["run", &trained].into_iter().chain(given);
        let said = pkgtool(arguments).run();
        assert!(
            said.code != 0 && said.stderr.contains(words),
            "{}",
            said.stderr
        );
    }
    let refused = gateway
        .post(&predict, json!({"texts": ["red"]}).to_string())
        .expect(400);
    assert!(
        refused.text().contains("image_base64"),
        "{}",
        refused.text()
    );
    // An invalid picture is reported with its line.
    let broken = format!("{text}{}", row(STANDARD.encode(b"no picture"), "red"));
    let dataset = uploaded(&gateway, "broken.jsonl", broken);
    let number = fit(&gateway, "colours", dataset, &json!({}));
    let failed = ended(&gateway, number);
    let message = failed["errorMessage"].as_str().expect("a text");
    assert!(message.starts_with("line 41: "), "{message}");
    // The same package embeds texts, so it can be trained on them too.
    let dataset = uploaded(&gateway, "texts.csv", super::scenes());
    derived(&gateway, &name, "scenes");
    let number = fit(&gateway, "scenes", dataset, &json!({}));
    succeeded(&gateway, number);
    assert_eq!(super::labels(&gateway, "scenes", &["a dog"]).len(), 1);
}

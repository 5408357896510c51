//! TensorFlow Lite files written by TensorFlow's converter (`convert.py`), compared with the
//! reports of its interpreter.

use std::fs;

use pkgtool_model::ModelValue;
use serde_json::{Map, Value as Json, json};

use super::{bytes, inspect};
use pkgtool_testing::fixture;

#[test]
fn converted_files_say_what_the_interpreter_says() {
    let text = fs::read_to_string(fixture("formats/converted.json")).expect("a fixture");
    let expected: Map<String, Json> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(expected.len(), 2);
    for (name, signatures) in expected {
        let info = inspect("tflite", &bytes(&name)).expect("the input is valid");
        let signatures = signatures.as_object().expect("an object");
        assert_eq!(info.methods.len(), signatures.len(), "{name}");
        for method in &info.methods {
            let found = json!({ "inputs": described(&method.inputs), "outputs": described(&method.outputs) });
            assert_eq!(found, signatures[&method.name], "{name}");
        }
    }
}

fn described(values: &[ModelValue]) -> Json {
    let values = values.iter().map(|value| {
        let tensor = value.tensor().expect("a tensor");
        let described = json!({ "dtype": tensor.element.name(), "shape": tensor.config_shape() });
        (value.name.clone().expect("a name"), described)
    });
    values.collect()
}

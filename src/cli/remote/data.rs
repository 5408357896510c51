//! Request data from the command line: a complete body, or tensors.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::super::exit::Failure;
use pkgtool_engine::tensor::npy;
use pkgtool_serve::client::Predict;

/// Options for the content of a request.
#[derive(Debug, clap::Args)]
pub(super) struct ContentArgs {
    /// Input as NAME=VALUE or VALUE: a JSON array, @FILE.json, or @FILE.npy. Repeat it for further
    /// inputs, in order
    #[arg(long, value_name = "[NAME=]VALUE", conflicts_with = "data")]
    input: Vec<String>,

    /// The whole request body in the service's own format: text, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT|@FILE|-")]
    data: Option<String>,

    /// Predict config: a JSON object such as {"precision":"fp16"}, or @FILE
    #[arg(long, value_name = "JSON", conflicts_with = "config_id")]
    config: Option<String>,

    /// Id of a predict config that the service stores
    #[arg(long, value_name = "ID")]
    config_id: Option<i64>,

    /// Data type of the request
    #[arg(long, value_name = "TYPE")]
    data_type: Option<String>,
}

impl ContentArgs {
    /// Builds the request.
    pub(super) fn request(&self) -> Result<Predict, Failure> {
        let body = match &self.data {
            Some(data) if data == "-" => {
                let mut bytes = Vec::new();
                std::io::stdin()
                    .read_to_end(&mut bytes)
                    .map_err(|error| Failure::Other(format!("standard input: {error}")))?;
                bytes.into()
            }
            Some(data) => text_or_file(data)?,
            None => self.tensors()?,
        };
        let config = self.config.as_deref().map(text_or_file).transpose()?;
        let config = config.map(|bytes| String::from_utf8(bytes.to_vec()));
        let config = config
            .transpose()
            .map_err(|error| Failure::Other(format!("--config: {error}")))?;
        Ok(Predict {
            body,
            config,
            config_id: self.config_id,
            data_type: self.data_type.clone(),
        })
    }

    fn tensors(&self) -> Result<Bytes, Failure> {
        if self.input.is_empty() {
            let message = "nothing to send: give --input for each input, or --data";
            return Err(Failure::Other(message.to_owned()));
        }
        let inputs: Result<Vec<Value>, Failure> =
            self.input.iter().map(|text| input(text)).collect();
        let body = json!({ "inputs": inputs? });
        Ok(body.to_string().into())
    }
}

/// Returns the text, or the content of the file after an `@`.
fn text_or_file(text: &str) -> Result<Bytes, Failure> {
    match text.strip_prefix('@') {
        None => Ok(Bytes::copy_from_slice(text.as_bytes())),
        Some(path) => read(Path::new(path)).map(Bytes::from),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::Other(format!("{}: {error}", path.display())))
}

/// Parses one input of a request.
fn input(text: &str) -> Result<Value, Failure> {
    let is_value = |text: &str| text.starts_with(['[', '@', '-']) || text.parse::<f64>().is_ok();
    let (name, value) = match text.split_once('=') {
        Some((name, value)) if !is_value(text) => (Some(name), value),
        _ => (None, text),
    };
    let mut tensor = match value.strip_prefix('@').map(PathBuf::from) {
        Some(path) if path.extension().is_some_and(|extension| extension == "npy") => {
            from_npy(&path)?
        }
        Some(path) => {
            let bytes = read(&path)?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            from_json(&text, &path.display().to_string())?
        }
        None => from_json(value, value)?,
    };
    if let Some(name) = name {
        tensor.insert("name".to_owned(), name.into());
    }
    Ok(Value::Object(tensor))
}

fn from_json(text: &str, origin: &str) -> Result<Map<String, Value>, Failure> {
    let wrong = |error: serde_json::Error| {
        Failure::Other(format!(
            "--input {origin}: expected a JSON array or number: {error}"
        ))
    };
    let data = serde_json::from_str(text).map_err(wrong)?;
    let mut tensor = Map::new();
    tensor.insert("data".to_owned(), data);
    Ok(tensor)
}

fn from_npy(path: &Path) -> Result<Map<String, Value>, Failure> {
    let fault =
        |error: &dyn std::fmt::Display| Failure::Other(format!("{}: {error}", path.display()));
    let mut file = fs::File::open(path).map_err(|error| fault(&error))?;
    let tensor = npy::read(&mut file).map_err(|error| fault(&error))?;
    let mut fields = Map::new();
    fields.insert("dtype".to_owned(), tensor.dtype().name().into());
    fields.insert("shape".to_owned(), json!(tensor.shape()));
    fields.insert("encoding".to_owned(), "base64".into());
    let data = BASE64_STANDARD.encode(tensor.bytes());
    fields.insert("data".to_owned(), data.into());
    Ok(fields)
}

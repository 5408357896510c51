//! Models within the binary, which run from a temporary file.

use std::io::Write as _;

use tempfile::TempPath;

use super::super::exit::Failure;
use pkgtool_engine::runtime::target::StartRequest;
use pkgtool_engine::tensor::{Signature, Tensor};
use pkgtool_engine::{Carrying, Rounding};
use pkgtool_model::{self as model, Dim};

/// A model as a temporary file, deleted on drop.
pub(super) struct BuiltInModel {
    path: TempPath,
}

impl BuiltInModel {
    /// Writes the model to a file.
    pub(super) fn write(model: &[u8]) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            let directory = std::env::temp_dir();
            Failure::Other(format!(
                "cannot write a model to {}: {error}",
                directory.display()
            ))
        };
        let mut file = tempfile::Builder::new()
            .prefix("pkgtool-model-")
            .suffix(".onnx")
            .tempfile()
            .map_err(failed)?;
        file.write_all(model).map_err(failed)?;
        // The file is closed, so that a worker process can open it on every system.
        Ok(Self {
            path: file.into_temp_path(),
        })
    }

    /// Returns a request to run the model on any engine, and its only input with these values.
    pub(super) fn request(
        &self,
        values: impl IntoIterator<Item = f64>,
    ) -> Result<(StartRequest, Tensor), Failure> {
        let broken = |reason: String| Failure::Other(format!("the built-in model: {reason}"));
        let (info, _) = model::open(&self.path).map_err(|error| broken(error.to_string()))?;
        let signature = Signature::of(&info.methods[0], None);
        let signature = signature.map_err(|error| broken(error.to_string()))?;
        let spec = &signature.inputs[0];
        let sizes = spec.dims.iter().flatten().map(|dim| match dim {
            Dim::Fixed(size) => *size,
            _ => 1,
        });
        let input = Tensor::from_f64(spec.dtype, sizes.collect(), values);
        let input = input.map_err(|error| broken(error.to_string()))?;
        let request = StartRequest {
            model: self.path.to_path_buf(),
            format: info.format,
            signature,
            backend: None,
            engine: None,
            strict: false,
            threads: None,
            observe: true,
            library: None,
            carrying: Carrying::default(),
            rounding: Rounding::default(),
            ort_options: Vec::new(),
            cpu_features: None,
            cores: None,
        };
        Ok((request, input))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MODEL: &[u8] = b"a model";

    /// Any user can place a link in the shared temporary folder.
    #[cfg(unix)]
    #[test]
    fn a_file_is_private_and_goes_through_no_link() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let directory = tempfile::tempdir().expect("a directory");
        let victim = directory.path().join("victim");
        fs::write(&victim, "theirs").expect("a file");
        let name = format!("pkgtool-model-{}.onnx", std::process::id());
        let trap = std::env::temp_dir().join(name);
        symlink(&victim, &trap).expect("a link");
        let model = BuiltInModel::write(MODEL);
        fs::remove_file(&trap).expect("the link is there");
        let model = model.unwrap_or_else(|_| panic!("it cannot be written"));
        assert_eq!(fs::read(&victim).expect("a file"), b"theirs");
        assert_eq!(fs::read(&model.path).expect("a file"), MODEL);
        let mode = fs::metadata(&model.path)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "others may use it: {mode:o}");
    }

    #[test]
    fn a_file_is_another_each_time_and_goes_away() {
        let write =
            || BuiltInModel::write(MODEL).unwrap_or_else(|_| panic!("it cannot be written"));
        let (one, other) = (write(), write());
        assert_ne!(&*one.path, &*other.path);
        let path = one.path.to_path_buf();
        drop(one);
        assert!(!path.exists());
    }
}
